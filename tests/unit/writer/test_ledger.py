"""The account of what the sink has written: what it says stays true, and nothing of it can fail a
query or leave out a batch that is not in the stream.
"""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from kinesis_ds.writer import ledger as ledger_module
from kinesis_ds.writer.ledger import KEEP, Ledger, redacted
from kinesis_ds.writer.ledger_format import (
    VERSION,
    Entry,
    EntryError,
    WrittenBatches,
    decode_entry,
    encode_entry,
)
from kinesis_ds.writer.results import ShardWrites

GOLDEN_FILES = Path(__file__).parents[2] / "golden"
GOLDEN = sorted(GOLDEN_FILES.glob("sink-v*/*.json"))
CURRENT = sorted((GOLDEN_FILES / f"sink-v{VERSION}").glob("*.json"))
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "ledger.md"
QUERY = "66365d36-ac09-48dd-bf00-d92f703b3552"
WRITES = (ShardWrites("orders", "shardId-000000000000", "9", "10", 2, 30),)


def entry(batch_id: int, **changes: Any) -> Entry:
    return replace(Entry(QUERY, batch_id, "stream orders", WRITES), **changes)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "_warned", set())
    monkeypatch.setattr(ledger_module, "_rests_until", {})


class Checkpoint:
    """A query's checkpoint on this disk, as Spark leaves it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "_kinesis_sink"
        (root / "offsets").mkdir(parents=True)

    def begin(self, batch_id: int, text: str = "") -> None:
        """Do what Spark does before a batch runs for the first time."""
        (self.root / "offsets" / str(batch_id)).write_text(text or f"v1\nbatch {batch_id}")

    def ledger(self) -> Ledger:
        opened = Ledger.open(str(self.root))
        assert opened is not None
        return opened

    def ran(self, *batches: int) -> None:
        for batch_id in batches:
            self.begin(batch_id)
            self.ledger().record(entry(batch_id))

    def holds(self, batch_id: int, query: str = QUERY, target: str = "stream orders") -> bool:
        return self.ledger().written().holds(query, batch_id, target)

    def names(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


def test_golden_files_are_there() -> None:
    """The next tests would pass without any file."""
    assert len(CURRENT) >= 4


@pytest.mark.parametrize("path", CURRENT, ids=lambda p: p.stem)
def test_golden_entry_is_written_back_byte_for_byte(path: Path) -> None:
    """This version writes exactly what its golden files hold."""
    text = path.read_bytes()

    assert encode_entry(*decode_entry(text)) == text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_golden_entry_of_each_version_is_understood(path: Path) -> None:
    """A released entry means today what it meant then."""
    decoded = decode_entry(path.read_bytes())

    assert decode_entry(encode_entry(*decoded)) == decoded


def test_a_golden_entry_means_what_it_says() -> None:
    """Every member, in its place."""
    text = (GOLDEN_FILES / "sink-v1" / "rows_left_out.json").read_bytes()

    assert decode_entry(text) == (
        Entry(
            QUERY,
            7,
            "stream orders",
            (
                ShardWrites(
                    "orders", "shardId-000000000003", "1", "000000000000000000000000000002", 2, 64
                ),
            ),
            skipped=3,
        ),
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    )


def raw(**changes: Any) -> bytes:
    shards = {"s": {"first": "1", "last": "2", "records": 1, "bytes": 1}}
    members = {"v": 1, "query": "q", "batch": 1, "target": "t", "offsets": "h", "skipped": 0}
    return json.dumps({**members, "streams": {"orders": shards}, **changes}).encode()


def shard(**changes: Any) -> dict[str, Any]:
    found = {"first": "1", "last": "2", "records": 1, "bytes": 1, **changes}
    return {"streams": {"orders": {"s": found}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (raw()[:-9], "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 9999, "not JSON"),
        (b"7", "no entry"),
        (b'{"streams":{}}', "no entry"),
        (raw(v=True), "no entry"),
        (raw(v=2), "Upgrade kinesis_ds"),
        (raw(query=None), "damaged"),
        (raw(batch="1"), "damaged"),
        (raw(batch=True), "damaged"),
        (raw(target=7), "damaged"),
        (raw(offsets=None), "damaged"),
        (raw(skipped=-1), "damaged"),
        (raw(streams=[]), "damaged"),
        (raw(streams={"orders": 1}), "damaged"),
        (raw(**shard(first=1)), "damaged"),
        (raw(**shard(last="x")), "damaged"),
        (raw(**shard(records=1.5)), "damaged"),
    ],
)
def test_what_is_no_entry_is_refused(text: bytes, said: str) -> None:
    """With what is wrong, and for a newer version what to do."""
    assert decode_entry(raw())[0].batch_id == 1

    with pytest.raises(EntryError, match=said):
        decode_entry(text)


def test_the_entry_that_is_shown_is_one() -> None:
    """Decoded, and written back the same; and the page explains each of its members."""
    page = PAGE.read_text()
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])
    shards = shown["streams"]["orders"]

    assert json.loads(encode_entry(*decode_entry(json.dumps(shown).encode()))) == shown
    for name in (*shown, *shards["shardId-000000000000"]):
        assert f"`{name}`" in page
    assert f"The newest {KEEP} entries are kept" in page
    assert f"format {VERSION}." in page


def test_the_batch_that_was_recorded_last_is_written(checkpoint: Checkpoint) -> None:
    """It counts as long as Spark would run that very batch again."""
    assert not checkpoint.holds(0)
    checkpoint.ran(0, 1)

    assert checkpoint.holds(1)
    assert not checkpoint.holds(2)


def test_a_new_batch_is_never_written(checkpoint: Checkpoint) -> None:
    """Spark has made it, and its tasks have not run."""
    checkpoint.ran(0)
    checkpoint.begin(1)

    assert not checkpoint.holds(1)


@pytest.mark.parametrize(("query", "target"), [("other", "stream orders"), (QUERY, "stream other")])
def test_another_query_or_target_has_written_nothing(
    checkpoint: Checkpoint, query: str, target: str
) -> None:
    """Their rows are not where these rows are to go."""
    checkpoint.ran(0)

    assert not checkpoint.holds(0, query, target)


def test_a_task_that_does_not_know_its_batch_writes_it() -> None:
    """Spark may not say which one it is."""
    written = WrittenBatches(frozenset({(QUERY, 0, "t")}))

    assert not written.holds(None, 0, "t")
    assert not written.holds(QUERY, None, "t")


def test_a_query_that_began_again_writes_its_batches(checkpoint: Checkpoint) -> None:
    """A user who deletes ``offsets`` and ``commits`` keeps the query id; batch 0 has other rows."""
    checkpoint.ran(0)
    checkpoint.begin(0, "v1\nmade later")

    assert not checkpoint.holds(0)


def test_a_query_that_was_set_back_leaves_out_only_what_it_runs_again(
    checkpoint: Checkpoint,
) -> None:
    """Batches behind the one that is run again are made anew, with other rows; what the ledger has
    of them goes when that one is recorded.
    """
    checkpoint.ran(0, 1, 2, 3)
    for n in (2, 3):
        (checkpoint.root / "offsets" / str(n)).unlink()

    assert checkpoint.holds(1)
    checkpoint.begin(2, "v1\nmade later")
    assert not checkpoint.holds(2)
    checkpoint.ledger().record(entry(1))
    assert checkpoint.names() == {"0", "1"}


def test_an_entry_is_where_spark_s_own_are(checkpoint: Checkpoint) -> None:
    """One file a batch, named by it, with the sequence numbers."""
    checkpoint.ran(12)

    assert checkpoint.names() == {"12"}
    assert decode_entry((checkpoint.folder / "12").read_bytes())[0] == entry(12)


def test_old_entries_are_removed(checkpoint: Checkpoint) -> None:
    """The ledger keeps as many entries as Spark keeps batches."""
    checkpoint.ran(*range(KEEP + 3))

    assert checkpoint.names() == {str(n) for n in range(3, KEEP + 3)}


def test_what_a_kill_left_half_written_is_no_entry_and_goes(checkpoint: Checkpoint) -> None:
    """It has another name until it is whole."""
    checkpoint.ran(0)
    torn = checkpoint.folder / f".1.{'0' * 32}.tmp"
    torn.write_text('{"v":1')

    checkpoint.begin(1)
    assert not checkpoint.holds(1)
    checkpoint.ran(1)
    assert checkpoint.names() == {"0", "1"}


class FailingAt:
    """A file system on which one operation fails half-way."""

    def __init__(self, operation: str) -> None:
        self._real = fs.LocalFileSystem()
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        if name == self._operation:
            raise OSError(f"{name}: the disk is gone")
        return getattr(self._real, name)


@pytest.mark.parametrize("operation", ["create_dir", "open_output_stream", "move"])
def test_an_entry_is_recorded_whole_or_not_at_all(
    checkpoint: Checkpoint, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And what fails is a warning: failing the query would write its batch twice for certain."""
    checkpoint.ran(0)
    checkpoint.begin(1)

    failing = Ledger(FailingAt(operation), str(checkpoint.root), "there")
    failing.record(entry(1))
    failing.record(entry(1))

    assert not checkpoint.holds(1)
    assert "1" not in checkpoint.names()
    (said,) = caplog.messages
    assert "the disk is gone" in said
    assert "is written again; nothing is lost" in said


