"""The comparison with other connectors: no cell of ours without a test, and each is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/comparison.md"
WINDOWS = [f"W{n}" for n in range(1, 12)]

_NAMED = re.compile(r"\[`(\w+)`\]\(([^)]+\.py)\)")


def tables() -> list[list[list[str]]]:
    """Each table as its rows, the header first, each row as its cells."""
    found: list[list[list[str]]] = [[]]
    for line in PAGE.read_text().splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [[table[0], *table[2:]] for table in found if table]


FEATURES, LOSS = tables()[:-1], tables()[-1]
ROWS = [row for table in [*FEATURES, LOSS] for row in table[1:]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_our_cell_says_something_and_names_its_tests(row: list[str]) -> None:
    """Its words without a test would be a wish, and tests without words a riddle."""
    named = _NAMED.findall(row[-1])

    assert named
    assert re.search(r"\w", _NAMED.sub("", row[-1]))
    assert len(named) == row[-1].count("`test_")


@pytest.mark.parametrize(("test", "link"), sorted({n for r in ROWS for n in _NAMED.findall(r[-1])}))
def test_a_named_test_is_there(test: str, link: str) -> None:
    """Renamed tests are renamed here too."""
    file = (PAGE.parent / link).resolve()

    assert file.is_relative_to(ROOT)
    assert re.search(rf"^(async )?def {test}\(", file.read_text(), re.MULTILINE), file


def test_every_table_has_the_same_columns() -> None:
    """Nobody is left out where he would look well."""
    columns = ["", "awslabs", "qubole, roncemer", "Databricks", "kinesis_ds"]
    sinks = ["", "Flink's sink", "KPL", "awslabs, qubole", "kinesis_ds"]
    assert [table[0] for table in FEATURES] == [columns] * (len(FEATURES) - 1) + [sinks]
    assert {len(row) for table in FEATURES for row in table} == {len(columns)}


def test_every_window_of_loss_has_its_row() -> None:
    """W1 to W11, in order, each once."""
    assert LOSS[0] == ["", "There", "Here"]
    assert [row[0] for row in LOSS[1:]] == WINDOWS


def test_every_test_of_a_window_is_in_its_row() -> None:
    """A file of such stories that the page does not name says nothing to its reader."""
    stories = {
        test
        for file in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^def (test_w\d+_\w+)\(", file.read_text(), re.MULTILINE)
    }
    named = {(test, row[0]) for row in LOSS[1:] for test, _ in _NAMED.findall(row[-1])}
    assert stories
    assert {(test, test.split("_")[1].upper()) for test in stories} <= named
