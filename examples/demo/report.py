"""The result of a run, as `demo-report.json` and as the last lines on the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from examples.demo.verdict import Batches, Latency, Verdict, latency, rate, while_up

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Events:
    """What was done to the run, and when. Times are milliseconds since the epoch.

    Attributes:
        outages: From when to when no reading job was up; the first ends with its first batch.
        replays: Batches that were run again after a restart.
    """

    outages: Sequence[tuple[int, int]]
    reshards: int
    replays: int
    duration_s: float
    peak_rss_bytes: int

    @property
    def restarts(self) -> int:
        return len(self.outages) - 1


def make_report(verdict: Verdict, batches: Batches, events: Events) -> dict[str, Any]:
    """Everything that was counted and measured."""
    records = [record for batch in batches for record in batch]
    up = while_up(records, events.outages)
    kills = events.outages[1:]
    return {
        "passed": verdict.passed,
        **asdict(verdict),
        "restarts": events.restarts,
        "reshards": events.reshards,
        "batches": len(batches),
        "batches_run_again": events.replays,
        "write_records_per_s": rate([r.arrived_ms for r in records]),
        "read_records_per_s": rate([r.seen_ms for r in records]),
        # Put to batch: from the record's arrival in Kinesis until a batch holds it.
        "latency_ms": _plain(latency((r.arrived_ms, r.seen_ms) for r in records)),
        "latency_while_up_ms": _plain(latency((r.arrived_ms, r.seen_ms) for r in up)),
        # From the event itself: with the wait for the writing query's batch, and the write.
        "event_latency_while_up_ms": _plain(latency((r.created_ms, r.seen_ms) for r in up)),
        "recovery_s": [round((to - since) / 1000, 1) for since, to in kills],
        "reader_peak_rss_mb": round(events.peak_rss_bytes / 2**20),
        "duration_s": round(events.duration_s, 1),
    }


def summary(report: dict[str, Any]) -> list[str]:
    """The report for people; the first line is the verdict."""
    up, every = report["latency_while_up_ms"] or {}, report["latency_ms"] or {}
    passed = "PASS" if report["passed"] else "FAIL"
    lines = [
        f"{passed}: written {report['written']:,}, read {report['read']:,}, "
        f"lost {report['lost']:,}, duplicated {report['duplicated']:,}, "
        f"out of order {report['out_of_order']:,}",
        f"The reading job was killed and restarted {_count(report['restarts'], 'time')} "
        f"(back after {', '.join(f'{s:.0f} s' for s in report['recovery_s']) or '-'}, "
        f"{_count(report['batches_run_again'], 'batch')} run again); "
        f"the stream was resharded {_count(report['reshards'], 'time')}.",
        f"In {report['write_records_per_s']:,.0f}/s, out {report['read_records_per_s']:,.0f}/s; "
        f"put to batch p50 {_s(up.get('p50'))}, p99 {_s(up.get('p99'))} while the reader was up, "
        f"p99 {_s(every.get('p99'))} with its outages; "
        f"reader at most {report['reader_peak_rss_mb']} MB resident.",
    ]
    for key, text in {
        "unexpected": "records read that were never written",
        "changed": "batches that held other records when run again",
        "stored_twice": "events that the sink stored twice (sent again without an answer)",
    }.items():
        if report[key]:
            lines.append(f"Also: {report[key]:,} {text}.")
    return lines


def _plain(found: Latency | None) -> dict[str, int] | None:
    return asdict(found) if found else None


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "es" if noun.endswith("ch") else "s")


def _s(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:.1f} s"
