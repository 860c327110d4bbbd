"""All readers of a shard share 5 calls and 2 MiB a second (F8, F45, F51)."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator

import pytest

from kinesis_ds.errors import DataLossError
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.testing import Fault, KinesisServer, Refuse
from kinesis_ds.testing.errors import ServiceError
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import FIRST, STREAM, iterator_starts, numbered, poll_calls
from tests.support.polling import eventually

pytestmark = pytest.mark.fault

TOO_FAST = "ProvisionedThroughputExceededException"


def refused(kinesis: KinesisServer) -> int:
    return sum(call.outcome == TOO_FAST for call in poll_calls(kinesis))


@contextlib.contextmanager
def another_reader(kinesis: KinesisServer) -> Iterator[list[str]]:
    """Takes every call of the first shard that it can get; what it was answered."""
    outcomes: list[str] = []
    over = threading.Event()

    def read() -> None:
        start = {"StreamName": STREAM, "ShardId": FIRST, "ShardIteratorType": "LATEST"}
        iterator = kinesis.call("GetShardIterator", **start)["ShardIterator"]
        while not over.is_set():
            try:
                kinesis.call("GetRecords", ShardIterator=iterator)
                outcomes.append("ok")
            except ServiceError as error:
                outcomes.append(error.code)
            over.wait(0.001)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield outcomes
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("size", [100, 20_000, 900_000])
def test_alone_it_is_never_refused_for_its_pace(
    serve: Serve, start_agent: StartAgent, size: int
) -> None:
    """F8: neither for its calls nor for its bytes, small records or large, and at the tip."""
    kinesis = serve()
    records = numbered(1, 24_000_000 // max(size, 1200), size)
    kinesis.put(STREAM, *records)
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(records)
    polls = len(poll_calls(kinesis))
    eventually(lambda: len(poll_calls(kinesis)) >= polls + 10, "some polls at the tip")

    assert refused(kinesis) == 0
    assert len(iterator_starts(kinesis)) == 1


def test_an_answer_leaves_room_for_the_answers_of_others(
    serve: Serve, start_agent: StartAgent
) -> None:
    """A shard that gave 10 MiB at once gives nothing to anybody for five seconds. So about a
    second's worth is asked for, once the size of the records is known.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 800, 20_000))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 800, 20_000))

    asked = [call.request["Limit"] for call in poll_calls(kinesis)]
    assert all(limit * 20_000 <= 2.1 * 1024 * 1024 for limit in asked[1:])


def test_another_reader_that_takes_all_calls_delays_and_loses_nothing(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F45, F51: refused calls are made again after longer and longer pauses, with the iterator that
    is as good as before; it is no reason to fail, and none to look for another cause.
    """
    kinesis = serve()
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 5))
    with another_reader(kinesis) as taken:
        eventually(lambda: refused(kinesis) >= 5, "refusals")
        kinesis.put(STREAM, *numbered(6, 10))
    assert "ok" in taken

    agent.take_until(numbered(1, 10))
    assert agent.errors() == {TOO_FAST: refused(kinesis)}
    assert agent.diagnosed == []
    assert iterator_starts(kinesis) == ["TRIM_HORIZON"]


def test_pauses_grow_while_the_shard_refuses_and_it_is_told_once(
    serve: Serve, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """F51: up to ten seconds, and forgotten at the first answer."""
    kinesis = serve(None, Fault(Refuse(TOO_FAST), "GetRecords", times=14))
    kinesis.put(STREAM, *numbered(1, 3))
    with caplog.at_level(logging.WARNING):
        agent = start_agent(kinesis, mode="polling").assign()
        agent.take_until(numbered(1, 3))

    times = [call.at for call in poll_calls(kinesis)]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times[:15])]
    assert len(pauses) == 14
    assert min(pauses) >= 0.2
    assert all(pause >= 5.0 for pause in pauses[6:])
    (said,) = [r.getMessage() for r in caplog.records]
    for part in (FIRST, STREAM, "all its readers share", "consumerMode=efo"):
        assert part in said


def test_refused_iterators_are_asked_for_again_at_that_pace_too(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F23: the first call of a shard, and the one after data was lost, keep the same pauses."""
    refusals = Fault(Refuse(TOO_FAST), "GetShardIterator", times=4)
    kinesis = serve(None, refusals)
    kinesis.put(STREAM, *numbered(1, 3))
    agent = start_agent(kinesis, mode="polling").assign()
    agent.take_until(numbered(1, 3))

    times = [call.at for call in kinesis.calls.calls("GetShardIterator", FIRST)]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(pauses) >= 0.2
    assert pauses[-1] >= 2.0
    assert not isinstance(agent.agent.failure(), DataLossError)


def test_whoever_wants_less_takes_less(serve: Serve, start_agent: StartAgent) -> None:
    """A second between polls and half a megabyte a second, as the user said."""
    kinesis = serve()
    records = numbered(1, 150, 20_000)
    kinesis.put(STREAM, *records)
    modest = PollingOptions(min_period_s=1.0, max_records=10, bytes_per_s=500_000)
    agent = start_agent(kinesis, mode="polling", polling=modest).assign()
    agent.take_until(records)

    polls = poll_calls(kinesis)
    gaps = [b.at - a.at for a, b in itertools.pairwise(polls)]
    assert min(gaps) >= 1.0
    assert all(call.request["Limit"] <= 10 for call in polls)


def test_at_the_tip_a_shard_is_polled_about_once_a_second(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F43: four fifths of its calls are left to others; a record is read within about a second."""
    kinesis = serve()
    agent = start_agent(kinesis, mode="polling").assign()
    eventually(lambda: len(poll_calls(kinesis)) >= 6, "some polls")
    before = len(poll_calls(kinesis))
    eventually(lambda: len(poll_calls(kinesis)) >= before + 12, "more of them")
    polls = poll_calls(kinesis)[before:]

    assert polls[-1].at - polls[0].at >= 0.9 * (len(polls) - 1)
    assert {call.outcome for call in polls} == {"ok"}
    kinesis.put(STREAM, *numbered(1, 1))
    put_at = kinesis.records(STREAM)[0].arrived
    agent.take_until(numbered(1, 1))
    assert any(put_at <= call.at for call in poll_calls(kinesis))
