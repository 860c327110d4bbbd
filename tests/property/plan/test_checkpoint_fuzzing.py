"""Tickets and offsets of any content are read whole or refused: nothing of them is made up, and no
other error is raised.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.errors import AgentError, OffsetError
from kinesis_ds.plan.offsets import decode_offset, encode_offset
from kinesis_ds.plan.position import parse_position
from kinesis_ds.plan.ticket import decode_ticket, encode_ticket
from tests.support.hostile import (
    ANYTHING,
    FUZZ,
    assert_ours,
    damaged,
    members,
    object_of,
    parsed,
)

POSITION_TEXTS = st.sampled_from(
    [b'"TRIM_HORIZON"', b'"SHARD_END"', b'"AFTER:5"', b'"AT_TIMESTAMP:5"', b'"AFTER:"', b'"LATEST"']
)
TICKETS = object_of(
    v=st.just(b"1"), shard=st.just(b'"s"'), start=POSITION_TEXTS, end=POSITION_TEXTS
)


@FUZZ
@given(TICKETS | damaged(TICKETS) | ANYTHING | st.binary(max_size=60))
def test_a_ticket_of_any_bytes_is_read_or_refused(raw: bytes) -> None:
    """What is read is what was written; the rest is an error that the task can show."""
    try:
        shard, start, end = decode_ticket(raw)
    except (AgentError, OffsetError) as exc:
        assert_ours(exc)
        return
    ticket = parsed(raw)
    assert type(ticket["v"]) is int
    assert (ticket["shard"], parse_position(ticket["start"])) == (shard, start)
    assert decode_ticket(encode_ticket(shard, start, end)) == (shard, start, end)


STREAM_TEXTS = object_of(
    name=st.just(b'"orders"'),
    created=st.just(b"1700000000000"),
    consumer=st.just(b'"c"'),
    shards=object_of(s0=POSITION_TEXTS, s1=POSITION_TEXTS),
)
OFFSETS = st.one_of(
    object_of(v=st.just(b"1"), streams=object_of(arn=STREAM_TEXTS)),
    object_of(v=st.just(b"1"), initial=st.just(b"1")),
    object_of(v=st.just(b"1"), initial=ANYTHING, streams=object_of(arn=STREAM_TEXTS)),
    STREAM_TEXTS.map(lambda stream: members([("v", b"1"), ("streams", members([("a", stream)]))])),
)


@FUZZ
@given(OFFSETS | damaged(OFFSETS) | ANYTHING)
def test_an_offset_of_any_json_is_read_whole_or_refused(text: bytes) -> None:
    """A damaged checkpoint is told so; what is read is all that it holds."""
    try:
        raw = parsed(text)
    except ValueError:
        return
    try:
        offset = decode_offset(raw)
    except OffsetError as exc:
        assert_ours(exc)
        return
    written = encode_offset(offset)
    assert decode_offset(written) == offset
    assert json.dumps(_known(written)) == json.dumps(_known(raw))


def _known(raw: dict[str, Any]) -> list[Any]:
    """What an offset says, without its version and how numbers are padded."""
    if "streams" not in raw:
        return [raw["initial"]]
    streams = (
        [
            arn,
            *(s[member] for member in ("name", "created", "consumer")),
            sorted((shard, str(parse_position(text))) for shard, text in s["shards"].items()),
        ]
        for arn, s in raw["streams"].items()
    )
    return [raw.get("initial"), *sorted(streams)]
