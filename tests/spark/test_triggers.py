"""Every trigger over real Spark: what a run reads, when it ends, and what its progress says.

PySpark 4.0 and 4.1 do not tell a Python source of the trigger. What happens there is asserted, too:
``docs/how-to/choose-a-trigger.md`` says it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyspark
import pytest
from pyspark.sql.functions import udf

from kinesis_ds.testing import KinesisServer
from tests.spark.conftest import STREAM, Serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
# Whether Spark tells a Python source of triggers and limits, and asks it how far the stream is.
TELLS_TRIGGERS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
WITHIN_S = 240.0

# The agent alone knows how a shard is read, and `tests/source` tells all of it in both modes.
BY_EFO = pytest.mark.parametrize("mode", ["efo", pytest.param("polling", marks=pytest.mark.long)])
BY_POLLING = pytest.mark.parametrize(
    "mode", ["polling", pytest.param("efo", marks=pytest.mark.long)]
)


def put(kinesis: KinesisServer, ids: Iterable[int]) -> None:
    """Records that hold their number, of a hundred keys."""
    kinesis.put(
        STREAM, *[b"%d" % i for i in ids], partition_key=lambda data: f"key{int(data) % 100}"
    )


def eventually(look: Callable[[], T], what: str) -> T:
    """Spark has no call that waits for a batch with records."""
    deadline = time.monotonic() + WITHIN_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g}s: {what}"
        time.sleep(0.05)
    return found


class Query:
    """A streaming query over one checkpoint, run after run, and what its batches held.

    Attributes:
        batches: The rows of each batch, in the order of its first action.
        more: Done with each batch besides.
    """

    def __init__(
        self, spark: SparkSession, kinesis: KinesisServer, folder: Path, **options: str
    ) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.more: Callable[[DataFrame, int], object] = lambda batch, number: None
        self._spark = spark
        self._options = {
            **kinesis.options(STREAM),
            "initialPosition": "earliest",
            "shardFetchInterval": "1s",
            **options,
        }
        self._folder = folder

    @contextmanager
    def running(self, **trigger: Any) -> Iterator[StreamingQuery]:
        """One run, to its own end or to that of the block."""
        query = (
            self._spark.readStream.format("kinesis")
            .options(**self._options)
            .load()
            .writeStream.foreachBatch(self._keep)
            .option("checkpointLocation", str(self._folder))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()

    def to_the_end(self, **trigger: Any) -> StreamingQuery:
        """One run of a trigger that ends by itself."""
        with self.running(**trigger) as query:
            assert query.awaitTermination(int(WITHIN_S)), f"{trigger} did not end"
        return query

    def until(self, count: int, **trigger: Any) -> StreamingQuery:
        """One run, until all runs together have so many records."""
        with self.running(**trigger) as query:
            eventually(
                lambda: self._alive(query) and len(self.numbers) >= count, f"{count} records"
            )
            eventually(
                lambda: (
                    {p["batchId"] for p in query.recentProgress} >= self.batches.keys()
                    or query.lastProgress["batchId"] >= max(self.batches)
                ),
                "the progress of the last batch",
            )
        return query

    def _alive(self, query: StreamingQuery) -> bool:
        error = query.exception()
        if error is not None:
            raise error
        return True

    @property
    def numbers(self) -> list[int]:
        """All that was read."""
        return [int(bytes(r.data)) for rows in tuple(self.batches.values()) for r in rows]

    def check(self, expected: Iterable[int]) -> None:
        """Each record in one batch, once, and those of a shard in order."""
        assert Counter(self.numbers) == Counter(expected)
        last: dict[str, int] = {}
        for number in sorted(self.batches):
            for row in self.batches[number]:
                assert last.get(row.shardId, 0) < int(row.sequenceNumber)
                last[row.shardId] = int(row.sequenceNumber)

    def _keep(self, batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        self.more(batch, number)
        before = self.batches.setdefault(number, rows)
        assert before == rows, f"batch {number} held other rows when it was run again"


def rows_per_batch(query: StreamingQuery) -> list[int]:
    """As the progress counts them; batches without a row are left out."""
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


# --- triggers that end ----------------------------------------------------------------------------


@BY_EFO
def test_available_now_reads_what_is_there_and_ends(
    spark: SparkSession, serve: Serve, tmp_path: Path, mode: str
) -> None:
    """A new query, a run with nothing new, and a run that goes on behind the one before, with a
    limit and a reshard in between.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(300))
    query = Query(spark, kinesis, tmp_path, consumerMode=mode, maxRecordsPerTrigger="100")

    first = query.to_the_end(availableNow=True)
    if not TELLS_TRIGGERS:
        assert query.numbers == []
        query.to_the_end(availableNow=True)
        assert query.numbers == []  # and so on, run after run: nothing is read, nothing is lost
        query.until(300)
        query.check(range(300))
        return
    query.check(range(300))
    assert max(rows_per_batch(first)) <= 100

    query.to_the_end(availableNow=True)
    kinesis.split(STREAM, kinesis.open_shards(STREAM)[0])
    put(kinesis, range(300, 500))
    query.to_the_end(availableNow=True)
    query.check(range(500))


