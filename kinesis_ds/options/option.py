"""The type of one row in the table of options. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What the query does with Kinesis, how Spark runs a read, and how a streaming read reads a shard.
Mode = Literal["read", "write"]
Kind = Literal["stream", "batch"]
ConsumerMode = Literal["efo", "polling"]
Transport = Literal["auto", "http1", "http2"]


@dataclass(frozen=True)
class ForeignName:
    """Another connector's name for an option, if that connector's values have another form.

    Attributes:
        name: The name as users of that connector type it.
        parse: Turns the text of a value into the value; see :class:`Option`.
        form: The form of the values, for the reference page.
    """

    name: str
    parse: Callable[[str], Any]
    form: str


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        key: The name of the option.
        parse: Turns the text of a value into the value, or raises ``ValueError`` with the form that
            it expects.
        doc: What the option does, for the reference page.
        default: The default, as text; None without one.
        batch_default: The default in batch reads, as text, if it is another one.
        aliases: Other names, whose values have the same form.
        foreign_names: Other names, whose values have another form.
        modes: Whether the option is for reading, for writing or for both.
        kind: ``stream`` or ``batch`` if the option is only for such reads; None if for both.
        consumer: The only ``consumerMode`` that the option is for; None if it is for both.
        secret: Whether the value must never be shown.
    """

    key: str
    parse: Callable[[str], Any]
    doc: str
    default: str | None = None
    batch_default: str | None = None
    aliases: tuple[str, ...] = ()
    foreign_names: tuple[ForeignName, ...] = ()
    modes: frozenset[Mode] = field(default_factory=lambda: frozenset({"read", "write"}))
    kind: Kind | None = None
    consumer: ConsumerMode | None = None
    secret: bool = False

    @property
    def parsers(self) -> Mapping[str, Callable[[str], Any]]:
        """Every name of the option, with the parser of values given under that name."""
        own = dict.fromkeys((self.key, *self.aliases), self.parse)
        return own | {foreign.name: foreign.parse for foreign in self.foreign_names}
