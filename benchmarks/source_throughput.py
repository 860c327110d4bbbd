"""Measure speed and cost of the source in Spark, against a ceiling and plain peers.

    python -m benchmarks.source_throughput [--quick] [--json FILE] [--chart FILE]

One JVM (``local[2]``), the ``noop`` sink, a server in a process of its own that sends what it
encoded beforehand. Counted is from the end of a query's first batch, which is empty, to the end of
the last: all work on the records, not the start of the query. CPU is that of the JVM, of the
agent's process and of the Python workers. Not the server's, which is given (*server*): on a real
stream that is not ours to pay, but here it shares the cores, so rates are lower than they could be.

* **kinesis_ds**: the source, fan-out over HTTP/1.1 (the server's HTTP/2 is slower than the source).
* **ceiling**: the batches that the source would make, made in a data source's ``read``; no network.
* **plain fan-out**: tasks that call boto3's ``subscribe_to_shard`` and yield tuples.
* **plain polling**: the same with ``get_records``.

Then the CPU of the source by stage (:mod:`benchmarks.source_stages`). *Spark* is what is left of
the CPU of a whole query: the JVM, the workers' side of it, and all that the agent does besides.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.queries import AGENT, JVM, WORKERS, Ran, run, spark
from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import Served, served
from benchmarks.source_peers import Ceiling, PlainFanOut, PlainPolling, client_at
from benchmarks.source_stages import OVER_HTTP2, STAGES, Subscribed, over_http2, stages
from kinesis_ds.aws.transport import http2_installed
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.testing import Replay

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

OURS, CEILING, FAN_OUT, POLLING = "kinesis_ds", "ceiling", "plain fan-out", "plain polling"
USUAL_SHARDS = 16
# What a micro-batch of the ceiling holds, and a task of it: about what those of the source do.
_BATCH_BYTES, _TASK_BYTES = 128_000_000, 16_000_000
_FORMATS = {
    "MB/s": ".1f", "records/s": ",.0f", "CPU s/GB": ".2f", JVM: ".2f", AGENT: ".2f",
    WORKERS: ".2f", "server": ".2f", "seconds": ".1f", "of ceiling": ".0%",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How much is measured. Volumes in MB of data, by size of a record in bytes.

    Attributes:
        ours, peers, stage: What the source, each peer, and a shard of the stages is given.
        shards: For the source; the others have ``USUAL_SHARDS``, or the only ones there are.
        rounds: How often what bars rest on is repeated, by size; the ceiling in turn with the
            source.
        warm: Whether everything is run once before, at the smallest size.
    """

    ours: dict[int, int]
    peers: dict[int, int]
    stage: dict[int, int]
    shards: tuple[int, ...]
    rounds: dict[int, int]
    warm: bool = True


FULL = Plan(
    ours={100: 64, 1_000: 400, 10_000: 320},
    peers={100: 8, 1_000: 48, 10_000: 128},
    stage={100: 16, 1_000: 64, 10_000: 64},
    shards=(4, 16, 64),
    rounds={100: 2, 1_000: 2, 10_000: 1},
)
QUICK = Plan({1_000: 4}, {1_000: 2}, {1_000: 2}, (2,), {1_000: 1}, warm=False)


