"""GetShardIterator and GetRecords in the double: where a read starts, ends, and is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_ds.limits import MIB
from kinesis_ds.testing.errors import ServiceError
from tests.support.model import Model, data_of, shard_id


def filled(**settings: Any) -> tuple[Model, list[int], list[float]]:
    """Records 0 to 4, 10 s apart; their numbers and times."""
    model = Model(**settings)
    model.create()
    numbers, times = [], []
    for i in range(5):
        numbers += model.put(b"%d" % i)
        times.append(model.now)
        model.now += 10
    return model, numbers, times


def read(model: Model, kind: str, **members: Any) -> bytes:
    return b"".join(data_of(model.get(model.iterator(0, kind, **members))["Records"]))


def test_the_ends_of_a_shard() -> None:
    """TRIM_HORIZON is the oldest record, LATEST the next to come."""
    model, _, _ = filled()
    latest = model.iterator(0, "LATEST")
    model.put(b"5")

    assert read(model, "TRIM_HORIZON") == b"012345"
    assert data_of(model.get(latest)["Records"]) == [b"5"]


@pytest.mark.parametrize(
    ("kind", "offset", "expected"),
    [
        pytest.param("AT_SEQUENCE_NUMBER", 0, b"234", id="at"),
        pytest.param("AFTER_SEQUENCE_NUMBER", 0, b"34", id="after"),
        pytest.param("AT_SEQUENCE_NUMBER", 1, b"34", id="at no record: the next"),
        pytest.param("AFTER_SEQUENCE_NUMBER", -1, b"234", id="after no record: the next"),
    ],
)
def test_sequence_numbers_are_positions(kind: str, offset: int, expected: bytes) -> None:
    """Whether or not a record has that number."""
    model, numbers, _ = filled()

    assert read(model, kind, StartingSequenceNumber=str(numbers[2] + offset)) == expected


def test_the_start_of_a_shard_is_a_position() -> None:
    """The one that ListShards shows."""
    model, _, _ = filled()
    start = model.shards()[shard_id(0)]["SequenceNumberRange"]["StartingSequenceNumber"]

    assert read(model, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=start) == b"01234"
    assert read(model, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=start) == b"01234"


@pytest.mark.parametrize(
    ("of", "offset", "expected"),
    [
        pytest.param(2, 0, b"234", id="the very millisecond"),
        pytest.param(2, 0.001, b"34", id="a millisecond later"),
        pytest.param(2, -0.001, b"234", id="a millisecond earlier"),
        pytest.param(0, -1000, b"01234", id="before all"),
        pytest.param(4, 5, b"", id="after all"),
    ],
)
def test_times_are_positions(of: int, offset: float, expected: bytes) -> None:
    """To the millisecond."""
    model, _, times = filled()

    assert read(model, "AT_TIMESTAMP", Timestamp=times[of] + offset) == expected


def test_a_time_to_come_is_refused() -> None:
    """As by AWS; a clock that is ahead finds out."""
    model, _, _ = filled()

    with pytest.raises(ServiceError, match="cannot be greater than the currentTimestampInMillis"):
        model.iterator(0, "AT_TIMESTAMP", Timestamp=model.now + 0.002)
    assert model.iterator(0, "AT_TIMESTAMP", Timestamp=model.now)


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("AT_SEQUENCE_NUMBER", {}),
        ("AT_TIMESTAMP", {}),
        ("LATEST", {"Timestamp": 1}),
        ("TRIM_HORIZON", {"StartingSequenceNumber": "1"}),
        ("AFTER_SEQUENCE_NUMBER", {"Timestamp": 1}),
        ("AFTER_SEQUENCE_NUMBER", {"StartingSequenceNumber": "0"}),
        ("AFTER_SEQUENCE_NUMBER", {"StartingSequenceNumber": "9" * 56}),
    ],
)
def test_positions_that_make_no_sense(kind: str, members: dict[str, Any]) -> None:
    """Are refused, not guessed at."""
    model, _, _ = filled()
    asked = {"ShardId": shard_id(0), "ShardIteratorType": kind, **members}

    assert model.code("GetShardIterator", **asked) == "InvalidArgumentException"


def test_a_number_is_refused_in_another_shard() -> None:
    """In the service's words, which tell both shards."""
    model = Model()
    model.create()
    [number] = model.put(b"x")
    model.split(0)

    with pytest.raises(ServiceError, match="It encodes shardId-000000000000, while it was used in"):
        model.iterator(1, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=str(number))


