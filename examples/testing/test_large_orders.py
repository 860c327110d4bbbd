"""Tests of a job with a Kinesis that keeps the service's rules, on this machine."""

# --8<-- [start:first]
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.testing.large_orders import large_orders
from kinesis_ds.testing import Disconnect, FailRecords, Fault, KinesisServer, Raise


@pytest.fixture
def kinesis() -> Iterator[KinesisServer]:
    with KinesisServer() as server:
        server.create_stream("orders", shards=2)
        server.create_stream("large-orders")
        yield server


def test_only_large_orders_go_on(
    spark: SparkSession, kinesis: KinesisServer, tmp_path: Path
) -> None:
    source = kinesis.options("orders") | {"initialPosition": "trim_horizon"}
    kinesis.put("orders", b'{"id": 1, "total": 5}', b'{"id": 2, "total": 5000}')

    query = large_orders(spark, source, kinesis.options("large-orders"), str(tmp_path))
    (record,) = kinesis.wait_for_records("large-orders", 1)
    query.stop()

    assert record.data == b'{"id": 2, "total": 5000}'


# --8<-- [end:first]


# --8<-- [start:faults]
def test_nothing_is_lost_on_a_bad_day(
    spark: SparkSession, kinesis: KinesisServer, tmp_path: Path
) -> None:
    kinesis.add_faults(
        # Of the first request to the sink every second record is throttled, ...
        Fault(FailRecords(every=2), operation="PutRecords"),
        # ... the answer to the second is lost after the records were stored, ...
        Fault(Disconnect(performed=True), operation="PutRecords", call=2),
        # ... and the first subscription ends with an error of the service.
        Fault(Raise("InternalFailureException"), event=2),
    )
    source = kinesis.options("orders") | {"initialPosition": "trim_horizon"}
    orders = [b'{"id": %d, "total": 1000}' % i for i in range(100)]
    kinesis.put("orders", *orders[:50], partition_key=bytes.hex)

    query = large_orders(spark, source, kinesis.options("large-orders"), str(tmp_path))
    kinesis.wait_for_records("large-orders", 50)
    kinesis.split("orders", kinesis.open_shards("orders")[0])
    kinesis.put("orders", *orders[50:], partition_key=bytes.hex)
    kinesis.wait_for(lambda: {r.data for r in kinesis.records("large-orders")} == set(orders))
    query.stop()

    assert len(kinesis.struck()) == 3


# --8<-- [end:faults]
