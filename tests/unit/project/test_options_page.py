"""The options' reference page is what `make docs` writes, so it cannot fall behind the code."""

from __future__ import annotations

from devtools.options_page import PAGE, page
from kinesis_ds.options.foreign import IGNORED, REFUSED
from kinesis_ds.options.table import OPTIONS


def test_the_page_is_up_to_date() -> None:
    """Whoever changes an option runs `make docs`."""
    assert PAGE.read_text() == page(), "docs/reference/options.md is stale: run `make docs`"


def test_every_option_and_alias_has_its_row() -> None:
    """None is left out for being of an unforeseen mode."""
    sections = page().partition("## Options of other connectors")[0]
    rows = [line for line in sections.splitlines() if line.startswith("| `")]

    assert len(rows) == len(OPTIONS)
    for option in OPTIONS:
        (row,) = [r for r in rows if r.startswith(f"| `{option.key}` ")]
        assert all(f"`{name}`" in row for name in option.parsers)
        assert option.doc in row


def test_what_is_none_here_is_listed_with_what_there_is_instead() -> None:
    """An option of another connector is looked up where the others are."""
    elsewhere = page().partition("## Options of other connectors")[2]
    ignored, _, refused = elsewhere.partition("Refused")

    assert all(f"`{name}`" in ignored for names in IGNORED for name in names)
    assert all(f"`{name}`" in refused for names in REFUSED for name in names)
