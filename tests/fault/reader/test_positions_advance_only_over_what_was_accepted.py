"""A position moves when a record is in the buffer, and is kept when it is in the output (F18)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.testing import Corrupt, Cut, Fault, Raise, Settings
from tests.fault.conftest import Serve, StartAgent, StartQuery
from tests.support.agents import STREAM, Agent, numbered, starts, subscribe_calls

pytestmark = pytest.mark.fault

# Each record travels in an event of its own, so that the n-th event holds the n-th record.
ALONE = Settings(event_bytes=1)
# Inside the first twelve bytes, which say how long an event is; inside its headers; its last one.
BYTES = [0, 1, 11, 12, 13, 60, -1]


def read_through(serve: Serve, start_agent: StartAgent, *faults: Fault) -> tuple[Agent, list[str]]:
    """Read nine records through the faults; the agent, and where each subscription started, with
    the n-th record's sequence number written as ``#n``.
    """
    kinesis = serve(ALONE, *faults)
    kinesis.put(STREAM, *numbered(1, 9))
    agent = start_agent(kinesis).assign()
    agent.take_until(numbered(1, 9))
    agent.close()
    found = starts(subscribe_calls(kinesis))
    for n, record in enumerate(kinesis.records(STREAM), 1):
        found = [start.replace(str(record.sequence_number), f"#{n}") for start in found]
    return agent, found


@pytest.mark.each_transport
def test_an_event_that_ended_early_is_read_again_whole(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F18: the second event of each connection breaks off, each time at another byte. A proper end
    of the HTTP body is no proper end of an event.
    """
    cuts = [Fault(Cut(b, properly=True), call=n, event=2) for n, b in enumerate(BYTES, 1)]
    _, found = read_through(serve, start_agent, *cuts)

    assert found == ["TRIM_HORIZON", *[f"AFTER_SEQUENCE_NUMBER:#{n}" for n in range(1, 8)]]


@pytest.mark.each_transport
def test_an_event_that_was_torn_is_read_again_whole(serve: Serve, start_agent: StartAgent) -> None:
    """F18: as above, but the connection is torn, and may take with it what was not read yet."""
    cuts = [Fault(Cut(b), call=n, event=3) for n, b in enumerate(BYTES, 1)]
    _, found = read_through(serve, start_agent, *cuts)

    steps = [int(start.partition("#")[2] or 0) for start in found]
    assert len(found) <= 1 + len(BYTES)
    assert all(0 <= later - sooner <= 2 for sooner, later in itertools.pairwise(steps))


@pytest.mark.each_transport
def test_events_behind_a_damaged_one_are_not_used(serve: Serve, start_agent: StartAgent) -> None:
    """F18: good events follow on the same connection, and would leave a gap where the damage is."""
    damage = [Fault(Corrupt(byte), call=n, event=2) for n, byte in enumerate((-1, 40, 200, 5), 1)]
    agent, found = read_through(serve, start_agent, *damage)

    assert found == ["TRIM_HORIZON", *[f"AFTER_SEQUENCE_NUMBER:#{n}" for n in range(1, 5)]]
    assert agent.errors() == {"ProtocolError": 4}


def test_events_before_an_exception_count(serve: Serve, start_agent: StartAgent) -> None:
    """F18: the exception comes in its turn, behind them."""
    _, found = read_through(
        serve, start_agent, Fault(Raise("InternalFailureException"), call=1, event=3)
    )

    assert found == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER:#2"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_batch_whose_task_failed_is_read_again(
    serve: Serve, start_query: StartQuery, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F18: planned is not read. What a failed task was to read is read again, once, and in order,
    by the query that goes on and by the next one.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 5))
    query = start_query(kinesis)
    failures = []

    def fail(*planned: object) -> list[object]:
        failures.append(planned)
        raise KinesisConnectorError("the executor was lost")

    with monkeypatch.context() as patch:
        patch.setattr("tests.support.micro_batches.read_rows", fail)
        with pytest.raises(KinesisConnectorError, match="executor was lost"):
            query.read_until(1)
    logged = query.last_offset()
    if restart:
        query.close()
        query = start_query(kinesis)
    kinesis.put(STREAM, *numbered(6, 7))

    assert query.read_until(7) == numbered(1, 7)
    assert len(failures) == 1
    assert logged != query.last_offset()
