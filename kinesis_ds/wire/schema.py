"""The columns of the source, for Spark and for Arrow, and the columns that a sink accepts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_ds.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

SOURCE_DDL = (
    "partitionKey string, data binary, stream string, shardId string, sequenceNumber string, "
    "approximateArrivalTimestamp timestamp"
)

_METADATA_DDL = (
    "subSequenceNumber bigint, explicitHashKey string, encryptionType string, recordId string"
)
_METADATA_FIELDS = [
    pa.field("subSequenceNumber", pa.int64()),
    pa.field("explicitHashKey", pa.string()),
    pa.field("encryptionType", pa.string()),
    pa.field("recordId", pa.string()),
]

# What an agent buffers and sends: the columns whose values differ from record to record.
RECORD_SCHEMA = pa.schema(
    [
        pa.field("partitionKey", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("sequenceNumber", pa.string()),
        pa.field("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)

# The same with the columns of ``includeMetadata``.
METADATA_SCHEMA = pa.schema([*RECORD_SCHEMA, *_METADATA_FIELDS])

# What Spark receives. The types and their order are those of SOURCE_DDL.
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

SOURCE_METADATA_SCHEMA = pa.schema([*SOURCE_SCHEMA, *_METADATA_FIELDS])

_SINK_TYPES = {
    "data": ("binary", "string"),
    "partitionKey": ("string",),
    "explicitHashKey": ("string",),
    "stream": ("string",),
}
_SINK_NAMES = {name.lower(): name for name in _SINK_TYPES}


def source_ddl(*, metadata: bool) -> str:
    """Return the source's columns as DDL, with or without those of ``includeMetadata``."""
    return f"{SOURCE_DDL}, {_METADATA_DDL}" if metadata else SOURCE_DDL


def to_source_batch(records: pa.RecordBatch, stream: str, shard_id: str) -> pa.RecordBatch:
    """Add the columns that are the same for all records of a shard."""
    rows = records.num_rows
    metadata = records.columns[len(RECORD_SCHEMA) :]
    return pa.record_batch(
        [
            records.column(0),
            records.column(1),
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(shard_id, pa.string()), rows),
            records.column(2),
            records.column(3),
            *metadata,
        ],
        schema=SOURCE_METADATA_SCHEMA if metadata else SOURCE_SCHEMA,
    )


def check_source_schema(schema: StructType, *, metadata: bool = False) -> None:
    """Refuse a schema given by the user that is not the source's own.

    Raises:
        SchemaError: The schemas differ. The message shows both.
    """
    ddl = source_ddl(metadata=metadata)
    expected = [tuple(column.split()) for column in ddl.split(", ")]
    given = [(f.name, f.dataType.simpleString()) for f in schema.fields]
    if given != expected:
        raise SchemaError(
            f"The Kinesis source has the columns ({ddl}), and the query asked for "
            f"({', '.join(' '.join(column) for column in given)}).",
            "Leave out .schema(...) and select the columns you need.",
        )


def sink_columns(names: Iterable[str]) -> dict[str, int]:
    """Return where each column that the sink knows stands among these names, whatever their case.

    The Python worker that makes the writer is not told ``spark.sql.caseSensitive``.
    """
    known = ((_SINK_NAMES.get(name.lower()), at) for at, name in enumerate(names))
    return {name: at for name, at in known if name is not None}


def check_sink_schema(schema: StructType) -> None:
    """Check the columns of the DataFrame that is to be written.

    Raises:
        SchemaError: Columns are missing, unknown, given twice or of a wrong type. The message names
            them all.
    """
    problems = []
    found: dict[str, str] = {}
    for f in schema.fields:
        name = _SINK_NAMES.get(f.name.lower())
        kind = f.dataType.simpleString()
        if name is None:
            problems.append(f"column {f.name} is not one of {', '.join(_SINK_TYPES)}")
        elif name in found:
            problems.append(f"columns {found[name]} and {f.name} are both the column {name}")
        elif kind not in _SINK_TYPES[name]:
            expected = " or ".join(_SINK_TYPES[name])
            problems.append(f"column {f.name} is {kind}, expected {expected}")
        if name is not None:
            found[name] = f.name
    if "data" not in found:
        problems.insert(0, "column data (binary or string) is missing")
    if problems:
        raise SchemaError(
            f"The DataFrame cannot be written to Kinesis: {'; '.join(problems)}.",
            "Select data (binary or string) and, if wanted, partitionKey, explicitHashKey and "
            "stream (strings), for example .selectExpr('to_json(struct(*)) AS data').",
        )
