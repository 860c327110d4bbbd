"""Faults as data: what goes wrong, and at which call, event, byte or time. Pure.

A fault is written down before the run and given to the double, which lets it strike at its place.
Faults can be stored as JSON, so that a failing run can be repeated.

    Fault(Cut(byte=20), shard="shardId-000000000001", event=3)
    Fault(FailRecords("InternalFailure", every=2), operation="PutRecords", times=5)
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

# --- instead of the answer, or around it --------------------------------------------------------


@dataclass(frozen=True)
class Refuse:
    """Answer with an error, and do nothing.

    Attributes:
        code: The error's name, for example ``InternalFailure``.
        message: The error's text.
        status: The HTTP status.
    """

    code: str
    message: str = ""
    status: int = 400


@dataclass(frozen=True)
class AnswerWith:
    """Answer with this body, whatever was asked, and do nothing.

    Attributes:
        body: All bytes of the answer's body.
        status: The HTTP status.
        content_type: The header Content-Type.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class NoAnswer:
    """Keep the connection open and never answer.

    Attributes:
        performed: Whether the call takes effect first.
    """

    performed: bool = False


@dataclass(frozen=True)
class Disconnect:
    """Tear the connection instead of answering.

    Attributes:
        performed: Whether the call takes effect first.
    """

    performed: bool = False


@dataclass(frozen=True)
class Delay:
    """Answer late.

    Attributes:
        seconds: How late, in seconds of the double's clock.
        performed: Whether the call takes effect at once; else after the delay.
    """

    seconds: float
    performed: bool = False


@dataclass(frozen=True)
class FailRecords:
    """PutRecords: do not store some entries, and answer each of them with an error code.

    Attributes:
        code: The error code of these entries.
        message: Their error text.
        first: Index of the first entry that fails; 0 is the request's first.
        every: From there on every so many-th entry fails.
        count: How many fail at most; None for no limit.
    """

    code: str = "ProvisionedThroughputExceededException"
    message: str = "Rate exceeded."
    first: int = 0
    every: int = 1
    count: int | None = None

    def strikes(self, records: int) -> list[int]:
        """Return the indexes of the entries that fail in a request with so many records."""
        return list(range(self.first, records, self.every))[: self.count]


@dataclass(frozen=True)
class MiscountResults:
    """PutRecords: store all, and answer with the wrong number of results.

    Attributes:
        by: How many results too many; negative: too few.
    """

    by: int


# --- inside an event stream: `Fault.event` says at, or before, which event ----------------------


@dataclass(frozen=True)
class Stall:
    """Send nothing more, and keep the connection open."""


@dataclass(frozen=True)
class Pause:
    """Send nothing for a while, then go on.

    Attributes:
        seconds: How long, in seconds of the double's clock.
    """

    seconds: float


@dataclass(frozen=True)
class CloseStream:
    """End the body properly before this event."""


@dataclass(frozen=True)
class Cut:
    """Send the beginning of this event's frame and tear the connection.

    Attributes:
        byte: How many bytes of the frame are sent.
        properly: Whether the HTTP body ends as if all had been sent.
    """

    byte: int = 0
    properly: bool = False


@dataclass(frozen=True)
class Corrupt:
    """Change one byte of this event's frame, and go on.

    Attributes:
        byte: Index of the byte; negative counts from the frame's end. If the frame is too short for
            it, the frame's first or last byte is changed.
    """

    byte: int = -1


@dataclass(frozen=True)
class Raise:
    """Send an exception instead of the event, and end the stream.

    Attributes:
        code: The exception's name.
        message: Its text.
    """

    code: str
    message: str = ""


@dataclass(frozen=True)
class SendBytes:
    """Send some bytes before the event, for example a frame of an unknown kind.

    Attributes:
        data: The bytes.
    """

    data: bytes


@dataclass(frozen=True)
class Repeat:
    """Send this event again.

    Attributes:
        times: How many more times.
    """

    times: int = 1


@dataclass(frozen=True)
class Alter:
    """Change members of the event.

    Attributes:
        put: Members to set, with their values.
        drop: Names of members to leave out.
    """

    put: Mapping[str, Any] = field(default_factory=dict)
    drop: Sequence[str] = ()


