"""Repeats of records dropped by their ids: what our sink wrote twice, a query sees once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from kinesis_ds.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID, _CONTENT = "__kinesis_ds_id", "__kinesis_ds_content"
_PLACE = ("stream", "shardId", "sequenceNumber", "subSequenceNumber")
_NEEDED = (*_PLACE, "data", "approximateArrivalTimestamp", "recordId")


def drop_repeats(df: DataFrame, within: str = "24 hours") -> DataFrame:
    """Each record once that our sink wrote with ``recordIds``, however often it was sent.

    Repeats have the same record id, and the same data in the same stream. Those are compared, too,
    so that a replayed batch whose rows came in another order can cost repeats and never a record.
    Records without an id, such as those of other producers, all pass.

    Of a streaming DataFrame, ids are kept in Spark's state store. ``within`` is two things, both by
    ``approximateArrivalTimestamp``: how far apart repeats may be, and **how late a record may be.
    Spark drops what is older than the newest record of earlier batches by more than that, whether
    it is a repeat or not.** Records are that late when their shard is read that far behind another.
    With the stream's retention and an hour more, nothing that can be read is late. An id is kept
    for up to twice as long. The query may have no other watermark, before this or behind it.

    Rows come out of a shuffle: those of a shard are not in their order any more. Of a batch
    DataFrame all repeats are dropped, and ``within`` says nothing.

    Args:
        df: Read by this connector with ``includeMetadata=true``, all its columns still there.
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
