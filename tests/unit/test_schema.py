"""Schemas: what the source gives, and what the sink takes."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesis_ds.errors import SchemaError
from kinesis_ds.schema import (
    RECORD_SCHEMA,
    SOURCE_DDL,
    SOURCE_SCHEMA,
    check_sink_schema,
    check_source_schema,
    to_source_batch,
)
from tests.support.builders import records


def struct(**fields: object) -> StructType:
    schema = StructType()
    for name, kind in fields.items():
        schema = schema.add(name, kind)  # type: ignore[arg-type]
    return schema


SOURCE = struct(
    partitionKey=StringType(),
    data=BinaryType(),
    stream=StringType(),
    shardId=StringType(),
    sequenceNumber=StringType(),
    approximateArrivalTimestamp=TimestampType(),
)


def test_arrow_and_ddl_name_the_same_columns() -> None:
    """The two forms of the source's schema cannot drift apart."""
    kinds = {"string": "string", "binary": "binary", "timestamp": "timestamp[us, tz=UTC]"}
    expected = [
        (name, kinds[kind]) for name, kind in (column.split() for column in SOURCE_DDL.split(", "))
    ]

    assert [(f.name, str(f.type)) for f in SOURCE_SCHEMA] == expected
    assert [f for f in SOURCE_SCHEMA if f.name not in ("stream", "shardId")] == list(RECORD_SCHEMA)


def test_stream_and_shard_are_added_to_each_record() -> None:
    """A batch of a shard becomes a batch of the source with the same records in the same order."""
    batch = to_source_batch(records([1, 2, 3]).batch, "orders", "shardId-0")

    assert batch.schema == SOURCE_SCHEMA
    assert batch.column("stream").to_pylist() == ["orders"] * 3
    assert batch.column("shardId").to_pylist() == ["shardId-0"] * 3
    assert batch.column("sequenceNumber").to_pylist() == ["1", "2", "3"]
    assert batch.column("data").to_pylist() == [b"data"] * 3


def test_an_empty_batch_stays_empty() -> None:
    """No record, no row."""
    assert to_source_batch(records([1]).batch.slice(0, 0), "orders", "s").num_rows == 0


def test_the_sources_own_schema_is_accepted() -> None:
    """What ``schema()`` returned comes back and passes."""
    check_source_schema(SOURCE)


@pytest.mark.parametrize(
    "schema",
    [
        struct(data=BinaryType()),
        struct(),
        StructType([*SOURCE.fields, StructField("more", StringType())]),
    ],
    ids=["a part", "nothing", "more"],
)
def test_another_source_schema_is_refused(schema: StructType) -> None:
    """A schema of the user's own is refused with both schemas named."""
    with pytest.raises(SchemaError, match=r"has the columns \(partitionKey string.*Leave out"):
        check_source_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        struct(data=BinaryType()),
        struct(data=StringType()),
        struct(explicitHashKey=StringType(), partitionKey=StringType(), data=StringType()),
    ],
)
def test_sink_takes_data_with_or_without_keys(schema: StructType) -> None:
    """Text or bytes, keys optional, in any order."""
    check_sink_schema(schema)


def test_all_problems_of_a_sink_schema_come_together() -> None:
    """Missing, unknown and mistyped columns are told in one error."""
    schema = struct(partitionKey=IntegerType(), value=StringType(), explicitHashKey=LongType())

    with pytest.raises(SchemaError) as caught:
        check_sink_schema(schema)

    for said in (
        "column data (binary or string) is missing",
        "column value is not one of data, partitionKey, explicitHashKey",
        "column partitionKey is int, expected string",
        "column explicitHashKey is bigint, expected string",
        "to_json",
    ):
        assert said in str(caught.value)


def test_data_of_another_type_is_refused() -> None:
    """A struct or number must be turned into text or bytes by the user."""
    with pytest.raises(SchemaError, match="column data is bigint, expected binary or string"):
        check_sink_schema(struct(data=LongType()))
