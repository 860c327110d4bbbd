"""What a user can get wrong: one clear error that names the thing and the remedy, and never a
hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from devtools.waiting import wait_until
from integration.conftest import MakeStream, read_into_nothing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Long enough for a slow machine, far from a hang.
WITHIN_S = 180


def read_error(spark: SparkSession, checkpoint: Path, **options: str) -> str:
    """Return the text of the error that ends a reading query."""
    with pytest.raises(Exception) as caught:
        query = read_into_nothing(spark, checkpoint, **options)
        try:
            if not query.awaitTermination(WITHIN_S):
                pytest.fail(f"no error within {WITHIN_S} s")
        finally:
            query.stop()
    return str(caught.value)


def write_error(spark: SparkSession, checkpoint: Path, columns: list[str], **options: str) -> str:
    """Return the text of the error that ends a writing query."""
    with pytest.raises(Exception) as caught:
        query = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 10)
            .load()
            .selectExpr(*columns)
            .writeStream.format("kinesis")
            .options(**options)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        try:
            if not query.awaitTermination(WITHIN_S):
                pytest.fail(f"no error within {WITHIN_S} s")
        finally:
            query.stop()
    return str(caught.value)


def frames(text: str) -> int:
    """Return how many Python frames of the connector and of PySpark the text shows."""
    return text.count('  File "')


@pytest.mark.timeout(600)
def test_an_unknown_stream_is_named(spark: SparkSession, endpoint: str, tmp_path: Path) -> None:
    """Read a stream that does not exist."""
    text = read_error(spark, tmp_path, streamName="no-such-stream", endpoint=endpoint)
    assert "KINESIS_STREAM_NOT_FOUND" in text
    assert f"no stream no-such-stream in region us-east-1 at endpoint {endpoint}" in text
    assert "Check the name, the region, the account and the endpoint" in text
    assert frames(text) < 12, text


@pytest.mark.timeout(600)
def test_a_wrong_region_is_named(
    spark: SparkSession, endpoint: str, make_stream: MakeStream, tmp_path: Path
) -> None:
    """The stream exists in another region."""
    stream = make_stream()
    text = read_error(spark, tmp_path, streamName=stream, endpoint=endpoint, region="eu-west-1")
    assert "KINESIS_STREAM_NOT_FOUND" in text
    assert f"no stream {stream} in region eu-west-1" in text


@pytest.mark.timeout(600)
def test_writing_to_an_unknown_stream_is_named(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    """Write to a stream that does not exist."""
    text = write_error(
        spark,
        tmp_path,
        ["cast(value as string) as data"],
        streamName="no-such-stream",
        endpoint=endpoint,
    )
    assert "KINESIS_STREAM_NOT_FOUND" in text
    assert "no-such-stream" in text
    assert "Check the name" in text
    assert frames(text) <= 5, text


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("option", "said"),
    [
        pytest.param(
            {"endpoint": "http://127.0.0.1:9"},
            ["KINESIS_TRANSIENT", "http://127.0.0.1:9", "Is the endpoint right"],
            marks=pytest.mark.long,  # three tries; tests/unit/writer/test_stream.py says it
        ),
        ({"maxInFlightRecord": "5"}, ["KINESIS_OPTIONS", "did you mean maxInFlightRecords"]),
    ],
    ids=["endpoint", "option"],
)
def test_writing_that_cannot_work_names_the_remedy(
    spark: SparkSession, endpoint: str, tmp_path: Path, option: dict[str, str], said: list[str]
) -> None:
    """An endpoint that refuses, and a mistyped option."""
    options = {"streamName": "orders", "endpoint": endpoint, **option}
    text = write_error(spark, tmp_path, ["cast(value as string) as data"], **options)
    for words in said:
        assert words in text
    assert frames(text) <= 5, text


@pytest.mark.timeout(600)
def test_all_option_problems_come_at_once_when_the_query_is_built(
    spark: SparkSession, endpoint: str
) -> None:
    """One error, at load, for an unknown name, a wrong value and a missing option."""
    with pytest.raises(Exception) as caught:
        spark.readStream.format("kinesis").options(
            streamNam="orders", fetchBufferSize="lots", endpoint=endpoint
        ).load()
    text = str(caught.value)
    assert "3 problems" in text
    assert "did you mean streamName?" in text
    assert "fetchBufferSize is 'lots'" in text
    assert "give streamName or streamARN" in text


@pytest.mark.timeout(600)
def test_contradictions_are_told_with_everything_else(spark: SparkSession, endpoint: str) -> None:
    """Options that are each right and do not go together, a negative limit, a position that is
    none: at load, in one error.
    """
    with pytest.raises(Exception) as caught:
        spark.readStream.format("kinesis").options(
            streamName="orders,clicks",
            endpoint=endpoint,
            maxRecordsPerTrigger="-1",
            consumerMode="polling",
            consumerName="app",
            roleExternalId="Hush",
            initialPosition='{"shardId-000000000000": "AFTER:5", "shardId-1": "LATEST"}',
            serviceCredential="Hush",
        ).load()
    text = str(caught.value)
    assert "5 problems" in text
    assert "maxRecordsPerTrigger is '-1', expected a whole number at least 1" in text
    assert "consumerName is an option of consumerMode efo, and this query's is polling" in text
    assert "roleExternalId needs roleArn" in text
    assert "expected a shard id (shardId-000000000000), not 'shardId-1'" in text
    assert "serviceCredential cannot be honoured here" in text
    assert "Hush" not in text


@pytest.mark.timeout(600)
def test_a_consumer_of_another_stream_is_refused(spark: SparkSession, endpoint: str) -> None:
    """The ARN of the consumer names its stream."""
    of = "arn:aws:kinesis:us-east-1:000000000000:stream/clicks/consumer/app:1700000000"
    with pytest.raises(Exception) as caught:
        spark.readStream.format("kinesis").options(
            streamName="orders", endpoint=endpoint, registeredConsumerId=of
        ).load()
    assert f"the consumer {of} belongs to another stream than orders" in str(caught.value)


@pytest.mark.timeout(600)
def test_a_position_of_another_streams_shard_is_refused(
    spark: SparkSession, endpoint: str, make_stream: MakeStream, tmp_path: Path
) -> None:
    """The error names the shard, and the shards that the stream has."""
    text = read_error(
        spark,
        tmp_path,
        streamName=make_stream(),
        endpoint=endpoint,
        initialPosition='{"shardId-000000000000": "LATEST", "shardId-000000000007": "AFTER:5"}',
    )
    assert "KINESIS_OPTIONS" in text
    assert "does not have shardId-000000000007, which a position was given for" in text
    assert "It lists shardId-000000000000." in text
    assert frames(text) < 12, text


@pytest.mark.timeout(600)
def test_a_batch_that_would_read_nothing_or_backwards_is_refused(
    spark: SparkSession, endpoint: str
) -> None:
    """A start at `latest`; an end before the start."""
    reads = spark.read.format("kinesis").options(streamName="orders", endpoint=endpoint)
    with pytest.raises(Exception, match="nothing comes after it in a batch read"):
        reads.option("initialPosition", "latest").load().collect()
    with pytest.raises(Exception, match="AT_TIMESTAMP:1600000000000 is before AT_TIMESTAMP"):
        reads.option("initialPosition", "at_timestamp 1700000000").option(
            "endingPosition", "at_timestamp 1600000000"
        ).load().collect()


@pytest.mark.timeout(600)
def test_secrets_stay_out_of_error_texts(spark: SparkSession, endpoint: str) -> None:
    """An error about credentials does not show them."""
    with pytest.raises(Exception) as caught:
        spark.readStream.format("kinesis").options(
            streamName="orders", awsSecretKey="Hush/SecretValue", bogus="1", endpoint=endpoint
        ).load()
    assert "KINESIS_OPTIONS" in str(caught.value)
    assert "Hush" not in str(caught.value)


@pytest.mark.timeout(600)
def test_a_wrong_sink_schema_names_every_column(
    spark: SparkSession, endpoint: str, tmp_path: Path
) -> None:
    """Columns unknown, missing and of a wrong type, when the query starts."""
    text = write_error(
        spark,
        tmp_path,
        ["value as number", "cast(value as int) as partitionKey"],
        streamName="orders",
        endpoint=endpoint,
    )
    assert "KINESIS_SCHEMA" in text
    assert "column data (binary or string) is missing" in text
    assert "column number is not one of" in text
    assert "column partitionKey is int, expected string" in text
    assert frames(text) <= 5, text


READING = """
import sys
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.reader.coordinator import Coordinator
options = {"streamName": sys.argv[1], "endpoint": sys.argv[2], "region": "us-east-1"}
Coordinator(parse_read_options(options)).latest(None)
"""
WRITING = """
import sys
import pyarrow
from pyspark.sql.types import BinaryType, StructType
from kinesis_ds.writer.stream import make_stream_writer
options = {"streamName": sys.argv[1], "endpoint": sys.argv[2], "region": "us-east-1"}
writer = make_stream_writer(options, StructType().add("data", BinaryType()))
writer.write(iter([pyarrow.record_batch({"data": [b"row"]})]))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("code", [READING, WRITING], ids=["reading", "writing"])
def test_no_credentials_say_where_to_put_them(
    endpoint: str, tmp_path: Path, make_stream: MakeStream, code: str
) -> None:
    """A machine without AWS credentials, in a process without any in its environment."""
    stream = make_stream()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    environment |= {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, stream, endpoint],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert "KINESIS_ACCESS" in done.stderr
    assert "awsAccessKey" in done.stderr
    assert "AWS_ACCESS_KEY_ID" in done.stderr


