"""The sink's ledger in a checkpoint on S3, through pyarrow, on a server that speaks S3."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from localstack_client.session import Session

from devtools.ministack import Ministack
from devtools.server import HOST, REGION
from kinesis_ds.writer import ledger as ledger_module
from kinesis_ds.writer.ledger import Ledger
from kinesis_ds.writer.ledger_format import Entry, WrittenBatches, decode_entry
from kinesis_ds.writer.results import ShardWrites

WRITES = (ShardWrites("orders", "shardId-000000000000", "9", "10", 2, 30),)
# As Hadoop takes it: nothing in it is an escape or an option.
FOLDER = "queries/a%20b c?d=e"


class MinistackWithS3(Ministack):
    """ministack again, with S3 beside Kinesis."""

    def environment(self, folder: Path) -> dict[str, str]:
        return {**super().environment(folder), "SERVICES": "kinesis,s3"}


class Bucket:
    """A bucket, as other tools of a user see it."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3
        self.name = f"test-{uuid.uuid4().hex[:12]}"
        s3.create_bucket(Bucket=self.name)

    def location(self, scheme: str) -> str:
        return f"{scheme}://{self.name}/{FOLDER}"

    def put(self, name: str, text: bytes) -> None:
        self._s3.put_object(Bucket=self.name, Key=f"{FOLDER}/{name}", Body=text)

    def get(self, name: str) -> bytes:
        found = self._s3.get_object(Bucket=self.name, Key=f"{FOLDER}/{name}")
        return bytes(found["Body"].read())

    def entries(self) -> set[str]:
        prefix = f"{FOLDER}/_kinesis_sink/"
        found = self._s3.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", [])
        return {key for o in found if (key := o["Key"].removeprefix(prefix))}


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """A client of the server; pyarrow finds the same server as it finds S3 anywhere else."""
    with MinistackWithS3() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        session = Session(
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name=REGION,
            localstack_host=f"{HOST}:{server.port}",
        )
        yield session.client("s3", endpoint_url=server.endpoint)


@pytest.fixture
def bucket(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(ledger_module, "_warned", set())
    return Bucket(s3)


def opened(location: str) -> Ledger:
    ledger = Ledger.open(location)
    assert ledger is not None
    return ledger


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_what_is_recorded_on_s3_is_written(
    bucket: Bucket, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch is one object next to Spark's own files, and nothing is logged."""
    with caplog.at_level(logging.INFO, "kinesis_ds"):
        assert opened(bucket.location(scheme)).written() == WrittenBatches()
        for n in range(3):
            bucket.put(f"offsets/{n}", b"v1\n%d" % n)
            entry = Entry("q", n, "stream orders", WRITES)
            opened(bucket.location(scheme)).record(entry)
        written = opened(bucket.location(scheme)).written()

    assert written.holds("q", 2, "stream orders")
    assert bucket.entries() == {"0", "1", "2"}
    assert decode_entry(bucket.get("_kinesis_sink/2"))[0] == entry
    assert [r for r in caplog.records if r.name.startswith("kinesis_ds")] == []


def test_old_entries_on_s3_are_removed(bucket: Bucket) -> None:
    """Only as many entries stay as should be kept."""
    for n in range(1, 106):
        bucket.put(f"_kinesis_sink/{n}", b"{}")
    bucket.put("offsets/104", b"v1")
    opened(bucket.location("s3")).record(Entry("q", 104, "stream orders", WRITES))

    assert bucket.entries() == {str(n) for n in range(5, 105)}


def test_a_batch_made_anew_on_s3_is_not_written(bucket: Bucket) -> None:
    """Its offsets differ from those that were recorded."""
    bucket.put("offsets/0", b"v1")
    opened(bucket.location("s3")).record(Entry("q", 0, "stream orders", WRITES))
    bucket.put("offsets/0", b"v1 made later")

    assert opened(bucket.location("s3")).written() == WrittenBatches()


def test_a_torn_object_is_a_warning(bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    """No batch is left out because of it."""
    bucket.put("offsets/0", b"v1")
    bucket.put("_kinesis_sink/0", b'{"v":1')

    assert opened(bucket.location("s3")).written() == WrittenBatches()
    assert "_kinesis_sink/0 is not JSON" in caplog.text


def test_a_bucket_that_is_not_there_is_a_warning(
    s3: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds whether it is noticed when the ledger is opened, read or written."""
    monkeypatch.setattr(ledger_module, "_warned", set())
    location = f"s3://none-{uuid.uuid4().hex}/checkpoint"

    ledger = Ledger.open(location)
    if ledger is not None:
        assert ledger.written() == WrittenBatches()
        ledger.record(Entry("q", 0, "stream orders", WRITES))

    assert location in caplog.text
    assert "nothing is lost" in caplog.text
