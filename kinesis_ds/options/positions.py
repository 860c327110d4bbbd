"""Parse where a query starts and ends: a word, a time, or JSON with positions of shards. Pure.

The JSON may also be this connector's own offset as Spark prints it, an offset of the awslabs or
qubole connector, or a time in Databricks' form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kinesis_ds.errors import OffsetError, shown
from kinesis_ds.options.times import java_time_ms, time_ms
from kinesis_ds.plan.offsets import SourceOffset, decode_offset
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
    ShardEnd,
    TrimHorizon,
    is_number,
    parse_position,
    precedes,
)
from kinesis_ds.plan.start import EndingPosition, InitialPosition, Latest, ShardPositions
from kinesis_ds.plan.stream import same_stream

_SHARD_ID = re.compile(r"shardId-[0-9]{12,20}")
_STREAM = re.compile(r"(?:arn:[^:\s]+:kinesis:[^:\s]+:[0-9]{12}:stream/)?[a-zA-Z0-9_.-]{1,128}")
_POSITIONS = (
    "TRIM_HORIZON, LATEST, AT_TIMESTAMP:<time>, AT:<sequence number>, AFTER:<sequence number> or "
    "SHARD_END"
)
_ENDS = "LATEST, AT_TIMESTAMP:<time>, AFTER:<sequence number> or SHARD_END"
_MAX_INT_DIGITS = 18
# A key in the offsets of the awslabs and qubole connectors, next to the shards.
_METADATA = "metadata"


def initial_position(value: str) -> InitialPosition:
    """Parse where a new query starts."""
    word = value.strip().lower()
    if word == "latest":
        return Latest()
    if word in ("trim_horizon", "earliest"):
        return TRIM_HORIZON
    found = _time_or_json(value.strip(), _start_of_shard)
    if found is None:
        raise ValueError("latest, trim_horizon, earliest, at_timestamp <time>, or JSON by shard")
    return found


def ending_position(value: str) -> EndingPosition:
    """Parse where a batch read ends."""
    if value.strip().lower() == "latest":
        return Latest()
    found = _time_or_json(value.strip(), _end_of_shard)
    if found is None:
        raise ValueError("latest, at_timestamp <time>, or JSON by shard")
    return found


def _time_or_json(
    text: str, read: Callable[[object], Position | Latest]
) -> AtTimestamp | ShardPositions | None:
    if text.lower().startswith("at_timestamp"):
        return AtTimestamp(time_ms(text[len("at_timestamp") :].lstrip(" :=")))
    if text[:1] not in ("{", '"'):
        return None
    found = _object(text)
    if any(key.lower() == "at_timestamp" for key in found):
        return _databricks_time(found)
    if "v" in found:
        return _own_offset(found)
    return _by_stream(found, read)


# --- JSON ---------------------------------------------------------------------------------------


def _object(text: str) -> dict[str, Any]:
    # Spark's progress prints an offset as a text inside JSON. Users copy it with or without its
    # quotes.
    if text.startswith('{\\"'):
        text = f'"{text}"'
    if text.startswith("{'v'"):  # PySpark's progress as a dictionary; its values contain no quote
        text = text.replace("'", '"')
    found = _json(text)
    if isinstance(found, str):
        found = _json(found)
    if not isinstance(found, dict) or not found:
        raise ValueError("a JSON object with a position for each shard")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_int=_int)
    except json.JSONDecodeError as exc:
        raise ValueError(f"valid JSON ({exc.msg} at character {exc.pos})") from None
    except RecursionError:
        raise ValueError("JSON of two or three levels") from None


def _int(digits: str) -> int:
    if len(digits) > _MAX_INT_DIGITS:
        raise ValueError("sequence numbers in quotes, and no number that long beside them")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"each key once; {shown(twice)} is there twice")
    return found


def _databricks_time(found: Mapping[str, Any]) -> AtTimestamp:
    given = {key.lower(): value for key, value in found.items()}
    stamp, form = given.pop("at_timestamp"), given.pop("format", None)
    if isinstance(stamp, int) and not isinstance(stamp, bool):
        stamp = str(stamp)
    if given or not isinstance(stamp, str) or not isinstance(form, str | None):
        raise ValueError(
            '{"at_timestamp": "<time>", "format": "<Java date pattern>"}, of which the format may '
            "be left out"
        )
    return AtTimestamp(time_ms(stamp) if form is None else java_time_ms(stamp, form))


def _own_offset(found: Mapping[str, Any]) -> ShardPositions:
    try:
        offset = decode_offset(found)
    except OffsetError as exc:
        raise ValueError(
            f"an offset of this connector, of a version it knows: {exc.message}"
        ) from None
    if not isinstance(offset, SourceOffset) or not offset.streams:
        raise ValueError("an offset with positions; this is the one from before the first batch")
    return ShardPositions(
        {arn: dict(stream.shards) for arn, stream in offset.streams.items()},
        {arn: stream.created_ms for arn, stream in offset.streams.items()},
    )


def _by_stream(
    found: Mapping[str, Any], read: Callable[[object], Position | Latest]
) -> ShardPositions:
    of_shards = [key for key in found if key.startswith("shardId-") or key == _METADATA]
    if of_shards:
        stream, shards = _shards(found, read)
        return ShardPositions({stream: shards})
    problems = []
    by_stream: dict[str | None, Mapping[str, Position | Latest]] = {}
    for key, value in found.items():
        if not _STREAM.fullmatch(key) or not isinstance(value, dict):
            problems.append(
                f"a shard id (shardId-000000000000) or a stream with its shards, not {shown(key)}"
            )
            continue
        try:
            named, by_stream[key] = _shards(value, read)
        except ValueError as exc:
            problems.append(f"{exc} in stream {shown(key)}")
            continue
        if named is not None and not same_stream(named, key):
            problems.append(f"the positions of stream {shown(key)}, not of {shown(named)}")
    _raise(problems)
    return ShardPositions(by_stream)


def _shards(
    found: Mapping[str, Any], read: Callable[[object], Position | Latest]
) -> tuple[str | None, dict[str, Position | Latest]]:
    """Return the name of a stream, if it is given with the positions, and the positions."""
    problems = []
    positions: dict[str, Position | Latest] = {}
    for shard, value in found.items():
        if shard == _METADATA:
            continue
        if not _SHARD_ID.fullmatch(shard):
            problems.append(f"a shard id (shardId-000000000000), not {shown(shard)}")
            continue
        try:
            positions[shard] = read(value)
        except ValueError as exc:
            problems.append(f"{exc} for {shard}, not {shown(value)}")
    _raise(problems)
    metadata = found.get(_METADATA)
    named = metadata.get("streamName") if isinstance(metadata, dict) else None
    return (named if isinstance(named, str) and _STREAM.fullmatch(named) else None), positions


def _raise(problems: list[str]) -> None:
    if problems:
        more = f"; and {len(problems) - 5} more such mistakes" if len(problems) > 5 else ""
        raise ValueError("; ".join(problems[:5]) + more)


# --- a position ---------------------------------------------------------------------------------


_WORDS: Mapping[str, Position | Latest] = {
    "TRIM_HORIZON": TRIM_HORIZON,
    "EARLIEST": TRIM_HORIZON,
    "LATEST": Latest(),
    "SHARD_END": SHARD_END,
}


def _start_of_shard(value: object) -> Position | Latest:
    if isinstance(value, dict):
        value = _iterator(value)
    if not isinstance(value, str):
        raise ValueError(_POSITIONS)  # noqa: TRY004 - it is the user's value
    kind, _, rest = (part.strip() for part in value.partition(":"))
    kind = kind.upper()
    if kind.startswith("AT_TIMESTAMP"):
        return AtTimestamp(time_ms(value.strip()[len("AT_TIMESTAMP") :].lstrip(" :=")))
    if not rest:
        if kind in _WORDS:
            return _WORDS[kind]
    elif kind in ("AT", "AT_SEQUENCE_NUMBER") and is_number(rest):
        return At(rest)
    elif kind in ("AFTER", "AFTER_SEQUENCE_NUMBER"):
        try:
            return parse_position(f"AFTER:{rest}")
        except OffsetError:
            pass
    raise ValueError(_POSITIONS)


def _end_of_shard(value: object) -> Position | Latest:
    try:
        found = _start_of_shard(value)
    except ValueError:
        raise ValueError(_ENDS) from None
    if isinstance(found, (TrimHorizon, At)):
        raise ValueError(_ENDS)  # noqa: TRY004 - it is the user's value
    return found


def _iterator(value: Mapping[str, object]) -> str:
    """Turn a position of the awslabs or qubole connector into our text for it.

    A position inside an aggregate becomes the position before that record. Its first user records
    are then read twice, and nothing is lost.
    """
    known = {"iteratorType", "iteratorPosition", "subSequenceNumber", "isLast"}
    kind, position = value.get("iteratorType"), value.get("iteratorPosition", "")
    if not isinstance(kind, str) or not isinstance(position, str | int) or value.keys() - known:
        raise ValueError('{"iteratorType": ..., "iteratorPosition": ...}')
    inside = str(value.get("subSequenceNumber", "-1")) != "-1"
    is_last = str(value.get("isLast", "true" if not inside else "false")).lower() == "true"
    if kind.upper() == "AFTER_SEQUENCE_NUMBER" and inside and not is_last:
        kind = "AT_SEQUENCE_NUMBER"
    return f"{kind}:{position}"


# --- a start and an end -------------------------------------------------------------------------


def backwards(start: InitialPosition, end: EndingPosition) -> list[str]:
    """Return a text for each end that is before its start, where the two can be compared."""
    if isinstance(start, AtTimestamp) and isinstance(end, AtTimestamp):
        return [f"{end} is before {start}"] if end.ms < start.ms else []
    return [
        f"{of_end} is before {of_start} in {shard}"
        for shard, of_start, of_end in _pairs(start, end)
        if _before(of_end, of_start)
    ]


def _pairs(start: InitialPosition, end: EndingPosition) -> Iterator[tuple[str, object, object]]:
    starts = start.by_stream if isinstance(start, ShardPositions) else {}
    ends = end.by_stream if isinstance(end, ShardPositions) else {}
    if not starts:
        yield from ((shard, start, at) for shard, at in _all(ends.values()))
    elif not ends:
        yield from ((shard, at, end) for shard, at in _all(starts.values()))
    for stream, shards in starts.items():
        for other, others in ends.items():
            if stream is None or other is None or same_stream(stream, other):
                yield from (
                    (shard, at, others[shard]) for shard, at in shards.items() if shard in others
                )


def _all(
    maps: Iterable[Mapping[str, Position | Latest]],
) -> Iterator[tuple[str, Position | Latest]]:
    return (pair for shards in maps for pair in shards.items())


def _before(end: object, start: object) -> bool:
    if isinstance(end, AtTimestamp) and isinstance(start, AtTimestamp):
        return end.ms < start.ms
    if isinstance(end, After) and isinstance(start, (At, After, ShardEnd)):
        return precedes(end, start)
    return False
