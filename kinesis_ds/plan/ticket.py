"""A read task's request to an agent, and the agent's address. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kinesis_ds.codecs import JSONDecodeError, dumps, loads
from kinesis_ds.errors import AgentError, shown
from kinesis_ds.plan.position import Position, parse_position

PROTOCOL_VERSION = 1


@dataclass(frozen=True)
class AgentAddress:
    """The address of an agent that serves ranges. ``repr`` does not show the token.

    Attributes:
        uri: Arrow Flight location: ``grpc://host:port``, or ``grpc+tls://host:port``.
        token: Proves to the agent that the task may ask it.
        root_certs: With TLS, the only authority to trust, as PEM; else empty.
    """

    uri: str
    token: str = field(repr=False)
    root_certs: str = field(default="", repr=False)


def encode_ticket(shard_id: str, start: Position, end: Position) -> bytes:
    """Return the request for the range ``(start, end]`` of a shard."""
    return dumps({"v": PROTOCOL_VERSION, "shard": shard_id, "start": str(start), "end": str(end)})


def decode_ticket(raw: bytes) -> tuple[str, Position, Position]:
    """Return shard id, start and end of a request.

    Raises:
        AgentError: It is not a request of this protocol version.
        OffsetError: A position is malformed.
    """
    try:
        ticket = loads(raw)
        version, shard_id = ticket["v"], ticket["shard"]
        if type(version) is not int or version != PROTOCOL_VERSION:
            raise AgentError(
                f"The agent speaks protocol {PROTOCOL_VERSION}, the task {shown(version)}."
            )
        if not isinstance(shard_id, str):
            raise TypeError("a shard that is no text")
        return shard_id, parse_position(ticket["start"]), parse_position(ticket["end"])
    except (JSONDecodeError, KeyError, TypeError) as exc:
        raise AgentError("The request to the agent is malformed.") from exc
