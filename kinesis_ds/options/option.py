"""One row of the table of options. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Mode = Literal["read", "write"]
Kind = Literal["stream", "batch"]
ConsumerMode = Literal["efo", "polling"]
Transport = Literal["auto", "http1", "http2"]


@dataclass(frozen=True)
class ForeignName:
    """A name that another connector gives an option, with values of a form of its own.

    Attributes:
        name: As it is typed there.
        parse: Reads its values.
        form: What they are, for the reference page.
    """

    name: str
    parse: Callable[[str], Any]
    form: str


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        key: Its name.
        parse: Makes a value of its text, or raises ``ValueError`` with the form expected.
        doc: What it does, for the reference page.
        default: In the form that users type.
        batch_default: The same for batch reads, where it differs.
        aliases: Other names, for values of the same form.
        foreign_names: Other names, for values of another form.
        modes: Whether it is of reading, of writing or of both.
        kind: The one kind of reads that it is of, if it is not of both.
        consumer: The one way to read that it is of, if it is not of both.
        secret: Whether its value must be in no message.
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
        """Every name of the option, with what reads the values given by that name."""
        own = dict.fromkeys((self.key, *self.aliases), self.parse)
        return own | {foreign.name: foreign.parse for foreign in self.foreign_names}
