"""What will not pass fails at once and names the remedy; what passes is waited out (F45)."""

from __future__ import annotations

import itertools

import pytest

from kinesis_ds.errors import AccessError, InvalidRequestError, KinesisConnectorError
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.testing import Fault, KinesisServer, Raise, Refuse
from tests.fault.conftest import StartQuery
from tests.support.agents import FIRST, STREAM, numbered, outcomes, subscribe_calls
from tests.support.micro_batches import MicroBatches, read_rows

pytestmark = pytest.mark.fault

AT_START = [
    "DescribeStreamSummary",
    "ListShards",
    "DescribeStreamConsumer",
    "RegisterStreamConsumer",
    "SubscribeToShard",
]
KEY_ERRORS = [
    "KMSAccessDeniedException",
    "KMSDisabledException",
    "KMSNotFoundException",
]


def fail(query: MicroBatches) -> KinesisConnectorError:
    """Run until the query fails; returns why."""
    with pytest.raises(KinesisConnectorError) as caught:
        query.read_until(10_000)
    return caught.value


def read_from_kinesis(query: MicroBatches) -> None:
    """Read the last batch as a task whose agent is gone."""
    logged = sorted(int(p.name) for p in (query.folder / "offsets").iterdir())
    start, end = query._before(logged[-1]), query._offset(logged[-1])
    (planned,) = Coordinator.plan(query.coordinator, start, end)
    read_rows(type(planned)(**{**vars(planned), "agent": None}), query.options)


@pytest.mark.parametrize("operation", AT_START)
def test_a_missing_permission_is_named(
    kinesis: KinesisServer, start_query: StartQuery, operation: str
) -> None:
    """F45: each call of the driver, asked once and not again."""
    kinesis.deny(operation)
    error = fail(start_query(kinesis))

    assert isinstance(error, AccessError)
    assert f"kinesis:{operation}" in str(error)
    assert STREAM in str(error)
    calls = kinesis.calls.calls(operation)
    assert [call.outcome for call in calls] == ["AccessDeniedException"]


@pytest.mark.parametrize("operation", ["GetShardIterator", "GetRecords"])
def test_a_permission_that_a_task_misses_is_named(
    kinesis: KinesisServer, start_query: StartQuery, operation: str
) -> None:
    """F45: a task whose agent is gone reads from Kinesis itself, and says what that needs."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis)
    query.read_until(2)
    kinesis.deny(operation)

    with pytest.raises(AccessError, match=f"kinesis:{operation}"):
        read_from_kinesis(query)
    assert len(kinesis.calls.calls(operation)) == 1


def test_a_permission_taken_away_while_the_query_runs_is_named(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F45: at the next listing."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(2)
    kinesis.deny("ListShards")

    assert "kinesis:ListShards" in str(fail(query))


@pytest.mark.parametrize("code", KEY_ERRORS)
def test_a_key_that_cannot_be_used_is_told(
    kinesis: KinesisServer, start_query: StartQuery, code: str
) -> None:
    """F45: in the stream of an open subscription, at the call for a new one, and in a task; with
    the key's permissions, and without trying again.
    """
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis)
    query.read_until(2)
    kinesis.set_key_state(STREAM, code)
    errors = [fail(query)]
    with pytest.raises(AccessError) as caught:
        read_from_kinesis(query)
    errors.append(caught.value)
    query.close()
    before = len(subscribe_calls(kinesis))
    errors.append(fail(start_query(kinesis)))

    for error in errors:
        assert isinstance(error, AccessError)
        assert error.code == code
        assert "kms:Decrypt" in str(error)
    assert outcomes(subscribe_calls(kinesis)[before:]) == {code}

    kinesis.set_key_state(STREAM, None)
    kinesis.put(STREAM, *numbered(3, 3))
    assert start_query(kinesis).read_until(3) == numbered(1, 3)


def test_a_throttled_key_is_waited_for_longer_each_time(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F45: KMSThrottling passes: of the call, and in the stream."""
    throttled = "KMSThrottlingException"
    kinesis.add_faults(Fault(Refuse(throttled), times=2), Fault(Raise(throttled), call=3))
    kinesis.put(STREAM, *numbered(1, 3))

    assert start_query(kinesis).read_until(3) == numbered(1, 3)
    calls = subscribe_calls(kinesis)
    assert [call.outcome for call in calls[:2]] == [throttled] * 2
    pauses = [later.at - sooner.at for sooner, later in itertools.pairwise(calls)]
    # Half of it is jitter: 1 to 2 s, 2 to 4, 4 to 8.
    assert all(pause >= least for pause, least in zip(pauses, (1, 2, 4), strict=False))


def test_a_call_that_is_malformed_fails_at_once(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F45: trying again would not help, and nothing is lost, whatever failOnDataLoss says."""
    kinesis.add_faults(Fault(Refuse("ValidationException", "1 validation error"), times=None))
    error = fail(start_query(kinesis, failOnDataLoss="false"))

    assert isinstance(error, InvalidRequestError)
    assert "1 validation error" in str(error)
    assert len(subscribe_calls(kinesis, FIRST)) == 1


@pytest.mark.parametrize("operation", AT_START[:4])
def test_calls_that_fail_for_a_while_do_not_fail_the_start(
    kinesis: KinesisServer, start_query: StartQuery, operation: str
) -> None:
    """F45: throttled, then 500, then well."""
    kinesis.add_faults(
        Fault(Refuse("LimitExceededException"), operation, call=1),
        Fault(Refuse("InternalFailure", status=500), operation, call=2),
    )
    kinesis.put(STREAM, *numbered(1, 2))

    assert start_query(kinesis).read_until(2) == numbered(1, 2)
    assert len(kinesis.struck()) == 2


@pytest.mark.each_transport
def test_an_endpoint_that_is_down_is_tried_until_it_is_back(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F45: connections refused, for longer than any pause at the start; nothing fails."""
    kinesis.put(STREAM, *numbered(1, 2))
    query = start_query(kinesis, shardFetchInterval="2s")
    query.read_until(2)

    def failed_often() -> bool:
        (shard,) = query.coordinator.statistics()["shards"].values()
        return sum(shard["errors"].values()) >= 4

    with kinesis.down():
        query.run_until(failed_often, "four failures")
    kinesis.put(STREAM, *numbered(3, 4))

    assert query.read_until(4) == numbered(1, 4)


def test_wrong_credentials_are_told_without_showing_them(kinesis: KinesisServer) -> None:
    """F45: the service quotes headers; keys do not get into the message."""
    quoted = "Credential=AKIASECRET/2026, Signature=deadbeef is not valid"
    kinesis.add_faults(
        Fault(Refuse("InvalidSignatureException", quoted), "DescribeStreamSummary", times=None)
    )
    options = parse_read_options(kinesis.options(STREAM))
    coordinator = Coordinator(options)
    try:
        with pytest.raises(AccessError) as caught:
            coordinator.latest(None)
    finally:
        coordinator.close()
    assert "AKIASECRET" not in str(caught.value)
    assert "deadbeef" not in str(caught.value)
