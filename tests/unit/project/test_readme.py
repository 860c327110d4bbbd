"""The code that pages show is the code of the examples, which run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def region(example: str, name: str) -> str:
    """What stands between the marks of a region in an example."""
    text = (ROOT / "examples" / example).read_text()
    start, end = f"# --8<-- [start:{name}]\n", f"# --8<-- [end:{name}]\n"
    return text.partition(start)[2].partition(end)[0].rstrip() + "\n"


def blocks(page: str = "README.md") -> list[str]:
    """The Python code blocks of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)


@pytest.mark.parametrize(
    ("position", "example", "name", "most_lines", "rest"),
    [
        # The example waits in more lines, to end quietly at Ctrl-C.
        (0, "read_to_console.py", "read", 12, "query.awaitTermination()\n"),
        (1, "write_events.py", "write", 7, ""),
    ],
)
def test_a_code_block_is_the_region_of_its_example(
    position: int, example: str, name: str, most_lines: int, rest: str
) -> None:
    """Copied by hand, compared here; and short enough for the first screen."""
    code = region(example, name) + rest

    assert blocks()[position] == code
    assert 0 < len(code.splitlines()) <= most_lines
    compile(code, example, "exec")


def test_there_is_no_other_python_in_the_readme() -> None:
    """Code that nothing runs would rot."""
    assert len(blocks()) == 2


def test_the_code_of_test_your_job_is_its_example() -> None:
    """The job and both of its tests."""
    assert blocks("docs/how-to/test-your-job.md") == [
        region("testing/large_orders.py", "job"),
        region("testing/test_large_orders.py", "first"),
        region("testing/test_large_orders.py", "faults"),
    ]
