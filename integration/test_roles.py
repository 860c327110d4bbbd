"""Roles, end to end: a stream of another account is written and read as a role of that account.

LocalStack keeps accounts apart, by the access key of each call: a call that is not signed with the
role's credentials does not find the stream.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from devtools.server import REGION, Server
from devtools.waiting import wait_until
from integration.conftest import read_into_nothing
from integration.streams import wait_until_active
from tests.support.sts import StsDouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTHER_ACCOUNT = "111111111111"
ROLE = f"arn:aws:iam::{OTHER_ACCOUNT}:role/orders"
ROWS = 200
# Long enough for a slow machine, far from a hang.
WITHIN_S = 180


# --- the double answers as LocalStack's STS does ------------------------------------------------


@pytest.fixture(params=["double", "localstack"])
def sts(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of STS."""

    def client(endpoint: str) -> Any:
        return boto3.client(
            "sts",
            endpoint_url=endpoint,
            region_name=REGION,
            config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
        )

    if request.param == "double":
        with StsDouble() as double:
            yield client(double.endpoint)
    else:
        yield client(request.getfixturevalue("localstack").endpoint)


def test_credentials_of_a_role_are_new_and_live_an_hour(sts: Any) -> None:
    """Key, secret, token, the time when they expire, and their owner."""
    answers = [
        sts.assume_role(RoleArn=ROLE, RoleSessionName="orders-job", ExternalId="hush")
        for _ in range(2)
    ]

    for answer in answers:
        assert answer["AssumedRoleUser"]["Arn"] == (
            f"arn:aws:sts::{OTHER_ACCOUNT}:assumed-role/orders/orders-job"
        )
        given = answer["Credentials"]
        assert given["AccessKeyId"][1:4] == "SIA"  # temporary ones: ASIA; LocalStack says LSIA
        assert given["SecretAccessKey"]
        assert given["SessionToken"]
        now = datetime.datetime.now(datetime.timezone.utc)
        left = given["Expiration"] - now
        assert datetime.timedelta(minutes=58) < left < datetime.timedelta(minutes=61)
    assert len({answer["Credentials"]["AccessKeyId"] for answer in answers}) == 2


@pytest.mark.parametrize(
    "request_",
    [
        {"RoleArn": "no-arn-but-long-enough", "RoleSessionName": "job"},
        {"RoleArn": ROLE, "RoleSessionName": "a job"},
        {"RoleArn": ROLE, "RoleSessionName": "x" * 65},
    ],
    ids=["ARN", "name with a blank", "name too long"],
)
def test_what_is_no_role_or_no_session_name_is_refused(sts: Any, request_: dict[str, str]) -> None:
    """It is an error of the request."""
    with pytest.raises(ClientError) as caught:
        sts.assume_role(**request_)
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


# --- source and sink ----------------------------------------------------------------------------


@pytest.fixture
def foreign_stream(localstack: Server) -> Iterator[str]:
    """ARN of a stream that only the other account knows."""
    client = boto3.client(
        "kinesis",
        endpoint_url=localstack.endpoint,
        region_name=REGION,
        aws_access_key_id=OTHER_ACCOUNT,
        aws_secret_access_key="test",
    )
    name = f"test-{uuid.uuid4().hex[:12]}"
    client.create_stream(StreamName=name, ShardCount=2)
    wait_until_active(client, name)
    described = client.describe_stream_summary(StreamName=name)
    yield described["StreamDescriptionSummary"]["StreamARN"]
    client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("named_by", ["name", pytest.param("ARN", marks=pytest.mark.long)])
def test_a_stream_of_another_account_is_written_and_read_as_a_role(
    spark: SparkSession, localstack: Server, foreign_stream: str, tmp_path: Path, named_by: str
) -> None:
    """By tasks that write, by the driver, and by tasks that read from Kinesis themselves."""
    options = {
        "endpoint": localstack.endpoint,
        "stsEndpoint": localstack.endpoint,
        "roleArn": ROLE,
        "roleExternalId": "hush",
        "roleSessionName": "orders-job",
        **(
            {"streamARN": foreign_stream}
            if named_by == "ARN"
            else {"streamName": foreign_stream.rpartition("/")[2], "region": REGION}
        ),
    }
    expected = sorted(f"row-{i}" for i in range(ROWS))
    writing = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .load()
        .where(f"value < {ROWS}")
        .selectExpr("concat('row-', value) as data", "cast(value as string) as partitionKey")
        .writeStream.format("kinesis")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "write"))
        .trigger(once=True)
        .start()
    )
    assert writing.awaitTermination(WITHIN_S)
    assert writing.exception() is None

    options["initialPosition"] = "trim_horizon"
    batch = spark.read.format("kinesis").options(**options).load()
    assert sorted(bytes(row.data).decode() for row in batch.collect()) == expected

    seen: dict[int, list[str]] = {}

    def keep(batch: Any, batch_id: int) -> None:
        seen[batch_id] = [bytes(row.data).decode() for row in batch.collect()]

    reading = (
        spark.readStream.format("kinesis")
        .options(**options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "read"))
        .start()
    )
    try:
        wait_until(
            lambda: sum(map(len, seen.values())) >= ROWS or reading.exception(),
            what="all rows",
            within_s=WITHIN_S,
        )
        assert reading.exception() is None
    finally:
        reading.stop()
    assert sorted(row for rows in seen.values() for row in rows) == expected


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_without_the_role_the_stream_is_not_there(
    spark: SparkSession, localstack: Server, foreign_stream: str, tmp_path: Path
) -> None:
    """So the test above does use the role."""
    with pytest.raises(Exception, match="KINESIS_STREAM_NOT_FOUND"):
        _fails(
            spark,
            tmp_path,
            streamName=foreign_stream.rpartition("/")[2],
            region=REGION,
            endpoint=localstack.endpoint,
        )


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_role_that_may_not_be_had_is_told(
    spark: SparkSession, localstack: Server, foreign_stream: str, tmp_path: Path
) -> None:
    """STS refuses the role; nothing secret is in what Spark prints."""
    with StsDouble() as sts:
        sts.refusal = (403, "AccessDenied", "not authorized, external id hush-hush does not help")
        with pytest.raises(Exception, match="sts:AssumeRole") as caught:
            _fails(
                spark,
                tmp_path,
                streamARN=foreign_stream,
                endpoint=localstack.endpoint,
                stsEndpoint=sts.endpoint,
                roleArn=ROLE,
                roleExternalId="hush-hush",
            )
    assert ROLE in str(caught.value)
    assert "hush-hush" not in str(caught.value)


def _fails(spark: SparkSession, checkpoint: Path, **options: str) -> None:
    query = read_into_nothing(spark, checkpoint, **options)
    try:
        if not query.awaitTermination(WITHIN_S):
            pytest.fail(f"no error within {WITHIN_S} s")
    finally:
        query.stop()
