"""Turn control messages into bytes and received bytes into messages. Pure.

On the wire a message is the length of its body (four bytes, big-endian) and the body: a JSON list
of the message's name and its fields in order. Both ends of every channel use these functions,
whatever carries the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import fields

from kinesis_ds.agent.remote.forms import PLAIN, Form, fields_of
from kinesis_ds.agent.remote.messages import Message
from kinesis_ds.codecs import dumps, loads
from kinesis_ds.errors import AgentError, InternalError, KinesisConnectorError
from kinesis_ds.limits import MIB

LENGTH = struct.Struct(">I")
# Ten thousand shards in one message are some 3 MB.
MAX_MESSAGE_BYTES = 64 * MIB


def encode(message: Message) -> bytes:
    """Return the bytes to send for a message, its length included.

    Raises:
        InternalError: The message is longer than a message may be.
    """
    kind = type(message)
    body = dumps([kind.__name__, *_form_of(kind).to_wire(message)])
    if len(body) > MAX_MESSAGE_BYTES:
        raise InternalError(
            f"A control message {kind.__name__} has {len(body)} bytes.",
            "Please report this.",
        )
    return LENGTH.pack(len(body)) + body


def decode(body: bytes | bytearray) -> Message:
    """Return the message that a body stands for.

    Raises:
        AgentError: The body is not a message.
    """
    try:
        name, *values = loads(body)
        message: Message = _form_of(Message.kinds[name]).from_wire(values)
    except (ValueError, KeyError, TypeError, AttributeError, KinesisConnectorError) as exc:
        # Neither the message nor what is wrong with it: secrets may be in it.
        raise AgentError(f"A malformed control message: {type(exc).__name__}.") from None
    return message


def _form_of(kind: type[Message]) -> Form:
    return fields_of(kind, *(f.metadata.get("form", PLAIN) for f in fields(kind)))


class Deframer:
    """Cuts the bytes of one connection into messages, in whatever pieces the bytes arrive."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete with these bytes, oldest first.

        Raises:
            AgentError: Something is not a message, or claims to be longer than any message. The
                connection is of no use any more.
        """
        received = self._received
        received += data
        while len(received) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(received)
            if size > MAX_MESSAGE_BYTES:
                raise AgentError(f"A control message claims to have {size} bytes.")
            end = LENGTH.size + size
            if len(received) < end:
                return
            body = received[LENGTH.size : end]
            del received[:end]
            yield decode(body)
