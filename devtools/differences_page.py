"""Write `docs/reference/server-differences.md` from the table that the contract suite uses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from integration.contract.differences import DIFFERENCES, Difference

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "server-differences.md"

SERVERS = {
    "double": "Our test kit",
    "localstack": "LocalStack 4.9.2",
    "kinesis-local": "kinesis-local 0.6.2",
    "ministack": "ministack 1.5.33",
}

_HEAD = """\
<!-- Written by `make docs` from integration/contract/differences.py. Change it there. -->

# How local servers differ from Kinesis

`make contract` runs one suite of tests of Kinesis's own behaviour, written from the documentation
of AWS, on each of these servers. What they do otherwise is listed here, all of it: the suite fails
where a server does something else that is not listed, and where a listed difference is no more.
A fault that you see with one of them, and find here, is none that you will see on AWS.

The suite has not been run on AWS. With `KINESIS_DS_CONTRACT_AWS=1` it runs there, too, with the
credentials and the region of your environment; it makes streams named `kinesis-ds-contract-...`,
costs a little, and deletes them.

What needs 24 hours to pass, such as the end of the retention period, is tried on our test kit only,
whose time can be moved. What needs minutes (an iterator that expires, the end of a subscription),
or more than 10 MiB, is tried on the other servers with `-m soak`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_HEAD, *(_section(server) for server in SERVERS)])


def _section(server: str) -> str:
    rows = [row for row in DIFFERENCES if row.server == server]
    if not rows:
        return f"## {SERVERS[server]}\n\nNo difference.\n"
    lines = [
        f"## {SERVERS[server]}",
        "",
        "| Call | Difference | Tests |",
        "|---|---|---|",
        *(_row(row) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _row(row: Difference) -> str:
    name = row.page.removesuffix(".html").rpartition("/")[2].removeprefix("API_")
    what = f"It {row.instead}." + ("" if row.run else " Not run.")
    return f"| [{name}]({row.page}) | {what.replace('|', chr(92) + '|')} | {_tests(row.tests)} |"


def _tests(tests: Iterable[str]) -> str:
    """Return each test once, without its parameters."""
    names = dict.fromkeys(test.partition("[")[0] for test in tests)
    return "<br>".join(f"`{name}`" for name in names)


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
