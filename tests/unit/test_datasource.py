"""Requests to ``format("kinesis")`` that are refused when a query is built."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructType

from kinesis_ds import KinesisDataSource
from kinesis_ds.errors import OptionError

SCHEMA = StructType().add("data", BinaryType())


def test_a_stream_is_not_overwritten() -> None:
    """The error comes before anything is looked up or written, and says what to do instead."""
    source = KinesisDataSource({"streamName": "orders"})
    with pytest.raises(OptionError, match=r"cannot be overwritten.*mode\(.append.\)"):
        source.writer(SCHEMA, overwrite=True)


def test_a_batch_write_is_checked_when_it_is_built() -> None:
    """Options and columns are checked as in a streaming query."""
    with pytest.raises(OptionError, match="did you mean streamName"):
        KinesisDataSource({"streamNam": "orders"}).writer(SCHEMA, overwrite=False)
