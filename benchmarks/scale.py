"""Measure the cost of 1 to 1,000 idle subscriptions on one agent, and of a batch over them.

    python -m benchmarks.scale [--quick] [--json FILE] [--chart FILE]

Each line is a process of its own: the stream reader as Spark calls it, without Spark, against the
double in another process, which sends each subscription an empty event every 5 s as AWS does.

* *subscribed*: seconds, and CPU of one subscription, until each has had its first event.
* *KB a shard*: resident memory, and what Python has allocated (tracemalloc, in a run of its own),
  above those of one subscription. Over HTTP/1.1 each has a socket; with TLS also Python's TLS,
  with a buffer that the bar, which is on what is used beyond buffers, leaves out.
* *at rest*: CPU of the whole process in a quiet window, as a part of one core; *asked* is the same
  while the next offset is asked for ten times a second; *renewed* is what the subscriptions that
  end after five minutes add, from the CPU of subscribing; the bar is on both.
* *latestOffset, partitions, commit*: the median of some batches with a record in every shard, in
  milliseconds; *quiet* is latestOffset when nothing has come.

Peers, measured in the same run: the *transport alone*, which reads the same subscriptions and
throws the bytes away (the floor), and *boto3* with a thread a shard. Planning for 10,000 shards is
in ``benchmarks.planning``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import statistics
import threading
import time
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING, Any

import botocore.config
import botocore.session
import psutil

from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import Served, served
from kinesis_ds.aws.connection import Connection
from kinesis_ds.limits import SUBSCRIPTION_LIFETIME_S
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.reader.stream import KinesisStreamReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEARTBEAT_S = 5.0
_ASKS_A_SECOND = 10
_SUBSCRIBED_WITHIN_S = 120.0
_LOOK_S = 0.1
_SETTLE_S = 2.0
# At the same time, where nobody tries again.
_OPENING = 50
# By name: the option, and whether the endpoint is the one with TLS.
TRANSPORTS = {"http2": ("http2", True), "http1": ("http1", False), "http1+tls": ("http1", True)}
SMALL_TOO = ("http2", "http1")
OURS, ALONE, BOTO3 = "kinesis_ds", "transport alone", "boto3"


@dataclass(frozen=True)
class Case:
    """One process that is measured.

    Attributes:
        who: What subscribes.
        transport: A key of ``TRANSPORTS``.
        shards: How many there are in its stream.
        window_s: How long it is left alone.
        batches: With a record in each shard.
        traced: Whether to count what Python allocates, and nothing else: that takes its time.
    """

    who: str
    transport: str
    shards: int
    window_s: float
    batches: int = 0
    traced: bool = False

    @property
    def stream(self) -> str:
        what = "".join(c for c in f"{self.who}{self.transport}" if c.isalnum())
        return f"{what}-{self.shards}-{int(self.traced)}"


def main(argv: Sequence[str] | None = None) -> None:
    report = Report("scale", arguments(__doc__, argv))
    cases = _cases(quick=report.args.quick)
    found: dict[Case, dict[str, Any]] = {}
    for group in cases:
        streams = [f"--stream={case.stream}:{case.shards}" for case in group]
        with (
            served("--tls", "--no-limits", *streams) as double,
            ThreadPoolExecutor(len(group)) as together,
        ):
            results = together.map(_measured, group, [double] * len(group))
            found.update(zip(group, results, strict=True))
    report.rows = _rows(found)
    formats = {"subscribed s": ".1f", "CPU ms each": ".2f", "RSS KB a shard": ".0f",
               "traced KB a shard": ".0f", "at rest": ".2%", "asked": ".2%", "renewed": ".2%",
               "to alone": ".1f", "quiet ms": ".2f", "latestOffset ms": ".1f",
               "partitions ms": ".1f", "commit ms": ".2f"}  # fmt: skip
    print(table(report.rows, formats))
    most = max(row["shards"] for row in report.rows)
    for row in report.rows:
        if row["who"] == OURS and row["shards"] == most:
            what = f"{most} idle subscriptions, {row['transport']}"
            cpu = 100 * (row["at rest"] + row["renewed"])
            report.bars.append(Bar(f"{what}, % of a core", 5, cpu, at_most=True))
            size = row["RSS KB a shard"] - _buffer_bytes(row["transport"]) / 1000
            report.bars.append(Bar(f"{what}, KB a shard beyond buffers", 100, size, at_most=True))
    report.finish(lambda figure: _draw(figure, report.rows))


def _cases(*, quick: bool) -> list[list[Case]]:
    """Groups of cases that are measured at the same time: CPU is counted by process.

    Each group has a double of its own, which makes five streams at most.
    """
    if quick:
        pair = [Case(OURS, "http2", n, 1.0, batches=1) for n in (1, 10)]
        return [[*pair, Case(OURS, "http2", 10, 0, traced=True)]]
    groups = []
    for transport in TRANSPORTS:
        one = Case(OURS, transport, 1, 8, batches=5)
        traced = (1, 1000) if transport == "http2" else ()
        few = [replace(one, shards=n) for n in (10, 100, 300)] if transport in SMALL_TOO else []
        # With those that leave room for them.
        peers = [] if few else [Case(BOTO3, "http1", n, 8) for n in (1, 300)]
        groups += [
            [one, *few, Case(ALONE, transport, 1, 8), *peers],
            [
                Case(OURS, transport, 1000, 10, batches=5),
                Case(ALONE, transport, 1000, 10),
                *(Case(OURS, transport, n, 0, traced=True) for n in traced),
            ],
        ]
    return groups


# --- the parent -----------------------------------------------------------------------------------


def _measured(case: Case, double: Served) -> dict[str, Any]:
    """Run a case in a process; put a record into each of its shards whenever it asks for that."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_child, args=(theirs, case, double))
    process.start()
    theirs.close()
    try:
        while (said := ours.recv()) == "put":
            _put_everywhere(double, case.stream)
            ours.send("done")
    finally:
        process.join()
    assert isinstance(said, dict)
    return said


