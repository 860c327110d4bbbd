"""The writer as Spark calls it, against a small HTTP server that answers when it is told to."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from kinesis_ds._compat import STREAM_WRITER_GETS_ARROW
from kinesis_ds.errors import (
    AccessError,
    OptionError,
    SchemaError,
    StreamNotFoundError,
    TransientError,
    WriteError,
)
from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.options.parse import parse_write_options
from kinesis_ds.writer import registry, target_streams
from kinesis_ds.writer.results import ShardWrites
from kinesis_ds.writer.stream import KinesisStreamWriter, make_stream_writer, target_of
from kinesis_ds.writer.task import SinkCommit, merge_commits

SCHEMA = StructType([StructField("data", StringType()), StructField("partitionKey", StringType())])
SOON = 20.0
SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(MAX_HASH_KEY)},
    "SequenceNumberRange": {"StartingSequenceNumber": "0"},
}
LOOKS = ["DescribeStreamSummary", "ListShards"]


class Server(ThreadingHTTPServer):
    """Knows one stream. PutRecords waits for ``gate`` and answers as ``refuse`` says."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.gate = threading.Event()
        self.gate.set()
        self.closing = threading.Event()
        self.refuse: dict[str, str] | None = None
        self.record_kib: int | None = None
        self.calls: list[str] = []
        self.received = 0
        self.connections: set[Any] = set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: Any) -> None:
        """A client that breaks off is what some tests are about."""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < give_up, self.calls
            threading.Event().wait(0.002)


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, as Kinesis does."""

    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.client_address)

    def finish(self) -> None:
        self.server.connections.discard(self.client_address)
        super().finish()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        with self.server.lock:
            self.server.calls.append(operation)
        if self.server.refuse == {operation: "never"}:
            self.server.closing.wait(SOON)
            self.close_connection = True
        elif self.server.refuse is not None and operation in self.server.refuse:
            self._answer(400, {"__type": self.server.refuse[operation], "message": "no"})
        elif operation == "DescribeStreamSummary":
            summary = {
                "StreamName": body["StreamName"],
                "StreamARN": "arn:aws:kinesis:us-east-1:000000000000:stream/s",
                "StreamStatus": "ACTIVE",
                "StreamCreationTimestamp": 1.0,
            }
            if self.server.record_kib is not None:
                summary["MaxRecordSizeInKiB"] = self.server.record_kib
            self._answer(200, {"StreamDescriptionSummary": summary})
        elif operation == "ListShards":
            self._answer(200, {"Shards": [SHARD]})
        else:
            with self.server.lock:
                first = self.server.received
                self.server.received += len(body["Records"])
            self.server.gate.wait(SOON)
            results = [
                {"ShardId": "shardId-000000000000", "SequenceNumber": str(first + i + 1)}
                for i in range(len(body["Records"]))
            ]
            self._answer(200, {"FailedRecordCount": 0, "Records": results})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server, and afterwards no service left in this process."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.gate.set()
        running.closing.set()
        registry.REGISTRY.close()
        running.shutdown()
        thread.join()


def writer(server: Server, **more: str) -> KinesisStreamWriter:
    raw = {
        "streamName": "s",
        "region": "us-east-1",
        "endpoint": server.url,
        "awsAccessKey": "AKIDVISIBLE",
        "awsSecretKey": "TOPSECRET",
        **more,
    }
    return make_stream_writer(raw, SCHEMA)


def rows(count: int, data: str = "d", each: int = 1000) -> Iterator[Any]:
    """Return what Spark hands to ``write`` in this version of PySpark."""
    if not STREAM_WRITER_GETS_ARROW:
        yield from (Row(data=data, partitionKey=f"k{i}") for i in range(count))
        return
    for start in range(0, count, each):
        n = min(each, count - start)
        keys = [f"k{i}" for i in range(start, start + n)]
        yield pa.record_batch({"data": pa.array([data] * n), "partitionKey": pa.array(keys)})


def sink_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("kinesis-")]


# --- what is checked when the query starts ------------------------------------------------------


def test_bad_options_are_refused_before_anything_runs() -> None:
    """The driver builds the writer when the query starts; that is when a typo must show."""
    with pytest.raises(OptionError, match="did you mean streamName"):
        make_stream_writer({"streamNam": "s"}, SCHEMA)


def test_a_wrong_schema_is_refused_before_anything_runs() -> None:
    """All columns that do not fit are named at once."""
    schema = StructType([StructField("data", IntegerType()), StructField("x", BinaryType())])

    with pytest.raises(SchemaError, match=r"column data is int.*column x"):
        make_stream_writer({"streamName": "s"}, schema)


def test_a_column_names_the_streams_whatever_its_case() -> None:
    """Rows that name their stream in STREAM need no streamName either."""
    columns = StructType([StructField(name, StringType()) for name in ("DATA", "STREAM")])

    assert "stream=None" in repr(make_stream_writer({"region": "eu-west-1"}, columns))


def test_the_writer_pickles_and_shows_no_secret(server: Server) -> None:
    """It travels to the executors as a pickle and to logs as a repr."""
    original = writer(server)
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301 - our own bytes

    assert repr(copy) == repr(original)
    assert "TOPSECRET" not in repr(copy)
    assert "AKIDVISIBLE" not in repr(copy)


# --- a task's life ------------------------------------------------------------------------------


def test_write_returns_what_was_stored(server: Server) -> None:
    """Counts, bytes with keys, and the span of sequence numbers; and the message pickles."""
    message = writer(server).write(rows(1234))

    size = sum(1 + len(f"k{i}") for i in range(1234))
    assert message == SinkCommit(
        0, (ShardWrites("s", "shardId-000000000000", "1", "1234", 1234, size),)
    )
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301 - our own bytes


def test_a_task_without_rows_writes_nothing(server: Server) -> None:
    """Empty partitions are common; the stream is still looked at."""
    assert writer(server).write(rows(0)) == SinkCommit(0, ())
    assert server.calls == LOOKS


def test_write_does_not_return_while_a_record_is_unacknowledged(server: Server) -> None:
    """No commit message exists before the last answer (F56)."""
    server.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(writer(server).write, rows(10))
        server.wait_for(lambda: "PutRecords" in server.calls)
        assert not writing.done()
        server.gate.set()
        assert writing.result(SOON).shards[0].records == 10


def test_rows_are_not_taken_while_the_server_does_not_answer(server: Server) -> None:
    """However many rows there are, what was taken and is not stored stays within the bound."""
    server.gate.clear()
    taken = 0

    def counted() -> Iterator[Any]:
        nonlocal taken
        for item in rows(20_000, each=100):
            taken += len(item) if STREAM_WRITER_GETS_ARROW else 1
            if taken >= 2000:  # what follows can only be taken after an answer
                assert server.gate.is_set()
            yield item

    slow = writer(server, maxInFlightRecords="1000", batchMaxRecords="100")
    counters = registry.REGISTRY.counters(slow._options)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(slow.write, counted())
        server.wait_for(lambda: counters.snapshot()["waits"] > 0)
        held = counters.snapshot()
        assert held["in_flight_records"] == 1000 == held["limit_records"]
        server.wait_for(lambda: server.received == 1000)
        # Beyond the bound there is at most the piece that waits, and one slice being opened.
        assert taken <= 1000 + 100 + 500
        server.gate.set()
        assert writing.result(SOON).shards[0].records == 20_000
    assert server.received == 20_000


def test_bytes_are_bounded_on_their_own(server: Server) -> None:
    """Large rows reach the bound on bytes long before that on records."""
    server.gate.clear()
    slow = writer(server, maxInFlightBytes="1mb", batchMaxBytes="256kb")
    counters = registry.REGISTRY.counters(slow._options)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(slow.write, rows(200, data="x" * 60_000, each=10))
        server.wait_for(lambda: counters.snapshot()["waits"] > 0)
        held = counters.snapshot()
        assert 0 < held["in_flight_bytes"] <= 1024 * 1024
        assert held["in_flight_records"] < 20
        server.gate.set()
        assert writing.result(SOON).shards[0].records == 200


def test_a_server_that_never_answers_fails_the_task_by_retry_timeout(server: Server) -> None:
    """The task ends with a clear error, holds no connection and has taken few rows."""
    server.gate.clear()
    started = time.monotonic()

    with pytest.raises(WriteError, match=r"could not be written to stream s within 1s .*no answer"):
        writer(server, retryTimeout="1s", maxInFlightRecords="500").write(rows(50_000))

    assert time.monotonic() - started < SOON / 2
    assert server.received <= 500
    server.gate.set()
    server.wait_for(lambda: not server.connections)
    assert sink_threads() == []


def test_an_iterator_that_fails_cancels_its_requests(server: Server) -> None:
    """When Spark gives the task up, nothing of it is left: no request, no thread, no connection."""
    server.gate.clear()

    def broken() -> Iterator[Any]:
        yield from rows(1000)
        server.wait_for(lambda: server.received > 0)
        raise RuntimeError("upstream failed")

    with pytest.raises(RuntimeError, match="upstream failed"):
        writer(server).write(broken())

    assert sink_threads() == []
    server.gate.set()
    server.wait_for(lambda: not server.connections)


def test_no_row_is_taken_after_an_error(server: Server) -> None:
    """A refused request ends the task before the next row is taken."""
    server.refuse = {"PutRecords": "AccessDeniedException"}

    def patient() -> Iterator[Any]:
        yield from rows(2000)
        server.wait_for(lambda: "PutRecords" in server.calls)
        threading.Event().wait(0.2)  # the answer travels to the network thread and back
        yield from rows(1)
        pytest.fail("a row was taken after the error was known")

    with pytest.raises(AccessError, match="kinesis:PutRecords"):
        writer(server).write(patient())


def test_a_bad_row_fails_the_task_and_names_it(server: Server) -> None:
    """Rows are numbered within the task, across Arrow batches."""

    def mixed() -> Iterator[Any]:
        yield from rows(1500)
        yield from rows(1, data="x" * (1 << 20))

    with pytest.raises(WriteError, match=r"Row 1500 of partition 0 .* 1048578 bytes"):
        writer(server).write(mixed())


# aiohttp would rather get a file, botocore hands it bytes. Outside tests the warning is silent.
@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
def test_the_record_limit_is_the_streams_own(server: Server) -> None:
    """A stream set to 10 MiB takes a row that another refuses."""
    server.record_kib = 10 * 1024

    message = writer(server).write(rows(1, data="x" * (2 << 20)))

    assert message.shards[0].bytes == (2 << 20) + 2


# --- what tasks of one process share ------------------------------------------------------------


def test_tasks_of_a_process_share_a_warm_client(server: Server) -> None:
    """Three tasks look at the stream once and use the same two connections: one is for looks."""
    for _ in range(3):
        writer(server).write(rows(10))

    assert server.calls == LOOKS + ["PutRecords"] * 3
    assert len(server.connections) == 2
    assert sink_threads() == ["kinesis-sink"]


def test_after_a_failure_the_next_task_starts_anew(server: Server) -> None:
    """A stream that was deleted and created again is looked at again, not guessed."""
    writer(server).write(rows(1))
    server.refuse = {"PutRecords": "ResourceNotFoundException"}
    with pytest.raises(StreamNotFoundError):
        writer(server).write(rows(1))
    server.refuse = None
    writer(server).write(rows(1))

    assert server.calls.count("DescribeStreamSummary") == 2


def test_tasks_at_the_same_time_do_not_cancel_each_other(server: Server) -> None:
    """One task's failure ends its own requests and nobody else's."""
    server.gate.clear()
    good, bad = writer(server), writer(server)

    def broken() -> Iterator[Any]:
        yield from rows(500)
        raise RuntimeError("upstream failed")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(good.write, rows(500))
        server.wait_for(lambda: server.received >= 500)
        with pytest.raises(RuntimeError):
            bad.write(broken())
        server.gate.set()
        assert writing.result(SOON).shards[0].records == 500


def test_only_a_few_idle_clients_are_kept(server: Server) -> None:
    """A process that writes to many streams, one after the other, does not collect threads."""
    for i in range(8):
        writer(server, streamName=f"s{i}").write(rows(1))

    assert len(sink_threads()) == 4


def test_a_forked_process_makes_its_own_client(server: Server) -> None:
    """PySpark's daemon forks its workers; threads and sockets do not survive that."""
    writer(server).write(rows(1))
    pid = os.fork()
    if pid == 0:  # the child; it must end here whatever happens
        status = 1
        try:
            written = writer(server).write(rows(5)).shards[0].records
            status = 0 if written == 5 else 2
        finally:
            os._exit(status)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert server.calls.count("DescribeStreamSummary") == 2
    writer(server).write(rows(1))
    assert server.calls.count("DescribeStreamSummary") == 2


