"""What ``format("kinesis")`` is asked for and does not do."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructType

from kinesis_ds import KinesisDataSource
from kinesis_ds.errors import OptionError


def test_a_batch_write_is_one_clear_error() -> None:
    """Before anything is looked up or written, with what there is instead."""
    source = KinesisDataSource({"streamName": "orders"})
    with pytest.raises(OptionError, match=r"not in this version.*df\.writeStream"):
        source.writer(StructType().add("data", BinaryType()), overwrite=False)
