"""From a put to the end of the micro-batch that has the record, and from start() to the first row.

    python -m benchmarks.source_latency [--quick] [--json FILE] [--chart FILE]

One JVM (``local[2]``), the ``noop`` sink, the double in a process of its own, over TLS with
HTTP/1.1 and with HTTP/2. A record's time begins before the call that puts it, and ends with the
batch that has its sequence number. On the *idle* stream one record is put at a time, a while after
the batch of the last; under *steady* load 400 a second, on four shards.

The floor is measured before each of them: an *empty micro-batch* lies between the ends of two
batches of a query whose only task does nothing, and the *server's delay* is from before the call to
the event, on a subscription that nothing else is done with.

*Cores* is the CPU of the JVM, the agent and the workers, by the second: on the idle stream while
nothing is put at all, else under the load.

Start-up is the median of several starts with a consumer that is there already (registering one
takes AWS seconds), on a stream that holds records; beside the query that does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.queries import Cpu, ended, raise_failure, spark, started
from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import Served, served
from benchmarks.source_peers import Ceiling, client_at
from benchmarks.source_throughput import registered
from kinesis_ds.aws.connection import Connection
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.offsets import SourceOffset, decode_offset
from kinesis_ds.plan.position import TRIM_HORIZON, After
from kinesis_ds.wire.decode import decode_event
from kinesis_ds.wire.event_stream import MessageParser

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kinesis_ds.options.aws import AwsOptions

TRANSPORTS = ("http1", "http2")
SHARDS = 4
_LOOK_S = 0.01
_WITHIN_S = 300.0
# Between two calls under steady load, and what each puts.
_PUT_EVERY_S, _RECORDS_A_PUT = 0.025, 10
_NOTHING = {"tasks": "1", "events": "0", "records": "1", "bytes": "1"}
_PARTS = (
    "start() to first trigger", "its latestOffset", "rest of the empty batch",
    "until rows are there", "their batch",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How much is measured: puts on the idle stream, seconds of rest before them and of load,
    empty batches, starts behind the first; and over what.
    """

    puts: int
    rest_s: float
    load_s: float
    empty: int
    starts: int
    transports: tuple[str, ...] = TRANSPORTS


FULL = Plan(puts=30, rest_s=5.0, load_s=6.0, empty=20, starts=1)
QUICK = Plan(puts=3, rest_s=0.5, load_s=1.0, empty=5, starts=0, transports=("http2",))


@dataclass(frozen=True)
class Put:
    """A record that was put: when, by the wall clock, and where it went."""

    at: float
    shard_id: str
    number: int