def test_counters_go_to_a_file_when_asked_for(server: Server, tmp_path: Any) -> None:
    """Summed over the tasks of the process; whole JSON, and written a last time at the end."""
    for _ in range(2):
        writer(server, diagnosticsDirectory=str(tmp_path)).write(rows(700))
    registry.REGISTRY.close()

    seen = json.loads((tmp_path / f"sink-{os.getpid()}.json").read_text())
    assert seen["kind"] == "sink"
    assert seen["stream"] == "s"
    assert seen["delivered_records"] == 1400
    assert seen["in_flight_records"] == seen["in_flight_bytes"] == seen["in_flight_requests"] == 0


# --- first contact ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (
            "ResourceNotFoundException",
            StreamNotFoundError,
            r"There is no stream s in region us-east-1 at endpoint http://127\.0\.0\.1",
        ),
        ("AccessDeniedException", AccessError, "DescribeStreamSummary for stream s"),
    ],
)
def test_a_stream_that_cannot_be_used_is_one_error_at_once(
    server: Server, code: str, error: type[Exception], said: str
) -> None:
    """It is not retried, names the stream, and takes no row."""
    server.refuse = {"DescribeStreamSummary": code}
    started = time.monotonic()

    def never() -> Iterator[Any]:
        pytest.fail("a row was taken")
        yield

    with pytest.raises(error, match=said):
        writer(server).write(never())

    assert time.monotonic() - started < SOON / 2
    assert server.calls == ["DescribeStreamSummary"]
    assert sink_threads() == []


