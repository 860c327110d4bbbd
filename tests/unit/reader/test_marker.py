"""The file by which the next start tells that a source's process was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.reader import marker
from kinesis_ds.reader.marker import RunMarker

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = ("http://127.0.0.1:1", "arn", "consumer")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"kinesis_ds-{os.getuid()}"


def kill_one() -> None:
    """Run a source in a process that is killed."""
    program = (
        "import os; from kinesis_ds.reader.marker import RunMarker; "
        f"m = RunMarker({SOURCE!r}, 'stream orders'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -9


def test_who_was_killed_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what the kernel says of the memory; whoever stops in good order leaves nothing."""
    counters = folder.parent / "vmstat"
    counters.write_text("nr_free_pages 1\noom_kill 3\n")
    monkeypatch.setattr(marker, "_KERNEL_COUNTERS", counters)
    kill_one()
    (left,) = folder.glob("*.json")
    left.write_text(json.dumps({**json.loads(left.read_text()), "killed": 1}))

    again = RunMarker(SOURCE, "stream orders")
    (told,) = caplog.messages
    assert "the process that read stream orders before (pid " in told
    assert "for lack of memory since then: 2." in told
    again.close()
    again.close()
    assert list(folder.glob("*.json")) == []
    RunMarker(SOURCE, "stream orders").close()
    assert len(caplog.messages) == 1


def test_who_still_lives_is_not_told_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two queries with one consumer: the second one keeps no file, and leaves the first one's."""
    first = RunMarker(SOURCE, "stream orders")
    second = RunMarker(SOURCE, "stream orders")
    second.close()
    assert len(list(folder.glob("*.json"))) == 1
    other = RunMarker((*SOURCE, "more"), "stream returns")
    other.close()
    first.close()
    assert caplog.messages == []


@pytest.mark.parametrize("left", [b"{", b"[]", b'{"pid": 1}', b'{"pid": 1, "at": "x"}'])
def test_a_damaged_file_says_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture, left: bytes
) -> None:
    """It was cut off in the middle."""
    killed = RunMarker(SOURCE, "stream orders")
    assert killed._file is not None
    os.close(killed._file)
    (path,) = folder.glob("*.json")
    path.write_bytes(left)
    RunMarker(SOURCE, "stream orders").close()
    assert caplog.messages == []


def test_old_files_go(folder: Path) -> None:
    """Those of checkpoints that nobody came back to."""
    folder.mkdir()
    old, young = folder / "a.json", folder / "b.json"
    for path in (old, young):
        path.write_text("{}")
    os.utime(old, (1e9, 1e9))
    RunMarker(SOURCE, "stream orders").close()
    assert list(folder.glob("*.json")) == [young]


def test_without_a_folder_reading_goes_on(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """There is no warning then, and nothing else."""
    folder.write_text("in the way")
    RunMarker(SOURCE, "stream orders").close()
    assert caplog.messages == []