class Bench:
    """Queries and puts against one server with one session."""

    def __init__(self, session: SparkSession, server: Served) -> None:
        self.session = session
        self.server = server
        self.kinesis = client_at(server.endpoint)
        self._consumers = 0
        self._cpu = Cpu(session)

    def put(self, stream: str, records: int = 1) -> list[Put]:
        """Put records with random keys, in one call."""
        keys = [str(random.random()) for _ in range(records)]
        at = time.time()
        answer = self.kinesis.put_records(
            StreamName=stream, Records=[{"Data": b"x" * 200, "PartitionKey": k} for k in keys]
        )
        return [Put(at, r["ShardId"], int(r["SequenceNumber"])) for r in answer["Records"]]

    def consumer(self, stream: str) -> tuple[str, str]:
        """Name and ARN of a new consumer."""
        self._consumers += 1
        return registered(self.kinesis, stream, f"reader-{self._consumers}")

    def options(self, stream: str, transport: str, position: str) -> dict[str, str]:
        """Return the options of a source with a consumer of its own."""
        return {
            **self.server.options(stream, transport, tls=True),
            "registeredConsumerId": self.consumer(stream)[0],
            "initialPosition": position,
        }

    @contextlib.contextmanager
    def reading(self, stream: str, transport: str) -> Iterator[StreamingQuery]:
        """A query that has had its first records already."""
        options = self.options(stream, transport, "latest")
        with started(self.session, "kinesis", options) as query:
            _until(query, lambda: query.lastProgress is not None)
            for _ in range(3):
                self.arrived(query, self.put(stream, SHARDS * 4))
            yield query

    def arrived(self, query: StreamingQuery, puts: list[Put]) -> list[float]:
        """Seconds from each put to the end of its batch, once all have come."""

        def all_there() -> bool:
            last = query.lastProgress
            if last is None or not last["numInputRows"]:
                return False
            reached = _reached(last)
            return all(reached.get(p.shard_id, -1) >= p.number for p in puts)

        _until(query, all_there)
        ends = [(ended(p), _reached(p)) for p in query.recentProgress if p["numInputRows"]]
        return [
            next(end for end, reached in ends if reached.get(p.shard_id, -1) >= p.number) - p.at
            for p in puts
        ]

    # --- what is measured -----------------------------------------------------------------------

    def idle(self, transport: str, puts: int, rest_s: float) -> tuple[list[float], float]:
        """Seconds a record, one at a time; and the cores used before, while nothing was put."""
        took = []
        with self.reading("idle", transport) as query:
            with self._cores() as cores:
                time.sleep(rest_s)
            for _ in range(puts):
                time.sleep(random.uniform(0.1, 0.3))
                took += self.arrived(query, self.put("idle"))
        return took, cores[0]

    def steady(self, transport: str, seconds: float) -> tuple[list[float], float]:
        """Seconds a record, and the cores used, under load."""
        puts: list[Put] = []
        over = threading.Event()

        def load() -> None:
            due = time.monotonic()
            while not over.wait(max(0.0, due - time.monotonic())):
                puts.extend(self.put("steady", _RECORDS_A_PUT))
                due += _PUT_EVERY_S

        with self.reading("steady", transport) as query:
            putting = threading.Thread(target=load)
            putting.start()
            try:
                with self._cores() as cores:
                    time.sleep(seconds)
            finally:
                over.set()
                putting.join()
            return self.arrived(query, puts), cores[0]

    @contextlib.contextmanager
    def _cores(self) -> Iterator[list[float]]:
        """CPU seconds a second inside the block; there at its end."""
        cores: list[float] = []
        before, began = sum(self._cpu.used().values()), time.monotonic()
        yield cores
        cores.append((sum(self._cpu.used().values()) - before) / (time.monotonic() - began))

    def empty(self, batches: int) -> list[float]:
        """Seconds between the ends of two batches that do nothing."""
        options = {"batches": str(batches + 5), **_NOTHING}
        with started(self.session, "ceiling", options) as query:
            _until(query, lambda: (query.lastProgress or {"batchId": 0})["batchId"] > batches + 4)
            ends = [ended(p) for p in query.recentProgress][5:]
        return [after - before for before, after in pairwise(ends)]

    def delay(self, transport: str, puts: int) -> list[float]:
        """Seconds from a put to its event, read by the connector's transport and nothing else."""
        stream = f"delay-{transport}"
        aws = parse_read_options(self.server.options(stream, transport, tls=True)).aws
        put = functools.partial(self.put, stream)
        return asyncio.run(_delay(aws, self.consumer(stream)[1], put, puts))

    def start(self, transport: str) -> dict[str, float]:
        """Seconds from start() to the end of the first batch with rows, in parts."""
        return self._started("kinesis", self.options("begun", transport, "trim_horizon"))

    def start_of_nothing(self) -> dict[str, float]:
        """The same of a source that makes its rows itself."""
        return self._started("ceiling", {"batches": "1", **_NOTHING, "events": "1"})

    def _started(self, source: str, options: dict[str, str]) -> dict[str, float]:
        began = time.time()
        with started(self.session, source, options) as query:
            _until(query, lambda: (query.lastProgress or {"numInputRows": 0})["numInputRows"] > 0)
            done = query.recentProgress
        empty, rows = done[0], next(p for p in done if p["numInputRows"])
        first, last = _span(empty), _span(rows)
        asked = empty["durationMs"]["latestOffset"] / 1000
        parts = (
            first[0] - began,
            asked,
            first[1] - first[0] - asked,
            last[0] - first[1],
            last[1] - last[0],
        )
        return {**dict(zip(_PARTS, parts, strict=True)), "all": last[1] - began}


def _span(progress: Any) -> tuple[float, float]:
    end = ended(progress)
    return end - progress["durationMs"]["triggerExecution"] / 1000, end


def _reached(progress: Any) -> dict[str, int]:
    """The last sequence number of each shard in a batch and those before it."""
    offset = decode_offset(json.loads(progress["sources"][0]["endOffset"]))
    assert isinstance(offset, SourceOffset)
    (stream,) = offset.streams.values()
    return {s: p.number for s, p in stream.shards.items() if isinstance(p, After)}