def test_a_number_that_nobody_was_given_is_refused() -> None:
    """One from the future did not come from this stream."""
    model, numbers, _ = filled()
    ahead = str(numbers[-1] + (3_600_000 << 100))

    with pytest.raises(ServiceError, match="did not come from this stream"):
        model.iterator(0, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=ahead)


@pytest.mark.parametrize(
    ("expired_position", "of", "kind", "expected"),
    [
        pytest.param("refuse", 0, "AFTER_SEQUENCE_NUMBER", "refused", id="records were lost"),
        pytest.param("refuse", 1, "AT_SEQUENCE_NUMBER", "refused", id="this record was lost"),
        pytest.param("refuse", 1, "AFTER_SEQUENCE_NUMBER", b"234", id="nothing after it was lost"),
        pytest.param("refuse", 2, "AT_SEQUENCE_NUMBER", b"234", id="still there"),
        pytest.param("oldest", 0, "AFTER_SEQUENCE_NUMBER", b"234", id="silently the oldest"),
        pytest.param("oldest", 1, "AT_SEQUENCE_NUMBER", b"234", id="silently the next"),
    ],
)
def test_positions_older_than_the_oldest_record(
    expired_position: str, of: int, kind: str, expected: bytes | str
) -> None:
    """Refused where records between it and the oldest are gone, or moved there in silence."""
    model, numbers, _ = filled(expired_position=expired_position)
    model.account.trim("s", shard_id(0), up_to=numbers[1])
    asked = {"StartingSequenceNumber": str(numbers[of])}

    if expected == "refused":
        with pytest.raises(ServiceError, match="older than the oldest record"):
            model.iterator(0, kind, **asked)
    else:
        assert read(model, kind, **asked) == expected


def test_retention_trims() -> None:
    """A day after its arrival a record is gone, and old times mean the oldest record."""
    model, numbers, times = filled()
    model.now = times[2] + 24 * 3600

    assert read(model, "TRIM_HORIZON") == b"234"
    assert read(model, "AT_TIMESTAMP", Timestamp=times[0]) == b"234"
    assert [r.sequence_number for r in model.account.records("s")] == numbers[2:]
    with pytest.raises(ServiceError, match="InvalidArgumentException"):
        model.iterator(0, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=str(numbers[0]))
    model.now += 3600
    assert read(model, "TRIM_HORIZON") == b""
    assert read(model, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=str(numbers[-1])) == b""


def test_reading_on() -> None:
    """Each answer's iterator goes on where the answer ended, and tells how far behind that is."""
    model, _, times = filled()
    first = model.get(model.iterator(0, "TRIM_HORIZON"), Limit=2)
    second = model.get(first["NextShardIterator"])
    third = model.get(second["NextShardIterator"])
    model.put(b"5")

    assert data_of(first["Records"]) == [b"0", b"1"]
    assert first["MillisBehindLatest"] == round((model.now - times[1]) * 1000)
    assert data_of(second["Records"]) == [b"2", b"3", b"4"]
    assert (third["Records"], third["MillisBehindLatest"]) == ([], 0)
    model.now += 1
    assert data_of(model.get(third["NextShardIterator"])["Records"]) == [b"5"]


