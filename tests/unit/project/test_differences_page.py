"""The page of server differences is what `make docs` writes; its table names tests there are."""

from __future__ import annotations

import ast
from pathlib import Path

from devtools.differences_page import PAGE, SERVERS, page
from integration.contract.differences import DIFFERENCES

CONTRACT = Path(__file__).parents[3] / "integration" / "contract"


def test_the_page_is_up_to_date() -> None:
    """Whoever changes the table runs `make docs`."""
    assert PAGE.read_text() == page(), f"docs/reference/{PAGE.name} is stale: run `make docs`"


def test_every_row_is_about_a_server_that_has_its_section() -> None:
    """None is left out for the name of its server."""
    assert {row.server for row in DIFFERENCES} <= SERVERS.keys()


def test_every_test_of_a_row_exists() -> None:
    """A test that was renamed would leave a row that nothing tries."""
    tests = {
        f"{file.stem}::{node.name}"
        for file in CONTRACT.glob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    named = {test.partition("[")[0] for row in DIFFERENCES for test in row.tests}
    assert named <= tests


def test_no_test_has_two_rows_for_one_server() -> None:
    """The second would say why the test fails, and not be seen."""
    pairs = [(row.server, test) for row in DIFFERENCES for test in row.tests]
    assert sorted(pairs) == sorted(set(pairs))
