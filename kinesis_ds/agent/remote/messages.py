"""What coordinator and agent processes say to each other: messages, and their form on the wire.

Pure. A message is a frozen dataclass; on the wire it is a JSON list of its name and its fields in
order, behind its length in four bytes. Nothing in it depends on what carries it: here a socket pair
that only parent and child hold, so that no other process can speak. Whatever carries it elsewhere
has to prove who speaks, before the first message.

The protocol is private to one version of this package, and says so in its first messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from kinesis_ds import errors
from kinesis_ds.agent.settings import AgentOptions
from kinesis_ds.codecs import dumps, loads
from kinesis_ds.errors import AgentError, InternalError, KinesisConnectorError, shown
from kinesis_ds.limits import MIB
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.position import Position, parse_position
from kinesis_ds.plan.ranges import ShardRange
from kinesis_ds.plan.shards import Shard

CONTROL_VERSION = 1
LENGTH = struct.Struct(">I")
# Ten thousand shards in one message are some 3 MB.
MAX_MESSAGE_BYTES = 64 * MIB

Wire = TypeVar("Wire")


@dataclass(frozen=True)
class _Form:
    """How a field looks on the wire."""

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]


def _each(form: _Form) -> _Form:
    return _Form(
        lambda values: [form.to_wire(value) for value in values],
        lambda values: tuple(form.from_wire(value) for value in values),
    )


def _values_of(form: _Form) -> _Form:
    return _Form(
        lambda found: {key: form.to_wire(value) for key, value in found.items()},
        lambda found: {key: form.from_wire(value) for key, value in found.items()},
    )


def _optional(form: _Form) -> _Form:
    return _Form(
        lambda value: None if value is None else form.to_wire(value),
        lambda value: None if value is None else form.from_wire(value),
    )


def _shard_to_wire(shard: Shard) -> list[Any]:
    low, high = shard.hash_range
    # As text: a hash key has 128 bits, and JSON numbers here 64.
    return [
        shard.shard_id,
        shard.parents,
        shard.first_sequence_number,
        shard.closed,
        str(low),
        str(high),
    ]


def _shard_from_wire(raw: list[Any]) -> Shard:
    shard_id, parents, first, closed, low, high = raw
    return Shard(shard_id, tuple(parents), first, closed, (int(low), int(high)))


def _range_from_wire(raw: list[Any]) -> ShardRange:
    shard_id, start, end = raw
    return ShardRange(shard_id, parse_position(start), parse_position(end))


def _error_from_wire(raw: list[Any]) -> KinesisConnectorError:
    kind, message, remedy, code = raw
    found: object = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, KinesisConnectorError)):
        found = InternalError
    error: KinesisConnectorError = found(message, remedy)
    error.code = code
    return error


def _agent_options(raw: Mapping[str, Any]) -> AgentOptions:
    polling = raw["polling"]
    return AgentOptions(
        **{**raw, "polling": None if polling is None else PollingOptions(**polling)}
    )


_POSITION = _Form(str, parse_position)
_SHARD = _Form(_shard_to_wire, _shard_from_wire)
_RANGE = _Form(lambda r: [r.shard_id, str(r.start), str(r.end)], _range_from_wire)
_ERROR = _Form(lambda e: [type(e).__name__, e.message, e.remedy, e.code], _error_from_wire)
# dumps writes dataclasses as what they hold.
_AWS = _Form(lambda value: value, lambda raw: AwsOptions(**raw))
_AGENT_OPTIONS = _Form(lambda value: value, _agent_options)
_LIMITS = _Form(lambda value: value, lambda raw: tuple((rows, size) for rows, size in raw))
_PLAIN = _Form(lambda value: value, lambda raw: raw)


@dataclass(frozen=True)
class Message:
    """Something said over the control connection."""

    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message.kinds[cls.__name__] = cls


# --- to the agent process -----------------------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """The first message.

    Attributes:
        buffer_bytes, max_records: The share of this process in the bounds of the buffers.
        log_level: What is worth a line, as ``logging`` counts it.
    """

    version: int
    aws: AwsOptions = field(metadata={"form": _AWS})
    buffer_bytes: int
    max_records: int
    log_level: int


@dataclass(frozen=True)
class OpenAgent(Message):
    """Be ready for shards of a stream. All that follows names it by ``agent``."""

    agent: int
    options: AgentOptions = field(metadata={"form": _AGENT_OPTIONS})


@dataclass(frozen=True)
class CloseAgent(Message):
    """Read and serve nothing of it any more."""

    agent: int


@dataclass(frozen=True)
class Assign(Message):
    """Start reading a shard."""

    agent: int
    shard: Shard = field(metadata={"form": _SHARD})
    position: Position = field(metadata={"form": _POSITION})


@dataclass(frozen=True)
class MarkClosed(Message):
    """ListShards shows the shard closed."""

    agent: int
    shard_id: str


@dataclass(frozen=True)
class Free(Message):
    """Spark has committed up to there."""

    agent: int
    positions: Mapping[str, Position] = field(metadata={"form": _values_of(_POSITION)})


@dataclass(frozen=True)
class Diagnosis(Message):
    """What was found about a shard that is refused.

    Attributes:
        call: Of the ``Diagnose`` that it answers.
        raised: Whether that is why it could not be found out.
    """

    call: int
    error: KinesisConnectorError | None = field(metadata={"form": _optional(_ERROR)})
    raised: bool = False


@dataclass(frozen=True)
class Question(Message):
    """Something that is answered. ``call`` pairs the answer with it."""

    call: int


@dataclass(frozen=True)
class AnyRecords(Question):
    """Does one of the ranges hold a record?"""

    agent: int
    ranges: tuple[ShardRange, ...] = field(metadata={"form": _each(_RANGE)})


@dataclass(frozen=True)
class Hold(Question):
    """How much is held of each range?"""

    agent: int
    ranges: tuple[ShardRange, ...] = field(metadata={"form": _each(_RANGE)})
    limits: tuple[tuple[int | None, int | None], ...] = field(metadata={"form": _LIMITS})


@dataclass(frozen=True)
class OldestMs(Question):
    """When did the first record of each range arrive?"""

    agent: int
    ranges: tuple[ShardRange, ...] = field(metadata={"form": _each(_RANGE)})


@dataclass(frozen=True)
class First(Question):
    """What is the first record of a range?"""

    agent: int
    wanted: ShardRange = field(metadata={"form": _RANGE})


@dataclass(frozen=True)
class Targets(Question):
    """Where stops who wants what arrived before a moment?"""

    agent: int
    until_ms: int
    host_ms: int


@dataclass(frozen=True)
class Statistics(Question):
    """The counters of all agents of the process, and of what they share?"""


# --- from it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready(Message):
    """The network is up."""

    version: int
    pid: int


@dataclass(frozen=True)
class Failed(Message):
    """It cannot begin, and would not the next time."""

    error: KinesisConnectorError = field(metadata={"form": _ERROR})


@dataclass(frozen=True)
class Opened(Message):
    """Where tasks get the ranges of an agent."""

    agent: int
    uri: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class Moved(Message):
    """Up to where shards can be planned now.

    Attributes:
        news: Whether records came, or a shard ended.
    """

    agent: int
    positions: Mapping[str, Position] = field(metadata={"form": _values_of(_POSITION)})
    news: bool = True


@dataclass(frozen=True)
class Changed(Message):
    """A shard broke or ended."""

    agent: int


@dataclass(frozen=True)
class Diagnose(Message):
    """Why is this shard refused?"""

    call: int
    agent: int
    shard_id: str


@dataclass(frozen=True)
class Beat(Message):
    """Said every second.

    Attributes:
        failures: By agent, as text, why a shard of it will deliver nothing more.
    """

    failures: Mapping[str, KinesisConnectorError] = field(metadata={"form": _values_of(_ERROR)})


@dataclass(frozen=True)
class Answer(Message):
    """To a question; ``error`` where it could not be answered."""

    call: int
    value: Any = field(metadata={"form": _PLAIN})
    error: KinesisConnectorError | None = field(metadata={"form": _optional(_ERROR)})


# --- the wire -----------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """A message as it is sent, with its length.

    Raises:
        InternalError: It is longer than a message may be.
    """
    body = dumps(
        [
            type(message).__name__,
            *(
                f.metadata.get("form", _PLAIN).to_wire(getattr(message, f.name))
                for f in fields(message)
            ),
        ]
    )
    if len(body) > MAX_MESSAGE_BYTES:
        raise InternalError(
            f"A control message {type(message).__name__} has {len(body)} bytes.",
            "Please report this.",
        )
    return LENGTH.pack(len(body)) + body


def length(raw: bytes) -> int:
    """How long the body is behind these four bytes.

    Raises:
        AgentError: Longer than any message is.
    """
    (found,) = LENGTH.unpack(raw)
    if found > MAX_MESSAGE_BYTES:
        raise AgentError(f"A control message claims to have {found} bytes.")
    return int(found)


def decode(body: bytes) -> Message:
    """A message from its body.

    Raises:
        AgentError: It is none.
    """
    try:
        name, *values = loads(body)
        kind = Message.kinds[name]
        forms = [f.metadata.get("form", _PLAIN) for f in fields(kind)]
        decoded = [form.from_wire(value) for form, value in zip(forms, values, strict=True)]
        return kind(*decoded)
    except (ValueError, KeyError, TypeError, AttributeError, KinesisConnectorError) as exc:
        # Neither the message nor what is wrong with it: secrets may be in it.
        raise AgentError(f"A malformed control message: {type(exc).__name__}.") from None


def check_version(theirs: object) -> None:
    """Refuse another version of the protocol.

    Raises:
        AgentError: It is another one.
    """
    if theirs != CONTROL_VERSION:
        raise AgentError(
            f"The agent process speaks control protocol {shown(theirs)}, the source "
            f"{CONTROL_VERSION}.",
            "Was the package replaced while the query ran? Restart the query.",
        )