def test_an_answer_has_ten_mebibytes_at_most() -> None:
    """And blocks its shard for five seconds."""
    model = Model()
    model.create()
    model.put(*[b"x" * (MIB - 3)] * 12)
    first = model.get(model.iterator(0, "TRIM_HORIZON"))
    asked = {"ShardIterator": first["NextShardIterator"]}

    assert len(first["Records"]) == 10
    model.now += 4.9
    assert model.code("GetRecords", None, **asked) == "ProvisionedThroughputExceededException"
    model.now += 0.2
    assert len(model.get(first["NextShardIterator"])["Records"]) == 2


def test_an_answer_has_ten_thousand_records_at_most() -> None:
    """Asking for more is refused."""
    model = Model()
    model.create()
    model.put(*[b""] * 10_001)
    iterator = model.iterator(0, "TRIM_HORIZON")

    assert len(model.get(iterator)["Records"]) == 10_000
    too_many = {"ShardIterator": iterator, "Limit": 10_001}
    assert model.code("GetRecords", None, **too_many) == "InvalidArgumentException"


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
def test_five_calls_a_second_and_shard(operation: str) -> None:
    """The sixth is refused, whoever calls; another shard is not concerned."""
    model = Model()
    model.create(2)
    iterators = [model.iterator(shard, "LATEST") for shard in (0, 1)]
    model.now += 1

    def code(shard: int) -> str:
        if operation == "GetRecords":
            return model.code(operation, None, ShardIterator=iterators[shard])
        asked = {"ShardId": shard_id(shard), "ShardIteratorType": "LATEST"}
        return model.code(operation, **asked)

    codes = [code(0) for _ in range(6)]
    assert codes == ["ok"] * 5 + ["ProvisionedThroughputExceededException"]
    assert code(1) == "ok"
    model.now += 0.2
    assert code(0) == "ok"


def test_two_mebibytes_a_second_and_shard() -> None:
    """Shared by all that read it."""
    model = Model()
    model.create()
    model.put(*[b"x" * (MIB - 3)] * 4)
    asked = {"ShardIterator": model.iterator(0, "TRIM_HORIZON"), "Limit": 2}
    codes = []
    for _ in range(4):
        codes.append(model.code("GetRecords", None, **asked))
        model.now += 0.2

    # The second of them still finds the bucket without debt.
    assert codes == ["ok", "ok", *["ProvisionedThroughputExceededException"] * 2]


def test_iterators_expire() -> None:
    """Five minutes after they were made."""
    model, _, _ = filled()
    iterator = model.iterator(0, "TRIM_HORIZON")
    model.now += 300
    assert model.code("GetRecords", None, ShardIterator=iterator) == "ok"
    model.now += 0.01

    assert model.code("GetRecords", None, ShardIterator=iterator) == "ExpiredIteratorException"


@pytest.mark.parametrize("iterator", ["x", "AAAAAA==", "é"])
def test_garbage_is_no_iterator(iterator: str) -> None:
    """It is the caller's fault, not the service's."""
    model = Model()
    model.create()

    assert model.code("GetRecords", None, ShardIterator=iterator) == "InvalidArgumentException"


def test_iterators_fit_their_bound() -> None:
    """512 characters, with the longest names too, and they say where they are."""
    model = Model()
    model.create(stream="s" * 128)
    asked = {"ShardId": shard_id(0), "ShardIteratorType": "LATEST"}
    iterator = model.ask("GetShardIterator", "s" * 128, **asked)["ShardIterator"]

    assert len(iterator) <= 512
    assert model.account.read_by_iterator(iterator) == ("s" * 128, shard_id(0))
    assert model.account.read_by_iterator("x") == (None, None)
    assert model.account.read_by_iterator(None) == (None, None)


