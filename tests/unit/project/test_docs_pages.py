"""Reference pages name what the code has: error conditions, states, counters, positions."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from devtools import errors_page
from kinesis_ds import errors
from kinesis_ds.agent.context import ShardCounters
from kinesis_ds.agent.machine import ShardState
from kinesis_ds.agent.pool import PoolStatistics
from kinesis_ds.plan.offsets import SourceOffset, decode_offset, encode_offset
from kinesis_ds.wire.schema import source_ddl
from kinesis_ds.writer.counters import SinkCounters

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


@pytest.mark.parametrize(
    "error",
    [e for e in errors.KinesisConnectorError.__subclasses__() if e.__module__ == errors.__name__],
    ids=lambda e: e.__name__,
)
def test_every_error_has_its_row(error: type[errors.KinesisConnectorError]) -> None:
    """Under its condition, and among the passing ones only if it can pass."""
    (row,) = [r for r in page("errors.md").splitlines() if r.startswith(f"| `{error.condition}` ")]
    assert f"`{error.__name__}`" in row
    passing = page("errors.md").partition("## They pass by themselves")[2]
    assert (row in passing) == (error.retryable or error is errors.AgentError)


def test_every_text_of_an_error_is_listed() -> None:
    """Whoever changes a text runs `make docs`."""
    text = errors_page.PAGE.read_text()
    assert text == errors_page.page(text), "docs/reference/errors.md is stale: run `make docs`"


def test_the_list_of_texts_has_all_kinds() -> None:
    """Errors with what to do, problems of options, and warnings."""
    section = errors_page.section()
    for said in (
        "\n* The checkpoint belongs to the stream …, and the query reads …. — Use the streams of",
        "\n* give streamName or streamARN (exactly one of them)\n",
        "\n* discovery was held up stream=… error=…\n",
    ):
        assert said in section


def test_nobody_is_told_to_install_a_release_that_does_not_exist() -> None:
    """Pages and texts name a clone, or the package that is missing, until there is a release."""
    root = REFERENCE.parents[1]
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("kinesis_ds/**/*.py")]

    assert len(files) > 100
    for file in files:
        assert not re.search(r"kinesis[-_]ds\[|pip install '?kinesis", file.read_text()), file


def test_every_counter_and_state_is_explained() -> None:
    """What a statistics file holds, its page names."""
    text = page("statistics.md")
    names = {f.name for f in (*fields(PoolStatistics), *fields(ShardCounters))}
    names |= SinkCounters("s", 1, 1).snapshot().keys() | {s.value for s in ShardState}

    assert {n for n in names if f"`{n}`" not in text} == set()


def test_every_column_is_explained() -> None:
    """Of the source, with its type, and of the sink."""
    source, _, sink = page("schema.md").partition("## Sink")

    for name, kind in (column.split() for column in source_ddl(metadata=True).split(", ")):
        assert f"| `{name}` | {kind} |" in source
    for row in (
        "`data` | binary or string",
        "`partitionKey` | string",
        "`explicitHashKey` | string",
    ):
        assert f"| {row} |" in sink


def test_the_offset_that_is_shown_is_one() -> None:
    """Decoded, and written back the same."""
    shown = json.loads(page("offsets.md").partition("```json\n")[2].partition("```")[0])
    offset = decode_offset(shown)

    assert isinstance(offset, SourceOffset)
    assert encode_offset(offset) == shown
    assert len(next(iter(offset.streams.values())).shards) == 4