@dataclass(frozen=True)
class Trickle:
    """Send in small pieces from this event on.

    Attributes:
        size: Bytes of a piece.
    """

    size: int = 1


@dataclass(frozen=True)
class OutliveTakeover:
    """Go on sending events after another subscription has taken over.

    Attributes:
        events: How many more events are sent.
    """

    events: int = 1


CallAction = Refuse | AnswerWith | NoAnswer | Disconnect | Delay | FailRecords | MiscountResults
StreamAction = (
    Stall
    | Pause
    | CloseStream
    | Cut
    | Corrupt
    | Raise
    | SendBytes
    | Repeat
    | Alter
    | Trickle
    | OutliveTakeover
)
Action = CallAction | StreamAction
_ACTIONS: dict[str, type] = {
    kind.__name__: kind for kind in (*CallAction.__args__, *StreamAction.__args__)
}
_IN_STREAM = StreamAction.__args__


@dataclass(frozen=True)
class Fault:
    """What happens, and where.

    Attributes:
        action: What happens.
        operation: It happens to calls of this operation.
        stream, shard, consumer: Where given, only to calls about these (names, not ARNs).
        call: Only to the n-th of those calls, counted from 1 since the fault was added.
        event: For actions inside an event stream: at the n-th event of a subscription, counted
            from 1.
        after_s: Not before so many seconds of the double's clock since the fault was added.
        times: How often it happens; None for always.
    """

    action: Action
    operation: str = "SubscribeToShard"
    stream: str | None = None
    shard: str | None = None
    consumer: str | None = None
    call: int | None = None
    event: int = 1
    after_s: float = 0.0
    times: int | None = 1

    def __post_init__(self) -> None:
        if self.in_stream and self.operation != "SubscribeToShard":
            raise ValueError(
                f"{self.action} happens in subscriptions only, not in {self.operation}"
            )

    @property
    def in_stream(self) -> bool:
        """Whether it happens inside an event stream, not to the call itself."""
        return isinstance(self.action, _IN_STREAM)

    def to_json(self) -> dict[str, Any]:
        """Return the fault as plain values; what has its default is left out."""
        what: dict[str, Any] = {"do": type(self.action).__name__}
        for name, value in dataclasses.asdict(self.action).items():
            what[name] = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        where = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name != "action" and getattr(self, f.name) != f.default
        }
        return {**where, "action": what}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Fault:
        """Return the fault that :meth:`to_json`, or a person, has written.

        Raises:
            ValueError: It is not a fault; the text says why.
        """
        where = dict(raw)
        what = where.pop("action", None)
        if not isinstance(what, Mapping) or what.get("do") not in _ACTIONS:
            raise ValueError(f'a fault needs {{"action": {{"do": one of {", ".join(_ACTIONS)}}}}}')
        kind = _ACTIONS[what["do"]]
        types = {f.name: f.type for f in dataclasses.fields(kind)}
        members = {name: value for name, value in what.items() if name != "do"}
        try:
            for name, value in members.items():
                if types.get(name) == "bytes":
                    members[name] = base64.b64decode(value, validate=True)
            return cls(kind(**members), **where)
        except TypeError as exc:
            raise ValueError(f"{raw}: {exc}") from exc


def load_faults(text: str | bytes) -> list[Fault]:
    """Return the faults of a JSON list.

    Raises:
        ValueError: It is not a list of faults.
    """
    parsed = orjson.loads(text)
    if not isinstance(parsed, list):
        raise ValueError("faults are a JSON list")  # noqa: TRY004  # of a file, not of a caller
    return [Fault.from_json(raw) for raw in parsed]


def dump_faults(faults: Sequence[Fault]) -> str:
    """Return faults as a JSON list, indented for people."""
    return orjson.dumps([f.to_json() for f in faults], option=orjson.OPT_INDENT_2).decode()


@dataclass(frozen=True)
class Target:
    """What a call is about.

    Attributes:
        operation: The name of the API call.
        stream, shard, consumer: Names, as far as the call names them.
    """

    operation: str
    stream: str | None = None
    shard: str | None = None
    consumer: str | None = None
