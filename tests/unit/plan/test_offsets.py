"""The checkpoint's format: what every released version wrote is read, and written the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinesis_ds.errors import OffsetError
from kinesis_ds.plan.offsets import (
    VERSION,
    InitialOffset,
    SourceOffset,
    StreamOffset,
    decode_offset,
    encode_offset,
)
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp

GOLDEN_FILES = Path(__file__).parents[2] / "golden"
GOLDEN = sorted(GOLDEN_FILES.glob("v*/*.json"))
# The first offsets of version 2 had no checksum.
CURRENT = [
    *sorted((GOLDEN_FILES / "v2-crc32").glob("*.json")),
    GOLDEN_FILES / "v2" / "initial.json",
]
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


def raw_offset(**changes: Any) -> dict[str, Any]:
    stream = {
        "name": "orders",
        "created": 1,
        "consumer": "c",
        "shards": {"s": "AFTER:1"},
        **changes,
    }
    return {"v": 1, "streams": {ARN: stream}}


def test_golden_files_are_there() -> None:
    """The next test would pass without any file."""
    assert len(GOLDEN) >= 16
    assert len(CURRENT) >= 6


@pytest.mark.parametrize("path", CURRENT, ids=lambda p: p.stem)
def test_golden_offset_is_written_back_byte_for_byte(path: Path) -> None:
    """What this version writes is what its golden files hold."""
    text = path.read_text()

    assert json.dumps(encode_offset(decode_offset(json.loads(text))), separators=(",", ":")) == text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_golden_offset_of_each_version_is_understood(path: Path) -> None:
    """A released offset means today what it meant then, whichever version is written for it."""
    offset = decode_offset(json.loads(path.read_text()))

    assert decode_offset(json.loads(json.dumps(encode_offset(offset)))) == offset


@pytest.mark.parametrize("path", CURRENT, ids=lambda p: p.stem)
def test_golden_offset_means_the_same_with_and_without_a_checksum(path: Path) -> None:
    """The member is one more, and an older program that passes over it reads the offset right."""
    with_checksum = json.loads(path.read_text())
    without = json.loads((GOLDEN_FILES / "v2" / path.name).read_text())

    assert decode_offset(with_checksum) == decode_offset(without)
    with_checksum.pop("crc32", None)
    assert with_checksum == without


def test_golden_positions_mean_what_they_say() -> None:
    """The golden file with every kind of position decodes to those positions."""
    path = GOLDEN_FILES / "v1" / "positions.json"

    assert decode_offset(json.loads(path.read_text())) == SourceOffset(
        {
            ARN: StreamOffset(
                name="orders",
                arn=ARN,
                created_ms=1_700_000_000_123,
                consumer="kinesis_ds_1f0c22aa90de",
                shards={
                    "shardId-000000000000": SHARD_END,
                    "shardId-000000000001": After(
                        "49645821385263812345678901234567890123456789012345678914"
                    ),
                    "shardId-000000000002": AtTimestamp(1_795_176_000_123),
                    "shardId-000000000003": TRIM_HORIZON,
                },
            )
        }
    )


def test_the_initial_offset_is_always_the_same() -> None:
    """PySpark stores no initial offset, so it must be equal each time it is asked for."""
    assert encode_offset(InitialOffset()) == {"v": 2, "initial": 1}
    assert decode_offset({"v": 2, "initial": 1}) == InitialOffset()
    assert decode_offset({"v": 1, "initial": 1}) == InitialOffset()


def test_shards_and_streams_are_written_in_order() -> None:
    """Equal offsets are equal texts, whatever order they were built in: Spark compares texts."""
    one = StreamOffset("a", "arn:a", 1, "c", {"s2": After("2"), "s1": After("1")})
    other = StreamOffset("b", "arn:b", 1, "c", {})

    assert json.dumps(encode_offset(SourceOffset({"arn:b": other, "arn:a": one}))) == json.dumps(
        encode_offset(
            SourceOffset(
                {"arn:a": one.with_shards({"s1": After("1"), "s2": After("2")}), "arn:b": other}
            )
        )
    )


@pytest.mark.parametrize("version", [VERSION + 1, 7, 10**9])
def test_a_newer_version_is_refused_with_the_remedy(version: int) -> None:
    """An offset of a newer format names both versions and says to upgrade."""
    with pytest.raises(
        OffsetError, match=rf"format {version}.*reads up to {VERSION}.*Upgrade kinesis_ds"
    ):
        decode_offset({"v": version, "anything": ["at", "all"]})


@pytest.mark.parametrize(
    "raw",
    [
        None,
        1,
        "AFTER:1",
        [],
        {},
        {"v": "1"},
        {"v": None},
        {"v": 1.0},
        {"v": True},
        {"v": 0},
        {"v": -1},
        {"version": 1, "streams": {}},
        {"topic": {"0": 17}},
        {"shardId-000000000000": {"iteratorType": "AFTER_SEQUENCE_NUMBER"}},
    ],
)
def test_an_offset_of_something_else_is_refused_as_foreign(raw: object) -> None:
    """What no version of this connector wrote is told apart from damage."""
    with pytest.raises(OffsetError, match=r"no version of this connector wrote.*another source"):
        decode_offset(raw)


@pytest.mark.parametrize(
    "raw",
    [
        {"v": 1},
        {"v": 1, "initial": 0},
        {"v": 1, "initial": True},
        {"v": 1, "initial": 1.0},
        {"v": 1, "initial": None, "streams": {}},
        {"v": 1, "initial": 1, "streams": {}},
        {"v": 1, "streams": None},
        {"v": 1, "streams": []},
        {"v": 1, "streams": {ARN: None}},
        {"v": 1, "streams": {ARN: []}},
        {"v": 1, "streams": {ARN: "AFTER:1"}},
        raw_offset(name=None),
        raw_offset(created="1"),
        raw_offset(created=True),
        raw_offset(created=1.5),
        raw_offset(consumer=None),
        raw_offset(shards=None),
        raw_offset(shards=[]),
        raw_offset(shards={"s": None}),
        raw_offset(shards={"s": 1}),
        raw_offset(shards={"s": "AFTER"}),
        raw_offset(shards={"s": "LATEST"}),
    ],
)
def test_a_damaged_offset_is_refused(raw: object) -> None:
    """Every missing or mistyped member is an OffsetError, not a KeyError in mid-batch."""
    with pytest.raises(OffsetError):
        decode_offset(raw)


def test_damage_is_told_with_its_place_and_a_remedy() -> None:
    """The message shows what was read, shortened, and what to do."""
    with pytest.raises(
        OffsetError, match=r"damaged: KeyError\('consumer'\).*Restore the checkpoint"
    ) as caught:
        decode_offset({"v": 1, "streams": {ARN: {"name": "n" * 5000, "created": 1}}})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("place", ["v", "initial", "streams", "name", "shards", "position"])
def test_damage_of_any_size_is_told_in_short(place: str) -> None:
    """A value too deep to be printed is no other error, and a long one no endless message."""
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    for value in (deep, ["x" * 100_000], "x" * 100_000):
        stream = {"name": "n", "created": 1, "consumer": "c", "shards": {}}
        raw: dict[str, object] = {"v": 1, "streams": {ARN: stream}}
        if place == "position":
            stream["shards"] = {"s": value}
        elif place in stream:
            stream[place] = value if place == "shards" else [value]
        else:
            raw[place] = value
        with pytest.raises(OffsetError) as caught:
            decode_offset(raw)
        assert len(str(caught.value)) < 800


@pytest.mark.parametrize("path", CURRENT, ids=lambda p: p.stem)
def test_no_character_can_change_without_being_noticed(path: Path) -> None:
    """A digit that flips on a disk is a digit still: it left out 154 records of 1,200 once, and
    nobody was told. What is not refused is what was written.
    """
    text = path.read_text()
    written = decode_offset(json.loads(text))
    for at, before in enumerate(text):
        for after in {chr(ord(before) ^ 1), "0", "9", '"', "a"} - {before}:
            try:
                raw = json.loads(text[:at] + after + text[at + 1 :])
            except ValueError:
                continue
            try:
                assert encode_offset(decode_offset(raw)) == encode_offset(written)
            except OffsetError:
                continue


def test_a_wrong_checksum_is_told_with_a_remedy() -> None:
    """Whether the positions or the checksum itself are wrong; and how to change one by hand."""
    raw = json.loads((GOLDEN_FILES / "v2-crc32" / "positions.json").read_text())
    shards = raw["streams"][ARN]["shards"]
    shards["shardId-000000000001"] = shards["shardId-000000000001"].replace("3852", "3853")
    with pytest.raises(
        OffsetError, match=r"damaged: its checksum.*Restore the checkpoint.*leave crc32 out"
    ):
        decode_offset(raw)

    del raw["crc32"]
    assert decode_offset(raw)
    for wrong in (None, 5, "", "0", [[]]):
        with pytest.raises(OffsetError, match="its checksum"):
            decode_offset({**raw, "crc32": wrong})


def test_a_checksum_does_not_depend_on_how_the_json_is_written() -> None:
    """Spark may pass an offset on with its members in another order, or with spaces."""
    path = GOLDEN_FILES / "v2-crc32" / "two_streams.json"
    raw = json.loads(path.read_text())
    turned = {key: raw[key] for key in reversed(raw)}
    turned["streams"] = {arn: dict(reversed(s.items())) for arn, s in raw["streams"].items()}

    assert decode_offset(json.loads(json.dumps(turned, indent=2))) == decode_offset(raw)


def test_other_members_are_passed_over() -> None:
    """A progress report has some beside the streams; the checksum does not count them."""
    stream = StreamOffset("a", "arn:a", 1, "c", {"s1": After("1")})
    raw = encode_offset(SourceOffset({"arn:a": stream}))
    assert decode_offset({**raw, "lag": {}}) == SourceOffset({"arn:a": stream})


def test_when_a_shard_was_seen_and_where_a_batch_starts_are_kept() -> None:
    """Version 2: a time beside a sequence number, and a batch's start that nothing else says."""
    stream = StreamOffset(
        "a", "arn:a", 1, "c", {"s": After("5", 1_700_000_000_123)}, start={"s": TRIM_HORIZON}
    )
    raw = encode_offset(SourceOffset({"arn:a": stream}))

    assert raw["streams"]["arn:a"]["shards"] == {"s": "AFTER:5@1700000000123"}
    assert raw["streams"]["arn:a"]["from"] == {"s": "TRIM_HORIZON"}
    found = decode_offset(raw)
    assert isinstance(found, SourceOffset)
    assert found.streams["arn:a"].shards["s"].seen_ms == 1_700_000_000_123  # type: ignore[union-attr]
    assert found.streams["arn:a"] == stream
    assert found.streams["arn:a"].with_shards({}).start is None


def test_ended_tells_the_shard_end_only() -> None:
    """A shard is ended when it stands at its end, not when it is unknown."""
    stream = StreamOffset("a", "arn:a", 1, "c", {"done": SHARD_END, "open": After("1")})

    assert stream.ended("done")
    assert not stream.ended("open")
    assert not stream.ended("unknown")