@dataclass(frozen=True)
class Load:
    """A stream in wire-speed mode: each of its shards sends the same."""

    name: str
    shards: int
    record_bytes: int
    events: int
    records_an_event: int

    @classmethod
    def of(cls, name: str, shards: int, record_bytes: int, megabytes: float) -> Load:
        each = max(1, min(10_000, 256_000 // record_bytes))
        events = max(1, round(megabytes * 1e6 / shards / (each * record_bytes)))
        return cls(name, shards, record_bytes, events, each)

    @property
    def records(self) -> int:
        return self.shards * self.events * self.records_an_event

    @property
    def argument(self) -> str:
        """The argument ``--replay`` that gives the same events."""
        megabytes = self.events * self.records_an_event * self.record_bytes / 1e6
        return f"{self.name}:{self.shards}:{megabytes}:{self.record_bytes}"


class Bench:
    """Runs queries against one server with one session."""

    def __init__(self, session: SparkSession, server: Served) -> None:
        self.session = session
        self.server = server
        self._numbers = count()
        self._client = client_at(server.endpoint)

    def ours(self, load: Load, **further: str) -> Ran:
        name, _ = self.consumer(load.name)
        options = {
            **self.server.options(load.name),
            "registeredConsumerId": name,
            "initialPosition": "trim_horizon",
            **further,
        }
        return run(self.session, "kinesis", options, load.records, load.record_bytes)

    def ceiling(self, load: Load) -> Ran:
        """Run the ceiling with about as many records: whole batches of whole tasks."""
        event = load.records_an_event * load.record_bytes
        batch = min(_BATCH_BYTES, load.records * load.record_bytes)
        tasks = max(1, batch // _TASK_BYTES)
        events = max(1, batch // tasks // event)
        batches = max(1, round(load.records / (tasks * events * load.records_an_event)))
        options = {
            "batches": str(batches),
            "tasks": str(tasks),
            "events": str(events),
            "records": str(load.records_an_event),
            "bytes": str(load.record_bytes),
        }
        records = batches * tasks * events * load.records_an_event
        return run(self.session, "ceiling", options, records, load.record_bytes)

    def fan_out(self, load: Load) -> Ran:
        _, arn = self.consumer(load.name)
        return self._peer("plain_fan_out", load, consumer=arn)

    def polling(self, load: Load) -> Ran:
        return self._peer("plain_polling", load)

    def consumer(self, stream: str) -> tuple[str, str]:
        """Name and ARN of a new consumer that is ACTIVE."""
        return registered(self._client, stream, f"reader-{next(self._numbers)}")

    def _peer(self, source: str, load: Load, **options: str) -> Ran:
        options |= {
            "endpoint": self.server.endpoint,
            "stream": load.name,
            "shards": str(load.shards),
            "records": str(load.records // load.shards),
        }
        return run(self.session, source, options, load.records, load.record_bytes)


def registered(kinesis: Any, stream: str, name: str) -> tuple[str, str]:
    """Name and ARN of a consumer that is new and ACTIVE."""
    arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    answer = kinesis.register_stream_consumer(StreamARN=arn["StreamARN"], ConsumerName=name)
    consumer = answer["Consumer"]["ConsumerARN"]
    while (
        kinesis.describe_stream_consumer(ConsumerARN=consumer)["ConsumerDescription"][
            "ConsumerStatus"
        ]
        != "ACTIVE"
    ):
        time.sleep(0.05)
    return name, consumer


def measure(report: Report, plan: Plan) -> None:
    """Fill the report's rows: one a measurement; and what the stages cost."""
    usual = USUAL_SHARDS if USUAL_SHARDS in plan.shards else plan.shards[0]
    with spark() as session:
        for source in (Ceiling, PlainFanOut, PlainPolling):
            session.dataSource.register(source)
        for size, rounds in plan.rounds.items():
            loads = [Load.of(f"ours-{n}", n, size, plan.ours[size]) for n in plan.shards]
            peers = Load.of("peers", usual, size, plan.peers[size])
            warm = Load.of("warm", 2, size, plan.ours[size] / 8)
            warm_peers = Load.of("warm-peers", 2, size, plan.peers[size] / 8)
            warms_up = plan.warm and size == min(plan.ours)
            stage = Load.of("stage", 1, size, plan.stage[size])
            streams = [*loads, peers, stage, *([warm, warm_peers] if warms_up else [])]
            replays = [part for load in streams for part in ("--replay", load.argument)]
            tls = ["--tls"] if http2_installed() else []
            with served("--no-limits", *tls, *replays) as server:
                bench = Bench(session, server)
                report.raw.setdefault("stages", {})[str(size)] = _stages(bench, stage, rounds)
                if warms_up:
                    # The JVM compiles what it runs often, and workers import what they run first:
                    # both workers have to have had a task.
                    bench.ceiling(warm)
                    bench.ours(warm, shardsPerTask="1")
                    bench.fan_out(warm_peers)
                    bench.polling(warm_peers)
                for name, load, ran, cpu in _runs(bench, loads, peers, usual, rounds):
                    _note(report, name, load, ran, cpu)


def _runs(
    bench: Bench, loads: list[Load], peers: Load, usual: int, rounds: int
) -> Iterator[tuple[str, Load, Ran, float]]:
    (main,) = (load for load in loads if load.shards == usual)
    for _ in range(rounds):
        yield CEILING, main, *_with_server(bench.server, bench.ceiling, main)
        yield OURS, main, *_with_server(bench.server, bench.ours, main)
    for load in loads:
        if load is not main:
            yield OURS, load, *_with_server(bench.server, bench.ours, load)
    yield FAN_OUT, peers, *_with_server(bench.server, bench.fan_out, peers)
    yield POLLING, peers, *_with_server(bench.server, bench.polling, peers)


def _with_server(server: Served, way: Callable[[Load], Ran], load: Load) -> tuple[Ran, float]:
    """A run, and the CPU seconds that the server spent meanwhile."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    ran = way(load)
    after = process.cpu_times()
    return ran, after.user + after.system - before.user - before.system


def _stages(bench: Bench, load: Load, rounds: int) -> dict[str, float]:
    replay = Replay.of(load.events, load.records_an_event, load.record_bytes)
    aws = parse_read_options(bench.server.options(load.name)).aws
    consumers = tuple(bench.consumer(load.name)[1] for _ in range(rounds))
    spent = stages(Subscribed(aws, consumers, replay))
    if bench.server.tls_endpoint:
        options = bench.server.options(load.name, "http2", tls=True)
        os.environ["AWS_CA_BUNDLE"] = bench.server.ca_file
        try:
            aws = parse_read_options(options).aws
            consumers = tuple(bench.consumer(load.name)[1] for _ in range(rounds))
            spent |= over_http2(Subscribed(aws, consumers, replay))
        finally:
            del os.environ["AWS_CA_BUNDLE"]
    return spent


def _note(report: Report, name: str, load: Load, ran: Ran, server_cpu: float) -> None:
    report.rows.append(
        {
            "record": load.record_bytes,
            "shards": load.shards,
            "what": name,
            "MB/s": ran.mb_per_s,
            "records/s": ran.records_per_s,
            "CPU s/GB": ran.cpu_per_gb(),
            JVM: ran.cpu_per_gb(JVM),
            AGENT: ran.cpu_per_gb(AGENT),
            WORKERS: ran.cpu_per_gb(WORKERS),
            "server": server_cpu / ran.nbytes * 1e9,
            "batches": ran.batches,
            "seconds": ran.seconds,
        }
    )
    print(
        f"{load.record_bytes} bytes, {load.shards} shards, {name}: {ran.mb_per_s:.1f} MB/s, "
        f"{ran.cpu_per_gb():.1f} CPU s/GB",
        file=sys.stderr,
    )


def medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for what was repeated, and how it compares with the source's usual row."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault((row["record"], row["shards"], row["what"]), []).append(row)
    found = []
    for (record, shards, what), same in grouped.items():
        middle = {key: statistics.median(r[key] for r in same) for key in same[0] if key != "what"}
        middle = {**same[0], **middle}
        middle["runs"] = len(same)
        found.append({**middle, "record": record, "shards": shards, "what": what})
    for row in found:
        ceiling = _find(found, row["record"], CEILING)
        row["of ceiling"] = row["records/s"] / ceiling["records/s"]
        row["batches"] = round(row["batches"])
    return found


def _find(rows: list[dict[str, Any]], size: int, what: str) -> dict[str, Any]:
    """The row of a size on as many shards as the peers have."""
    shards = next(r["shards"] for r in rows if r["what"] == FAN_OUT)
    return next(r for r in rows if (r["record"], r["shards"], r["what"]) == (size, shards, what))


def bars(rows: list[dict[str, Any]]) -> list[Bar]:
    """Return the bars, as far as their sizes were measured."""
    found = []
    sizes = {row["record"] for row in rows}
    if 1_000 in sizes:
        ours, ceiling, peer = (_find(rows, 1_000, what) for what in (OURS, CEILING, FAN_OUT))
        found += [
            Bar(
                "source, 1 KB: records/s, part of the ceiling's",
                0.5,
                ours["records/s"] / ceiling["records/s"],
            ),
            Bar(
                "source, 1 KB: CPU per GB of the plain peer, times ours",
                10,
                peer["CPU s/GB"] / ours["CPU s/GB"],
            ),
        ]
    if 100 in sizes:
        ours, peer = (_find(rows, 100, what) for what in (OURS, FAN_OUT))
        found.append(
            Bar(
                "source, 100 B: records/s, times the plain peer's",
                15,
                ours["records/s"] / peer["records/s"],
            )
        )
    return found


def split(rows: list[dict[str, Any]], spent: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """CPU seconds per GB by stage, one row a size of record."""
    found = []
    for size, stage in spent.items():
        whole = _find(rows, int(size), OURS)["CPU s/GB"]
        parts = {name: stage[name] for name in STAGES}
        found.append(
            {
                "record": int(size),
                **parts,
                "Spark": whole - sum(parts.values()),
                "whole": whole,
                OVER_HTTP2: stage.get(OVER_HTTP2),
            }
        )
    return found


def draw(rows: list[dict[str, Any]], parts: list[dict[str, Any]]) -> Callable[[Figure], None]:
    """Rates by size beside the ceiling and the peers; the CPU by stage."""

    def into(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        sizes = [part["record"] for part in parts]
        for i, what in enumerate((CEILING, OURS, FAN_OUT, POLLING)):
            rates = [_find(rows, size, what)["MB/s"] for size in sizes]
            at = [place + (i - 1.5) * 0.2 for place in range(len(sizes))]
            left.bar_label(left.bar(at, rates, 0.2, label=what), fmt="%.0f", fontsize=7)
        left.set_ylabel("MB/s through Spark, local[2]")
        left.legend()
        below = [0.0] * len(sizes)
        for stage in (*STAGES, "Spark"):
            spent = [part[stage] for part in parts]
            right.bar(range(len(sizes)), spent, 0.6, bottom=below, label=stage)
            below = [low + more for low, more in zip(below, spent, strict=True)]
        right.set_ylabel("CPU seconds per GB of data")
        right.legend()
        for axes in (left, right):
            axes.set_xticks(range(len(sizes)), [f"{size:,} bytes" for size in sizes])

    return into


def main() -> None:
    args = arguments(__doc__)
    report = Report("source_throughput", args)
    measure(report, QUICK if args.quick else FULL)
    report.raw["runs"] = report.rows
    report.rows = rows = medians(report.rows)
    parts = split(rows, report.raw["stages"])
    print(table(rows, _FORMATS))
    print("\nCPU seconds per GB by stage; the whole is that of the source above:\n")
    print(table(parts, dict.fromkeys((*STAGES, "Spark", "whole", OVER_HTTP2), ".2f")))
    report.raw["split"] = parts
    report.bars = bars(rows)
    report.finish(draw(rows, parts))


if __name__ == "__main__":
    main()
