"""Positions: words, times, and JSON by shard in every supported form."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from kinesis_ds.errors import OptionError
from kinesis_ds.options.positions import backwards, ending_position, initial_position
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset, encode_offset
from kinesis_ds.plan.position import (
    SHARD_END,
    TRIM_HORIZON,
    After,
    At,
    AtTimestamp,
    Position,
)
from kinesis_ds.plan.start import InitialPosition, Latest, ShardPositions

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
OTHER_ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/clicks"
NOON = 1_795_176_000_000
NUMBER = "49605240428222307037115827613554798409561082419642105874"
S0, S1, S2 = (f"shardId-00000000000{i}" for i in range(3))


def by_shard(**positions: Position | Latest) -> ShardPositions:
    return ShardPositions({None: {globals()[k]: v for k, v in positions.items()}})


# --- by shard -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("TRIM_HORIZON", TRIM_HORIZON),
        ("earliest", TRIM_HORIZON),
        (" Latest ", Latest()),
        ("SHARD_END", SHARD_END),
        (f"AT:{NUMBER}", At(NUMBER)),
        (f"at: {NUMBER}", At(NUMBER)),
        (f"AT_SEQUENCE_NUMBER:{NUMBER}", At(NUMBER)),
        (f"AFTER:{NUMBER}", After(NUMBER)),
        (f"AFTER:{NUMBER}@1700000000123", After(NUMBER, 1_700_000_000_123)),
        (f"AFTER_SEQUENCE_NUMBER:{NUMBER}", After(NUMBER)),
        ("AT_TIMESTAMP:1795176000123", AtTimestamp(NOON + 123)),
        ("AT_TIMESTAMP:1795176000", AtTimestamp(NOON)),
        ("at_timestamp 2026-11-20T12:00:00Z", AtTimestamp(NOON)),
        ({"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""}, TRIM_HORIZON),
        ({"iteratorType": "LATEST"}, Latest()),
        ({"iteratorType": "shard_end", "iteratorPosition": ""}, SHARD_END),
        ({"iteratorType": "AT_TIMESTAMP", "iteratorPosition": "1795176000000"}, AtTimestamp(NOON)),
        ({"iteratorType": "AT_TIMESTAMP", "iteratorPosition": NOON}, AtTimestamp(NOON)),
        ({"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": NUMBER}, At(NUMBER)),
        ({"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": NUMBER}, After(NUMBER)),
        (
            {
                "iteratorType": "AFTER_SEQUENCE_NUMBER",
                "iteratorPosition": NUMBER,
                "subSequenceNumber": "-1",
                "isLast": "true",
            },
            After(NUMBER),
        ),
        # The whole aggregate was read: behind it. Part of it was: before it, so that none is lost.
        (
            {
                "iteratorType": "AFTER_SEQUENCE_NUMBER",
                "iteratorPosition": NUMBER,
                "subSequenceNumber": "3",
                "isLast": "true",
            },
            After(NUMBER),
        ),
        (
            {
                "iteratorType": "AFTER_SEQUENCE_NUMBER",
                "iteratorPosition": NUMBER,
                "subSequenceNumber": "3",
                "isLast": "false",
            },
            At(NUMBER),
        ),
        (
            {
                "iteratorType": "AFTER_SEQUENCE_NUMBER",
                "iteratorPosition": NUMBER,
                "subSequenceNumber": "3",
            },
            At(NUMBER),
        ),
    ],
)
def test_a_position_in_a_shard(value: object, expected: Position) -> None:
    """The forms that users, checkpoints and other connectors write."""
    found = initial_position(json.dumps({S0: value}))

    assert found == by_shard(S0=expected)
    if isinstance(expected, After):
        assert isinstance(found, ShardPositions)
        assert found.by_stream[None][S0].seen_ms == expected.seen_ms  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "AFTER",
        "AFTER:",
        "AFTER:x",
        "AFTER:-1",
        "AFTER:" + "1" * 130,
        f"AFTER:{NUMBER}@",
        f"AFTER:{NUMBER}@x",
        "AT:1.5",
        "AT:٣",
        f"BEFORE:{NUMBER}",
        "TRIM_HORIZON:1",
        7,
        None,
        True,
        ["LATEST"],
        {},
        {"iteratorType": "AFTER_SEQUENCE_NUMBER"},
        {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": None},
        {"iteratorType": "LATEST", "position": "1"},
    ],
)
def test_what_is_no_position_is_refused_for_its_shard(value: object) -> None:
    """The message shows the shard, the value and the valid forms."""
    with pytest.raises(ValueError, match=f"for {S1}, not"):
        initial_position(json.dumps({S0: "LATEST", S1: value}))


@pytest.mark.parametrize("value", ["AT_TIMESTAMP:", "AT_TIMESTAMP:12", "AT_TIMESTAMP:yesterday"])
def test_a_time_of_a_shard_that_is_none_is_refused(value: str) -> None:
    """The message shows the valid forms of a time."""
    with pytest.raises(ValueError, match=f"ISO 8601 .* for {S0}, not '{value}'"):
        initial_position(json.dumps({S0: value}))


@pytest.mark.parametrize(
    "shard", ["shardId-", "shardId-1", "shardId-00000000000x", "shardId-000000000000 "]
)
def test_a_shard_id_out_of_form_is_refused(shard: str) -> None:
    """A key that is not a shard id is a mistake."""
    with pytest.raises(ValueError, match=r"a shard id .shardId-000000000000., not"):
        initial_position(json.dumps({shard: "LATEST"}))


def test_all_mistakes_in_one_json_are_told() -> None:
    """The message names the first five, and how many more there are."""
    with pytest.raises(ValueError) as caught:
        initial_position(json.dumps({f"shardId-{i:012}": "x" for i in range(9)}))

    assert str(caught.value).count("not 'x'") == 5
    assert "and 4 more such mistakes" in str(caught.value)


# --- by stream ----------------------------------------------------------------------------------


def test_streams_are_named_by_name_or_arn() -> None:
    """The stream may be named, and must be if several are read."""
    given = {"orders": {S0: "LATEST"}, OTHER_ARN: {S0: "TRIM_HORIZON", S1: "SHARD_END"}}

    assert initial_position(json.dumps(given)) == ShardPositions(
        {"orders": {S0: Latest()}, OTHER_ARN: {S0: TRIM_HORIZON, S1: SHARD_END}}
    )


def test_a_stream_without_shards_starts_at_its_oldest_records() -> None:
    """Shards that are not named start at their oldest records."""
    assert initial_position('{"orders": {}}') == ShardPositions({"orders": {}})


def test_an_offset_of_the_awslabs_connector_names_its_stream() -> None:
    """It is copied from the offset log of such a query; its stream is checked."""
    offset = {
        "metadata": {"streamName": "orders", "batchId": "7"},
        S0: {
            "iteratorType": "AFTER_SEQUENCE_NUMBER",
            "iteratorPosition": NUMBER,
            "subSequenceNumber": "-1",
            "isLast": "true",
        },
        S1: {
            "iteratorType": "TRIM_HORIZON",
            "iteratorPosition": "",
            "subSequenceNumber": "-1",
            "isLast": "true",
        },
    }

    assert initial_position(json.dumps(offset)) == ShardPositions(
        {"orders": {S0: After(NUMBER), S1: TRIM_HORIZON}}
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"orders": "LATEST"}, "a shard id .* or a stream with its shards, not 'orders'"),
        ({"a/b": {S0: "LATEST"}}, "or a stream with its shards, not 'a/b'"),
        ({S0: "LATEST", "orders": {S0: "LATEST"}}, "a shard id .*, not 'orders'"),
        ({"orders": {S0: "LAST"}}, f"for {S0}, not 'LAST' in stream 'orders'"),
        (
            {"orders": {S0: "LATEST", "metadata": {"streamName": "clicks"}}},
            "the positions of stream 'orders', not of 'clicks'",
        ),
    ],
)
def test_streams_and_shards_that_are_none_are_refused(given: Any, said: str) -> None:
    """The message names each of them."""
    with pytest.raises(ValueError, match=said):
        initial_position(json.dumps(given))


# --- our own offsets ----------------------------------------------------------------------------

OFFSET = encode_offset(
    SourceOffset(
        {
            ARN: StreamOffset(
                "orders",
                ARN,
                1_700_000_000_000,
                "consumer",
                {S0: SHARD_END, S1: After(NUMBER, NOON), S2: AtTimestamp(1234)},
            )
        }
    )
)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OFFSET),
        json.dumps(OFFSET, indent=2),
        json.dumps(json.dumps(OFFSET)),
        json.dumps(json.dumps(OFFSET))[1:-1],
        str(OFFSET),
    ],
    ids=[
        "as logged",
        "prettily",
        "as text within JSON",
        "without its quotes",
        "as PySpark shows it",
    ],
)
def test_an_offset_that_spark_prints_is_taken(text: str) -> None:
    """Copied from the offset log or from a progress report, with the quoting it has there."""
    found = initial_position(text)

    assert found == ShardPositions(
        {ARN: {S0: SHARD_END, S1: After(NUMBER), S2: AtTimestamp(1234)}},
        {ARN: 1_700_000_000_000},
    )
    assert ending_position(text) == found


def test_an_offset_of_version_1_is_taken() -> None:
    """Users may still have such offsets in their notes."""
    offset = {
        "v": 1,
        "streams": {
            ARN: {
                "name": "orders",
                "created": 5,
                "consumer": "c",
                "shards": {S0: f"AFTER:{NUMBER}"},
            }
        },
    }

    assert initial_position(json.dumps(offset)) == ShardPositions(
        {ARN: {S0: After(NUMBER)}}, {ARN: 5}
    )


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        ({"v": 99, "streams": {}}, "offset format 99"),
        ({"v": 1, "initial": 1}, "the one from before the first batch"),
        ({"v": 1, "streams": {}}, "the one from before the first batch"),
        ({"v": 1, "streams": {ARN: {}}}, "damaged"),
        ({"v": "1"}, "no version of this connector wrote"),
    ],
)
def test_an_offset_that_holds_no_positions_is_refused(offset: Any, said: str) -> None:
    """It is of another program, of a newer version, or from before the first batch."""
    with pytest.raises(ValueError, match=said):
        initial_position(json.dumps(offset))


# --- other JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"at_timestamp": "06/25/2020 10:23:45 PDT", "format": "MM/dd/yyyy HH:mm:ss ZZZ"}',
            1_593_105_825_000,
        ),
        ('{"at_timestamp": "2026-11-20T12:00:00Z"}', NOON),
        ('{"AT_TIMESTAMP": "1795176000", "format": null}', NOON),
        ('{"at_timestamp": 1795176000000}', NOON),
    ],
)
def test_a_time_in_databricks_form(text: str, expected: int) -> None:
    """With a Java date pattern, or without one."""
    assert initial_position(text) == ending_position(text) == AtTimestamp(expected)


@pytest.mark.parametrize(
    "text",
    [
        '{"at_timestamp": 17.5}',
        '{"at_timestamp": true}',
        '{"at_timestamp": "2026-11-20", "zone": "UTC"}',
        '{"at_timestamp": "2026-11-20", "format": 1}',
        '{"at_timestamp": {"a": 1}}',
    ],
)
def test_a_time_in_databricks_form_has_its_two_members(text: str) -> None:
    """A misspelt `format` must not select the default format."""
    with pytest.raises(ValueError, match='"at_timestamp": "<time>", "format"'):
        initial_position(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "valid JSON"),
        ("{'shardId-000000000000': 'LATEST'}", "valid JSON"),
        ('{"shardId-000000000000": NaN}', "for shardId-000000000000"),
        ("{}", "a JSON object with a position for each shard"),
        ('"latest"', "valid JSON"),
        ('"[1]"', "a JSON object with a position for each shard"),
        ('{"a": ' * 100_000, "of two or three levels"),
        (f'{{"{S0}": "LATEST", "{S0}": "TRIM_HORIZON"}}', f"'{S0}' is there twice"),
        ('{"x": ' + "9" * 5000 + "}", "sequence numbers in quotes"),
    ],
)
def test_json_that_is_no_position_is_refused(text: str, said: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(ValueError, match=said):
        initial_position(text)


# --- ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LATEST", Latest()),
        ("at_timestamp 2026-11-20T12:00:00Z", AtTimestamp(NOON)),
        (
            json.dumps({S0: "LATEST", S1: f"AFTER:{NUMBER}", S2: "SHARD_END"}),
            by_shard(S0=Latest(), S1=After(NUMBER), S2=SHARD_END),
        ),
        (json.dumps({S0: "AT_TIMESTAMP:1795176000000"}), by_shard(S0=AtTimestamp(NOON))),
    ],
)
def test_an_end(text: str, expected: object) -> None:
    """An end is a time, a record or the end of the shard."""
    assert ending_position(text) == expected


@pytest.mark.parametrize("text", ["earliest", "trim_horizon", "", "now", "shard_end"])
def test_a_word_that_is_no_end_is_refused(text: str) -> None:
    """No record is before the oldest one, so a read cannot end there."""
    with pytest.raises(ValueError, match="latest, at_timestamp <time>, or JSON by shard"):
        ending_position(text)


@pytest.mark.parametrize("value", ["TRIM_HORIZON", f"AT:{NUMBER}", "x"])
def test_a_position_that_is_no_end_is_refused(value: str) -> None:
    """The message lists the positions that are valid."""
    with pytest.raises(ValueError, match="LATEST, AT_TIMESTAMP:<time>, AFTER"):
        ending_position(json.dumps({S0: value}))


@pytest.mark.parametrize(
    ("start", "end", "is_backwards"),
    [
        (AtTimestamp(5), AtTimestamp(4), True),
        (AtTimestamp(5), AtTimestamp(5), False),
        (AtTimestamp(4), AtTimestamp(5), False),
        (TRIM_HORIZON, AtTimestamp(5), False),
        (by_shard(S0=After("9")), by_shard(S0=After("8")), True),
        (by_shard(S0=After("10")), by_shard(S0=After("9")), True),
        (by_shard(S0=After("9")), by_shard(S0=After("9")), False),
        (by_shard(S0=After("9")), by_shard(S0=After("10")), False),
        (by_shard(S0=At("9")), by_shard(S0=After("7")), True),
        (by_shard(S0=At("9")), by_shard(S0=After("9")), False),
        (by_shard(S0=SHARD_END), by_shard(S0=After("9")), True),
        (by_shard(S0=SHARD_END), by_shard(S0=Latest()), False),
        (by_shard(S0=After("9")), by_shard(S0=SHARD_END), False),
        (by_shard(S0=AtTimestamp(5)), by_shard(S0=AtTimestamp(4)), True),
        (by_shard(S0=AtTimestamp(5)), by_shard(S0=AtTimestamp(5)), False),
        (by_shard(S0=AtTimestamp(5)), by_shard(S0=After("1")), False),
        (AtTimestamp(5), by_shard(S0=AtTimestamp(4)), True),
        (by_shard(S0=AtTimestamp(5)), AtTimestamp(4), True),
        (by_shard(S0=After("9")), by_shard(S1=After("8")), False),
        (
            ShardPositions({"orders": {S0: After("9")}}),
            ShardPositions({ARN: {S0: After("8")}}),
            True,
        ),
        (
            ShardPositions({"orders": {S0: After("9")}}),
            ShardPositions({"clicks": {S0: After("8")}}),
            False,
        ),
    ],
)
def test_an_end_before_the_start(
    start: InitialPosition, end: ShardPositions | AtTimestamp, *, is_backwards: bool
) -> None:
    """It is found where the two can be compared; a number and a time cannot be."""
    assert bool(backwards(start, end)) is is_backwards


# --- the positions in one stream ----------------------------------------------------------------


def test_positions_are_looked_up_for_a_stream() -> None:
    """By ARN, by name, or for any stream if none was named."""
    here: dict[str, Position | Latest] = {S0: After("1"), S1: Latest()}

    for key in (None, "orders", ARN):
        assert ShardPositions({key: here}).of(ARN, [S0, S1, S2]) == here


def test_positions_of_shards_that_are_gone_are_refused() -> None:
    """The message lists the shards that exist. A shard that was read to its end is not missed."""
    positions = by_shard(S0=After("1"), S1=TRIM_HORIZON, S2=SHARD_END)

    with pytest.raises(OptionError) as caught:
        positions.of(ARN, [f"shardId-{i:012}" for i in range(10, 20)])
    assert f"does not have {S0}, {S1}, which" in str(caught.value)
    assert (
        "It lists shardId-000000000010, shardId-000000000011, shardId-000000000012 and 7 more"
        in (str(caught.value))
    )
    assert positions.of(ARN, [S0, S1]) == {S0: After("1"), S1: TRIM_HORIZON}


@pytest.mark.parametrize("key", [OTHER_ARN, "clicks", ARN.replace("123456789012", "210987654321")])
def test_positions_of_another_stream_are_refused(key: str) -> None:
    """Its name is another one, or its account is."""
    with pytest.raises(OptionError, match="No position by shard is given for the stream"):
        ShardPositions({key: {S0: SHARD_END}}).of(ARN, [S0])


def test_an_offset_of_a_stream_created_again_is_refused() -> None:
    """Otherwise the end of an old shard would count as the end of a new one."""
    positions = ShardPositions({ARN: {S0: SHARD_END}}, {ARN: 5})

    assert positions.of(ARN, [S0], 5) == {S0: SHARD_END}
    with pytest.raises(OptionError, match="deleted and created again"):
        positions.of(ARN, [S0], 6)


def test_positions_are_values() -> None:
    """They can be hashed, compared and pickled."""
    one, same = by_shard(S0=After("1"), S1=Latest()), by_shard(S1=Latest(), S0=After("1"))

    assert one == same
    assert hash(one) == hash(same)
    assert one != by_shard(S0=After("2"), S1=Latest())
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