def test_an_entry_that_was_not_recorded_is_told_each_time_it_begins(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """A file system that was away, came back and went away again."""
    checkpoint.begin(0)
    failing, working = (
        Ledger(files, str(checkpoint.root), "there")
        for files in (FailingAt("move"), fs.LocalFileSystem())
    )

    for each in (failing, working, failing):
        each.record(entry(0))

    assert len(caplog.messages) == 2


@pytest.mark.parametrize("operation", ["get_file_info", "open_input_stream"])
def test_a_ledger_that_cannot_be_read_is_empty(
    checkpoint: Checkpoint, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning."""
    checkpoint.ran(0)

    failing = Ledger(FailingAt(operation), str(checkpoint.root), "there")

    assert failing.written() == failing.written() == WrittenBatches()
    assert len(caplog.messages) == 1


def test_cleaning_that_fails_keeps_what_was_recorded(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Old entries stay, and a warning says so."""
    checkpoint.ran(0)
    checkpoint.begin(1)
    Ledger(FailingAt("delete_file"), str(checkpoint.root), "there", keep=1).record(entry(1))

    assert checkpoint.holds(1)
    assert "could not remove old entries" in caplog.text


@pytest.mark.parametrize(
    "text", [b"", b'{"v":1,"query":"', b"PAR1", raw(v=2, batch=1), raw(batch=0)]
)
def test_a_file_that_is_no_entry_leaves_out_nothing(
    checkpoint: Checkpoint, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning that names it, and the batch is recorded over it."""
    checkpoint.ran(0)
    checkpoint.begin(1)
    (checkpoint.folder / "1").write_bytes(text)

    assert not checkpoint.holds(1)
    assert not checkpoint.holds(1)
    (said,) = caplog.messages
    assert "_kinesis_sink/1" in said
    checkpoint.ran(1)
    assert checkpoint.holds(1)


def test_files_of_others_are_left_alone(checkpoint: Checkpoint) -> None:
    """Names that no batch has, and folders."""
    checkpoint.ran(0)
    for name in ("_SUCCESS", ".0.crc", "07", "1.txt"):
        (checkpoint.folder / name).write_text("x")
    (checkpoint.folder / "9").mkdir()
    checkpoint.ran(1)

    assert checkpoint.holds(1)
    assert checkpoint.names() == {"0", "1", "_SUCCESS", ".0.crc", "07", "1.txt", "9"}


def test_a_checkpoint_that_is_not_there_is_not_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A path without a scheme may mean Spark's default file system, and not this disk."""
    opened = Ledger.open(str(tmp_path / "elsewhere"))
    assert opened is not None
    assert opened.written() == WrittenBatches()
    opened.record(entry(0))

    assert list(tmp_path.iterdir()) == []
    assert "hdfs:// or s3://" in caplog.text


@pytest.mark.parametrize("work", ["read", "record"])
def test_a_store_that_is_slow_to_fail_is_left_alone_for_a_while(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Ten times as long as it took to fail, so that it cannot hold up every batch."""
    now = 5000.0

    class SlowToFail:
        type_name = "mock"

        def __getattr__(self, name: str) -> Any:
            nonlocal now
            now += 100
            raise OSError("no answer")

    checkpoint.ran(0)
    monkeypatch.setattr(ledger_module.time, "monotonic", lambda: now)
    ledger = Ledger(SlowToFail(), str(checkpoint.root), str(checkpoint.root))
    if work == "read":
        ledger.written()
    else:
        ledger.record(entry(0))

    assert Ledger.open(str(checkpoint.root)) is None
    now += 999
    assert Ledger.open(str(checkpoint.root)) is None
    now += 1
    assert checkpoint.holds(0)


@pytest.mark.parametrize("location", [None, ""])
def test_without_a_location_there_is_no_ledger(
    location: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says what to do."""
    assert Ledger.open(location) is None
    assert Ledger.open(location) is None

    (said,) = caplog.messages
    assert "checkpointLocation" in said


def test_the_other_process_of_the_query_warns_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes a writer in two of them for each batch."""
    assert Ledger.open(None, warn=False) is None
    assert Ledger.open("nosuch://host/checkpoint", warn=False) is None

    assert caplog.messages == []


def test_a_file_system_that_is_not_to_be_had_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without the password that the location may hold."""
    assert Ledger.open("nosuch://user:secret@host/checkpoint") is None

    (said,) = caplog.messages
    assert "nosuch://***@host/checkpoint" in said
    assert "secret" not in said


def test_a_location_is_shown_without_its_user() -> None:
    """Also where the password has a slash, which pyarrow refuses."""
    assert redacted("s3://key:secret@bucket/a") == "s3://***@bucket/a"
    assert redacted("s3://key:sec/ret@bucket/a") == "s3://***@bucket/a"
    assert redacted("/a@b/c") == "/a@b/c"


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}", "file://localhost{}"])
def test_a_location_is_where_spark_has_it(tmp_path: Path, form: str) -> None:
    """Nothing in it is unquoted, and its form does not matter."""
    checkpoint = Checkpoint(tmp_path / "a%20b c?d=e#f@g")
    checkpoint.begin(0)

    opened = Ledger.open(form.format(checkpoint.root))
    assert opened is not None
    opened.record(entry(0))

    assert checkpoint.holds(0)


def test_a_relative_location_is_where_spark_has_it(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs Python in its own folder."""
    checkpoint.ran(0)
    monkeypatch.chdir(checkpoint.root.parent)

    opened = Ledger.open("checkpoint")

    assert opened is not None
    assert opened.written().holds(QUERY, 0, "stream orders")


def test_what_goes_to_the_tasks_is_small(checkpoint: Checkpoint) -> None:
    """However many entries there are."""
    checkpoint.ran(*range(20))
    written = checkpoint.ledger().written()
    sent = pickle.dumps(written)

    assert pickle.loads(sent) == written  # noqa: S301  # ours
    assert len(sent) < 500


def test_a_healthy_ledger_says_nothing(
    checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Batch after batch."""
    with caplog.at_level(logging.INFO):
        checkpoint.ran(*range(5))
        assert checkpoint.holds(4)

    assert caplog.messages == []
