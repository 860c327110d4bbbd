"""Only a query that is stopped, and was told to, takes its consumer with it (F36, F38)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinesis_ds.errors import AccessError, KinesisConnectorError
from kinesis_ds.reader.task import read_planned
from kinesis_ds.testing import Fault, KinesisServer, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, STREAM, numbered

pytestmark = pytest.mark.fault


def consumers(kinesis: KinesisServer) -> list[str]:
    found = kinesis.call("DescribeStreamSummary", StreamName=STREAM)["StreamDescriptionSummary"]
    answer = kinesis.call("ListStreamConsumers", StreamARN=found["StreamARN"])
    return [c["ConsumerARN"] for c in answer["Consumers"] if c["ConsumerStatus"] == "ACTIVE"]


def test_a_stopped_query_leaves_its_consumer_by_default(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F36, F38: so that the next start finds it. What that costs is documented."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis)
    query.read_until(2)
    query.close()

    assert len(consumers(kinesis)) == 1
    assert kinesis.calls.calls("DeregisterStreamConsumer") == []
    docs = Path(__file__).parents[3] / "docs"
    told = (docs / "how-to" / "name-a-consumer.md").read_text()
    assert "requireConsumerDeregistration" in told
    assert "AWS bills idle consumers" in (docs / "reference" / "options.md").read_text()


@pytest.mark.parametrize("deregister", ["true", "false"])
def test_failures_of_tasks_and_of_the_query_leave_the_consumer(
    kinesis: KinesisServer, start_query: StartQuery, deregister: str
) -> None:
    """F36: a task fails, then the driver's own calls do; a restart reads with the same consumer."""
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, requireConsumerDeregistration=deregister)
    query.read_until(3)
    (consumer,) = consumers(kinesis)

    # A task without its agent, whose calls are denied.
    base = query.last_offset()
    kinesis.put(STREAM, *numbered(4, 5))
    query.run_until(lambda: len(query.rows) == 5, "records 4 and 5")
    (planned,) = query.coordinator.plan(base, query.last_offset())
    kinesis.deny("GetShardIterator")
    alone = type(planned)(**{**vars(planned), "agent": None})
    with pytest.raises(AccessError):
        list(read_planned(alone, query.options.aws))
    assert consumers(kinesis) == [consumer]

    # The driver, whose subscription is denied.
    kinesis.add_faults(Fault(Refuse("AccessDeniedException"), shard=FIRST, times=None))
    with kinesis.down():
        pass
    with pytest.raises(KinesisConnectorError):
        query.read_until(6)
    assert consumers(kinesis) == [consumer]
    assert kinesis.calls.calls("DeregisterStreamConsumer") == []
    kinesis.clear_faults()
    kinesis.allow("GetShardIterator")

    # Killed: nobody calls close, and the next one is there at once.
    kinesis.put(STREAM, *numbered(6, 6))
    assert start_query(kinesis).read_until(6) == numbered(1, 6)
    assert consumers(kinesis) == [consumer]


def test_a_stopped_query_takes_its_consumer_where_the_user_said_so(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F38: once, at the end; the next start registers another and goes on where this one was."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, requireConsumerDeregistration="true")
    query.read_until(2)
    query.close()
    query.close()
    assert [c.outcome for c in kinesis.calls.calls("DeregisterStreamConsumer")] == ["ok"]
    assert consumers(kinesis) == []

    kinesis.put(STREAM, *numbered(3, 3))
    assert start_query(kinesis).read_until(3) == numbered(1, 3)


def test_a_deregistration_that_fails_ends_the_query_all_the_same(
    kinesis: KinesisServer, start_query: StartQuery, caplog: pytest.LogCaptureFixture
) -> None:
    """F38: with a warning that names the consumer."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, requireConsumerDeregistration="true", consumerName="mine")
    query.read_until(2)
    kinesis.deny("DeregisterStreamConsumer")
    query.close()

    assert "the consumer mine was not deregistered" in caplog.text
    assert len(consumers(kinesis)) == 1
