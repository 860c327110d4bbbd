"""Schemas: the columns of the source, and the columns that the sink accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from kinesis_ds.plan.decoding import Decoding
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.wire.decode import decode_records
from kinesis_ds.wire.schema import (
    METADATA_SCHEMA,
    RECORD_SCHEMA,
    SOURCE_DDL,
    SOURCE_METADATA_SCHEMA,
    SOURCE_SCHEMA,
    check_sink_schema,
    check_source_schema,
    source_ddl,
    to_source_batch,
)
from tests.support.aggregates import User, aggregate
from tests.support.builders import record, records

if TYPE_CHECKING:
    import pyarrow as pa


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
WITH_METADATA = StructType(
    [
        *SOURCE.fields,
        StructField("subSequenceNumber", LongType()),
        StructField("explicitHashKey", StringType()),
        StructField("encryptionType", StringType()),
        StructField("recordId", StringType()),
    ]
)


@pytest.mark.parametrize(
    ("metadata", "source", "buffered"),
    [
        (False, SOURCE_SCHEMA, RECORD_SCHEMA),
        (True, SOURCE_METADATA_SCHEMA, METADATA_SCHEMA),
    ],
)
def test_arrow_and_ddl_name_the_same_columns(
    metadata: bool, source: pa.Schema, buffered: pa.Schema
) -> None:
    """The two forms of the source's schema are the same, with metadata and without."""
    kinds = {
        "string": "string",
        "binary": "binary",
        "bigint": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
    }
    expected = [
        (name, kinds[kind])
        for name, kind in (column.split() for column in source_ddl(metadata=metadata).split(", "))
    ]

    assert [(f.name, str(f.type)) for f in source] == expected
    assert [f for f in source if f.name not in ("stream", "shardId")] == list(buffered)


def test_metadata_comes_behind_the_other_columns() -> None:
    """A query that selects columns by name does not notice the new ones."""
    assert source_ddl(metadata=False) == SOURCE_DDL
    assert source_ddl(metadata=True).startswith(f"{SOURCE_DDL}, ")
    assert list(SOURCE_METADATA_SCHEMA)[: len(SOURCE_SCHEMA)] == list(SOURCE_SCHEMA)


def test_stream_and_shard_are_added_to_each_record() -> None:
    """The batch of the source has the same records in the same order."""
    batch = to_source_batch(records([1, 2, 3]).batch, "orders", "shardId-0")

    assert batch.schema == SOURCE_SCHEMA
    assert batch.column("stream").to_pylist() == ["orders"] * 3
    assert batch.column("shardId").to_pylist() == ["shardId-0"] * 3
    assert batch.column("sequenceNumber").to_pylist() == ["1", "2", "3"]
    assert batch.column("data").to_pylist() == [b"data"] * 3


def test_metadata_goes_through() -> None:
    """A batch with metadata columns keeps them."""
    item = record(7, aggregate(User("a", b"1", "5"), User("b", b"2")))
    decoded = decode_records([item], TRIM_HORIZON, Decoding(deaggregate=True, metadata=True))
    assert decoded is not None

    batch = to_source_batch(decoded.batch, "orders", "shardId-0")
    assert batch.schema == SOURCE_METADATA_SCHEMA
    assert batch.column("subSequenceNumber").to_pylist() == [0, 1]
    assert batch.column("explicitHashKey").to_pylist() == ["5", None]
    assert batch.column("encryptionType").to_pylist() == ["NONE", "NONE"]
    assert batch.column("recordId").to_pylist() == [None, None]
    assert batch.column("shardId").to_pylist() == ["shardId-0"] * 2


def test_an_empty_batch_stays_empty() -> None:
    """A batch without records gives a batch without rows."""
    assert to_source_batch(records([1]).batch.slice(0, 0), "orders", "s").num_rows == 0


def test_the_sources_own_schema_is_accepted() -> None:
    """The result of ``schema()`` is accepted, with metadata and without."""
    check_source_schema(SOURCE)
    check_source_schema(WITH_METADATA, metadata=True)
    with pytest.raises(SchemaError, match="subSequenceNumber bigint"):
        check_source_schema(SOURCE, metadata=True)
    with pytest.raises(SchemaError, match="subSequenceNumber bigint"):
        check_source_schema(WITH_METADATA)


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
    """The error shows both schemas."""
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
    """Data are text or bytes, keys are optional, in any order."""
    check_sink_schema(schema)


def test_the_names_of_a_sink_schema_have_no_case() -> None:
    """Spark's column names have no case by default, and SQL that shouts is common."""
    check_sink_schema(struct(DATA=StringType(), PARTITIONKEY=StringType(), Stream=StringType()))


@pytest.mark.parametrize("other", ["data", "DATA"])
def test_two_columns_of_one_name_are_refused(other: str) -> None:
    """A session with spark.sql.caseSensitive has room for both, the sink does not."""
    schema = StructType([StructField("data", BinaryType()), StructField(other, StringType())])

    with pytest.raises(SchemaError, match=f"columns data and {other} are both the column data"):
        check_sink_schema(schema)


def test_all_problems_of_a_sink_schema_come_together() -> None:
    """One error names the missing, the unknown and the mistyped columns."""
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
