"""Answers that are none of Kinesis: a proxy's, a load balancer's, damaged ones (F45, F47, F54)."""

from __future__ import annotations

from collections import Counter

import pytest

from kinesis_ds.errors import InvalidRequestError, ProtocolError
from kinesis_ds.testing import AnswerWith, Fault
from tests.support.sinks import Sink, put_fault

pytestmark = pytest.mark.fault

IDS = range(10)
DEEP = b"[" * 100_000


SUCCESSES = {
    "PutRecords": [
        b"",
        b"this is not JSON",
        b"<html>Welcome</html>",
        b"[]",
        b"null",
        b"5",
        b'"x"',
        b"{}",
        b"\xff\xfe{}",
        b'{"Records": 5}',
        b'{"Records": null}',
        b'{"Records": {}}',
        b'{"Records": ["a"]}',
        DEEP,
    ],
    "ListShards": [
        b"this is not JSON",
        b"[]",
        b"{}",
        b'{"Shards": [{"ShardId": "shardId-000000000000"}]}',
        DEEP,
    ],
    "DescribeStreamSummary": [
        b"this is not JSON",
        b"[]",
        b"{}",
        b'{"StreamDescriptionSummary": {"StreamName": "orders"}}',
        DEEP,
    ],
}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        pytest.param(operation, body, id=f"{operation}-{body[:24]!r}")
        for operation, bodies in SUCCESSES.items()
        for body in bodies
    ],
)
def test_success_without_sense_fails_at_once(operation: str, body: bytes) -> None:
    """F47: nothing counts as stored, it is not asked again, and the endpoint is suspected."""
    with Sink(Fault(AnswerWith(body), operation=operation)) as sink:
        said = sink.write(IDS).said(ProtocolError)

        assert "Is the endpoint a Kinesis endpoint?" in said
        assert operation in said
        assert len(sink.calls(operation)) == 1
        assert sink.times_stored() == {}


ERRORS = [
    (302, b""),
    (400, b""),
    (400, b"[]"),
    (400, b'{"__type": [1]}'),
    (403, b"<html>"),
    (404, b"<html>"),
    (408, b""),
    (429, b""),
    (429, b"<html>slow down</html>"),
    (500, b""),
    (500, b"[]"),
    (500, b'{"__type": [1]}'),
    (500, DEEP),
    (502, b"<html>"),
    (503, b"\xff"),
    (504, b"null"),
]


def test_errors_that_are_not_of_kinesis_are_waited_out() -> None:
    """F45: what stands in between may be well again soon; everything is then stored once."""
    with Sink() as sink:
        for at, (status, body) in enumerate(ERRORS):
            sink.kinesis.add_faults(put_fault(AnswerWith(body, status)))
            ids = range(at * 10, at * 10 + 10)
            before = len(sink.sent)
            outcome = sink.write(ids)

            assert outcome.records == 10, (status, body)
            # What the first call brought comes back, each shard's part at its own time.
            sent = Counter(item for call in sink.sent[before:] for item in call)
            assert sent == Counter(ids) + Counter(sink.sent[before]), (status, body)
        assert sink.times_stored() == dict.fromkeys(range(10 * len(ERRORS)), 1)


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "ListShards"])
@pytest.mark.parametrize(("status", "body"), [(404, b"<html>"), (429, b""), (500, DEEP)], ids=repr)
def test_the_first_contact_is_waited_for_too(status: int, body: bytes, operation: str) -> None:
    """F45: a worker process starts while a proxy has a bad moment."""
    with Sink(Fault(AnswerWith(body, status), operation=operation, times=2)) as sink:
        outcome = sink.write(IDS)

        assert len(sink.calls(operation)) == 3
        sink.assert_each_once(IDS, outcome)


@pytest.mark.parametrize("status", [413, 414])
def test_a_request_too_large_for_a_proxy_is_not_sent_again(status: int) -> None:
    """F54: it would be a poison batch; the option that helps is named."""
    with Sink(put_fault(AnswerWith(b"<html>", status), times=None)) as sink:
        said = sink.write(IDS).said(InvalidRequestError)

        assert f"HTTP {status}" in said
        assert "lower batchMaxBytes" in said
        assert len(sink.calls()) == 1
