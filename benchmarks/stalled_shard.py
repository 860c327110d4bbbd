"""One shard stalled among 16: what the other 15 keep of their rate.

    python -m benchmarks.stalled_shard [--quick] [--json FILE] [--chart FILE]

One agent reads 16 shards that the double, in its own process, sends at wire speed; a consumer takes
and commits what is there every 20 ms. In turns the last shard is taken like the others and it is
stalled, several times in one run, over HTTP/1.1 and over HTTP/2, where all shards share one TLS
connection. It is stalled in two ways:

* *not taken*: nothing takes its range, so its part of the buffer fills, it borrows what can be
  lent, and then its socket, or the window of its HTTP/2 stream, is no longer read.
* *lane blocked*: its decoder hangs in the middle of an event, and keeps a thread for itself.

*kept* is the rate of the other 15 while it is stalled, against theirs while it is not: the median
of the turns, each with the mean of the two around it. *kept by all* is the same for the rate of all
16: the stalled one's part goes to the others too. CPU is that of the agent's process, by MB.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import botocore.session

from benchmarks.report import Bar, Report, arguments, table
from benchmarks.serving import Served, served
from kinesis_ds.agent.agent import AgentHost, ShardAgent
from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.aws.loop import NetworkLoop
from kinesis_ds.clock import SystemClock
from kinesis_ds.limits import MIB
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON, Position
from kinesis_ds.plan.shards import Shard

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kinesis_ds.errors import KinesisConnectorError
    from kinesis_ds.options.option import Transport

SHARDS = 16
RECORD_BYTES = 1000
# So that the stalled one's part, and what can be lent, is soon full.
BUFFER_BYTES = 32 * MIB
TRANSPORTS: tuple[Transport, ...] = ("http1", "http2")
WAYS = ("not taken", "lane blocked")
BAR = 0.95
_TAKE_S = 0.02
_STILL_S = 0.4
_HELD_UP_WITHIN_S = 20.0
_STREAM = "orders"


@dataclass
class Turn:
    """Some seconds, with the last shard stalled or not.

    Attributes:
        records: By shard, taken within it.
        cpu_s: Of the process.
    """

    stalled: bool
    seconds: float
    cpu_s: float
    records: dict[str, int]

    def rate(self, shards: Sequence[str]) -> float:
        """MB a second of these shards together."""
        return sum(self.records[s] for s in shards) * RECORD_BYTES / 1e6 / self.seconds


def main(argv: Sequence[str] | None = None) -> None:
    report = Report("stalled_shard", arguments(__doc__, argv))
    quick = report.args.quick
    turn_s, turns, megabytes = (0.4, 3, 40) if quick else (1.2, 7, 256)
    series: dict[str, list[Turn]] = {}
    for transport in TRANSPORTS[-1:] if quick else TRANSPORTS:
        for way in WAYS:
            replay = f"{_STREAM}:{SHARDS}:{megabytes}:{RECORD_BYTES}"
            with (
                served("--tls", "--no-limits", f"--replay={replay}") as double,
                Consumer(double, transport) as consumer,
            ):
                found = consumer.turns(way, turn_s, turns)
            series[f"{transport}, {way}"] = found
            report.rows.append(row := _row(transport, way, found))
            what = f"rate kept by 15 shards beside one that is {way}, {transport}"
            report.bars.append(Bar(what, BAR, row["kept"]))
    print(f"{SHARDS} shards, records of {RECORD_BYTES} B, turns of {turn_s:g} s")
    formats = {"others MB/s": ".1f", "others, stalled": ".1f", "kept": ".1%", "kept by all": ".1%",
               "CPU ms/MB": ".1f", "CPU ms/MB, stalled": ".1f"}  # fmt: skip
    print(table(report.rows, formats))
    report.raw = {
        name: [
            {"stalled": t.stalled, "seconds": t.seconds, "cpu_s": t.cpu_s, "records": t.records}
            for t in found
        ]
        for name, found in series.items()
    }
    report.finish(lambda figure: _draw(figure, series))


def _row(transport: str, way: str, turns: Sequence[Turn]) -> dict[str, Any]:
    shards = sorted(turns[0].records)
    others = shards[:-1]

    def kept(of: Sequence[str]) -> float:
        return statistics.median(
            2 * turns[i].rate(of) / (turns[i - 1].rate(of) + turns[i + 1].rate(of))
            for i in range(1, len(turns) - 1, 2)
        )

    def median(stalled: bool, of: Sequence[str]) -> float:
        return statistics.median(t.rate(of) for t in turns if t.stalled is stalled)

    def cpu(stalled: bool) -> float:
        return statistics.median(
            t.cpu_s * 1000 / (t.rate(shards) * t.seconds) for t in turns if t.stalled is stalled
        )

    return {
        "transport": transport,
        "the 16th is": way,
        "others MB/s": median(False, others),
        "others, stalled": median(True, others),
        "kept": kept(others),
        "kept by all": kept(shards),
        "CPU ms/MB": cpu(False),
        "CPU ms/MB, stalled": cpu(True),
    }


@dataclass
class Consumer:
    """An agent on the shards of a double, and a thread that takes what it has.

    Context manager. Nothing is fetched over Flight: what is measured ends at the buffer.
    """

    double: Served
    transport: Transport
    stalled: bool = False
    _taken: dict[str, int] = field(default_factory=dict)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Consumer:
        os.environ["AWS_CA_BUNDLE"] = self.double.ca_file
        endpoint = self.double.tls_endpoint if self.transport == "http2" else self.double.endpoint
        aws = AwsOptions("us-east-1", endpoint, "test", "test", transport=self.transport)
        arn, consumer_arn, self.shards = _look_up(self.double)
        self._host = AgentHost(BUFFER_BYTES)
        self._network = NetworkLoop(aws)
        options = AgentOptions(_STREAM, arn, consumer_arn, 60.0, True, "127.0.0.1")
        self._agent = ShardAgent(
            options, self._host, self._network, SystemClock(), _explain, lambda: None
        )
        self._at: dict[str, Position] = {}

        async def assign() -> None:
            for shard in self.shards:
                self._at[shard] = TRIM_HORIZON
                self._taken[shard] = 0
                self._agent.assign(Shard(shard), TRIM_HORIZON)

        self._network.run(assign(), 60, "Assigning the shards")
        self._thread = threading.Thread(target=self._take, name="consumer")
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end.set()
        self._thread.join()
        self._agent.close()
        self._host.close()
        self._network.close()

    def turns(self, way: str, seconds: float, count: int) -> list[Turn]:
        """Let the last shard be taken and be stalled by turns, beginning and ending with taken."""
        self._turn(seconds / 2)  # connected, and warm
        found = []
        for number in range(count):
            if number % 2:
                with self._not_taken() if way == "not taken" else self._blocked():
                    self._wait_until_held_up()
                    found.append(self._turn(seconds, stalled=True))
            else:
                self._turn(seconds / 4)
                found.append(self._turn(seconds))
        for shard, counters in self._agent.statistics().items():
            if counters["errors"] or (seconds > 1 and not counters["millis_behind"]):
                raise RuntimeError(f"{shard} is not being read at wire speed: {counters}")
        return found

    def _turn(self, seconds: float, *, stalled: bool = False) -> Turn:
        began, cpu, before = time.perf_counter(), time.process_time(), dict(self._taken)
        time.sleep(seconds)
        after = dict(self._taken)
        return Turn(
            stalled,
            time.perf_counter() - began,
            time.process_time() - cpu,
            {shard: after[shard] - before[shard] for shard in self.shards},
        )

    def _wait_until_held_up(self) -> None:
        """Until nothing more of the last shard is received, or decoded."""
        before, deadline = -1, time.monotonic() + _HELD_UP_WITHIN_S
        while (now := self._agent.statistics()[self.shards[-1]]["bytes"]) != before:
            if time.monotonic() > deadline:
                raise RuntimeError("the shard is not stalled")
            before = now
            time.sleep(_STILL_S)

    @contextlib.contextmanager
    def _not_taken(self) -> Iterator[None]:
        self.stalled = True
        yield
        self.stalled = False

    @contextlib.contextmanager
    def _blocked(self) -> Iterator[None]:
        """The last shard's lane does something that does not end."""
        go_on = threading.Event()
        self._agent._runners[self.shards[-1]]._executor.submit(go_on.wait)  # type: ignore[arg-type]
        try:
            yield
        finally:
            go_on.set()

    def _take(self) -> None:
        while not self._end.wait(_TAKE_S):
            for shard, end in self._agent.available().items():
                if end == self._at[shard] or (self.stalled and shard == self.shards[-1]):
                    continue
                self._taken[shard] += self._agent.count(shard, self._at[shard], end) or 0
                self._agent.free({shard: end})
                self._at[shard] = end


