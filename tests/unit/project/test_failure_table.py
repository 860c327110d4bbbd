"""The table of known failures: a row for each, and every test that it names is there.

F1 to F59 are those of others, O1 and so on those of this connector.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = dict(
    re.findall(
        r"^\| ([FO]\d+) \|(.*)\|$",
        (ROOT / "docs/explanation/failures.md").read_text(),
        re.MULTILINE,
    )
)
NUMBERS = [f"F{n}" for n in range(1, 60)]
OWN = [number for number in ROWS if number.startswith("O")]
_FILE = re.compile(r"`((?:tests|integration|examples)/[\w/]+\.py)`((?:[:,] `test_\w+`)*)")
NAMED = [
    (number, file, test)
    for number, row in ROWS.items()
    for file, tests in _FILE.findall(row)
    for test in re.findall(r"`(\w+)`", tests) or [""]
]


def test_every_failure_has_its_row() -> None:
    """F1 to F59, in order, each once; and then those that were found here."""
    assert list(ROWS) == NUMBERS + OWN


@pytest.mark.parametrize("number", [*NUMBERS, *OWN])
def test_a_row_names_a_test_or_says_why_not(number: str) -> None:
    """A promise without a test is a wish."""
    row = ROWS[number]
    assert any(named == number for named, *_ in NAMED) or "does not apply" in row


@pytest.mark.parametrize(("number", "file", "test"), NAMED)
def test_a_named_test_is_there(number: str, file: str, test: str) -> None:
    """Renamed tests are renamed here too."""
    text = (ROOT / file).read_text()
    assert not test or f"def {test}(" in text, f"{number}: {test} is not in {file}"


def test_every_story_is_in_the_table() -> None:
    """A file of tests/fault that covers no known failure says nothing to a reader of the table."""
    stories = {str(p.relative_to(ROOT)) for p in (ROOT / "tests/fault").rglob("test_*.py")}
    assert stories - {file for _, file, _ in NAMED} == set()
