"""PutRecord and PutRecords in the double: where records go, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.hashing import hash_of
from tests.support.model import Model, data_of, entry, shard_id


def results(model: Model, *records: dict[str, Any]) -> list[dict[str, Any]]:
    answer = model.ask("PutRecords", Records=list(records))
    found: list[dict[str, Any]] = answer["Records"]
    assert answer["FailedRecordCount"] == sum("ErrorCode" in r for r in found)
    return found


def test_records_are_kept_as_they_were_put() -> None:
    """Data of any bytes, keys of any letters, in the order of the request within a shard."""
    model = Model()
    model.create()
    put = results(model, entry(b"\x00\xff", 'k"\\é'), entry(b"", "b"), entry(b"c", "c", 5))

    kept = model.account.records("s")
    assert [str(r.sequence_number) for r in kept] == [r["SequenceNumber"] for r in put]
    assert [(r.data, r.partition_key, r.explicit_hash_key) for r in kept] == [
        (b"\x00\xff", 'k"\\é', None),
        (b"", "b", None),
        (b"c", "c", "5"),
    ]
    assert {r.shard_id for r in kept} == {shard_id(0)}
    assert {r.arrived for r in kept} == {model.now}
    read = model.get(model.iterator(0, "TRIM_HORIZON"))["Records"]
    assert data_of(read) == [r.data for r in kept]
    assert [r["PartitionKey"] for r in read] == ['k"\\é', "b", "c"]
    assert {r["ApproximateArrivalTimestamp"] for r in read} == {round(model.now, 3)}


def test_a_key_decides_on_the_shard() -> None:
    """By its MD5, or by the hash key that overrides it."""
    model = Model()
    model.create(4)
    keys = [f"key-{i}" for i in range(50)]
    put = results(model, *(entry(key=key) for key in keys))
    width = (MAX_HASH_KEY + 1) // 4

    assert [r["ShardId"] for r in put] == [shard_id(hash_of(key) // width) for key in keys]
    edges = [0, width - 1, width, MAX_HASH_KEY]
    explicit = results(model, *(entry(explicit=edge) for edge in edges))
    assert [r["ShardId"] for r in explicit] == [shard_id(i) for i in (0, 0, 1, 3)]
    single = model.ask("PutRecord", **entry(key="key-1"))
    assert single["ShardId"] == shard_id(hash_of("key-1") // width)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([entry()] * 500, "ok", id="500"),
        pytest.param([entry()] * 501, "ValidationException", id="501"),
        pytest.param([], "ValidationException", id="none"),
        pytest.param([entry(key="k" * 256)], "ok", id="key of 256"),
        pytest.param([entry(key="é" * 256)], "ok", id="characters, not bytes"),
        pytest.param([entry(key="k" * 257)], "ValidationException", id="key of 257"),
        pytest.param([entry(key="")], "ValidationException", id="empty key"),
        pytest.param([entry(key=None)], "InvalidArgumentException", id="no key"),
        pytest.param([{"Data": "YQ==", "PartitionKey": 1}], "SerializationException", id="number"),
        pytest.param([{"PartitionKey": "k"}], "ValidationException", id="no data"),
        pytest.param(["x"], "SerializationException", id="no structure"),
        pytest.param([{"Data": "YQ=", "PartitionKey": "k"}], "SerializationException", id="base64"),
        pytest.param(
            [{"Data": "Y Q==", "PartitionKey": "k"}], "SerializationException", id="space"
        ),
        pytest.param([{"Data": "é", "PartitionKey": "k"}], "SerializationException", id="letters"),
        pytest.param([entry(explicit=MAX_HASH_KEY)], "ok", id="last hash key"),
        pytest.param([entry(explicit=2**128)], "InvalidArgumentException", id="beyond it"),
        pytest.param([entry(explicit="-1")], "ValidationException", id="below 0"),
        pytest.param([entry(explicit="1\u0661")], "ValidationException", id="other digits"),
        pytest.param([entry(explicit="01")], "ValidationException", id="leading zero"),
        pytest.param([entry(b"x" * (MIB - 3), "key")], "ok", id="1 MiB with its key"),
        pytest.param([entry(b"x" * (MIB - 2), "key")], "InvalidArgumentException", id="above"),
        pytest.param([entry(b"x" * (MIB - 3))] * 10, "ok", id="10 MiB in all"),
        pytest.param(
            [*[entry(b"x" * (MIB - 3))] * 10, entry(b"")], "InvalidArgumentException", id="above it"
        ),
    ],
)
def test_what_put_records_takes(records: list[Any], expected: str) -> None:
    """All that is wrong with a request refuses it whole, and stores nothing."""
    model = Model()
    model.create()

    assert model.code("PutRecords", Records=records) == expected
    assert bool(model.account.records("s")) == (expected == "ok")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param(entry(), "ok", id="ok"),
        pytest.param(entry(key=""), "ValidationException", id="empty key"),
        pytest.param(entry(key=None), "InvalidArgumentException", id="no key"),
        pytest.param({"PartitionKey": "k"}, "ValidationException", id="no data"),
        pytest.param({"PartitionKey": "k", "Data": "?"}, "SerializationException", id="base64"),
        pytest.param(entry(b"x" * MIB), "InvalidArgumentException", id="too large"),
        pytest.param(
            {**entry(), "SequenceNumberForOrdering": "17"}, "InvalidArgumentException", id="order"
        ),
        pytest.param({**entry(), "DryRun": True}, "DryRunOperationException", id="dry run"),
    ],
)
def test_what_put_record_takes(members: dict[str, Any], expected: str) -> None:
    """As for PutRecords."""
    model = Model()
    model.create()

    assert model.code("PutRecord", **members) == expected
    assert len(model.account.records("s")) == (expected == "ok")


def test_records_in_order() -> None:
    """A record put with the number of the one before comes after it."""
    model = Model()
    model.create()
    first = model.ask("PutRecord", **entry())["SequenceNumber"]
    second = model.ask("PutRecord", **entry(), SequenceNumberForOrdering=first)["SequenceNumber"]

    assert int(second) > int(first)


def test_larger_records_where_the_stream_takes_them() -> None:
    """Up to 10 MiB, from the time the stream is ACTIVE again."""
    model = Model()
    model.create()
    arn = model.ask("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamARN"]
    large = entry(b"x" * (10 * MIB - 3))
    model.ask("UpdateMaxRecordSize", None, StreamARN=arn, MaxRecordSizeInKiB=10_240)

    assert model.code("PutRecord", **large) == "InvalidArgumentException"
    model.settle()
    assert model.code("PutRecord", **large) == "ok"


def test_a_shard_takes_a_thousand_records_a_second() -> None:
    """What is above fails by itself, with account, stream and shard in its message."""
    model = Model()
    model.create(2)
    lower, upper = entry(explicit=0), entry(explicit=MAX_HASH_KEY)
    for _ in range(2):
        assert "ErrorCode" not in str(results(model, *[lower] * 500))
    put = results(model, lower, upper, lower)

    assert [r.get("ErrorCode") for r in put] == [
        "ProvisionedThroughputExceededException",
        None,
        "ProvisionedThroughputExceededException",
    ]
    assert put[0]["ErrorMessage"] == (
        "Rate exceeded for shard shardId-000000000000 in stream s under account 000000000000."
    )
    assert model.code("PutRecord", **lower) == "ProvisionedThroughputExceededException"
    assert model.code("PutRecord", **upper) == "ok"
    model.now += 0.5
    put = results(model, *[lower] * 500)
    assert "ErrorCode" not in str(put)
    assert len(model.account.records("s")) == 1502


def test_a_shard_takes_a_mebibyte_a_second() -> None:
    """Counted with keys; a smaller record may still fit where a larger one did not."""
    model = Model()
    model.create()
    half, small = entry(b"x" * (MIB // 2 - 1), "k"), entry(b"x" * 99, "k")
    codes = [r.get("ErrorCode") is None for r in results(model, half, small, half, half, small)]

    assert codes == [True, True, False, False, True]
    model.now += 1
    assert results(model, half, half)[1].get("ErrorCode") is None


def test_a_record_above_a_second_of_its_shard_borrows() -> None:
    """It is taken, and nothing else is until it is paid back."""
    model = Model()
    model.ask("CreateStream", ShardCount=1, MaxRecordSizeInKiB=10_240)
    model.settle()
    assert model.code("PutRecord", **entry(b"x" * (4 * MIB))) == "ok"

    model.now += 2.9
    assert model.code("PutRecord", **entry()) == "ProvisionedThroughputExceededException"
    model.now += 0.2
    assert model.code("PutRecord", **entry()) == "ok"


def test_without_limits_any_rate_is_taken() -> None:
    """But not any request."""
    model = Model(enforce_limits=False)
    model.create()
    for _ in range(5):
        assert "ErrorCode" not in str(results(model, *[entry()] * 500))
    assert model.code("PutRecords", Records=[entry()] * 501) == "ValidationException"


def test_the_service_distributes_records_itself() -> None:
    """Evenly, whatever the key says; the key comes back where one was given."""
    model = Model()
    model.ask(
        "CreateStream",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    model.settle()
    put = results(model, *[entry(b"1", key=None)] * 4, *[entry(b"2", "k", 0)] * 4)

    assert [[r["ShardId"] for r in put].count(shard_id(i)) for i in range(4)] == [2] * 4
    read = model.get(model.iterator(0, "TRIM_HORIZON"))["Records"]
    assert ["PartitionKey" in r for r in read] == [False, True]
    assert sorted({str(r.partition_key) for r in model.account.records("s")}) == ["None", "k"]


def test_the_strategy_changes_at_once() -> None:
    """On streams with on-demand capacity."""
    model = Model()
    model.ask("CreateStream", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    model.settle()
    arn = model.ask("DescribeStreamSummary")["StreamDescriptionSummary"]["StreamARN"]
    auto = {"StreamARN": arn, "RecordDistributionStrategy": "AUTO"}
    assert model.code("PutRecord", **entry(key=None)) == "InvalidArgumentException"
    assert model.code("UpdateStreamRecordDistributionStrategy", None, **auto) == "ok"
    assert model.code("PutRecord", **entry(key=None)) == "ok"

    model.create(stream="p")
    auto["StreamARN"] = arn.removesuffix("s") + "p"
    refused = model.code("UpdateStreamRecordDistributionStrategy", None, **auto)
    assert refused == "InvalidArgumentException"


def test_a_store_of_the_test_itself_passes_limits() -> None:
    """Test input is there at once."""
    model = Model()
    model.create()
    numbers = [model.account.store("s", b"x" * 5000, "k", model.now) for _ in range(1500)]

    assert [r.sequence_number for r in model.account.records("s")] == numbers
    with pytest.raises(ServiceError, match="ResourceNotFound"):
        model.account.store("t", b"", "k", model.now)


def test_base64_is_kept_as_text() -> None:
    """And decoded only for who asks."""
    model = Model()
    model.create()
    model.put(b"abc")

    [record] = model.account.records("s")
    assert record.base64 == base64.b64encode(b"abc").decode()
    assert "base64" not in repr(record)