@pytest.mark.timeout(600)
def test_an_endpoint_that_refuses_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing listens on the endpoint's port: an error within seconds, not a hang."""
    text = read_error(spark, tmp_path, streamName="orders", endpoint="http://127.0.0.1:9")
    assert "KINESIS_TRANSIENT" in text
    assert "127.0.0.1:9" in text
    assert "Is the endpoint right" in text


@pytest.mark.timeout(600)
def test_a_checkpoint_of_another_stream_is_refused(
    spark: SparkSession, endpoint: str, make_stream: MakeStream, tmp_path: Path
) -> None:
    """The same checkpoint, another streamName."""
    first, second = make_stream(), make_stream()
    _pin(spark, tmp_path, streamName=first, endpoint=endpoint)
    text = read_error(spark, tmp_path, streamName=second, endpoint=endpoint)
    assert "KINESIS_CHECKPOINT" in text
    assert first in text
    assert second in text
    assert "new checkpointLocation" in text


@pytest.mark.timeout(600)
def test_a_checkpoint_of_a_stream_created_again_is_refused(
    spark: SparkSession, endpoint: str, kinesis: Any, make_stream: MakeStream, tmp_path: Path
) -> None:
    """The new stream has the same name, but the old positions mean nothing in it."""
    stream = make_stream()
    _pin(spark, tmp_path, streamName=stream, endpoint=endpoint)
    log = tmp_path / "offsets" / "0"
    lines = log.read_text().splitlines()
    offset = json.loads(lines[-1])
    (positions,) = offset["streams"].values()
    positions["created"] -= 86_400_000
    del offset["crc32"]
    log.write_text("\n".join([*lines[:-1], json.dumps(offset)]))
    (tmp_path / "offsets" / ".0.crc").unlink(missing_ok=True)
    text = read_error(spark, tmp_path, streamName=stream, endpoint=endpoint)
    assert "deleted and created again" in text


@pytest.mark.timeout(600)
def test_a_checkpoint_of_a_newer_version_is_refused(
    spark: SparkSession, endpoint: str, make_stream: MakeStream, tmp_path: Path
) -> None:
    """An offset format this version does not know."""
    stream = make_stream()
    _pin(spark, tmp_path, streamName=stream, endpoint=endpoint)
    log = tmp_path / "offsets" / "0"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], json.dumps({**json.loads(lines[-1]), "v": 99})]))
    (tmp_path / "offsets" / ".0.crc").unlink(missing_ok=True)
    text = read_error(spark, tmp_path, streamName=stream, endpoint=endpoint)
    assert "offset format 99" in text
    assert "Upgrade kinesis_ds" in text


def _pin(spark: SparkSession, checkpoint: Path, **options: str) -> None:
    """Run a query until its start is in the checkpoint."""
    query = read_into_nothing(spark, checkpoint, **options)
    try:
        wait_until(
            lambda: (checkpoint / "commits" / "0").exists() or query.exception(),
            what="batch 0",
            within_s=WITHIN_S,
        )
        assert query.exception() is None
    finally:
        query.stop()
