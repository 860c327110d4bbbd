"""Parts of the double's model: sequence numbers, buckets, the log, tokens, the form of requests."""

from __future__ import annotations

import hashlib
import itertools
import random
from typing import Any

import pytest

from kinesis_ds.limits import MAX_HASH_KEY, MIB
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.hashing import even_starts, hash_of
from kinesis_ds.testing.log import RecordLog
from kinesis_ds.testing.rates import Bucket
from kinesis_ds.testing.sequence import Origin, SequenceClock, origin
from kinesis_ds.testing.shard import Shard
from kinesis_ds.testing.tokens import seal, unseal
from kinesis_ds.testing.validation import Field, check

NOW_MS = 1_700_000_000_000
SECOND = NOW_MS // 1000


def sequence_clock(created_s: int = SECOND, index: int = 0) -> SequenceClock:
    return SequenceClock(Origin(created_s, index), random.Random(1))


@pytest.mark.parametrize("second", [0, SECOND, 2_500_000_000])
def test_sequence_numbers_have_56_digits(second: int) -> None:
    """As on AWS they begin with 49, whatever the year."""
    clock = sequence_clock(second, 4711)

    for number in (clock.first, clock.record(second * 1000), clock.here(second * 1000 + 5)):
        assert len(str(number)) == 56
        assert str(number).startswith("49")