async def _explain(shard: str) -> KinesisConnectorError | None:
    raise RuntimeError(f"{shard} was refused")


def _look_up(double: Served) -> tuple[str, str, list[str]]:
    """ARN of the stream and of a consumer of it, and its shards."""
    client = botocore.session.get_session().create_client(
        "kinesis",
        region_name="us-east-1",
        endpoint_url=double.endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106  # of the double
    )
    stream = client.describe_stream_summary(StreamName=_STREAM)["StreamDescriptionSummary"]
    arn = stream["StreamARN"]
    consumer = client.register_stream_consumer(StreamARN=arn, ConsumerName="taker")["Consumer"]
    while client.describe_stream_consumer(ConsumerARN=consumer["ConsumerARN"])[
        "ConsumerDescription"
    ]["ConsumerStatus"] != "ACTIVE":  # fmt: skip
        time.sleep(0.1)
    shards = client.get_paginator("list_shards").paginate(StreamName=_STREAM).search("Shards[]")
    return arn, consumer["ConsumerARN"], sorted(shard["ShardId"] for shard in shards)


def _draw(figure: Figure, series: dict[str, list[Turn]]) -> None:
    axes = figure.subplots(1, len(series), sharey=True, squeeze=False)[0]
    for ax, (name, turns) in zip(axes, series.items(), strict=True):
        others = sorted(turns[0].records)[:-1]
        colors = ["tab:orange" if turn.stalled else "tab:blue" for turn in turns]
        ax.bar(range(len(turns)), [turn.rate(others) for turn in turns], color=colors)
        ax.set(title=name, xlabel="turn (orange: one shard stalled)", xticks=[])
    axes[0].set_ylabel("MB/s of the other 15 shards")


if __name__ == "__main__":
    main()