def _until(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not condition():
        raise_failure(query)
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {_WITHIN_S:g}s")
        time.sleep(_LOOK_S)


async def _delay(
    aws: AwsOptions, consumer: str, put: Callable[[], list[Put]], puts: int
) -> list[float]:
    took = []
    parser = MessageParser()
    async with (
        Connection(aws) as connection,
        connection.subscribe(
            consumer, "shardId-000000000000", TRIM_HORIZON, "the benchmark"
        ) as stream,
    ):
        for _ in range(puts):
            await asyncio.sleep(random.uniform(0.02, 0.05))
            putting = asyncio.create_task(asyncio.to_thread(put))
            received = False
            while not received:
                parser.feed(await stream.chunks.__anext__())
                at = time.time()
                while (message := parser.take()) is not None:
                    if message.headers().get(":event-type") == "SubscribeToShardEvent":
                        received |= bool(decode_event(message.payload, TRIM_HORIZON).received)
            (sent,) = await putting
            took.append(at - sent.at)
    return took


def measure(report: Report, plan: Plan) -> None:
    """Fill the report: rows, start-ups, bars."""
    streams = ("idle", "steady", "begun")
    wanted = [f"{name}:{SHARDS}" for name in streams] + [f"delay-{t}:1" for t in TRANSPORTS]
    with served("--tls", *(p for name in wanted for p in ("--stream", name))) as server:
        # Before the JVM starts: its workers are given this environment.
        os.environ["AWS_CA_BUNDLE"] = server.ca_file
        with spark() as session:
            session.dataSource.register(Ceiling)
            bench = Bench(session, server)
            bench.put("begun", SHARDS * 4)
            starts = {
                "empty query": [bench.start_of_nothing() for _ in range(plan.starts + 1)],
                **{t: [bench.start(t) for _ in range(plan.starts + 1)] for t in plan.transports},
            }
            for transport in plan.transports:
                # Each time anew: the machine may have other things to do by now.
                empty = bench.empty(plan.empty)
                _note(report, "empty micro-batch", transport, empty)
                delay = bench.delay(transport, plan.puts)
                _note(report, "server's delay", transport, delay)
                floor = statistics.median(empty) + statistics.median(delay)
                idle = bench.idle(transport, plan.puts, plan.rest_s)
                _note(report, "idle", transport, *idle, floor)
                _note(report, "steady", transport, *bench.steady(transport, plan.load_s), floor)
    # The first start in a JVM pays for what all later ones find compiled and loaded.
    report.raw["start-up"] = [
        {
            "start": f"{name}, {which}",
            **{part: statistics.median(one[part] for one in some) for part in some[0]},
        }
        for name, all_ in starts.items()
        for which, some in (("the first", all_[:1]), ("later", all_[1:]))
        if some
    ]


def _note(
    report: Report,
    what: str,
    transport: str,
    took: list[float],
    cores: float | None = None,
    floor: float | None = None,
) -> None:
    ms = sorted(seconds * 1000 for seconds in took)
    row = {"what": what, "transport": transport, "n": len(ms)}
    for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        row[f"{name}, ms"] = at(ms, part)
    for name in ("p50", "p99"):
        row[f"{name}, floors"] = row[f"{name}, ms"] / 1000 / floor if floor else None
    row["cores"] = cores
    report.rows.append(row)
    report.raw.setdefault("ms", {})[f"{what} {transport}".strip()] = [round(m, 2) for m in ms]


def at(ordered: list[float], part: float) -> float:
    """The smallest value that at least this part of all does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def draw(series: dict[str, list[float]]) -> Callable[[Figure], None]:
    def into(figure: Figure) -> None:
        axes = figure.subplots()
        for name, ms in series.items():
            axes.plot(ms, [(i + 1) / len(ms) for i in range(len(ms))], label=name)
        axes.set_xscale("log")
        axes.set_xlabel("milliseconds, put to end of the micro-batch")
        axes.set_ylabel("part of the records")
        axes.legend()
        axes.grid(visible=True, which="both", alpha=0.3)

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("source_latency", args)
    measure(report, QUICK if args.quick else FULL)
    print(
        table(
            report.rows,
            dict.fromkeys(report.rows[0], ".3g") | {"what": "", "transport": "", "n": ""},
        )
    )
    print("\nSeconds from start() to the end of the first batch with rows:\n")
    starts = report.raw["start-up"]
    print(table(starts, dict.fromkeys((*_PARTS, "all"), ".2f")))
    (idle,) = (r for r in report.rows if (r["what"], r["transport"]) == ("idle", "http2"))
    for name, wanted in (("p50", 1.5), ("p99", 3)):
        what = f"latency, idle stream, HTTP/2: {name}, times (empty micro-batch + server's delay)"
        report.bars.append(Bar(what, wanted, idle[f"{name}, floors"], at_most=True))
    report.finish(draw(report.raw["ms"]))


if __name__ == "__main__":
    main()
