"""The options' reference page is what `make docs` writes, so it cannot fall behind the code."""

from __future__ import annotations

from devtools.options_page import PAGE, page
from kinesis_ds.options import OPTIONS


def test_the_page_is_up_to_date() -> None:
    """Whoever changes an option runs `make docs`."""
    assert PAGE.read_text() == page(), "docs/reference/options.md is stale: run `make docs`"


def test_every_option_and_alias_has_its_row() -> None:
    """None is left out for being of an unforeseen mode."""
    rows = [line for line in page().splitlines() if line.startswith("| `")]

    assert len(rows) == len(OPTIONS)
    for option in OPTIONS:
        (row,) = [r for r in rows if r.startswith(f"| `{option.key}` ")]
        assert all(f"`{alias}`" in row for alias in option.aliases)
        assert option.doc in row
