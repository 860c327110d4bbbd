"""The live view of a run: a table on a terminal, else a line every two seconds."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from types import TracebackType

    from examples.demo.observer import ShardView, Snapshot

_LINE_EVERY_S = 2.0
_EVENTS_SHOWN = 6
_BAR = 16

_STATE_STYLES = {
    "streaming": "green",
    "ended": "dim",
    "no reader": "red",
    "failed": "bold red",
}


class Display:
    """Shows snapshots and events. Use as a context manager.

    Args:
        total: Events that the run will write.
        headline: What is run, and where.
    """

    def __init__(self, total: int, headline: str) -> None:
        self.phase = "starting"
        self._total = total
        self._headline = headline
        self._began = time.monotonic()
        self._console = Console(highlight=False)
        self._live = (
            Live(console=self._console, auto_refresh=False) if sys.stdout.isatty() else None
        )
        self._events: deque[str] = deque(maxlen=_EVENTS_SHOWN)
        self._snapshot: Snapshot | None = None
        self._last_line = 0.0

    def __enter__(self) -> Display:
        self._console.print(self._headline, soft_wrap=True)
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display was made."""
        return time.monotonic() - self._began

    def say(self, event: str) -> None:
        """Something happened that is worth remembering."""
        line = f"{self.elapsed_s:5.1f} s  {event}"
        self._events.append(line)
        if self._live is None:
            self._console.print(line, soft_wrap=True)
        else:
            self._refresh()

    def now(self, phase: str) -> None:
        """What is being done from now on."""
        if phase != self.phase:
            self.phase = phase
            self._refresh()

    def update(self, snapshot: Snapshot) -> None:
        """Show a newer moment."""
        self._snapshot = snapshot
        if self._live is not None:
            self._refresh()
        elif time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(self._line(snapshot), soft_wrap=True)

    def end(self, lines: RenderableType) -> None:
        """Show what comes below the last view."""
        self._console.print(lines, soft_wrap=True)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._view(), refresh=True)

    def _line(self, s: Snapshot) -> str:
        line = f"{self.elapsed_s:5.1f} s  {self.phase}"
        if not s.written:
            return line
        behind = " ".join(
            f"{short_name(v.info.shard_id)}:{v.behind}" for v in s.shards if v.behind is not None
        )
        return (
            f"{line}: written {s.written} ({s.written_per_s:.0f}/s), "
            f"read {s.read} ({s.read_per_s:.0f}/s), in flight {s.sink.in_flight_records}, "
            f"buffered {_size(s.buffered_bytes)}, behind by shard {behind}"
        )

    def _view(self) -> RenderableType:
        title = Text.assemble(
            (f"{self.elapsed_s:5.1f} s", "bold"), "  ", (self.phase, "bold yellow")
        )
        parts: list[RenderableType] = [title]
        if self._snapshot is not None:
            parts += [self._totals(self._snapshot), self._shards(self._snapshot)]
        parts += [
            Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in self._events
        ]
        return Group(*parts)

    def _totals(self, s: Snapshot) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        for justify in ("left", "left", "right", "right", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        limit = s.sink.limit_records
        sink = f"in flight {s.sink.in_flight_records:,} of {limit:,}" if limit else ""
        if s.sink.retried:
            sink += f", sent again {s.sink.retried:,}"
        source = f"batches {s.batches}"
        if s.buffer_limit_bytes:
            share = s.buffered_bytes / s.buffer_limit_bytes
            source = f"buffer {share:.0%} of {_size(s.buffer_limit_bytes)}, {source}"
        for name, count, per_s, rest in (
            ("written", s.written, s.written_per_s, sink),
            ("read", s.read, s.read_per_s, source),
        ):
            bar = ProgressBar(
                total=self._total,
                completed=min(count, self._total),
                width=_BAR,
                complete_style="cyan",
            )
            grid.add_row(name, bar, f"{count:,}/{self._total:,}", f"{per_s:,.0f}/s", rest)
        return grid

    def _shards(self, s: Snapshot) -> RenderableType:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("shard", no_wrap=True)
        table.add_column("state", no_wrap=True, min_width=10)
        table.add_column("read", justify="right", min_width=6)
        table.add_column("behind", justify="right", min_width=6)
        table.add_column("lag ms", justify="right", min_width=6)
        table.add_column("buffered", justify="right", min_width=8)
        table.add_column("buffer fill", min_width=_BAR)
        for view in s.shards:
            table.add_row(
                _short(view),
                Text(view.state, style=_STATE_STYLES.get(view.state, "yellow")),
                f"{view.read:,}",
                "-" if view.behind is None else f"{view.behind:,}",
                "-" if view.millis_behind is None else f"{view.millis_behind:,}",
                _size(view.buffered_bytes),
                ProgressBar(
                    total=s.buffer_limit_bytes or 1,
                    completed=view.buffered_bytes,
                    width=_BAR,
                    complete_style="yellow",
                ),
                style=None if view.info.open else "dim",
            )
        return table


def short_name(shard_id: str) -> str:
    """A shard's number: `shardId-000000000003` is 3."""
    return shard_id.rpartition("-")[2].lstrip("0") or "0"


def _short(view: ShardView) -> str:
    parents = "+".join(short_name(parent) for parent in view.info.parents)
    return short_name(view.info.shard_id) + (f" of {parents}" if parents else "")


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MB" if count >= 2**20 else f"{count / 2**10:.0f} kB"
