"""Offsets and positions, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import OffsetError
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset, decode_offset, encode_offset
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    AtTimestamp,
    Position,
    parse_position,
    precedes,
)

NUMBERS = st.from_regex(r"[0-9]{1,129}", fullmatch=True)
POSITIONS = st.one_of(
    st.just(TRIM_HORIZON),
    st.just(SHARD_END),
    NUMBERS.map(After),
    st.integers(0, 10**15).map(AtTimestamp),
)
STREAMS = st.builds(
    StreamOffset,
    name=st.text(),
    arn=st.text(),
    created_ms=st.integers(-(2**62), 2**62),
    consumer=st.text(),
    shards=st.dictionaries(st.text(), POSITIONS, max_size=5),
)
OFFSETS = st.lists(STREAMS, max_size=3).map(
    lambda streams: SourceOffset({s.arn: s for s in streams})
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(OFFSETS)
def test_an_offset_survives_the_checkpoint(offset: SourceOffset) -> None:
    """Written as JSON, read and decoded, it is the same; and its text is the same again."""
    text = json.dumps(encode_offset(offset))

    assert decode_offset(json.loads(text)) == offset
    assert json.dumps(encode_offset(decode_offset(json.loads(text)))) == text


@given(JSON)
def test_any_other_json_is_an_offset_error_or_an_offset(raw: Any) -> None:
    """Reading a checkpoint never fails with anything else."""
    try:
        decode_offset(raw)
    except OffsetError:
        return
    assert isinstance(raw, dict)


@given(OFFSETS, st.data())
def test_damage_anywhere_is_an_offset_error_or_an_offset(
    offset: SourceOffset, data: st.DataObject
) -> None:
    """Replace any member by anything: no other error comes of it."""
    raw = json.loads(json.dumps(encode_offset(offset)))
    at: Any = raw
    while isinstance(at, dict) and at:
        key = data.draw(st.sampled_from(sorted(at)))
        if not isinstance(at[key], dict) or data.draw(st.booleans()):
            at[key] = data.draw(JSON)
            break
        at = at[key]

    try:
        decode_offset(raw)
    except OffsetError:
        return


@given(st.text())
def test_any_text_is_a_position_or_an_offset_error(text: str) -> None:
    """What parses is written back as it was."""
    try:
        position = parse_position(text)
    except OffsetError:
        return
    assert str(position) == text


@given(POSITIONS, POSITIONS, POSITIONS)
def test_the_order_of_positions_is_strict(a: Position, b: Position, c: Position) -> None:
    """Nothing precedes itself, no two precede each other, and the order carries over."""
    assert not precedes(a, a)
    assert not (precedes(a, b) and precedes(b, a))
    if precedes(a, b) and precedes(b, c):
        assert precedes(a, c)
