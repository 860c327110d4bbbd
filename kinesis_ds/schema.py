"""The schema of the source, in Spark's and in Arrow's terms, and the rules for a sink's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_ds.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE_DDL = (
    "partitionKey string, data binary, stream string, shardId string, sequenceNumber string, "
    "approximateArrivalTimestamp timestamp"
)

# What an agent buffers and sends: the columns that differ from record to record.
RECORD_SCHEMA = pa.schema(
    [
        pa.field("partitionKey", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("sequenceNumber", pa.string()),
        pa.field("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)

# What Spark gets. The types and their order are those of SOURCE_DDL.
SOURCE_SCHEMA = pa.schema(
    [
        pa.field("partitionKey", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("stream", pa.string()),
        pa.field("shardId", pa.string()),
        pa.field("sequenceNumber", pa.string()),
        pa.field("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)

_SINK_TYPES = {
    "data": ("binary", "string"),
    "partitionKey": ("string",),
    "explicitHashKey": ("string",),
}


def to_source_batch(records: pa.RecordBatch, stream: str, shard_id: str) -> pa.RecordBatch:
    """Add the columns that are the same for all records of a shard."""
    rows = records.num_rows
    return pa.record_batch(
        [
            records.column(0),
            records.column(1),
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(shard_id, pa.string()), rows),
            records.column(2),
            records.column(3),
        ],
        schema=SOURCE_SCHEMA,
    )


def check_source_schema(schema: StructType) -> None:
    """Refuse a user-specified schema that is not the source's own.

    Raises:
        SchemaError: Naming what differs.
    """
    expected = [tuple(column.split()) for column in SOURCE_DDL.split(", ")]
    given = [(f.name, f.dataType.simpleString()) for f in schema.fields]
    if given != expected:
        raise SchemaError(
            f"The Kinesis source has the columns ({SOURCE_DDL}), and the query asked for "
            f"({', '.join(' '.join(column) for column in given)}).",
            "Leave out .schema(...) and select the columns you need.",
        )


def check_sink_schema(schema: StructType) -> None:
    """Check the DataFrame that is to be written, all columns at once.

    Raises:
        SchemaError: Naming every problem: columns missing, unknown, or of a wrong type.
    """
    problems = []
    names = [f.name for f in schema.fields]
    if "data" not in names:
        problems.append("column data (binary or string) is missing")
    for f in schema.fields:
        allowed = _SINK_TYPES.get(f.name)
        kind = f.dataType.simpleString()
        if allowed is None:
            problems.append(f"column {f.name} is not one of {', '.join(_SINK_TYPES)}")
        elif kind not in allowed:
            problems.append(f"column {f.name} is {kind}, expected {' or '.join(allowed)}")
    if problems:
        raise SchemaError(
            f"The DataFrame cannot be written to Kinesis: {'; '.join(problems)}.",
            "Select data (binary or string) and, if wanted, partitionKey and explicitHashKey "
            "(strings), for example .selectExpr('to_json(struct(*)) AS data').",
        )
