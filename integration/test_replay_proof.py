"""The proof of deterministic replay, on LocalStack: a server that is not ours.

Shards are split and merged while the query reads, and the query is killed between the log of a
batch and its commit. Every batch is read again in each way in which it may be read again, and the
rows are counted exactly. See ``tests/support/replay.py``.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pybase64
import pytest

from devtools.server import REGION
from integration.conftest import MakeStream
from integration.streams import wait_until_active
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.clock import SystemClock
from kinesis_ds.testing.log import StoredRecord
from tests.support.replay import Killed, Proof, Run


class Account:
    """A stream of the server, and what was written to it, with the numbers that the server gave."""

    def __init__(self, kinesis: Any) -> None:
        self._kinesis = kinesis
        self._written: list[StoredRecord] = []

    def put(self, stream: str, *data: bytes, partition_key: str | Callable[[bytes], str]) -> None:
        """Put records. No call has a key twice, since PutRecords does not promise their order."""
        waiting = [
            (item, partition_key if isinstance(partition_key, str) else partition_key(item))
            for item in data
        ]
        while waiting:
            first = {key: (item, key) for item, key in reversed(waiting)}
            call = list(islice(first.values(), 500))
            answer = self._kinesis.put_records(
                StreamName=stream,
                Records=[{"Data": item, "PartitionKey": key} for item, key in call],
            )
            assert answer["FailedRecordCount"] == 0
            self._written += [
                StoredRecord(
                    shard_id=stored["ShardId"],
                    sequence_number=int(stored["SequenceNumber"]),
                    partition_key=key,
                    explicit_hash_key=None,
                    arrived=0.0,
                    base64=pybase64.b64encode(item).decode(),
                )
                for (item, key), stored in zip(call, answer["Records"], strict=True)
            ]
            done = set(call)
            waiting = [entry for entry in waiting if entry not in done]

    def shards(self, stream: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._kinesis.list_shards(StreamName=stream)["Shards"]
        return found

    def records(self, stream: str) -> list[StoredRecord]:
        del stream
        return sorted(self._written, key=lambda r: (r.shard_id, r.sequence_number))

    def open_shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the open shards by hash key, so that neighbours follow each other."""
        return sorted(
            (
                s
                for s in self.shards(stream)
                if "EndingSequenceNumber" not in s["SequenceNumberRange"]
            ),
            key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]),
        )

    def split(self, stream: str) -> None:
        """Split the first shard."""
        shard = self.open_shards(stream)[0]
        low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
        self._kinesis.split_shard(
            StreamName=stream,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str((low + high) // 2 + 1),
        )
        wait_until_active(self._kinesis, stream)

    def merge(self, stream: str) -> None:
        """Merge the last two shards."""
        one, other = self.open_shards(stream)[-2:]
        self._kinesis.merge_shards(
            StreamName=stream,
            ShardToMerge=one["ShardId"],
            AdjacentShardToMerge=other["ShardId"],
        )
        wait_until_active(self._kinesis, stream)


@pytest.fixture
def proof() -> Iterator[Proof]:
    """A proof with another process, which reads the same tasks at the same time."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield Proof(executor)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["efo", pytest.param("polling", marks=pytest.mark.long)])
def test_every_batch_is_the_same_however_often_it_is_read(
    endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path, proof: Proof, mode: str
) -> None:
    """A split and a merge while reading, three kills, aggregates: each record once, in order."""
    stream = make_stream(shards=2)
    account = Account(kinesis)
    options = {
        "streamName": stream,
        "endpoint": endpoint,
        "region": REGION,
        "consumerMode": mode,
        "shardFetchInterval": "1s",
        "includeMetadata": "true",
    }
    run = Run(account, 1, options, tmp_path, proof, SystemClock(), NetworkLoop)

    def write() -> None:
        for _ in range(3):
            run.written.plain(stream, 100)
            run.written.together(stream, 10, misplaced=0.3)

    write()
    for place, change in (
        ("offsets", account.split),
        ("out", account.merge),
        ("planned", None),
    ):
        with run.query(maxRecordsPerTrigger="200") as query:
            run.read_on(query)
            write()
            if change is not None:
                change(stream)
                write()
            query.dies_at = (place, 1)
            with pytest.raises(Killed):
                run.read_on(query)
    with run.query() as query:
        run.read_on(query)
        write()
    run.check()

    assert len(account.shards(stream)) == 5
    assert proof.rows > 1500
    assert proof.readings["run again"] == 1
    assert proof.readings["speculative copy"] > len(proof.batches)
