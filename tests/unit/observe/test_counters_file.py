"""Counters on disk: whole files, once a second, and never a reason to fail."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.observe import counters_file
from kinesis_ds.observe.counters_file import StatisticsFile
from tests.support.polling import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_file, "_INTERVAL_S", 0.005)


def read(directory: Path, name: str = "source") -> dict[str, Any]:
    found = json.loads((directory / f"{name}-{os.getpid()}.json").read_text())
    assert isinstance(found, dict)
    return found


def test_counters_are_written_again_and_again(tmp_path: Path) -> None:
    """The file shows the state of a moment ago, with time and process."""
    counts = {"records": 1}
    file = StatisticsFile(str(tmp_path / "new" / "directory"), "source", lambda: counts)
    directory = tmp_path / "new" / "directory"
    eventually(lambda: list(directory.glob("*.json")), "the first file")
    counts["records"] = 2
    eventually(lambda: read(directory)["records"] == 2, "the second state")
    file.close()

    assert read(directory)["pid"] == os.getpid()
    assert read(directory)["at"] > 1_700_000_000


def test_the_last_word_is_written_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened since the last second is in the file when the process ends."""
    monkeypatch.setattr(counters_file, "_INTERVAL_S", 3600)
    file = StatisticsFile(str(tmp_path), "sink", lambda: {"records": 7})
    file.close()

    assert read(tmp_path, "sink")["records"] == 7
    file.close()


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Each version replaces the one before in one step, and no scratch file is left."""
    file = StatisticsFile(str(tmp_path), "source", lambda: {"text": "x" * 100_000})
    eventually(lambda: list(tmp_path.glob("*.json")), "the first file")
    for _ in range(200):
        assert len(read(tmp_path)["text"]) == 100_000
    file.close()

    assert [p.suffix for p in tmp_path.iterdir()] == [".json"]


def test_flush_writes_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state worth keeping is on disk when flush returns."""
    monkeypatch.setattr(counters_file, "_INTERVAL_S", 3600)
    file = StatisticsFile(str(tmp_path), "source", lambda: {"records": 3})
    file.flush()

    assert read(tmp_path)["records"] == 3
    file.close()


def test_a_directory_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The query goes on, and its log is not filled."""
    (tmp_path / "taken").write_text("a file")
    calls = []
    with caplog.at_level(logging.WARNING):
        file = StatisticsFile(str(tmp_path / "taken"), "source", lambda: calls.append(1) or {})  # type: ignore[func-returns-value]
        for _ in range(3):
            file.flush()
        file.close()

    assert len([r for r in caplog.records if "statistics cannot be written" in r.message]) == 1


@pytest.mark.parametrize(
    "error", [RuntimeError("dictionary changed size during iteration"), KeyError("x")]
)
def test_counters_that_cannot_be_read_do_not_end_the_writing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """One bad moment is skipped; the next one is written."""
    failing = [error] * 3

    def statistics() -> dict[str, int]:
        if failing:
            raise failing.pop()
        return {"records": 1}

    with caplog.at_level(logging.WARNING):
        file = StatisticsFile(str(tmp_path), "source", statistics)
        eventually(lambda: list(tmp_path.glob("*.json")), "a good moment")
        file.close()

    assert read(tmp_path)["records"] == 1
    assert len(caplog.records) == 1


def test_values_that_are_no_json_cost_a_warning_and_leave_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file of the last good moment stays whole."""
    values: list[object] = [1]
    file = StatisticsFile(str(tmp_path), "source", lambda: {"value": values[0]})
    file.flush()
    values[0] = object()
    with caplog.at_level(logging.WARNING):
        file.flush()
        file.close()

    assert read(tmp_path)["value"] == 1
    assert "cannot be written" in caplog.text