@BY_POLLING
def test_available_now_ends_while_producers_go_on(
    spark: SparkSession, serve: Serve, tmp_path: Path, mode: str
) -> None:
    """What was there at its start is in; it does not run after what comes later, which is left to
    the next run.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(200))
    query = Query(spark, kinesis, tmp_path, consumerMode=mode, maxRecordsPerTrigger="50")
    stop = threading.Event()
    written = 200

    def write_on() -> None:
        nonlocal written
        while not stop.wait(0.01):
            put(kinesis, range(written, written + 2))
            written += 2

    writing = threading.Thread(target=write_on)
    writing.start()
    try:
        query.to_the_end(availableNow=True)
        read = len(query.numbers)
    finally:
        stop.set()
        writing.join()

    if not TELLS_TRIGGERS:
        assert read == 0
        query.until(written)
    else:
        assert 200 <= read < written
        query.check(range(read))
        query.to_the_end(availableNow=True)
    query.check(range(written))


def test_once_is_one_batch_of_everything(spark: SparkSession, serve: Serve, tmp_path: Path) -> None:
    """Of a new query and of one with a checkpoint, whatever the limits; other triggers go on from
    there.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(300))
    query = Query(spark, kinesis, tmp_path, maxRecordsPerTrigger="10", consumerMode="polling")

    query.to_the_end(once=True)
    if not TELLS_TRIGGERS:
        assert query.numbers == []
        query.to_the_end(once=True)
        assert query.numbers == []
        query.until(300)
        query.check(range(300))
        return
    assert [len(rows) for rows in query.batches.values()] == [300]

    put(kinesis, range(300, 500))
    query.to_the_end(once=True)
    assert [len(rows) for rows in query.batches.values()] == [300, 200]

    put(kinesis, range(500, 600))
    query.until(600)
    query.check(range(600))


# --- a trigger that goes on -----------------------------------------------------------------------


@BY_EFO
def test_processing_time_goes_on(
    spark: SparkSession, serve: Serve, tmp_path: Path, mode: str
) -> None:
    """Records that are written between its batches are in later ones, across a restart."""
    kinesis = serve(shards=2)
    put(kinesis, range(100))
    query = Query(spark, kinesis, tmp_path, consumerMode=mode)

    with query.running(processingTime="100 milliseconds"):
        for part in range(1, 4):
            eventually(lambda count=part * 100: len(query.numbers) >= count, f"part {part}")
            put(kinesis, range(part * 100, part * 100 + 100))
    query.until(400, processingTime="100 milliseconds")
    query.check(range(400))


def test_limits_are_kept_in_every_batch(spark: SparkSession, serve: Serve, tmp_path: Path) -> None:
    """Of records, as Spark's progress counts them, and of bytes; on every PySpark."""
    kinesis = serve(shards=2)
    put(kinesis, range(400))
    by_records = Query(
        spark, kinesis, tmp_path / "records", maxRecordsPerTrigger="70", consumerMode="polling"
    )
    by_bytes = Query(
        spark, kinesis, tmp_path / "bytes", maxBytesPerTrigger="700b", consumerMode="polling"
    )

    counts = rows_per_batch(by_records.until(400))
    by_bytes.until(400)

    by_records.check(range(400))
    assert sum(counts) == 400
    assert max(counts) <= 70
    by_bytes.check(range(400))
    for rows in by_bytes.batches.values():
        assert sum(len(row.data) + len(row.partitionKey) for row in rows) <= 700


