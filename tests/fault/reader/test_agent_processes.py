"""Agents in several processes, any of which may be killed, stopped or refuse to begin (F7, F15)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kinesis_ds.agent.remote.processes import AgentProcesses
from kinesis_ds.errors import AgentError, ConsumerError, KinesisConnectorError
from kinesis_ds.limits import MIB
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.testing import KinesisServer, ScaledClock, Settings
from tests.fault.conftest import Serve, StartQuery
from tests.support.agents import FIRST, SECOND, STREAM, numbered, put_to
from tests.support.fast import SPEED, fast_network
from tests.support.fast_agent import PATIENCE, fast_processes
from tests.support.micro_batches import MicroBatches
from tests.support.polling import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.agent.remote.child import Patience
    from kinesis_ds.plan.planned_range import PlannedRange

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
# A process takes a second or two of CPU to begin, and a busy machine a minute for that.
PATIENT_S = 300.0
TWO = {"agentProcesses": "2", "shardFetchInterval": "1s"}


@pytest.fixture
def clock() -> ScaledClock:
    """One on which processes can agree."""
    return ScaledClock(SPEED)


def processes(query: MicroBatches) -> list[dict[str, Any]]:
    """What the source says of its agent processes."""
    found: list[dict[str, Any]] = query.coordinator.statistics()["processes"]
    return found


def kill(query: MicroBatches, process: int) -> None:
    """Kill an agent process, and wait until the source has seen it dead."""
    starts = processes(query)[process]["starts"]
    os.kill(processes(query)[process]["pid"], signal.SIGKILL)
    eventually(
        lambda: processes(query)[process]["starts"] > starts, "it is started again", PATIENT_S
    )


def by_shard(query: MicroBatches) -> dict[str, list[bytes]]:
    """The data of all that was read, in the order in which it was."""
    found: dict[str, list[bytes]] = {}
    for row in query.rows:
        found.setdefault(row.shard, []).append(row.data)
    return found


def gone(pid: int) -> bool:
    """Whether a process is dead, buried or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def a_subscription_each(kinesis: KinesisServer, shards: int) -> bool:
    """Whether as many shards are subscribed to, each once."""
    open_ones = Counter(s.shard_id for s in kinesis.subscriptions())
    return len(open_ones) == shards and set(open_ones.values()) == {1}


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_all_processes_read_through_splits_and_merges(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """Every record once, those of a shard in order; children go to whoever has the least to do."""
    kinesis = serve(shards=3)
    query = start_query(kinesis, consumerMode=mode, **TWO | {"agentProcesses": "3"})
    put: dict[str, list[bytes]] = {}

    def put_everywhere(records: int) -> None:
        for shard_id in kinesis.open_shards(STREAM):
            first = sum(map(len, put.values())) + 1
            put[shard_id] = put.get(shard_id, []) + numbered(first, first + records - 1)
            put_to(kinesis, shard_id, *put[shard_id][-records:])

    put_everywhere(20)
    query.read_until(60)
    left, right = kinesis.split(STREAM, FIRST)
    put_everywhere(10)
    query.read_until(100)
    kinesis.merge(STREAM, left, right)
    put_everywhere(10)
    query.read_until(130)

    assert by_shard(query) == put
    assert [p["shards"] for p in processes(query)] == [1, 1, 1]

    def counted() -> bool:
        """Counters that were asked for a moment ago are not asked for again. Shards that were split
        and merged are forgotten, here and in their processes.
        """
        statistics = query.coordinator.statistics()
        counters = statistics["shards"]
        return (
            {s: c["records"] for s, c in counters.items()}
            == {s: len(put[s]) for s in kinesis.open_shards(STREAM)}
            and {c["process"] for c in counters.values()} == {0, 1, 2}
            and statistics["ended_shards"] == 3
        )

    eventually(counted, "all are counted", PATIENT_S)


@pytest.mark.parametrize("mode", ["efo", "polling"])
def test_a_process_that_is_killed_takes_no_record_along(
    serve: Serve, start_query: StartQuery, mode: str
) -> None:
    """It held records that no batch had, and records of finished batches; its shards are begun
    again behind what is committed. The other one goes on meanwhile.
    """
    kinesis = serve(shards=2)
    records = numbered(1, 200)
    for shard_id in (FIRST, SECOND):
        put_to(kinesis, shard_id, *records)
    query = start_query(kinesis, consumerMode=mode, maxRecordsPerTrigger="30", **TWO)
    query.step()  # pins the start
    query.step()  # begins to read
    for read in (0, 90):
        query.read_until(read)
        kill(query, 0)

    query.read_until(400)
    assert by_shard(query) == {FIRST: records, SECOND: records}
    assert [p["starts"] for p in processes(query)] == [3, 1]
    if mode == "efo":
        eventually(lambda: a_subscription_each(kinesis, 2), "one subscription each", PATIENT_S)


class _Between(MicroBatches):
    """Does something between the plan of a batch and its tasks."""

    happens: Callable[[], None] | None = None

    def _read(self, batch: int, planned: list[PlannedRange]) -> list[list[str | None]]:
        if self.happens is not None and planned:
            happens, self.happens = self.happens, None
            happens()
        return super()._read(batch, planned)


def test_ranges_that_were_planned_are_read_from_kinesis(
    serve: Serve, tmp_path: Path, ending: contextlib.ExitStack
) -> None:
    """Their agent dies between the plan and the task. The batch is the same, and reading goes on
    behind it.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 50))
    query = _Between({**kinesis.options(STREAM), **TWO}, tmp_path, kinesis.clock)
    ending.callback(query.close)
    query.happens = lambda: kill(query, 0)
    query.read_until(50)
    assert kinesis.calls.calls("GetRecords", FIRST)

    kinesis.put(STREAM, *numbered(51, 60))
    assert query.read_until(60) == numbered(1, 60)
    assert processes(query)[0]["starts"] == 2


def test_a_buffer_full_of_what_was_lost_does_not_block(
    serve: Serve, start_query: StartQuery
) -> None:
    """All of a full buffer is in one batch when the process dies. The next one meets those records
    again, when nobody is going to commit them a second time.
    """
    kinesis = serve(Settings(event_bytes=100_000))
    records = numbered(1, 200, 20_000)
    kinesis.put(STREAM, *records)
    query = start_query(kinesis, fetchBufferSize="2mb", **TWO)
    query.step()  # pins the start
    query.coordinator.latest(query.last_offset())  # begins to read
    eventually(lambda: processes(query)[0]["waiting"], "a buffer without room", PATIENT_S)
    query.step()
    assert 20 < len(query.data) < 100
    kill(query, 0)

    query.read_until(200)
    assert query.data == records


def test_one_that_dies_at_once_again_and_again_fails_the_query(
    kinesis: KinesisServer, tmp_path: Path, ending: contextlib.ExitStack
) -> None:
    """With what is to be done, and soon."""

    def broken(*args: Any) -> AgentProcesses:
        return AgentProcesses(
            *args, command=(sys.executable, "-c", "raise SystemExit(3)"), patience=PATIENCE
        )

    options = {**kinesis.options(STREAM), **TWO}
    query = MicroBatches(options, tmp_path, kinesis.clock)
    query.coordinator = Coordinator(query.options, kinesis.clock, fast_network, broken)
    ending.callback(query.close)
    with pytest.raises(
        AgentError, match=r"Agent process \d ended 5 times .* exit status 3.*agentProcesses=1"
    ):
        query.read_until(1)


def test_a_failure_within_a_process_fails_the_query(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """A consumer that somebody removed: the process asks the source, which knows its name."""
    kinesis.put(STREAM, *numbered(1, 5))
    query = start_query(kinesis, consumerName="mine", **TWO)
    query.read_until(5)
    arn = kinesis.call("DescribeStreamSummary", StreamName=STREAM)
    arn = arn["StreamDescriptionSummary"]["StreamARN"]
    kinesis.call("DeregisterStreamConsumer", StreamARN=arn, ConsumerName="mine")

    with pytest.raises(ConsumerError, match="mine"):
        query.read_until(6)


def test_what_all_hold_together_is_within_the_bound(serve: Serve, start_query: StartQuery) -> None:
    """F40: nobody takes what is there; each process stops at its part, and nothing is lost."""
    kinesis = serve(Settings(event_bytes=100_000), shards=2)
    records = numbered(1, 150, 20_000)
    for shard_id in (FIRST, SECOND):
        put_to(kinesis, shard_id, *records)
    query = start_query(kinesis, fetchBufferSize="2mb", **TWO)
    query.step()

    def full() -> bool:
        query.coordinator.latest(query.last_offset())
        return all(p["waiting"] == 1 for p in processes(query))

    eventually(full, "both wait for room", PATIENT_S)
    pool = query.coordinator.statistics()["pool"]
    assert pool["limit_bytes"] == 2 * MIB
    assert MIB < pool["used_bytes"] <= 2 * MIB
    query.read_until(300)
    assert by_shard(query) == {FIRST: records, SECOND: records}
    assert all(p["peak_bytes"] <= p["limit_bytes"] == MIB for p in processes(query))


def test_a_query_that_ends_at_the_tip_ends_there(serve: Serve, start_query: StartQuery) -> None:
    """AvailableNow, in as many batches as its limit makes of it."""
    kinesis = serve(shards=3)
    for n in range(3):
        put_to(kinesis, f"shardId-{n:012}", *numbered(1, 40))
    query = start_query(kinesis, maxRecordsPerTrigger="50", **TWO)
    query.step()
    query.available_now()

    assert len(query.data) == 120
    assert max(len(batch) for batch in query.batches()) <= 50


# --- ending -------------------------------------------------------------------------------------


def test_closing_leaves_no_process(serve: Serve, start_query: StartQuery) -> None:
    """F15: nor a subscription; and once more does no harm."""
    kinesis = serve(shards=2)
    put_to(kinesis, SECOND, *numbered(1, 5))
    query = start_query(kinesis, **TWO)
    query.read_until(5)
    pids = [p["pid"] for p in processes(query)]
    query.close()

    assert all(map(gone, pids))
    eventually(lambda: not kinesis.subscriptions(), "no subscription is left")
    query.close()


def test_closing_does_not_wait_for_one_that_stands_still(
    kinesis: KinesisServer, tmp_path: Path, ending: contextlib.ExitStack
) -> None:
    """F15: it is killed when its time is over."""
    kinesis.put(STREAM, *numbered(1, 5))
    query = impatient(kinesis, tmp_path, ending, replace(PATIENCE, stop_s=SPEED))
    query.read_until(5)
    pids = [p["pid"] for p in processes(query)]
    os.kill(pids[0], signal.SIGSTOP)
    query.close()

    assert all(map(gone, pids))


def test_one_that_stands_still_is_replaced(
    kinesis: KinesisServer, tmp_path: Path, ending: contextlib.ExitStack
) -> None:
    """It says nothing and answers nothing; nobody but the kernel can tell that from death."""
    kinesis.put(STREAM, *numbered(1, 5))
    query = impatient(kinesis, tmp_path, ending, replace(PATIENCE, silence_s=10.0))
    query.read_until(5)
    os.kill(processes(query)[0]["pid"], signal.SIGSTOP)
    kinesis.put(STREAM, *numbered(6, 9))

    assert query.read_until(9) == numbered(1, 9)
    assert processes(query)[0]["starts"] >= 2


def impatient(
    kinesis: KinesisServer, folder: Path, ending: contextlib.ExitStack, patience: Patience
) -> MicroBatches:
    """A query that does not wait long for its processes."""
    query = MicroBatches({**kinesis.options(STREAM), **TWO}, folder, kinesis.clock)
    query.coordinator = Coordinator(
        query.options, kinesis.clock, fast_network, fast_processes(kinesis.clock, patience)
    )
    ending.callback(query.close)
    return query


def test_killing_the_source_leaves_no_process(serve: Serve, tmp_path: Path) -> None:
    """They see their connection end, whatever they are doing, and give their subscriptions back."""
    kinesis = serve(shards=2)
    put_to(kinesis, FIRST, *numbered(1, 5))
    put_to(kinesis, SECOND, *numbered(1, 5))
    told = {
        "options": {**kinesis.options(STREAM), **TWO},
        "folder": str(tmp_path),
        "records": 10,
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed_reader", json.dumps(told)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        try:
            pids = json.loads(reader.stdout.readline())
            assert len(pids) == 2
            assert not any(map(gone, pids))
            eventually(lambda: a_subscription_each(kinesis, 2), "both are subscribed to")
        finally:
            reader.kill()
    eventually(lambda: all(map(gone, pids)), "no process is left", within_s=20)
    eventually(lambda: not kinesis.subscriptions(), "no subscription is left")


def test_an_error_before_anything_can_begin_is_the_querys(
    kinesis: KinesisServer, tmp_path: Path, ending: contextlib.ExitStack
) -> None:
    """It is told as it was, and not tried again."""

    def refusing(*args: Any) -> AgentProcesses:
        command = (sys.executable, "-c", _REFUSES)
        return AgentProcesses(*args, command=command, patience=PATIENCE)

    query = MicroBatches({**kinesis.options(STREAM), **TWO}, tmp_path, kinesis.clock)
    query.coordinator = Coordinator(query.options, kinesis.clock, fast_network, refusing)
    ending.callback(query.close)
    with pytest.raises(KinesisConnectorError, match=r"\[KINESIS_ACCESS\] nobody may. Ask."):
        query.read_until(1)
    assert {p["starts"] for p in processes(query)} == {1}


_REFUSES = """
import sys
from kinesis_ds.agent.__main__ import connection
from kinesis_ds.agent.remote.host import run
from kinesis_ds.errors import AccessError

def refuse(aws):
    raise AccessError("nobody may.", "Ask.")

sys.exit(run(connection(), refuse))
"""
