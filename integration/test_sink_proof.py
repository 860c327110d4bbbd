"""The sink's promises in one story: limits, throttling, reshards and two SIGKILLs of all of Spark.

Every row has a number, and batch ``n`` holds the numbers from ``n * A_BATCH`` on. So each number
that is stored twice says which batch wrote it, and what happened to that batch is known.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.conftest import MakeStream
from integration.jobs.numbered import size_of
from integration.jobs.stopping import stopped_file
from integration.processes import SparkJob
from integration.streams import everything_in, split_a_shard
from kinesis_ds.testing import Disconnect, FailRecords, Fault, KinesisServer, Refuse
from kinesis_ds.writer.ledger import FOLDER
from kinesis_ds.writer.ledger_format import decode_entry
from tests.support.stored_rows import StoredRow, stored_rows, times, without_repeats

STREAM = "orders"
ROWS = 72_000
A_BATCH = 12_000
SHARDS = 10
KILLED, REPLAYED = 2, 4
"""The batch whose tasks run at the first kill, and the one that is in the ledger at the second."""
FAULTS = [
    # Stored, and nobody knows: two of them, both in the first batch.
    *(Fault(Disconnect(performed=True), operation="PutRecords", call=n) for n in (2, 5)),
    *(Fault(FailRecords(every=3), operation="PutRecords", call=n) for n in range(12, 400, 9)),
    *(
        Fault(FailRecords("InternalFailure", first=1, every=7), operation="PutRecords", call=n)
        for n in range(14, 400, 23)
    ),
    *(
        Fault(Refuse(code), operation="PutRecords", call=n)
        for n, code in (
            (20, "ProvisionedThroughputExceededException"),
            (45, "InternalFailure"),
            (70, "KMSThrottlingException"),
        )
    ),
    *(Fault(Disconnect(), operation="PutRecords", call=n) for n in (30, 80)),
]


class Query:
    """A query that writes numbered rows, and its checkpoint."""

    def __init__(
        self, folder: Path, options: dict[str, str], rows: int = ROWS, a_batch: int = A_BATCH
    ) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self._settings = {
            "do": "write",
            "rows": rows,
            "rows_per_batch": a_batch,
            "folder": str(folder),
            "options": options,
            "conductor": os.getpid(),
        }

    def start(self, stop: str | None = None) -> SparkJob:
        """The query as a process, over the same checkpoint each time."""
        return SparkJob("integration.jobs.numbered", self.folder, {**self._settings, "stop": stop})

    def begun(self, batch: int) -> bool:
        return (self.checkpoint / "offsets" / str(batch)).exists()

    def committed(self, batch: int) -> bool:
        return (self.checkpoint / "commits" / str(batch)).exists()

    def stopped(self, moment: str) -> bool:
        return stopped_file(self.folder, moment).exists()


def puts(kinesis: KinesisServer) -> int:
    return len(kinesis.calls.calls("PutRecords"))


def write_with_two_kills(kinesis: KinesisServer, query: Query, calls_of_a_batch: int) -> int:
    """Write all rows, with everything that goes wrong. Returns the calls whose answers were lost.

    The first kill meets a batch's tasks after some calls, wherever those are; the second one meets
    Spark when the batch is in the ledger and not in the log of commits.
    """
    with query.start() as job:
        job.wait_for(lambda: query.begun(1), "the second batch")
        kinesis.split(STREAM, kinesis.open_shards(STREAM)[0])
        job.wait_for(lambda: query.begun(KILLED), "the batch of the first kill", every_s=0.005)
        before = puts(kinesis)
        kinesis.wait_for(lambda: puts(kinesis) >= before + calls_of_a_batch // 2)
        job.kill()
    assert not query.committed(KILLED), "the kill came too late to prove anything"

    with query.start(stop=f"commit {REPLAYED}") as job:
        job.wait_for(lambda: query.begun(KILLED + 1), "the batch after it")
        kinesis.merge(STREAM, *kinesis.open_shards(STREAM)[4:6])
        job.wait_for(lambda: query.stopped(f"commit {REPLAYED}"), "the moment of the second kill")
        job.kill()
    assert not query.committed(REPLAYED)
    stored = len(kinesis.records(STREAM))

    with query.start() as job:
        job.wait_for(lambda: query.committed(REPLAYED), "the replay of the batch")
        # What has come since then is of the next batch, if it is under way already.
        assert query.begun(REPLAYED + 1) or len(kinesis.records(STREAM)) == stored
        job.wait()
    return sum(
        call.records for call in kinesis.calls.calls("PutRecords") if call.outcome == "Disconnect"
    )


def check_data(rows: list[StoredRow]) -> None:
    """Check that the data of each row are complete."""
    for row in rows:
        assert len(row.data) == max(8, size_of(row.item)), row.item
        assert row.partition_key == f"key-{row.item % 1000}"


def twice(rows: list[StoredRow]) -> Counter[int]:
    """Return the numbers that are stored more than once, by their batch."""
    return Counter(item // A_BATCH for item, n in times(rows).items() for _ in range(n - 1))


def check_ledger(query: Query, rows: list[StoredRow]) -> None:
    """Check the ledger of each batch and shard: first and last number, rows and bytes."""
    found: dict[tuple[int, str], list[StoredRow]] = defaultdict(list)
    for row in rows:
        found[row.item // A_BATCH, row.shard_id].append(row)
    for batch in range(ROWS // A_BATCH):
        entry, _ = decode_entry((query.checkpoint / FOLDER / str(batch)).read_bytes())
        assert entry.batch_id == batch
        for writes in entry.writes:
            first, last = int(writes.first_sequence_number), int(writes.last_sequence_number)
            mine = [row for row in found[batch, writes.shard_id] if first <= row.number <= last]
            assert {first, last} <= {row.number for row in mine}
            if batch > 0:  # the first one has rows that are there and were not acknowledged
                size = sum(len(row.data) + len(row.partition_key) for row in mine)
                assert (writes.records, writes.bytes) == (len(mine), size)
        if batch not in (0, KILLED):
            there = sum(len(of_shard) for (n, _), of_shard in found.items() if n == batch)
            assert sum(writes.records for writes in entry.writes) == there


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_sigkills_of_spark_lose_nothing_and_repeat_only_what_was_under_way(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """72,000 rows: lost 0; repeats only of the batch whose tasks were killed and of lost answers;
    none of the batch in the ledger, and the ledger's numbers are the stream's.
    """
    with KinesisServer(faults=FAULTS) as kinesis:
        kinesis.create_stream(STREAM, SHARDS)
        query = Query(tmp_path, kinesis.options(STREAM))
        unanswered = write_with_two_kills(kinesis, query, calls_of_a_batch=24)
        rows = stored_rows(kinesis, STREAM)
        check_ledger(query, rows)

    assert set(times(rows)) == set(range(ROWS))
    check_data(rows)
    repeated = twice(rows)
    record_property("repeated", dict(repeated))
    assert set(repeated) <= {0, KILLED}
    assert 0 < repeated[0] <= unanswered
    assert 0 < repeated[KILLED] < A_BATCH
    assert max(times(rows).values()) <= 3


@pytest.mark.timeout(900)
def test_with_record_ids_our_source_gets_each_row_exactly_once(tmp_path: Path) -> None:
    """The same with ``recordIds``: repeats are in the stream, and ``drop_repeats`` leaves none."""
    with KinesisServer(faults=FAULTS) as kinesis:
        kinesis.create_stream(STREAM, SHARDS)
        query = Query(tmp_path, {**kinesis.options(STREAM), "recordIds": "true"})
        write_with_two_kills(kinesis, query, calls_of_a_batch=8)
        rows = stored_rows(kinesis, STREAM)
        check_ledger(query, rows)
        read = read_back(query, kinesis.options(STREAM))

    repeated = twice(rows)
    assert set(repeated) <= {0, KILLED}
    assert 0 < repeated[KILLED] < A_BATCH, "the first kill came where nothing was to be repeated"
    check_data(rows)
    assert times(without_repeats(rows)) == Counter(range(ROWS))
    assert Counter(read) == Counter(range(ROWS))


def read_back(query: Query, options: dict[str, str]) -> list[int]:
    """Return the numbers in the stream, read by our source and without repeats."""
    settings = {
        "do": "read",
        "folder": str(query.folder),
        "conductor": os.getpid(),
        "options": {**options, "initialPosition": "trim_horizon", "includeMetadata": "true"},
    }
    with SparkJob("integration.jobs.numbered", query.folder, settings) as job:
        job.wait()
    return [
        int(line)
        for path in (query.folder / "read").glob("part-*.txt")
        for line in path.read_text().splitlines()
    ]


@pytest.mark.timeout(600)
def test_on_localstack_a_sigkill_and_a_split_lose_nothing(
    endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """5,000 rows of mixed sizes; repeats only of the batch whose tasks were killed."""
    rows, a_batch, killed = 5_000, 1_000, 1
    stream = make_stream(shards=4)
    options = {"streamName": stream, "endpoint": endpoint, "batchMaxRecords": "100"}
    query = Query(tmp_path, options, rows, a_batch)
    with query.start(stop=f"rows {killed}") as job:
        job.wait_for(lambda: query.stopped(f"rows {killed}"), "the batch to be killed in")

        def some_stored() -> bool:
            return any(int(data[:8]) >= a_batch for _, _, data in everything_in(kinesis, stream))

        job.wait_for(some_stored, "rows of that batch", every_s=0.5)
        job.kill()
    assert not query.committed(killed)
    with query.start() as job:
        job.wait_for(lambda: query.begun(killed + 1), "the batch after it")
        split_a_shard(kinesis, stream)
        job.wait()

    found = [(int(data[:8]), len(data), key) for _, key, data in everything_in(kinesis, stream)]
    assert {number for number, _, _ in found} == set(range(rows))
    assert all(size == size_of(number) for number, size, _ in found)
    repeats = [row for row, n in Counter(found).items() if n > 1]
    assert repeats
    assert {number // a_batch for number, _, _ in repeats} == {killed}
