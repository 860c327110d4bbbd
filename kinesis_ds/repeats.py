"""Drop repeats of records by their ids, so that a query sees once what our sink wrote twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # the usual name among Spark users

from kinesis_ds.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID, _CONTENT = "__kinesis_ds_id", "__kinesis_ds_content"
_PLACE = ("stream", "shardId", "sequenceNumber", "subSequenceNumber")
_NEEDED = (*_PLACE, "data", "approximateArrivalTimestamp", "recordId")


def drop_repeats(df: DataFrame, within: str = "24 hours") -> DataFrame:
    """Return each record once that our sink wrote with ``recordIds``, however often it was sent.

    Records are repeats if they have the same record id, the same stream and the same data. Data are
    compared because Spark may replay a batch with its rows in another order, and then one id
    belongs to two different rows. Such a replay can leave repeats, but no record is lost. Records
    without an id, such as those of other producers, are all kept.

    With a streaming DataFrame, ids are kept in Spark's state store. ``within`` then limits two
    things, both by ``approximateArrivalTimestamp``: how far apart repeats may be, and **how late a
    record may be. Spark drops every record that is older than the newest record of earlier batches
    by more than this, whether it is a repeat or not.** A record is that late if its shard is read
    that far behind another one. With the stream's retention plus one hour, no record that can be
    read is late. An id is kept for up to twice as long. The query must not have any other
    watermark.

    With a batch DataFrame all repeats are dropped, and ``within`` has no effect.

    Rows come out of a shuffle, so the rows of a shard are no longer in order.

    Args:
        df: A DataFrame read by this connector with ``includeMetadata=true``, with all its columns.
        within: An interval as Spark writes it: ``"24 hours"``, ``"7 days"``.

    Raises:
        SchemaError: A column that this needs is missing.
    """
    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise SchemaError(
            f"Repeats cannot be dropped without the columns {', '.join(missing)}.",
            "Read with .option('includeMetadata', 'true'), and call drop_repeats before columns "
            "are left out.",
        )
    marked = df.withColumns(
        {
            _ID: F.coalesce("recordId", F.concat_ws("/", *_PLACE)),
            _CONTENT: F.xxhash64("stream", "data"),
        }
    )
    if df.isStreaming:
        kept = marked.withWatermark(
            "approximateArrivalTimestamp", within
        ).dropDuplicatesWithinWatermark([_ID, _CONTENT])
    else:
        kept = marked.dropDuplicates([_ID, _CONTENT])
    return kept.drop(_ID, _CONTENT)