def test_an_endpoint_that_never_answers_is_one_error_soon(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half-open endpoint (a firewall that drops) is not waited for as long as records are."""
    monkeypatch.setattr(target_streams, "CHECK_TIMEOUT_S", 0.5)
    server.refuse = {"DescribeStreamSummary": "never"}

    with pytest.raises(TransientError, match=r"127\.0\.0\.1.* did not answer for stream s"):
        writer(server, retryTimeout="3600s").write(rows(1))

    assert sink_threads() == []


def test_a_port_where_nobody_listens_is_one_error_soon(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried a few times, as it may be starting, and then named."""
    monkeypatch.setattr(target_streams, "CHECK_TIMEOUT_S", 0.5)

    with pytest.raises(TransientError, match=r"http://127\.0\.0\.1:9.* Is the endpoint right"):
        writer(server, endpoint="http://127.0.0.1:9").write(rows(1))

    assert sink_threads() == []


# --- on the driver ------------------------------------------------------------------------------


def test_commit_adds_up_the_tasks(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """One line a shard at DEBUG, over all tasks; a missing message is passed over."""
    messages = [
        SinkCommit(0, (ShardWrites("s", "a", "5", "9", 3, 30),)),
        None,
        SinkCommit(
            1, (ShardWrites("s", "a", "7", "12", 2, 20), ShardWrites("s", "b", "1", "1", 1, 10))
        ),
    ]
    with caplog.at_level("DEBUG", logger="kinesis_ds"):
        writer(server).commit(messages, 42)

    assert merge_commits(messages)["s", "a"] == ShardWrites("s", "a", "5", "12", 5, 50)
    assert len(caplog.messages) == 2
    assert all("batch=42" in line for line in caplog.messages)


def test_abort_says_what_stays_in_the_stream(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Kinesis has no way to take records back."""
    writer(server).abort([SinkCommit(0, (ShardWrites("s", "a", "5", "9", 3, 30),)), None], 42)

    assert "batch=42" in caplog.text
    assert "3 records" in caplog.text


def test_the_target_says_all_of_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger leaves a batch out only where it went to the very same place."""
    arn = "arn:aws:kinesis:eu-central-1:123456789012:stream/s"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-3")
    options: list[dict[str, str]] = [
        {"streamName": "s"},
        {"streamName": "other"},
        {"streamARN": arn},
        {"streamName": "s", "region": "eu-west-1"},
        {"streamName": "s", "endpoint": "http://127.0.0.1:4566"},
        {"streamName": "s", "roleArn": "arn:aws:iam::123456789012:role/writer"},
        {},
    ]
    targets = {target_of(parse_write_options(raw, routed=True)) for raw in options}
    assert len(targets) == len(options)
    assert "stream s, eu-west-3" in targets

    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert target_of(parse_write_options({"streamName": "s"})) == "stream s, eu-west-2"
