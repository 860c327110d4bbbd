"""Reading goes on behind the last record, and what is sent a second time is dropped (F19)."""

from __future__ import annotations

import orjson
import pytest

from kinesis_ds.testing import Alter, Fault, KinesisServer, Repeat, SendBytes, Settings, frames
from kinesis_ds.testing.log import StoredRecord
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import STREAM, Agent, numbered, starts, subscribe_calls

pytestmark = pytest.mark.fault

ALONE = Settings(event_bytes=1)


def event_of(*records: StoredRecord) -> bytes:
    """The event that brought these records, as it was sent."""
    items = [
        {
            "SequenceNumber": str(r.sequence_number),
            "ApproximateArrivalTimestamp": r.arrived,
            "Data": r.base64,
            "PartitionKey": r.partition_key,
        }
        for r in records
    ]
    last = str(records[-1].sequence_number)
    event = {"Records": items, "ContinuationSequenceNumber": last, "MillisBehindLatest": 0}
    return frames.event_message(orjson.dumps(event))


@pytest.mark.each_transport
def test_a_renewed_subscription_starts_after_the_last_record(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F19: AFTER, never AT, a sequence number, one renewal after the other."""
    kinesis = serve(Settings(subscription_life_s=5))
    agent = start_agent(kinesis).assign()
    for n in range(1, 5):
        kinesis.put(STREAM, *numbered(n, n))
        agent.take_until(numbered(1, n))
        kinesis.wait_for(lambda n=n: len(subscribe_calls(kinesis)) > n, what="a renewal")  # type: ignore[misc]

    agent.close()
    kinds = [start.partition(":")[0] for start in starts(subscribe_calls(kinesis))]
    assert kinds == ["TRIM_HORIZON"] + ["AFTER_SEQUENCE_NUMBER"] * (len(kinds) - 1)


def test_an_event_sent_twice_counts_once(serve: Serve, start_agent: StartAgent) -> None:
    """F19: on one connection, again and again."""
    kinesis = serve(ALONE, *[Fault(Repeat(2), event=n) for n in (1, 2, 4)])
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 5))
    assert len(kinesis.struck()) == 3


def test_a_server_that_starts_too_early_repeats_nothing(
    kinesis: KinesisServer, agent: Agent
) -> None:
    """F19: the next connection begins with records that were read, alone and among new ones."""
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()
    agent.take_until(numbered(1, 3))
    kinesis.put(STREAM, *numbered(4, 5))
    agent.take_until(numbered(1, 5))
    stored = kinesis.records(STREAM)
    early = event_of(*stored[:3]) + event_of(*stored[1:])
    kinesis.add_faults(Fault(SendBytes(early), call=1))
    with kinesis.down():
        pass
    kinesis.wait_for(kinesis.struck, what="the early start")
    kinesis.put(STREAM, *numbered(6, 7))

    agent.take_until(numbered(1, 7))


def test_a_continuation_before_its_own_records_is_not_resumed(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F19: some servers send a number that would bring the records of the event again, or all."""
    first = Alter(put={"ContinuationSequenceNumber": "0"})
    kinesis = serve(ALONE, *[Fault(first, event=n) for n in (1, 2, 3)])
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis).assign()
    agent.take_until(numbered(1, 3))
    with kinesis.down():
        pass
    kinesis.put(STREAM, *numbered(4, 4))

    agent.take_until(numbered(1, 4))
    last = kinesis.records(STREAM)[2].sequence_number
    calls = [call for call in subscribe_calls(kinesis) if call.outcome == "ok"]
    assert starts(calls) == ["TRIM_HORIZON", f"AFTER_SEQUENCE_NUMBER:{last}"]


def test_a_restarted_query_repeats_nothing(kinesis: KinesisServer, start_query: StartQuery) -> None:
    """F19: from the checkpoint, three times, with records before, between and while it is down."""
    put = 0
    for _ in range(3):
        query = start_query(kinesis)
        for _ in range(2):
            kinesis.put(STREAM, *numbered(put + 1, put + 2))
            put += 2
            assert query.read_until(put) == numbered(1, put)
        query.close()
        kinesis.put(STREAM, *numbered(put + 1, put + 1))
        put += 1

    assert start_query(kinesis).read_until(put) == numbered(1, put)