def _put_everywhere(double: Served, stream: str) -> None:
    client = _boto(double.endpoint)
    shards = client.get_paginator("list_shards").paginate(StreamName=stream).search("Shards[]")
    entries = [
        {
            "Data": b"x" * 100,
            "PartitionKey": "key",
            "ExplicitHashKey": shard["HashKeyRange"]["StartingHashKey"],
        }
        for shard in shards
    ]
    for first in range(0, len(entries), 500):
        client.put_records(StreamName=stream, Records=entries[first : first + 500])


def _boto(endpoint: str, connections: int = 10) -> Any:
    return botocore.session.get_session().create_client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106  # of the double
        config=botocore.config.Config(max_pool_connections=connections),
    )


def _rows(found: dict[Case, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    timed = {case: seen for case, seen in found.items() if not case.traced}
    by_place = {(case.who, case.transport, case.shards): seen for case, seen in timed.items()}
    for case, seen in timed.items():
        one = by_place[case.who, case.transport, 1]
        alone = by_place.get((ALONE, case.transport, case.shards))
        traced = {n: found.get(Case(OURS, case.transport, n, 0, traced=True))
                  for n in (1, case.shards)} if case.who == OURS else {}  # fmt: skip
        more = case.shards - 1
        rows.append(
            {
                "who": case.who,
                "transport": case.transport,
                "shards": case.shards,
                "subscribed s": seen["subscribed_s"],
                "CPU ms each": seen["subscribing_cpu_s"] * 1000 / case.shards,
                "RSS KB a shard": (seen["rss"] - one["rss"]) / 1000 / more if more else None,
                "traced KB a shard": _traced(traced.get(1), traced.get(case.shards), more),
                "threads": seen["threads"],
                "sockets": seen["sockets"],
                "at rest": seen["at_rest"],
                "to alone": seen["at_rest"] / alone["at_rest"] if alone else None,
                "asked": seen.get("asked"),
                "renewed": seen["subscribing_cpu_s"] / SUBSCRIPTION_LIFETIME_S,
                "quiet ms": seen.get("quiet_ms"),
                "latestOffset ms": seen.get("latestOffset_ms"),
                "partitions ms": seen.get("partitions_ms"),
                "commit ms": seen.get("commit_ms"),
            }
        )
    return rows


def _traced(one: dict[str, Any] | None, many: dict[str, Any] | None, more: int) -> float | None:
    if one is None or many is None or not more:
        return None
    return float(many["traced"] - one["traced"]) / 1000 / more


def _buffer_bytes(transport: str) -> int:
    """Return the size of a connection's buffer, empty or not: asyncio's TLS, since Python 3.11."""
    return getattr(SSLProtocol, "max_size", 0) if transport == "http1+tls" else 0


# --- the process that is measured -----------------------------------------------------------------


def _child(pipe: Pipe, case: Case, double: Served) -> None:
    os.environ["AWS_CA_BUNDLE"] = double.ca_file
    if case.traced:
        tracemalloc.start()
    subscribe = {OURS: _ours, ALONE: _alone, BOTO3: _threads}[case.who]
    try:
        pipe.send(subscribe(pipe, case, double))
    finally:
        pipe.close()


def _ours(pipe: Pipe, case: Case, double: Served) -> dict[str, Any]:
    transport, tls = TRANSPORTS[case.transport]
    options = {"initialPosition": "trim_horizon", **double.options(case.stream, transport, tls=tls)}
    reader = KinesisStreamReader(parse_read_options(options))
    try:
        start = reader.initialOffset()
        pinned = reader.latestOffset(start)
        reader.partitions(start, pinned)
        reader.latestOffset(pinned)

        def seen(counter: str) -> list[int]:
            assert reader._coordinator is not None
            shards = reader._coordinator.statistics()["shards"]
            return [shard[counter] for shard in shards.values()]

        def ready() -> bool:
            return len(events := seen("events")) == case.shards and min(events) > 0

        found = _observed(case, ready)
        if case.traced:
            return found
        found["quiet_ms"] = 1000 * statistics.median(
            _timed(lambda: reader.latestOffset(pinned)) for _ in range(50)
        )
        found["asked"] = _cpu_while(lambda: _ask(reader, pinned, case.window_s / 4))
        found |= _batches(pipe, case, reader, pinned, lambda n: min(seen("records")) >= n)
        return found
    finally:
        reader.stop()


def _ask(reader: KinesisStreamReader, offset: dict[str, Any], seconds: float) -> None:
    for _ in range(max(1, int(seconds * _ASKS_A_SECOND))):
        reader.latestOffset(json.loads(json.dumps(offset)))
        time.sleep(1 / _ASKS_A_SECOND)


def _batches(
    pipe: Pipe,
    case: Case,
    reader: KinesisStreamReader,
    start: dict[str, Any],
    have: Callable[[int], bool],
) -> dict[str, float]:
    """Measure Spark's calls for batches with a record of each shard."""
    took: dict[str, list[float]] = {"latestOffset_ms": [], "partitions_ms": [], "commit_ms": []}
    for batch in range(1, case.batches + 1):
        pipe.send("put")
        pipe.recv()
        _wait_for(lambda number=batch: have(number))  # type: ignore[misc]
        began = time.perf_counter()
        end = reader.latestOffset(start)
        latest = time.perf_counter()
        planned = reader.partitions(start, end)
        planned_at = time.perf_counter()
        reader.commit(end)
        done = time.perf_counter()
        assert sum(len(task.ranges) for task in planned) == case.shards  # type: ignore[attr-defined,misc]
        took["latestOffset_ms"].append(latest - began)
        took["partitions_ms"].append(planned_at - latest)
        took["commit_ms"].append(done - planned_at)
        start = end
    return {name: 1000 * statistics.median(seconds) for name, seconds in took.items() if seconds}


def _alone(_: Pipe, case: Case, double: Served) -> dict[str, Any]:
    """The same subscriptions, opened by the same connection; what comes is thrown away."""
    arn, shards = _consumer(case, double)
    transport, tls = TRANSPORTS[case.transport]
    endpoint = double.tls_endpoint if tls else double.endpoint
    aws = AwsOptions("us-east-1", endpoint, "test", "test", transport=transport)  # type: ignore[arg-type]
    heard: set[str] = set()
    ended: list[asyncio.Event] = []

    async def read(connection: Connection, shard: str, opening: asyncio.Semaphore) -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with opening:
                stream = await stack.enter_async_context(
                    connection.subscribe(arn, shard, TRIM_HORIZON, shard)
                )
            async for _ in stream.chunks:
                heard.add(shard)

    async def run() -> None:
        opening = asyncio.Semaphore(_OPENING)
        ended.append(asyncio.Event())
        async with Connection(aws) as connection:
            tasks = [asyncio.ensure_future(read(connection, shard, opening)) for shard in shards]
            await ended[0].wait()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        return _observed(case, lambda: len(heard) == case.shards)
    finally:
        loop.call_soon_threadsafe(ended[0].set)
        thread.join()
        loop.close()


def _threads(_: Pipe, case: Case, double: Served) -> dict[str, Any]:
    """boto3's client (botocore), a thread a shard; its events are parsed and thrown away."""
    arn, shards = _consumer(case, double)
    client = _boto(double.endpoint, connections=case.shards)
    heard: set[str] = set()

    def read(shard: str) -> None:
        where = {"Type": "TRIM_HORIZON"}
        answer = client.subscribe_to_shard(ConsumerARN=arn, ShardId=shard, StartingPosition=where)
        with contextlib.suppress(Exception):  # the double is gone
            for _ in answer["EventStream"]:
                heard.add(shard)

    for shard in shards:
        threading.Thread(target=read, args=(shard,), daemon=True).start()
    return _observed(case, lambda: len(heard) == case.shards)


def _consumer(case: Case, double: Served) -> tuple[str, list[str]]:
    """ARN of a consumer made for a stream, and the shards of that."""
    client = _boto(double.endpoint)
    stream = client.describe_stream_summary(StreamName=case.stream)
    arn = stream["StreamDescriptionSummary"]["StreamARN"]
    client.register_stream_consumer(StreamARN=arn, ConsumerName="alone")
    found: dict[str, Any] = {}
    while found.get("ConsumerStatus") != "ACTIVE":
        time.sleep(0.1)
        found = client.describe_stream_consumer(StreamARN=arn, ConsumerName="alone")[
            "ConsumerDescription"
        ]
    shards = client.get_paginator("list_shards").paginate(StreamName=case.stream).search("Shards[]")
    return found["ConsumerARN"], [shard["ShardId"] for shard in shards]


def _observed(case: Case, ready: Callable[[], bool]) -> dict[str, Any]:
    """Measure the cost until it is ready, and then its cost at rest."""
    began, cpu = time.perf_counter(), time.process_time()
    spent_looking = 0.0
    while True:
        before = time.process_time()
        if ready():
            break
        spent_looking += time.process_time() - before
        if time.perf_counter() - began > _SUBSCRIBED_WITHIN_S:
            raise TimeoutError(f"{case}: not all subscribed within {_SUBSCRIBED_WITHIN_S:g}s")
        time.sleep(_LOOK_S)
    found: dict[str, Any] = {
        "subscribed_s": time.perf_counter() - began,
        "subscribing_cpu_s": before - cpu - spent_looking,
    }
    if not case.window_s and not case.traced:
        return found
    time.sleep(_SETTLE_S)
    gc.collect()
    if case.traced:
        found["traced"] = tracemalloc.get_traced_memory()[0]
        return found
    process = psutil.Process()
    found["rss"] = process.memory_info().rss
    found["threads"] = process.num_threads()
    found["sockets"] = sum(c.status == "ESTABLISHED" for c in process.net_connections("tcp"))
    found["at_rest"] = _cpu_while(lambda: time.sleep(case.window_s))
    return found


def _cpu_while(work: Callable[[], object]) -> float:
    """CPU of this process while something is done, as a part of one core."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - cpu) / (time.perf_counter() - began)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SUBSCRIBED_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the records did not come")
        time.sleep(_LOOK_S)


# --- the picture ----------------------------------------------------------------------------------


def _draw(figure: Figure, rows: list[dict[str, Any]]) -> None:
    left, middle, right = figure.subplots(1, 3)
    for transport in TRANSPORTS:
        mine = [r for r in rows if r["who"] == OURS and r["transport"] == transport]
        if not mine:
            continue
        shards = [r["shards"] for r in mine]
        (line,) = left.plot(shards, [100 * r["at rest"] for r in mine], "o-", label=transport)
        for r in rows:
            if r["who"] != OURS and r["transport"] == transport and r["shards"] > 1:
                mark = "x" if r["who"] == ALONE else "s"
                left.plot([r["shards"]], [100 * r["at rest"]], mark, color=line.get_color(),
                          label=f"{transport}, {r['who']}")  # fmt: skip
        sized = [r for r in mine if r["RSS KB a shard"] is not None]
        middle.plot([r["shards"] for r in sized], [r["RSS KB a shard"] for r in sized], "o-",
                    label=transport)  # fmt: skip
    timed = [r for r in rows if r["latestOffset ms"] is not None]
    first = [r for r in timed if r["transport"] == timed[0]["transport"]]
    for what in ("quiet ms", "latestOffset ms", "partitions ms", "commit ms"):
        right.plot([r["shards"] for r in first], [r[what] for r in first], "o-", label=what[:-3])
    left.axhline(5, color="gray", linestyle=":")
    middle.axhline(100, color="gray", linestyle=":")
    for axes, title in (
        (left, "CPU at rest, % of a core"),
        (middle, "memory, KB a shard"),
        (right, "a batch over all shards, ms"),
    ):
        axes.set(title=title, xlabel="shards", xscale="log", yscale="log")
        axes.legend(fontsize="small")


if __name__ == "__main__":
    main()
