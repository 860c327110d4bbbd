"""The messages between the coordinator and its agent processes. Pure.

A message is a frozen dataclass; ``framing`` turns it into bytes, ``forms`` its fields into JSON.
Nothing here depends on what carries the bytes: today a socket pair that only parent and child
hold, so that no other process can speak. Any other carrier has to prove who speaks before the
first message.

The protocol belongs to one version of this package, and its first messages say which. In all
messages ``agent`` is the number that the parent gave to one stream's agent; it is the same in all
processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kinesis_ds.agent.remote import forms
from kinesis_ds.errors import AgentError, KinesisConnectorError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_ds.agent.context import AgentOptions
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.held import Limits
    from kinesis_ds.plan.position import Position
    from kinesis_ds.plan.ranges import ShardRange
    from kinesis_ds.plan.shards import Shard

CONTROL_VERSION = 3


@dataclass(frozen=True)
class Message:
    """The base of all messages.

    Attributes:
        kinds: Every message class by its name, which is its name on the wire too.
    """

    kinds: ClassVar[dict[str, type[Message]]] = {}

    def __init_subclass__(cls) -> None:
        Message.kinds[cls.__name__] = cls


# --- from the parent to an agent process --------------------------------------------------------


@dataclass(frozen=True)
class Hello(Message):
    """Begin: the first message to a process.

    Attributes:
        version: The parent's ``CONTROL_VERSION``.
        aws: Where to connect, and as whom.
        buffer_bytes: How many bytes of records this process may buffer.
        max_records: How many records this process may buffer.
        log_level: The lowest level that is logged, as a number of the ``logging`` module.
    """

    version: int
    aws: AwsOptions = field(metadata={"form": forms.AWS})
    buffer_bytes: int
    max_records: int
    log_level: int


@dataclass(frozen=True)
class OpenAgent(Message):
    """Make an agent for a stream. It reads nothing until shards are assigned to it."""

    agent: int
    options: AgentOptions = field(metadata={"form": forms.AGENT_OPTIONS})


@dataclass(frozen=True)
class CloseAgent(Message):
    """Stop reading and serving the shards of an agent, and forget it."""

    agent: int


@dataclass(frozen=True)
class Assign(Message):
    """Start reading a shard.

    Attributes:
        position: Where to start; the first record read lies behind it.
    """

    agent: int
    shard: Shard = field(metadata={"form": forms.SHARD})
    position: Position = field(metadata={"form": forms.POSITION})


@dataclass(frozen=True)
class MarkClosed(Message):
    """Note that ListShards now shows a shard as closed."""

    agent: int
    shard_id: str


@dataclass(frozen=True)
class Free(Message):
    """Free what Spark has committed.

    Attributes:
        positions: By shard id, the position up to which (inclusive) no record is needed any more.
    """

    agent: int
    positions: Mapping[str, Position] = field(metadata={"form": forms.POSITIONS})


@dataclass(frozen=True)
class Diagnosis(Message):
    """Answer a ``Diagnose``.

    Attributes:
        call: The number of the ``Diagnose``.
        error: Why the shard is refused; None when no cause was found.
        raised: True when ``error`` is instead why the cause could not be looked for.
    """

    call: int
    error: KinesisConnectorError | None = field(metadata={"form": forms.OPTIONAL_ERROR})
    raised: bool = False


@dataclass(frozen=True)
class Question(Message):
    """The base of the messages that the process answers. Each class says what the answer is.

    Attributes:
        answer: How the answer is translated for the wire.
        call: Pairs the ``Answer`` with the question. The channel sets it.
    """

    answer: ClassVar[forms.Form] = forms.PLAIN
    call: int


@dataclass(frozen=True)
class Hold(Question):
    """Ask how much is held of each range. Answer: for each range a ``Held``, or None.

    Attributes:
        limits: One for each range; empty when no range has limits.
        planned: True if tasks will fetch what is held, so that it is counted whether they do.
    """

    answer: ClassVar[forms.Form] = forms.HELD
    agent: int
    ranges: tuple[ShardRange, ...] = field(metadata={"form": forms.RANGES})
    limits: tuple[Limits, ...] = field(metadata={"form": forms.LIMITS})
    planned: bool = False


@dataclass(frozen=True)
class Targets(Question):
    """Ask where a reader stops that wants all that arrived before a moment. Answer: by shard id the
    position, for the shards where it is known.

    Attributes:
        until_ms: The moment by the service's clock, in milliseconds since the epoch.
        host_ms: The same moment, or a later one, by this machine's clock.
    """

    answer: ClassVar[forms.Form] = forms.POSITIONS
    agent: int
    until_ms: int
    host_ms: int


@dataclass(frozen=True)
class Statistics(Question):
    """Ask for the counters of the process. Answer: ``pid``, ``pool`` (what all buffers share),
    ``ranges`` (how many planned ranges had which outcome) and ``agents`` (by agent number as text,
    by shard id, the counters).
    """


# --- from an agent process to its parent --------------------------------------------------------


@dataclass(frozen=True)
class Ready(Message):
    """Report that the process can take work: its connection to AWS is set up.

    Attributes:
        version: The process's ``CONTROL_VERSION``.
        pid: Its process id.
    """

    version: int
    pid: int


@dataclass(frozen=True)
class Failed(Message):
    """Report why the process cannot begin. Another process would fail in the same way."""

    error: KinesisConnectorError = field(metadata={"form": forms.ERROR})


@dataclass(frozen=True)
class Opened(Message):
    """Report where tasks fetch the ranges of an agent.

    Attributes:
        uri: Address of the process's Flight server.
        token: The secret that a task has to show there.
        root_certs: With TLS, the authority that a task trusts there, as PEM; else empty.
    """

    agent: int
    uri: str
    token: str = field(repr=False)
    root_certs: str = field(default="", repr=False)


@dataclass(frozen=True)
class Moved(Message):
    """Report up to where shards can be planned now.

    Attributes:
        positions: By shard id, the last position that is received and decoded.
        news: True when records came or a shard ended; False when positions only moved over
            stretches without records.
    """

    agent: int
    positions: Mapping[str, Position] = field(metadata={"form": forms.POSITIONS})
    news: bool = True


@dataclass(frozen=True)
class Changed(Message):
    """Report that a shard broke off or ended, so that shards should be listed again."""

    agent: int


@dataclass(frozen=True)
class Diagnose(Message):
    """Ask the parent why the service refuses a shard; it answers with a ``Diagnosis``.

    Attributes:
        call: Pairs the ``Diagnosis`` with it.
    """

    call: int
    agent: int
    shard_id: str


@dataclass(frozen=True)
class Beat(Message):
    """Show that the process is alive; sent every second.

    Attributes:
        failures: By agent number as text, why one of its shards will deliver nothing more.
        silent: By agent number as text, its shards of which nothing has come for ``SILENT_S``.
    """

    failures: Mapping[str, KinesisConnectorError] = field(metadata={"form": forms.ERRORS})
    silent: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer(Message):
    """Answer a question.

    Attributes:
        call: The number of the question.
        value: The answer in the question's form; None when the agent is not known any more.
        error: Why the question could not be answered; None when it was.
    """

    call: int
    value: Any
    error: KinesisConnectorError | None = field(metadata={"form": forms.OPTIONAL_ERROR})


def check_version(theirs: object) -> None:
    """Refuse another version of the protocol.

    Raises:
        AgentError: ``theirs`` is not ``CONTROL_VERSION``.
    """
    if theirs != CONTROL_VERSION:
        raise AgentError(
            f"The agent process speaks control protocol {shown(theirs)}, the source "
            f"{CONTROL_VERSION}.",
            "Was the package replaced while the query ran? Restart the query.",
        )
