"""The table of bars says what was met, what was not, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.results import BEGIN, END, bars_table, block, with_block

RESULT: dict[str, Any] = {
    "seconds": 60,
    "machine": {
        "cores": 2,
        "processor": "",
        "system": "Linux x86_64",
        "python": "3.11.7",
        "packages": {"pyarrow": "26.0.1"},
    },
    "bars": [
        {"what": "rate", "wanted": 10, "seen": 12.34, "at_most": False, "met": True},
        {"what": "memory", "wanted": 5, "seen": 6, "at_most": True, "met": False},
    ],
    "output": "a table\n",
    "chart": True,
}


def test_a_bar_that_is_not_met_and_a_benchmark_that_failed_stand_out() -> None:
    """Nothing that is missing looks like something that was met."""
    rows = bars_table({"one": RESULT, "two": None}).splitlines()[2:]

    assert rows == [
        "| rate | at least 10 | 12.3 | met | `one` |",
        "| memory | at most 5 | 6 | **not met** | `one` |",
        "| all of it | | | **failed, or not run** | `two` |",
    ]


def test_the_page_is_changed_between_its_marks_only() -> None:
    """As often as one likes."""
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    text = block({"one": RESULT, "two": None}, "abc", "../results")
    once = with_block(page, text)

    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "old" not in once
    assert "a table" in once
    assert "(../results/one.png)" in once
    assert with_block(once, text) == once


def test_a_page_without_marks_is_not_touched() -> None:
    """It would end up with two blocks of results."""
    with pytest.raises(ValueError, match="has no"):
        with_block("no marks", "text")
