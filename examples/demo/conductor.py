"""The story of a run: what happens when, how long it may take, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from devtools.localstack import LocalStack
from devtools.server import REGION
from examples.demo.batches import BatchFolder, load
from examples.demo.display import Display, short_name
from examples.demo.jobs import Job
from examples.demo.observer import Observer, Snapshot
from examples.demo.report import Events, make_report
from examples.demo.settings import KEYS, RUNS, JobSettings, Settings
from examples.demo.stream import (
    DemoStream,
    ShardInfo,
    StreamError,
    connect,
    neighbours,
    use_dummy_credentials,
)
from examples.demo.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Callable
from dataclasses import dataclass

_RUNS_KEPT = 5
_LOOK_EVERY_S = 0.25
_LIST_SHARDS_EVERY_S = 2.0
# How long each thing may take. Starting two JVMs beside a local Kinesis takes 15 s on two cores.
_STREAM_S = 120.0
_FIRST_BATCH_S = 120.0
_DRAIN_S = 90.0
_END_S = 20.0
# Between a batch's file and its commit lie some 50 ms; a batch comes every few seconds at most.
_MOMENT_S = 15.0
# After the last record: long enough for one that comes twice to be seen.
_QUIET_S = 4.0


class DemoError(RuntimeError):
    """The run could not be finished; the message says what failed."""


def run(settings: Settings) -> dict[str, object]:
    """Do it all; return the report.

    Whatever happens, also when a signal ends it, both jobs, the stream and the server are gone
    afterwards.

    Raises:
        DemoError, JobError, StreamError, ServerError, InstallError: It did not come to an end.
    """
    _forget_old_runs()
    settings.folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        endpoint, region = settings.endpoint, settings.region
        if settings.local:
            use_dummy_credentials()
            server = stack.enter_context(LocalStack())
            stack.callback(_keep_log, server.log, settings.folder / "localstack.log")
            endpoint, region = server.endpoint, REGION
        client, region = connect(endpoint, region)
        stream = DemoStream(client, settings.stream)
        server_name = "LocalStack" if settings.local else "Kinesis"
        where = "AWS" if endpoint is None else f"{server_name} at {endpoint}"
        headline = f"stream {stream.name} on {where}, {region}\nlogs in {_shown(settings.folder)}"
        display = stack.enter_context(Display(settings.records, headline))
        source = {"streamName": stream.name, "region": region}
        if endpoint is not None:
            source["endpoint"] = endpoint
        story = Story(settings, stream, display, source)
        stack.callback(story.clean_up)
        # Cleaning up is short, and must not be cut off by a second Ctrl-C.
        stack.callback(_ignore_signals)
        report = story.tell()
    left = [*story.left_behind(), *_children()]
    if left:
        raise DemoError(f"processes were left behind: {left}")
    return report


@dataclass(frozen=True)
class Outage:
    """No reading job delivers: since when, and which files there were then, with their times."""

    since_ms: int
    output: list[tuple[Path, int]]


class Story:
    """One run, from the making of the stream to the verdict. Told once."""

    def __init__(
        self, settings: Settings, stream: DemoStream, display: Display, source: dict[str, str]
    ) -> None:
        self._settings = settings
        self._stream = stream
        self._display = display
        self._made_stream = False
        self._shards: list[ShardInfo] = []
        self._shards_at = 0.0
        self._looked_at = 0.0
        self._outages: list[tuple[int, int]] = []
        self._outage: Outage | None = None
        self._reshards = 0
        self._reader_wanted = False
        self._writer_wanted = False
        self._frozen = False
        self._writer = self._job("writer", source)
        self._reader = self._job("reader", source)
        self._batches = BatchFolder(settings.folder / "reader" / "batches")
        self._observer = Observer(
            settings.folder / "writer" / "counters",
            settings.folder / "reader" / "counters",
            self._batches,
            KEYS,
        )
        self._now: Snapshot = self._observer.look([])

    def tell(self) -> dict[str, object]:
        """Everything in turn; return the report."""
        began = self._display.elapsed_s
        self._create_stream()
        self._start_jobs()
        self._written(0.25)
        self._split()
        self._written(0.5)
        self._kill_and_restart()
        # Where a restart takes long, the merge does not wait for it: it must hit the writer.
        self._written(0.85, or_if=self._reader_is_up)
        self._merge()
        self._finish_writing()
        self._drain()
        self._stop_reader()
        return self._judge(self._display.elapsed_s - began)

    def clean_up(self) -> None:
        """Kill the jobs, delete the stream. Called however the story ended."""
        self._display.now("cleaning up")
        for job in (self._reader, self._writer):
            job.kill()
        if self._made_stream and self._settings.keep:
            self._display.say(f"stream {self._stream.name} is kept, with its consumer")
        elif self._made_stream:
            try:
                self._stream.delete()
            except StreamError as error:
                self._display.say(f"{error}. Delete it yourself, on AWS it costs money.")
        self._display.now("done")

    def left_behind(self) -> list[int]:
        """Processes of the jobs that are still there."""
        return [*self._reader.members(), *self._writer.members()]

    # --- the chapters ---------------------------------------------------------------------------

    def _create_stream(self) -> None:
        shards = self._settings.shards
        self._display.now(f"creating a stream of {shards} shards")
        self._stream.create(shards)
        self._made_stream = True
        self._until(self._stream.active, "the stream to become ACTIVE", _STREAM_S)
        self._list_shards()

    def _start_jobs(self) -> None:
        self._display.now("starting the writing and the reading job")
        self._start_reader(since_ms=0)
        self._writer.start()
        self._writer_wanted = True
        self._until(self._reader_is_up, "the first batch of the reading job", _FIRST_BATCH_S)

    def _start_reader(self, since_ms: int) -> None:
        self._outage = Outage(since_ms, self._output())
        self._reader.start()
        self._reader_wanted = True

    def _written(self, share: float, *, or_if: Callable[[], bool] = lambda: False) -> None:
        self._carry_on()
        wanted = share * self._settings.records
        self._until(
            lambda: self._now.written >= wanted or or_if(),
            f"{share:.0%} of the events written",
            self._writing_s,
        )

    def _carry_on(self) -> None:
        """Name the phase in which nothing is done but waiting."""
        if self._outage is None:
            self._display.now("writing and reading")
        elif self._outages:
            self._display.now("restarting the reading job from its checkpoint")

    def _split(self) -> None:
        parent = next(shard for shard in self._shards if shard.open)
        self._reshard(
            f"splitting shard {short_name(parent.shard_id)}", lambda: self._stream.split(parent)
        )

    def _merge(self) -> None:
        left, right = neighbours(self._stream.shards())
        names = f"{short_name(left.shard_id)} and {short_name(right.shard_id)}"
        self._reshard(f"merging shards {names}", lambda: self._stream.merge(left, right))

    def _reshard(self, what: str, do: Callable[[], None]) -> None:
        self._display.now(what)
        known = {shard.shard_id for shard in self._shards}
        do()
        self._until(self._stream.active, f"{what}: the stream ACTIVE again", _STREAM_S)
        self._list_shards()
        self._reshards += 1
        new = [short_name(s.shard_id) for s in self._shards if s.shard_id not in known]
        self._display.say(f"{what} made {' and '.join(new)}")

    def _kill_and_restart(self) -> None:
        self._display.now("killing the reading job")
        batch = self._worst_moment()
        self._reader_wanted = False
        killed_ms = _now_ms()
        count = self._reader.kill()
        committed = (self._settings.folder / f"reader/checkpoint/commits/{batch}").exists()
        where = "committed" if committed else "stored, but not committed"
        self._display.say(f"killed the reading job ({count} processes) with batch {batch} {where}")
        self._start_reader(killed_ms)

    def _worst_moment(self) -> int:
        """Wait until a batch's output is there and Spark has not noted it yet; return its id.

        There a source that gives another range on the second try would lose or duplicate records.
        """
        before = self._observer.newest_batch()
        deadline = time.monotonic() + _MOMENT_S
        while (newest := self._observer.newest_batch()) == before and time.monotonic() < deadline:
            time.sleep(0.002)
        return int(newest.stem.partition("=")[2]) if newest is not None else 0

    def _finish_writing(self) -> None:
        self._carry_on()
        self._until(self._writer.finished, "the end of the writing job", self._writing_s)
        self._writer_wanted = False
        self._display.say(f"the writing job has ended, with {self._settings.records:,} events")
        self._until(self._reader_is_up, "a batch after the restart", _FIRST_BATCH_S)

    def _drain(self) -> None:
        total = self._settings.records
        self._display.now("reading the rest")
        # When it does not come, the verdict is the better message.
        with contextlib.suppress(DemoError):
            self._until(lambda: self._now.read >= total, "all events read", _DRAIN_S)
        self._display.now("waiting whether anything comes twice")
        quiet = time.monotonic() + _QUIET_S
        self._until(lambda: time.monotonic() >= quiet, "quiet", _QUIET_S + 5)

    def _stop_reader(self) -> None:
        self._display.now("stopping the reading job")
        self._reader_wanted = False
        self._frozen = True  # what is left of the view is how it was when all was read
        self._reader.ask_to_end()
        self._until(self._reader.finished, "the reading job's end after SIGTERM", _END_S)

    def _judge(self, duration_s: float) -> dict[str, object]:
        self._display.now("counting")
        batches = [load(path) for path in self._batches.files()]
        parents = {shard.shard_id: shard.parents for shard in self._stream.shards()}
        replays = self._batches.replays()
        verdict = judge(self._settings.records, batches, parents, changed=replays.count(False))
        events = Events(
            outages=self._outages,
            reshards=self._reshards,
            replays=len(replays),
            duration_s=duration_s,
            peak_rss_bytes=self._observer.peak_rss,
        )
        return make_report(verdict, batches, events)

    # --- waiting --------------------------------------------------------------------------------

    @property
    def _writing_s(self) -> float:
        return self._settings.records / self._settings.rate + 60.0

    def _until(self, condition: Callable[[], object], what: str, within_s: float) -> None:
        """Keep the view alive until something is so. A job that ends before its time ends this."""
        deadline = time.monotonic() + within_s
        while True:
            late = time.monotonic() >= deadline
            self._look()
            if condition():
                return
            if late:
                raise DemoError(f"{what}: not within {within_s:.0f} s")
            time.sleep(0.05)

    def _look(self) -> None:
        if self._reader_wanted:
            self._reader.check()
        if self._writer_wanted:
            self._writer.finished()
        now = time.monotonic()
        if self._frozen or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now
        self._reader_is_up()
        if self._shards and now - self._shards_at > _LIST_SHARDS_EVERY_S:
            self._list_shards()
        self._now = self._observer.look(self._shards)
        self._display.update(self._now)

    def _list_shards(self) -> None:
        self._shards = self._stream.shards()
        self._shards_at = time.monotonic()

    def _reader_is_up(self) -> bool:
        """Whether the reading job has delivered since its last start; notes the first time."""
        if self._outage is not None and self._now.read and self._output() != self._outage.output:
            since, to = self._outage.since_ms, _now_ms()
            self._outage = None
            self._outages.append((since, to))
            if since:
                self._display.say(f"the reading job is back after {(to - since) / 1000:.1f} s")
            else:
                self._display.say("both jobs are running")
            self._carry_on()
        return self._outage is None

    def _output(self) -> list[tuple[Path, int]]:
        return [(path, path.stat().st_mtime_ns) for path in self._batches.files()]

    def _job(self, role: str, source: dict[str, str]) -> Job:
        folder = self._settings.folder / role
        settings = JobSettings(
            source={**source, "diagnosticsDirectory": str(folder / "counters")},
            folder=str(folder),
            records=self._settings.records,
            rate=self._settings.rate,
            conductor=os.getpid(),
        )
        return Job(role, settings)


def _now_ms() -> int:
    return round(time.time() * 1000)


def _children() -> list[str]:
    return [f"{p.pid} {p.name()}" for p in psutil.Process().children(recursive=True)]


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _keep_log(log: Path, copy: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.copy(log, copy)


def _forget_old_runs() -> None:
    for old in sorted(RUNS.glob("*"))[: -(_RUNS_KEPT - 1)]:
        shutil.rmtree(old, ignore_errors=True)


def _shown(folder: Path) -> Path:
    with contextlib.suppress(ValueError):
        return folder.relative_to(Path.cwd())
    return folder