def test_the_lag_is_in_the_progress(spark: SparkSession, serve: Serve, tmp_path: Path) -> None:
    """As JSON, beside how far each stream was received."""
    kinesis = serve(shards=2)
    put(kinesis, range(100))
    query = Query(spark, kinesis, tmp_path, maxRecordsPerTrigger="60", consumerMode="polling")

    progress = [p["sources"][0] for p in query.until(100).recentProgress if p["numInputRows"]]
    if not TELLS_TRIGGERS:
        # Spark shows where the batch ends, as it does for a source that tells nothing.
        assert {p["latestOffset"] for p in progress} <= {None, *(p["endOffset"] for p in progress)}
        return
    first = json.loads(progress[0]["latestOffset"])
    assert first["lag"].keys() >= {"shards", "maxMsBehindLatest", "bufferedRecords"}
    assert first["lag"]["shards"] == 2
    assert first["lag"]["maxMsBehindLatest"] >= 0
    (stream,) = first["streams"].values()
    assert stream["shards"].keys() == set(kinesis.open_shards(STREAM))


# --- a batch that is read more than once ----------------------------------------------------------


@BY_POLLING
def test_two_actions_over_a_batch_are_equal(
    spark: SparkSession, serve: Serve, tmp_path: Path, mode: str
) -> None:
    """Also while records are written between the two, and whatever the second one does."""
    kinesis = serve(shards=3)
    put(kinesis, range(300))
    query = Query(spark, kinesis, tmp_path, consumerMode=mode, maxRecordsPerTrigger="120")
    written = 300
    again: dict[int, list[Any]] = {}
    counts: dict[int, int] = {}

    def act(batch: DataFrame, number: int) -> None:
        nonlocal written
        put(kinesis, range(written, written + 10))
        written += 10
        again[number] = batch.collect()
        counts[number] = batch.union(batch).count()

    query.more = act
    query.until(330)
    assert again == query.batches
    assert counts == {number: 2 * len(rows) for number, rows in query.batches.items()}


@BY_EFO
def test_killed_workers_change_nothing(
    spark: SparkSession, serve: Serve, tmp_path: Path, mode: str
) -> None:
    """All Python workers of the executor die by SIGKILL in the middle of a batch; Spark runs the
    tasks again.
    """
    kinesis = serve(shards=2)
    put(kinesis, range(500))
    died = tmp_path / "died"

    @udf(returnType="string", useArrow=False)
    def fragile(data: bytes) -> str:
        import psutil  # noqa: PLC0415

        if bytes(data) == b"250" and not died.exists():
            died.touch()
            # The workers that read are children of the same daemon as those that run functions.
            for worker in psutil.Process(os.getppid()).children():
                if worker.pid != os.getpid():
                    worker.kill()
            psutil.Process().kill()
        return bytes(data).decode()

    read: dict[int, list[int]] = {}

    def act(batch: DataFrame, number: int) -> None:
        rows = batch.select(fragile("data").alias("number")).collect()
        read[number] = [int(row.number) for row in rows]

    query = Query(spark, kinesis, tmp_path / "checkpoint", consumerMode=mode)
    query.more = act
    query.until(500)

    assert died.exists()
    query.check(range(500))
    assert read == {
        number: [int(bytes(row.data)) for row in rows] for number, rows in query.batches.items()
    }


@pytest.mark.long  # a cluster of four JVMs; a task that runs again is told above
def test_a_speculative_copy_reads_the_same(serve: Serve, tmp_path: Path) -> None:
    """A task stands still, Spark starts a copy of it on another executor, and the copy wins."""
    kinesis = serve(shards=2)
    put(kinesis, range(400))
    told = tmp_path / "told.json"
    job = {
        "options": {
            **kinesis.options(STREAM),
            "initialPosition": "earliest",
            "shardsPerTask": "1",
            "consumerMode": "polling",
        },
        "folder": str(tmp_path),
        "count": 400,
        "told": str(told),
    }
    with (tmp_path / "log").open("wb") as log:
        job_run = subprocess.Popen(
            [
                *(sys.executable, "-I", str(ROOT / "devtools" / "supervisor.py"), "--"),
                *(sys.executable, "-m", "tests.spark.speculating", json.dumps(job)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        # Its end closes the pipe, at which all that it started is ended.
        with job_run:
            eventually(lambda: told.exists() or job_run.poll() is not None, "the query's result")
    assert told.exists(), (tmp_path / "log").read_text(errors="replace")[-3000:]
    found = json.loads(told.read_text())
    assert found["copies"] >= 1, "nothing was speculated"
    assert sorted(found["numbers"]) == list(range(400))
