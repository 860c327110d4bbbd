"""Faults as data: at which call, event, byte or time, and what happens there.

A fault is written down before the run and given to the double, which strikes it at its place. All
of them can be stored as JSON, so that a failing run can be repeated.

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
    """Answer with this error; nothing is done."""

    code: str
    message: str = ""
    status: int = 400


@dataclass(frozen=True)
class AnswerWith:
    """Answer with this body, whatever was asked; nothing is done."""

    body: bytes
    status: int = 200
    content_type: str = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class NoAnswer:
    """Keep the connection and never answer. With ``performed`` the call takes effect first."""

    performed: bool = False


@dataclass(frozen=True)
class Disconnect:
    """Tear the connection instead of answering. With ``performed`` the call takes effect first."""

    performed: bool = False


@dataclass(frozen=True)
class Delay:
    """Answer this many seconds of the clock late. With ``performed`` the call takes effect at
    once.
    """

    seconds: float
    performed: bool = False


@dataclass(frozen=True)
class FailRecords:
    """PutRecords: these entries are not stored and come back with an error code.

    Which: every ``every``-th, counted from ``first`` (0 is the request's first entry), at most
    ``count``.
    """

    code: str = "ProvisionedThroughputExceededException"
    message: str = "Rate exceeded."
    first: int = 0
    every: int = 1
    count: int | None = None

    def strikes(self, records: int) -> list[int]:
        """Positions of the entries that fail, of a request with so many."""
        return list(range(self.first, records, self.every))[: self.count]


@dataclass(frozen=True)
class MiscountResults:
    """PutRecords: all is stored, and the answer has this many results too many or too few."""

    by: int


# --- inside an event stream: `Fault.event` says before, or at, which event ----------------------


@dataclass(frozen=True)
class Stall:
    """Send nothing more and keep the connection: half-open."""


@dataclass(frozen=True)
class Pause:
    """Send nothing for this many seconds of the clock, then go on."""

    seconds: float


@dataclass(frozen=True)
class CloseStream:
    """End the body properly before this event."""


@dataclass(frozen=True)
class Cut:
    """Send the first ``byte`` bytes of this event's frame and tear the connection.

    With ``properly`` the HTTP body ends as if all had been sent.
    """

    byte: int = 0
    properly: bool = False


@dataclass(frozen=True)
class Corrupt:
    """Change the byte at this place of the event's frame (negative: from its end), and go on.

    A place outside of a short frame is the byte at that end of it.
    """

    byte: int = -1


@dataclass(frozen=True)
class Raise:
    """Send this exception instead of the event, and end the stream."""

    code: str
    message: str = ""


@dataclass(frozen=True)
class SendBytes:
    """Send these bytes before the event, for example a frame of an unknown kind."""

    data: bytes


@dataclass(frozen=True)
class Repeat:
    """Send this event so many times more."""

    times: int = 1


@dataclass(frozen=True)
class Alter:
    """Change members of the event: ``put`` some, ``drop`` others."""

    put: Mapping[str, Any] = field(default_factory=dict)
    drop: Sequence[str] = ()


@dataclass(frozen=True)
class Trickle:
    """From this event on, send in pieces of so many bytes."""

    size: int = 1


@dataclass(frozen=True)
class OutliveTakeover:
    """Go on sending events after another subscription has taken over, so many of them."""

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
        operation: To calls of which operation.
        stream, shard, consumer: And only about these, where given (names, not ARNs).
        call: Only at the n-th of those calls, counted from 1 since the fault was given.
        event: At the n-th event of such a subscription, counted from 1; actions inside an event
            stream only.
        after_s: Not before this many seconds of the clock since the fault was given.
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
        return isinstance(self.action, _IN_STREAM)

    def to_json(self) -> dict[str, Any]:
        """As plain values; what is left out has its default."""
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
        """The fault that :meth:`to_json` wrote, or a person.

        Raises:
            ValueError: It is none; says why.
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
    """Faults from a JSON list.

    Raises:
        ValueError: It is no list of faults.
    """
    parsed = orjson.loads(text)
    if not isinstance(parsed, list):
        raise ValueError("faults are a JSON list")  # noqa: TRY004  # of a file, not of a caller
    return [Fault.from_json(raw) for raw in parsed]


def dump_faults(faults: Sequence[Fault]) -> str:
    """Faults as a JSON list, readable."""
    return orjson.dumps([f.to_json() for f in faults], option=orjson.OPT_INDENT_2).decode()


@dataclass(frozen=True)
class Target:
    """What a call is about."""

    operation: str
    stream: str | None = None
    shard: str | None = None
    consumer: str | None = None


class _Loaded:
    """A fault in the script, and how often its place was passed."""

    def __init__(self, fault: Fault, now: float) -> None:
        self.fault = fault
        self.since = now
        self.calls = 0
        self.struck = 0

    def concerns(self, target: Target) -> bool:
        fault = self.fault
        return fault.operation == target.operation and all(
            wanted is None or wanted == given
            for wanted, given in (
                (fault.stream, target.stream),
                (fault.shard, target.shard),
                (fault.consumer, target.consumer),
            )
        )

    @property
    def spent(self) -> bool:
        return self.fault.times is not None and self.struck >= self.fault.times


class FaultScript:
    """The faults still to come. Pure: the caller says what happens and when."""

    def __init__(self) -> None:
        self._loaded: list[_Loaded] = []
        self.struck: list[tuple[Fault, Target]] = []

    def add(self, faults: Sequence[Fault], now: float) -> None:
        self._loaded += [_Loaded(fault, now) for fault in faults]

    def clear(self) -> None:
        """Forget those still to come; what they do to open subscriptions ends too."""
        for loaded in self._loaded:
            loaded.struck = loaded.fault.times or 0
        self._loaded.clear()

    def pending(self) -> list[Fault]:
        """Faults that may strike again."""
        return [loaded.fault for loaded in self._loaded if not loaded.spent]

    def on_call(self, target: Target, now: float) -> tuple[list[CallAction], StreamFaults]:
        """What happens to this call itself, and what is to happen in its event stream."""
        actions: list[CallAction] = []
        later: list[_Loaded] = []
        for loaded in self._loaded:
            if not loaded.concerns(target):
                continue
            loaded.calls += 1
            if loaded.spent or loaded.fault.call not in (None, loaded.calls):
                continue
            if loaded.fault.in_stream:
                later.append(loaded)
            elif now - loaded.since >= loaded.fault.after_s:
                loaded.struck += 1
                self.struck.append((loaded.fault, target))
                actions.append(loaded.fault.action)  # type: ignore[arg-type]
        self._loaded = [loaded for loaded in self._loaded if not loaded.spent or loaded in later]
        return actions, StreamFaults(later, target, self.struck)


class StreamFaults:
    """The faults of one subscription."""

    def __init__(
        self, loaded: list[_Loaded], target: Target, struck: list[tuple[Fault, Target]]
    ) -> None:
        self._loaded = loaded
        self._target = target
        self._struck = struck

    def at_event(self, number: int, now: float) -> list[StreamAction]:
        """What happens at the n-th event of this subscription, counted from 1.

        A fault whose time had not come at its event strikes at the first event after that.
        """
        found: list[StreamAction] = []
        for loaded in self._loaded:
            fault = loaded.fault
            due = number == fault.event or (number > fault.event and fault.after_s > 0)
            if due and not loaded.spent and now - loaded.since >= fault.after_s:
                loaded.struck += 1
                self._struck.append((fault, self._target))
                found.append(fault.action)  # type: ignore[arg-type]
        return found
