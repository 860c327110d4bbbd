"""A second reader of aggregates: ``aws_kinesis_agg``, which AWS publishes."""

from __future__ import annotations

import base64
from typing import Any

import aws_kinesis_agg.aggregator  # makes its generated modules importable
from aws_kinesis_agg import messages_pb2
from aws_kinesis_agg.deaggregator import deaggregate_records

from tests.support.aggregates import MAGIC, User

assert aws_kinesis_agg.MAGIC == MAGIC


def by_the_other_reader(data: bytes) -> list[User] | None:
    """Return its user records of a record; None if it takes the record for a plain one."""
    given: dict[str, Any] = {"kinesis": {"data": base64.b64encode(data), "partitionKey": "outer"}}
    for member in ("kinesisSchemaVersion", "sequenceNumber", "approximateArrivalTimestamp"):
        given["kinesis"][member] = "1"
    found = [r["kinesis"] for r in deaggregate_records([given])]
    if found and "aggregated" not in found[0]:
        return None
    assert [r["subSequenceNumber"] for r in found] == list(range(len(found)))
    return [
        User(r["partitionKey"], base64.b64decode(r["data"]), r["explicitHashKey"]) for r in found
    ]


def tags_by_the_other_reader(data: bytes) -> list[list[tuple[str, str]]]:
    """Return the tags (keys and values) of each user record of an aggregate."""
    parsed = messages_pb2.AggregatedRecord.FromString(data[4:-16])
    assert parsed.IsInitialized()
    return [[(tag.key, tag.value) for tag in user.tags] for user in parsed.records]