def test_the_end_of_a_closed_shard() -> None:
    """The answer with its last record names the children and no next iterator."""
    model = Model()
    model.create()
    [number] = model.put(b"a", b"b")[-1:]
    model.split(0)
    first = model.get(model.iterator(0, "TRIM_HORIZON"), Limit=1)
    last = model.get(first["NextShardIterator"])

    assert "ChildShards" not in first
    assert data_of(last["Records"]) == [b"b"]
    assert last["NextShardIterator"] is None
    assert [c["ShardId"] for c in last["ChildShards"]] == [shard_id(1), shard_id(2)]
    assert {tuple(c["ParentShards"]) for c in last["ChildShards"]} == {(shard_id(0),)}
    assert all(
        set(c["HashKeyRange"]) == {"StartingHashKey", "EndingHashKey"} for c in last["ChildShards"]
    )
    for position in (
        {"kind": "LATEST"},
        {"kind": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)},
        {"kind": "AT_TIMESTAMP", "Timestamp": model.now},
    ):
        end = model.get(model.iterator(0, **position))  # type: ignore[arg-type]
        assert (end["Records"], end["NextShardIterator"]) == ([], None)
        model.now += 1


def test_a_merged_shard_names_both_parents() -> None:
    """At the end of either."""
    model = Model()
    model.create(2)
    model.merge(0, 1)

    for shard in (0, 1):
        [child] = model.get(model.iterator(shard, "TRIM_HORIZON"))["ChildShards"]
        assert child["ParentShards"] == [shard_id(0), shard_id(1)]


def test_a_stretch_without_records_is_crossed_answer_by_answer() -> None:
    """As on AWS, where an empty answer is no sign of the tip; MillisBehindLatest tells."""
    model = Model(stretch_s=60.0)
    model.create()
    model.put(b"0")
    model.now += 250
    model.put(b"1")
    iterator, behind, data = model.iterator(0, "TRIM_HORIZON"), [], b""
    while b"1" not in data:
        answer = model.get(iterator)
        data += b"".join(data_of(answer["Records"]))
        behind.append(answer["MillisBehindLatest"])
        iterator = answer["NextShardIterator"]
        model.now += 1

    assert data == b"01"
    assert behind[0] > behind[1] > behind[-2] > behind[-1] == 0
    assert len(behind) == 1 + 4 + 1
    assert model.get(iterator)["MillisBehindLatest"] == 0


def test_what_is_put_into_a_stretch_that_was_crossed_comes() -> None:
    """The iterator stands where it looked, not at the next record that was there then."""
    model = Model(stretch_s=60.0)
    model.create()
    model.put(b"0")
    iterator = model.get(model.iterator(0, "TRIM_HORIZON"))["NextShardIterator"]
    model.now += 30
    model.put(b"1")

    assert data_of(model.get(iterator)["Records"]) == [b"1"]


def test_get_records_may_show_a_record_later_than_it_arrived() -> None:
    """Until then it answers as at the tip, and the iterator does not pass the record."""
    model = Model(get_records_lag_s=5.0)
    model.create()
    [number] = model.put(b"0")
    model.now += 4
    first = model.iterator(0, "TRIM_HORIZON")
    answer = model.get(first)
    assert (answer["Records"], answer["MillisBehindLatest"]) == ([], 0)

    model.now += 1
    model.put(b"1")
    answer = model.get(answer["NextShardIterator"])
    assert (data_of(answer["Records"]), answer["MillisBehindLatest"]) == ([b"0"], 0)
    behind = model.iterator(0, "AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=str(number))
    model.now += 1
    for iterator in (answer["NextShardIterator"], behind):
        answer = model.get(iterator)
        assert answer["Records"] == []
    model.now += 4
    assert data_of(model.get(answer["NextShardIterator"])["Records"]) == [b"1"]


def test_get_records_may_show_the_end_of_a_shard_later_than_it_was_closed() -> None:
    """With its last records, or behind them."""
    model = Model(get_records_lag_s=5.0)
    model.create()
    model.put(b"0")
    model.now += 2
    model.split(0)
    model.now += 4
    answer = model.get(model.iterator(0, "TRIM_HORIZON"))
    assert data_of(answer["Records"]) == [b"0"]

    model.now += 1
    end = model.get(answer["NextShardIterator"])
    assert (end["Records"], end["NextShardIterator"]) == ([], None)
    assert model.get(model.iterator(0, "TRIM_HORIZON"))["ChildShards"]
