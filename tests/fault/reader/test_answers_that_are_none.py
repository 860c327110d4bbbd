"""200 with a body that is not what Kinesis answers, from a proxy or another service (F47)."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import KinesisConnectorError, ProtocolError
from kinesis_ds.testing import AnswerWith, Corrupt, Fault, KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, Agent, numbered, subscribe_calls

pytestmark = pytest.mark.fault

PAGE = b"<html><body>Welcome to the proxy</body></html>"
UNSUPPORTED = b'{"message": "subscribe is not supported here"}'


@pytest.mark.each_transport
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (UNSUPPORTED, "not an event stream"),
        (PAGE, "not an event stream"),
        (b"{}", "ended with 2 bytes that begin no event"),
    ],
)
def test_a_subscription_answered_with_something_else_is_given_up(
    kinesis: KinesisServer, agent: Agent, body: bytes, said: str
) -> None:
    """F47: five times, with growing pauses, then it is told; no tight loop."""
    kinesis.add_faults(Fault(AnswerWith(body), times=None))
    agent.assign()

    failure = agent.failure()
    assert isinstance(failure, ProtocolError)
    assert said in str(failure)
    calls = subscribe_calls(kinesis)
    assert len(calls) == 5
    # Five seconds since the last success are kept in any case; the fourth pause is 8 to 16.
    assert calls[-1].at - calls[-2].at >= 8


def test_an_endpoint_that_recovers_is_read_from(kinesis: KinesisServer, agent: Agent) -> None:
    """F47: four times something else, then Kinesis; and the count begins anew."""
    for _ in range(2):
        kinesis.add_faults(*[Fault(AnswerWith(PAGE), call=n) for n in (1, 2)])
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()

    agent.take_until(numbered(1, 3))
    assert agent.agent.failure() is None


@pytest.mark.each_transport
def test_an_empty_body_is_not_hammered(kinesis: KinesisServer, agent: Agent) -> None:
    """F47: opened and closed without an event, again and again: less often each time."""
    kinesis.add_faults(Fault(AnswerWith(b""), times=3))
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()

    agent.take_until(numbered(1, 3))
    calls = subscribe_calls(kinesis)
    assert len(calls) == 4
    assert calls[-1].at - calls[0].at >= 3 * 5


@pytest.mark.each_transport
def test_damage_every_time_is_given_up(kinesis: KinesisServer, agent: Agent) -> None:
    """F47: a wrong checksum at the first event of five connections in a row."""
    kinesis.add_faults(Fault(Corrupt(), event=1, times=None))
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()

    assert isinstance(agent.failure(), ProtocolError)
    assert len(subscribe_calls(kinesis)) == 5


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("DescribeStreamSummary", PAGE),
        ("DescribeStreamSummary", b""),
        ("ListShards", b'{"unexpected":true}'),
        ("ListShards", b"[]"),
        ("DescribeStreamConsumer", PAGE),
        ("DescribeStreamConsumer", b'{"unexpected":true}'),
    ],
)
def test_control_calls_answered_with_something_else_are_told(
    kinesis: KinesisServer, start_query: StartQuery, operation: str, body: bytes
) -> None:
    """F47: an error of ours that names the call and asks for the endpoint; never a KeyError."""
    kinesis.add_faults(Fault(AnswerWith(body), operation, times=None))

    with pytest.raises(KinesisConnectorError) as caught:
        start_query(kinesis).read_until(1)
    assert isinstance(caught.value, ProtocolError)
    assert operation in str(caught.value)
    assert "Is the endpoint a Kinesis endpoint?" in str(caught.value)
    assert subscribe_calls(kinesis) == []


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_a_task_answered_with_something_else_fails(
    kinesis: KinesisServer, start_query: StartQuery, operation: str
) -> None:
    """F47: nothing that was not understood passes for an empty page or for the end."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis)
    base = query.last_offset()
    query.read_until(3)
    last = query.last_offset()
    for n, body in enumerate((PAGE, b"{}")):
        kinesis.add_faults(Fault(AnswerWith(body), operation))
        query.close()
        for kind in ("commits", "out"):
            newest = max(int(p.name) for p in (query.folder / "offsets").iterdir())
            (query.folder / kind / str(newest)).unlink(missing_ok=True)
        query = start_query(kinesis)
        with pytest.raises(ProtocolError):
            query.read_until(10 + n)
    assert base != last
    assert query.read_until(3) == numbered(1, 3)
