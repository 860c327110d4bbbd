"""The sink when Spark runs a batch again that it had written (W10 of the comparison page)."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinesis_ds.testing import KinesisServer
from tests.spark.conftest import STREAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [b"%d" % n for n in range(100)]


class Query:
    """A query over one file of lines, whose batch is written and noted in the ledger."""

    def __init__(self, spark: SparkSession, kinesis: KinesisServer, folder: Path) -> None:
        self._spark = spark
        self._kinesis = kinesis
        self._lines = folder / "lines"
        self._lines.mkdir()
        (self._lines / "1.txt").write_bytes(b"\n".join(LINES))
        self.checkpoint = folder / "checkpoint"
        assert self.run(self.checkpoint) == Counter(LINES)

    def run(self, checkpoint: Path, stream: str = STREAM) -> Counter[bytes]:
        """What one run of it adds to a stream."""
        before = self._stored(stream)
        rows = self._spark.readStream.text(str(self._lines)).selectExpr("value AS data")
        sink = rows.writeStream.format("kinesis").options(**self._kinesis.options(stream))
        sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        sink.start().awaitTermination()
        assert (checkpoint / "commits" / "0").exists()
        return self._stored(stream) - before

    def _stored(self, stream: str) -> Counter[bytes]:
        return Counter(record.data for record in self._kinesis.records(stream))


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    with KinesisServer() as kinesis:
        for name in (STREAM, "others"):
            kinesis.create_stream(name, 2)
        yield Query(spark, kinesis, tmp_path_factory.mktemp("replay"))


@pytest.fixture
def killed(query: Query, tmp_path: Path) -> Path:
    """The checkpoint, had the query been killed before Spark noted that the batch is done: so the
    query that is started next runs it again.
    """
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(query.checkpoint, checkpoint)
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    assert (checkpoint / "_kinesis_sink" / "0").exists()
    return checkpoint


def test_w10_a_batch_that_is_run_again_is_not_written_again(query: Query, killed: Path) -> None:
    """W10: all its records are in the stream already."""
    entry = (killed / "_kinesis_sink" / "0").read_bytes()

    assert query.run(killed) == Counter()
    assert (killed / "_kinesis_sink" / "0").read_bytes() == entry


def test_w10_a_batch_that_is_run_again_loses_nothing(query: Query, killed: Path) -> None:
    """W10: without the ledger, at least once is what the sink promises."""
    shutil.rmtree(killed / "_kinesis_sink")

    assert query.run(killed) == Counter(LINES)
    assert (killed / "_kinesis_sink" / "0").exists()


def test_a_batch_that_went_to_another_stream_is_written(query: Query, killed: Path) -> None:
    """What is in one stream is not in the other."""
    assert query.run(killed, "others") == Counter(LINES)


@pytest.mark.parametrize("kept", [(), ("metadata",)], ids=["another-query", "the-same-query"])
def test_a_query_that_begins_anew_writes_all(
    query: Query, killed: Path, kept: tuple[str, ...]
) -> None:
    """A user may delete all of a checkpoint but the sink's folder; where the query's id is kept,
    its first batch is batch 0 again.
    """
    for path in killed.iterdir():
        if path.name not in (*kept, "_kinesis_sink"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    assert query.run(killed) == Counter(LINES)


def test_a_torn_entry_leaves_out_nothing(query: Query, killed: Path) -> None:
    """The query goes on, and notes the batch again."""
    path = killed / "_kinesis_sink" / "0"
    entry = path.read_bytes()
    path.write_bytes(entry[: len(entry) // 2])

    assert query.run(killed) == Counter(LINES)
    assert path.read_bytes().startswith(entry[:60])
