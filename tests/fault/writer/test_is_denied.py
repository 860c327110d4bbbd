"""Permission, key, credentials or the stream itself are gone in the middle of a task (F45)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kinesis_ds.errors import AccessError, InvalidRequestError, StreamNotFoundError
from kinesis_ds.testing import FailRecords, Refuse
from tests.support.polling import eventually
from tests.support.sinks import STREAM, Sink, put_fault, rows

pytestmark = pytest.mark.fault

OPTIONS = {"batchMaxRecords": "100", "maxInFlightRequests": "4"}


def interrupted_by(sink: Sink, change: Callable[[], object]) -> Iterator[Any]:
    """500 rows that are stored in five calls, then the change, then more rows."""
    yield from rows(range(500))
    eventually(lambda: len(sink.kinesis.records(STREAM)) == 500, "the first rows are stored")
    change()
    yield from rows(range(500, 5000))


def assert_failed_at_once(sink: Sink, code: str) -> None:
    """What was under way may be refused, and nothing else is tried."""
    outcomes = [call.outcome for call in sink.calls()]
    assert outcomes[:5] == ["ok"] * 5
    assert set(outcomes[5:]) == {code}
    assert len(outcomes) <= 5 + 4
    assert sink.times_stored() == dict.fromkeys(range(500), 1)
    assert max(sink.times_sent().values()) == 1


def test_a_permission_that_is_taken_away() -> None:
    """F45: it is named, and given back, the next task writes."""
    with Sink(shards=1) as sink:
        items = interrupted_by(sink, lambda: sink.kinesis.deny("PutRecords", STREAM))
        said = sink.write(items, **OPTIONS).said(AccessError)

        assert "kinesis:PutRecords" in said
        assert_failed_at_once(sink, "AccessDeniedException")
        sink.kinesis.allow("PutRecords", STREAM)
        assert sink.write(range(500, 600)).records == 100


@pytest.mark.parametrize(
    "code",
    [
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
    ],
)
def test_a_key_that_cannot_be_used(code: str) -> None:
    """F45: retrying would not bring the key back; what the role needs is named."""
    with Sink(shards=1) as sink:
        items = interrupted_by(sink, lambda: sink.kinesis.set_key_state(STREAM, code))
        said = sink.write(items, **OPTIONS).said(AccessError)

        assert code in said
        assert "kms:GenerateDataKey" in said
        assert_failed_at_once(sink, code)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ExpiredTokenException", "roleArn"),
        ("UnrecognizedClientException", "Check the credentials"),
        ("InvalidSignatureException", "Check the credentials"),
    ],
)
def test_credentials_that_are_no_longer_good(code: str, remedy: str) -> None:
    """F45: the next task gets new ones, since this one's client ends with it."""
    fault = put_fault(Refuse(code, "The security token included in the request is expired"))
    with Sink(shards=1) as sink:
        items = interrupted_by(sink, lambda: sink.kinesis.add_faults(fault))
        said = sink.write(items, batchMaxRecords="100", maxInFlightRequests="1").said(AccessError)

        assert remedy in said
        assert_failed_at_once(sink, code)
        assert sink.write(range(500, 600)).records == 100
        assert len(sink.loops) == 2


def test_shards_that_may_not_be_listed(caplog: pytest.LogCaptureFixture) -> None:
    """F52: all shards are one to the sink then; that is said once, and each record is stored."""
    faults = [put_fault(FailRecords(every=3), call=call) for call in (2, 4, 5)]
    with Sink(*faults) as sink:
        sink.kinesis.deny("ListShards", STREAM)
        for start in (0, 1000):
            outcome = sink.write(range(start, start + 1000), batchMaxRecords="100")
            assert outcome.records == 1000

        assert sink.times_stored() == dict.fromkeys(range(2000), 1)
        assert len({record.shard_id for record in sink.kinesis.records(STREAM)}) == 4
        assert len(sink.calls("ListShards")) == 1
    [said] = [text for text in caplog.messages if "may not be listed" in text]
    assert "may not be listed (kinesis:ListShards)" in said
    assert f"stream {STREAM}" in said


def test_aggregates_need_the_list_of_shards() -> None:
    """F59: without it nobody knows which rows belong together; the permission is named."""
    with Sink() as sink:
        sink.kinesis.deny("ListShards", STREAM)
        said = sink.write(range(10), aggregation="true").said(AccessError)

        assert "kinesis:ListShards" in said
        assert f"stream {STREAM}" in said
        assert sink.calls() == []


def test_a_stream_that_is_deleted() -> None:
    """F45: it is named; nothing waits for it to come back."""
    with Sink(shards=1) as sink:
        items = interrupted_by(sink, lambda: sink.kinesis.call("DeleteStream", StreamName=STREAM))
        said = sink.write(items, **OPTIONS).said(StreamNotFoundError)

        assert STREAM in said
        outcomes = [call.outcome for call in sink.calls()]
        assert set(outcomes[5:]) == {"ResourceNotFoundException"}
        assert len(outcomes) <= 5 + 4
        assert max(sink.times_sent().values()) == 1


@pytest.mark.parametrize("code", ["InvalidArgumentException", "DryRunOperation", "SomethingNew"])
def test_a_request_that_is_refused_as_such(code: str) -> None:
    """F45: what is wrong with it now would be wrong with it again."""
    with Sink(put_fault(Refuse(code, "no"), times=None)) as sink:
        said = sink.write(range(10)).said(InvalidRequestError)

        assert f"{code}: no" in said
        assert len(sink.calls()) == 1


@pytest.mark.parametrize(
    "code",
    ["KMSThrottlingException", "LimitExceededException", "ThrottlingException"],
)
def test_limits_are_waited_out(code: str) -> None:
    """F45: of all the key's errors one passes by itself."""
    with Sink(put_fault(Refuse(code), times=3)) as sink:
        outcome = sink.write(range(300))

        sink.assert_each_once(range(300), outcome)
        refused = [call.records for call in sink.calls() if call.outcome == code]
        assert len(refused) == 3
        assert sink.counters()["throttled"] == sum(refused)
        assert sum(sink.times_sent().values()) == 300 + sum(refused)