def test_sequence_numbers_rise_with_gaps() -> None:
    """Every number is above the one before by more than one, in the same millisecond too."""
    clock = sequence_clock()
    numbers = [clock.first] + [clock.record(NOW_MS + i // 10) for i in range(100)]

    gaps = [b - a for a, b in itertools.pairwise(numbers)]
    assert min(gaps) > 1
    assert len(set(gaps)) > 10


def test_a_moment_lies_between_the_records_around_it() -> None:
    """A number for "now" is at or above all records so far and below all to come."""
    clock = sequence_clock()
    before = clock.record(NOW_MS)
    idle = [clock.here(NOW_MS), clock.here(NOW_MS + 5000)]
    after = clock.record(NOW_MS + 5000)

    assert before == idle[0] < idle[1] < after


def test_a_clock_that_steps_back_gives_no_smaller_number() -> None:
    """Rising numbers matter more than the time in them."""
    clock = sequence_clock()

    assert clock.record(NOW_MS) < clock.here(NOW_MS - 500) + 1 < clock.record(NOW_MS - 1000)


def test_a_number_tells_its_shard() -> None:
    """So that a position can be refused in another shard, and one beside a record cannot."""
    number = sequence_clock(SECOND, 7).record(NOW_MS)

    assert {origin(n) for n in (number - 1, number, number + 1)} == {Origin(SECOND, 7)}
    assert origin(0) is None
    assert origin(1 << 186) is None


def test_numbers_of_a_shard_created_later_are_above() -> None:
    """Whatever the older shard was given, however far ahead its clock was."""
    parent = sequence_clock(SECOND)
    parent.record(NOW_MS + 10**9)

    assert parent.last < sequence_clock(SECOND + 1).first


def test_hash_of_a_key() -> None:
    """MD5 of the UTF-8 bytes, as a number."""
    assert hash_of("a") == 0x0CC175B9C0F1B6A831C399E269772661
    assert hash_of("é") == int.from_bytes(
        hashlib.md5(b"\xc3\xa9", usedforsecurity=False).digest(), "big"
    )


def test_even_ranges_are_those_of_aws() -> None:
    """Three shards begin where the service's own documentation shows them to begin."""
    assert even_starts(3) == [
        0,
        113427455640312821154458202477256070485,
        226854911280625642308916404954512140970,
    ]
    assert even_starts(1) == [0]
    assert even_starts(2)[1] == (MAX_HASH_KEY + 1) // 2


def test_a_bucket_gives_its_rate() -> None:
    """A second's allowance at once, then as it refills, and it never saves up more."""
    bucket = Bucket(10)

    assert [bucket.take(1, 5.0) for _ in range(11)] == [True] * 10 + [False]
    assert [bucket.take(1, 5.25) for _ in range(3)] == [True, True, False]
    assert sum(bucket.take(1, 100.0) for _ in range(20)) == 10


def test_a_debt_is_paid_back() -> None:
    """What was borrowed delays what follows, and the time named is late enough."""
    bucket = Bucket(2 * MIB)
    bucket.borrow(10 * MIB, 1e9)

    ready = bucket.ready_at(MIB, 1e9)
    assert ready == pytest.approx(1e9 + 4.5, abs=0.001)
    assert bucket.ready_at(MIB, ready) == ready


def log_of(*sizes: int) -> RecordLog:
    log = RecordLog()
    for i, size in enumerate(sizes):
        log.append(100 + i, 1000 + i, size, b'{"Data":"","n":%d}' % i, None)
    return log


@pytest.mark.parametrize(
    ("records", "size", "expected"),
    [
        pytest.param(10, 100, 5, id="all fit"),
        pytest.param(2, 100, 2, id="so many records"),
        pytest.param(10, 20, 2, id="so many bytes exactly"),
        pytest.param(10, 29, 2, id="not part of a record"),
        pytest.param(10, 1, 1, id="one that is too large travels alone"),
    ],
)
def test_fitting(records: int, size: int, expected: int) -> None:
    """An answer ends at the first limit it meets, and has one record at least."""
    assert log_of(10, 10, 10, 10, 10).fitting(0, records, size) == expected


def test_places_outlive_what_is_forgotten() -> None:
    """Cutting the lists, after thousands of records, moves no place and loses no byte count."""
    log = log_of(*[10] * 5000)
    log.forget(3000)

    assert (log.start, log.stop, log.forgotten) == (3000, 5000, 3099)
    assert log.number(3000) == 3100
    assert log.after(0) == 3000
    assert log.after(4000) == 3901
    assert log.since(5000) == 4000
    assert log.fitting(3000, 10_000, 55) == 3005
    assert log.size(3000, 3005) == 50
    log.forget(10)
    assert log.start == 3000


def test_what_expires_arrived_before() -> None:
    """A record is kept to the last millisecond of its time."""
    log = log_of(1, 1, 1)
    log.expire(1001)

    assert log.start == 1
    log.expire(9999)
    assert (log.start, log.stop, log.after(0)) == (3, 3, 3)


def test_repr_of_a_shard() -> None:
    """For the messages of failing tests."""
    shard = Shard(Origin(SECOND, 3), (0, 9), NOW_MS, random.Random(1))
    shard.append("", 0, None, None, NOW_MS)

    assert repr(shard) == "<shardId-000000000003 open 1 records>"


@pytest.mark.parametrize("token", ["", "x", "!!", "AAAA", seal("b", {"n": 1}), "é"])
def test_only_a_token_of_the_same_kind_is_opened(token: str) -> None:
    """Garbage and tokens of another operation are told from ours."""
    assert unseal("a", token) is None
    assert unseal("a", seal("a", {"n": 1})) == {"n": 1}


FIELDS = {
    "Name": Field((str,), required=True, low=1, high=3, pattern="[a-z]+"),
    "Count": Field((int,), low=1, high=5),
    "On": Field((bool,)),
    "Deep": Field((dict,), fields={"Kind": Field((str,), required=True, choices=("A", "B"))}),
}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param({"Name": "abc", "Count": 5, "On": True, "Deep": {"Kind": "A"}}, "", id="ok"),
        pytest.param({"Name": "a", "Other": 1}, "", id="what is not known is ignored"),
        pytest.param({}, "'name' failed to satisfy constraint: Member must not be null", id="none"),
        pytest.param({"Name": ""}, "length greater than or equal to 1", id="short"),
        pytest.param({"Name": "abcd"}, "length less than or equal to 3", id="long"),
        pytest.param({"Name": "A"}, "regular expression pattern: [a-z]+", id="pattern"),
        pytest.param({"Name": "a", "Count": 6}, "value less than or equal to 5", id="number"),
        pytest.param({"Name": "a", "Count": "6"}, "Serialization", id="text for a number"),
        pytest.param({"Name": "a", "Count": True}, "Serialization", id="a bool is no number"),
        pytest.param({"Name": 1}, "Serialization", id="number for a text"),
        pytest.param({"Name": "a", "Deep": {}}, "'deep.kind'", id="in a structure"),
        pytest.param({"Name": "a", "Deep": {"Kind": "C"}}, "enum value set: [A, B]", id="choice"),
        pytest.param({"Count": 0}, "2 validation errors detected", id="all at once"),
    ],
)
def test_the_form_of_a_request(request_: dict[str, Any], expected: str) -> None:
    """Types are the serializer's business, bounds the validator's, and it names every fault."""
    if not expected:
        check(FIELDS, request_)
        return
    with pytest.raises(ServiceError) as refused:
        check(FIELDS, request_)
    assert expected in str(refused.value)
