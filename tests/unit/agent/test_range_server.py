"""Serving ranges: the request, the joining of small batches, and a real Flight round trip."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.agent.range_client import stream_range
from kinesis_ds.agent.range_server import RangeServer, merge_small
from kinesis_ds.errors import AgentError, KinesisConnectorError
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.ticket import AgentAddress, decode_ticket, encode_ticket
from kinesis_ds.wire.decode import sequence_numbers
from kinesis_ds.wire.schema import RECORD_SCHEMA
from tests.support.builders import number, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

# Deeper than Python prints, and not too deep to be parsed.
DEEP = b"[" * 1000 + b"]" * 1000

# --- the request --------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [TRIM_HORIZON, AtTimestamp(17), After("00042"), After(number(1))])
@pytest.mark.parametrize("end", [After(number(2)), SHARD_END])
def test_a_ticket_reads_back_as_it_was_written(start: Position, end: Position) -> None:
    """Shard, start and end cross the network unchanged."""
    assert decode_ticket(encode_ticket("shardId-0", start, end)) == ("shardId-0", start, end)


def test_another_protocol_version_is_told() -> None:
    """A task of another version is refused by number, and reads from Kinesis."""
    raw = orjson.dumps({"v": 2, "shard": "s", "start": "TRIM_HORIZON", "end": "SHARD_END"})

    with pytest.raises(AgentError, match="speaks protocol 1, the task 2"):
        decode_ticket(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b"{}",
        b'{"v":1}',
        b'{"v":1,"shard":"s","start":"x","end":"SHARD_END"}',
        b'{"v":1,"shard":"s","start":null,"end":"SHARD_END"}',
        b'{"v":1,"shard":"s","start":"SHARD_END"}',
        b'{"v":true,"shard":"s","start":"TRIM_HORIZON","end":"SHARD_END"}',
        b'{"v":1,"shard":5,"start":"TRIM_HORIZON","end":"SHARD_END"}',
        b'{"v":1,"shard":null,"start":"TRIM_HORIZON","end":"SHARD_END"}',
        b'{"v":1,"shard":' + DEEP + b',"start":"TRIM_HORIZON","end":"SHARD_END"}',
        b'{"v":' + DEEP + b',"shard":"s","start":"TRIM_HORIZON","end":"SHARD_END"}',
        b'{"v":1,"shard":"s","start":' + DEEP + b',"end":"SHARD_END"}',
    ],
)
def test_a_malformed_ticket_is_refused(raw: bytes) -> None:
    """Whatever arrives, the answer is one of our errors."""
    with pytest.raises(KinesisConnectorError):
        decode_ticket(raw)


def test_the_token_is_not_shown() -> None:
    """An address may be logged."""
    assert repr(AgentAddress("grpc://h:1", "secret-token")) == "AgentAddress(uri='grpc://h:1')"


# --- joining ------------------------------------------------------------------------------------


def batches_of(*sizes: int) -> list[pa.RecordBatch]:
    return [records([n], b"x" * size).batch for n, size in enumerate(sizes, 1)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([10], [1], id="one"),
        pytest.param([10] * 50, [50], id="small ones are joined"),
        pytest.param([300_000] * 3, [1, 1, 1], id="large ones stay as they are"),
        pytest.param([10, 10, 300_000, 10], [2, 1, 1], id="a large one between small ones"),
        pytest.param([200_000] * 23, [11, 11, 1], id="joined up to two megabytes"),
    ],
)
def test_small_batches_are_joined_and_large_ones_left_alone(
    sizes: list[int], expected: list[int]
) -> None:
    """Spark gets fewer, larger batches with the same records in the same order."""
    joined = list(merge_small(batches_of(*sizes)))

    assert [b.num_rows for b in joined] == expected
    assert [n for b in joined for n in sequence_numbers(b)] == list(range(1, len(sizes) + 1))
    assert all(b.schema == RECORD_SCHEMA for b in joined)


def test_slices_are_joined_by_what_they_show() -> None:
    """Half a batch, as a range cuts it, contributes its half."""
    one, two = records([1, 2]).batch.slice(1, 1), records([3, 4]).batch.slice(0, 1)

    (joined,) = merge_small([one, two])
    assert sequence_numbers(joined) == [2, 3]


# --- Flight -------------------------------------------------------------------------------------


@pytest.fixture
def buffer() -> ShardBuffer:
    buffer = ShardBuffer("s", TRIM_HORIZON, BufferPool(1 << 30))
    for n in range(1, 101):
        buffer.append(records([n], b"x" * 1000), After(str(n)), 0)
    return buffer


@pytest.fixture
def server(buffer: ShardBuffer) -> Iterator[RangeServer]:
    def find(shard: str) -> ShardBuffer:
        if shard != "s":
            raise AgentError(f"This agent does not hold shard {shard}.")
        return buffer

    server = RangeServer("127.0.0.1", find)
    yield server
    server.close()


def fetched(server: RangeServer, start: Position, end: Position, shard: str = "s") -> list[int]:
    found = stream_range(server.address, shard, start, end)
    return [n for batch in found for n in sequence_numbers(batch)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (TRIM_HORIZON, After("100"), range(1, 101)),
        (After("10"), After("12"), range(11, 13)),
        (After("100"), After("100"), range(0)),
    ],
)
def test_a_range_comes_over_flight_exactly(
    server: RangeServer, start: Position, end: Position, expected: range
) -> None:
    """What the buffer holds in the range arrives, once and in order; an empty range is empty."""
    assert fetched(server, start, end) == list(expected)


def test_the_same_range_may_be_asked_for_again(server: RangeServer) -> None:
    """Retries and second actions get the same records."""
    assert fetched(server, After("1"), After("50")) == fetched(server, After("1"), After("50"))


def test_records_arrive_unchanged(server: RangeServer, buffer: ShardBuffer) -> None:
    """Every column, byte for byte."""
    (sent,) = buffer.read(After("4"), After("5"))

    (got,) = stream_range(server.address, "s", After("4"), After("5"))
    assert got.equals(sent)


@pytest.mark.parametrize("token", ["wrong", ""])  # gRPC itself refuses what is not ASCII
def test_a_wrong_token_is_refused(server: RangeServer, token: str) -> None:
    """Only the query that started the agent is served."""
    stranger = replace(server.address, token=token)

    with pytest.raises(AgentError, match="did not serve shard s"):
        list(stream_range(stranger, "s", TRIM_HORIZON, After("1")))


@pytest.mark.parametrize(
    ("start", "end"),
    [(TRIM_HORIZON, After("101")), (AtTimestamp(1), After("5")), (TRIM_HORIZON, SHARD_END)],
)
def test_a_range_that_is_not_held_is_an_agent_error(
    server: RangeServer, start: Position, end: Position
) -> None:
    """The task learns it before the first record, with what is held in the message."""
    with pytest.raises(AgentError, match=r"the agent holds \(TRIM_HORIZON, AFTER:100\]"):
        fetched(server, start, end)


def test_a_shard_that_is_not_held_is_an_agent_error(server: RangeServer) -> None:
    """The lookup's own words reach the task."""
    with pytest.raises(AgentError, match="does not hold shard other"):
        fetched(server, TRIM_HORIZON, After("1"), shard="other")


def test_an_agent_that_is_gone_is_an_agent_error(server: RangeServer) -> None:
    """Also for a client whose connection was good before."""
    assert fetched(server, TRIM_HORIZON, After("1")) == [1]
    server.close()

    with pytest.raises(AgentError, match="did not serve shard s"):
        fetched(server, TRIM_HORIZON, After("1"))


def test_closing_does_not_wait_for_a_task_that_stands_still(buffer: ShardBuffer) -> None:
    """A query stops although a consumer holds a range open and takes nothing (F15)."""
    big = ShardBuffer("s", TRIM_HORIZON, BufferPool(1 << 30))
    for n in range(1, 41):
        big.append(records([n], b"x" * (1 << 20)), After(str(n)), 0)
    server = RangeServer("127.0.0.1", lambda shard: big)
    stalled = stream_range(server.address, "s", TRIM_HORIZON, After("40"))
    first = next(stalled)

    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    assert sequence_numbers(first) == [1]
    with pytest.raises(AgentError):
        list(stalled)


def test_closing_twice_is_fine(server: RangeServer) -> None:
    """Close is idempotent."""
    server.close()
    server.close()
