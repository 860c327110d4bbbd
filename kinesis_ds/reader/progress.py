"""Reports of the source on itself: for Spark's progress, and as statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_ds.observe.table import reported
from kinesis_ds.plan.offsets import SourceOffset, encode_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesis_ds.agent.interface import Agents
    from kinesis_ds.reader.fallbacks import Fallbacks
    from kinesis_ds.reader.open_stream import OpenStream


def progress_report(
    base: SourceOffset,
    streams: Mapping[str, OpenStream],
    agents: Agents,
    fallbacks: Fallbacks,
    *,
    several: bool,
) -> dict[str, Any]:
    """Return an offset, how far behind reading is (``lag``), and ``counters`` of some shards.

    The offset says up to where each shard has been read, and ``ranges`` counts the ranges that
    tasks read, by where from. The counters are those of the shards that are furthest behind.

    Args:
        base: The end of the last batch.
        streams: The open streams, by ARN.
        agents: What reads them.
        fallbacks: Counts the ranges that tasks read from Kinesis.
        several: The query reads more than one stream, so the shards' names need the stream.
    """
    known = {
        arn: stream.with_shards({**stream.shards, **streams[arn].agent.available()})
        for arn, stream in base.streams.items()
        if arn in streams
    }
    shards = shard_counters(streams.values(), several=several)
    reading = [s for s in shards.values() if s["state"] != "ended"]
    behind = [s["millis_behind"] for s in reading]
    found = agents.statistics()
    pool = found["pool"]
    return {
        **encode_offset(SourceOffset(known)),
        "lag": {
            "shards": len(behind),
            "minMsBehindLatest": min(behind, default=0),
            "avgMsBehindLatest": sum(behind) // len(behind) if behind else 0,
            "maxMsBehindLatest": max(behind, default=0),
            "estimatedShards": sum(s["millis_behind_estimated"] for s in reading),
            "bufferedRecords": pool["used_records"],
            "bufferedBytes": pool["used_bytes"],
        },
        "ranges": fallbacks.counters(found),
        "counters": reported(shards),
    }


def shard_counters(streams: Collection[OpenStream], *, several: bool) -> dict[str, dict[str, Any]]:
    """Return the counters of all shards by id, with ``<stream>/`` before it if ``several``."""
    return {
        (f"{stream.source.info.name}/{shard}" if several else shard): counters
        for stream in tuple(streams)
        for shard, counters in stream.agent.statistics().items()
    }
