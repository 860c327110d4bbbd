"""Find the option that each name given by the user means, and parse its value. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import shown
from kinesis_ds.options.foreign import IGNORED, REFUSED
from kinesis_ds.options.table import FROM_SPARK, OPTIONS, WEAK_REGION_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.options.option import Kind, Mode, Option

# By the name in lower case, as Spark passes it on. Messages use the name as our tables have it.
_BY_NAME = {
    name.lower(): (name, option, parse)
    for option in OPTIONS
    for name, parse in option.parsers.items()
}
_IGNORED = {name.lower(): (name, why) for names, why in IGNORED.items() for name in names}
_REFUSED = {name.lower(): (name, why) for names, why in REFUSED.items() for name in names}
# To look for similar names takes time, so only so many unknown names get a hint, and no long one.
_MAX_HINTS = 20
_MAX_KEY = 60
# The name of our format as a table's provider.
_PROVIDER = "kinesis"
_OF_TABLE = "option."


@dataclass(frozen=True)
class GivenValue:
    """One value that the user gave.

    Attributes:
        name: The name under which it was given, spelled as in our tables.
        text: The value as text.
        parse: The parser for values under this name.
    """

    name: str
    text: str
    parse: Callable[[str], Any]

    @property
    def is_lenient(self) -> bool:
        """True if the name comes from connectors that ignore options a query has no use for."""
        return self.name.lower().startswith("kinesis.")

    @property
    def is_weak(self) -> bool:
        """True if the region under this name is only used where nothing else gives one."""
        return self.name.lower() in WEAK_REGION_NAMES


class GivenOptions:
    """The options that the user gave to one query, by option.

    Args:
        raw: The options as Spark passes them on, with names in any case.
        mode: Whether the query reads or writes.
        kind: How Spark runs a read; None if that is not known, or for a sink.

    Attributes:
        given: The values given for each option key. A region may have several.
        values: The parsed value of each option key. It is None if the option was not given and has
            no default, or if it is malformed.
        problems: What is wrong with single options, in words for the user.
        without_effect: The name of each option without effect on this query, and the reason.
    """

    def __init__(self, raw: Mapping[str, str], mode: Mode, kind: Kind | None) -> None:
        self.given: dict[str, list[GivenValue]] = {}
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.without_effect: dict[str, str] = {}
        for name, text in _without_table(raw).items():
            self._take(name, text, mode)
        for option in OPTIONS:
            self.values[option.key] = None
            if mode in option.modes:
                self.values[option.key] = self._value(option, kind)

    def _take(self, name: str, text: str, mode: Mode) -> None:
        key = name.lower()
        if key in FROM_SPARK:
            return
        if key in _REFUSED:
            name, why = _REFUSED[key]
            self.problems.append(f"{name} cannot be honoured here: {why}")
        elif key in _IGNORED:
            name, why = _IGNORED[key]
            self.without_effect[name] = why
        elif key not in _BY_NAME:
            self.problems.append(_unknown(name, mode, hint=len(self.problems) < _MAX_HINTS))
        else:
            name, option, parse = _BY_NAME[key]
            given = GivenValue(name, text, parse)
            if mode in option.modes:
                self.given.setdefault(option.key, []).append(given)
                return
            other = "reading" if mode == "write" else "writing"
            if given.is_lenient:
                self.without_effect[name] = f"an option of {other}"
            else:
                self.problems.append(f"{option.key} is an option of {other} only")

    def _value(self, option: Option, kind: Kind | None) -> Any:
        given = self.given.get(option.key, [])
        if not given:
            text = option.batch_default if kind == "batch" else None
            text = text or option.default
            return None if text is None else option.parse(text)
        found = []
        for one in given:
            try:
                found.append((one, one.parse(one.text)))
            except ValueError as exc:
                # An endpoint that contains a password is refused, and must not be shown.
                hidden = option.secret or "@" in one.text
                value = "(hidden)" if hidden else shown(one.text)
                self.problems.append(f"{option.key} is {value}, expected {exc}")
        if not found:
            return None
        if option.key == "region":
            found.sort(key=lambda pair: pair[0].is_weak)
            self.given["region"] = [one for one, _ in found]
            found = [pair for pair in found if pair[0].is_weak == found[0][0].is_weak]
        first, value = found[0]
        others = [one.name for one, other in found[1:] if other != value]
        if others:
            self.problems.append(
                f"{', '.join(others)} and {first.name} both set {option.key}; give one"
            )
        return value

    def without_effect_texts(self) -> tuple[str, ...]:
        """Return the options without effect, each with the reason."""
        return tuple(f"{name} ({why})" for name, why in self.without_effect.items())

    def name_of(self, key: str) -> str:
        """Return the name under which an option was given, else its key."""
        return self.given[key][0].name if key in self.given else key


def _without_table(raw: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options that the user gave, of what Spark passes on when a table is created.

    ``CREATE TABLE ... USING kinesis`` passes on the properties of the table too (``provider``,
    ``owner``, ``comment``, all of ``TBLPROPERTIES``), and each option once more as
    ``option.<name>``.
    """
    if not any(
        name.lower() == "provider" and text.lower() == _PROVIDER for name, text in raw.items()
    ):
        return raw
    return {
        name[len(_OF_TABLE) :]: text
        for name, text in raw.items()
        if name.lower().startswith(_OF_TABLE)
    }


def _unknown(name: str, mode: Mode, *, hint: bool) -> str:
    near = []
    if hint and len(name) <= _MAX_KEY:
        known = {n.lower(): n for o in OPTIONS if mode in o.modes for n in o.parsers}
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"unknown option {shown(name)}" + (f"; did you mean {known[near[0]]}?" if near else "")
