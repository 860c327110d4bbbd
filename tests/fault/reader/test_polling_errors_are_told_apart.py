"""A polled shard: what passes is waited out, what does not is told (F12, F15, F32, F45, F47)."""

from __future__ import annotations

import threading

import pytest

from kinesis_ds.errors import AccessError, ProtocolError, StreamNotFoundError
from kinesis_ds.testing import AnswerWith, Disconnect, Fault, KinesisServer, NoAnswer, Refuse
from kinesis_ds.testing.faults import CallAction
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import FIRST, STREAM, iterator_starts, numbered, poll_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
@pytest.mark.parametrize(
    "action",
    [
        Refuse("InternalFailure", status=500),
        Refuse("ServiceUnavailable", status=503),
        Refuse("KMSThrottlingException"),
        Refuse("LimitExceededException"),
        Disconnect(),
        Disconnect(performed=True),
        NoAnswer(),
        AnswerWith(b"<html>busy</html>", status=502, content_type="text/html"),
        AnswerWith(b"<html>welcome</html>", content_type="text/html"),
    ],
    ids=str,
)
def test_what_passes_is_waited_out(
    serve: Serve, start_agent: StartAgent, action: CallAction, operation: str
) -> None:
    """F12, F45: everything comes, in order, once; a call without an answer is given up."""
    kinesis = serve(None, Fault(action, operation, times=2))
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 5))
    kinesis.put(STREAM, *numbered(6, 9))

    agent.take_until(numbered(1, 9))
    assert sum(agent.errors().values()) == 2
    assert agent.agent.failure() is None


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_access_denied_fails_at_once_and_names_the_permission(
    kinesis: KinesisServer, start_agent: StartAgent, operation: str
) -> None:
    """F45: retrying for ever would look like a shard without records."""
    kinesis.deny(operation)
    failure = start_agent(kinesis, mode="polling").assign().failure()

    assert isinstance(failure, AccessError)
    assert f"kinesis:{operation}" in str(failure)
    assert FIRST in str(failure)


def test_a_key_that_is_taken_away_fails_the_shard(
    kinesis: KinesisServer, start_agent: StartAgent
) -> None:
    """F45: it is told as the key's, and what was read before is kept."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))
    kinesis.set_key_state(STREAM, "KMSAccessDeniedException")

    assert isinstance(agent.failure(), AccessError)
    assert "KMS key" in str(agent.failure())


def test_a_deleted_stream_is_no_finished_shard(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F32: ResourceNotFound is looked into before anything is decided."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, consumerMode="polling")
    query.read_until(3)
    kinesis.call("DeleteStream", StreamName=STREAM)

    with pytest.raises(StreamNotFoundError, match=STREAM):
        query.read_until(4)


def test_where_all_is_there_it_passes(serve: Serve, start_agent: StartAgent) -> None:
    """F32: a server that is not consistent for a moment."""
    kinesis = serve(None, Fault(Refuse("ResourceNotFoundException"), "GetRecords", times=2))
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()

    agent.take_until(numbered(1, 3))
    assert agent.diagnosed == [FIRST] * 2


def test_an_endpoint_that_is_no_kinesis_is_given_up(serve: Serve, start_agent: StartAgent) -> None:
    """F47: after five senseless answers in a row, with a word on the endpoint."""
    kinesis = serve(None, Fault(AnswerWith(b"{}"), "GetShardIterator", times=None))
    agent = start_agent(kinesis, mode="polling").assign()

    assert isinstance(agent.failure(), ProtocolError)
    assert len(iterator_starts(kinesis)) == 5


@pytest.mark.parametrize(
    "fault",
    [
        Fault(NoAnswer(), "GetRecords", times=None),
        Fault(NoAnswer(), "GetShardIterator", times=None),
        Fault(Refuse("ProvisionedThroughputExceededException"), "GetRecords", times=None),
    ],
    ids=str,
)
def test_closing_an_agent_leaves_nothing(
    serve: Serve, start_agent: StartAgent, fault: Fault
) -> None:
    """F15: whatever a call waits for; neither threads nor connections stay."""
    kinesis = serve(None, fault)
    threads = set(threading.enumerate())
    agent = start_agent(kinesis, mode="polling").assign()
    eventually(kinesis.struck, "it waits")
    agent.close()

    eventually(lambda: set(threading.enumerate()) <= threads, "its threads are gone")
    eventually(lambda: kinesis.connections() == 0, "its connections are closed")
    calls = len(poll_calls(kinesis))
    assert agent.state() == "stopped"
    assert len(poll_calls(kinesis)) == calls
