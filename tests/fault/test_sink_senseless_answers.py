"""Answers that are none of Kinesis: a proxy's, a load balancer's, damaged ones (F45, F47, F54)."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import InvalidRequestError, ProtocolError
from kinesis_ds.testing import AnswerWith, Fault
from tests.support.sinks import Sink, put_fault

pytestmark = pytest.mark.fault

IDS = range(10)
DEEP = b"[" * 100_000
OPERATIONS = ["PutRecords", "DescribeStreamSummary"]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"this is not JSON",
        b"<html>Welcome</html>",
        b"[]",
        b"null",
        b"5",
        b'"x"',
        b"\xff\xfe{}",
        b"{}",
        b'{"Records": 5, "StreamDescriptionSummary": 5}',
        b'{"Records": ["a"], "StreamDescriptionSummary": ["a"]}',
        b'{"Records": null, "StreamDescriptionSummary": null}',
        b'{"Records": {}, "StreamDescriptionSummary": {"StreamName": "orders"}}',
        DEEP,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_success_without_sense_fails_at_once(operation: str, body: bytes) -> None:
    """F47: nothing counts as stored, it is not asked again, and the endpoint is suspected."""
    with Sink(Fault(AnswerWith(body), operation=operation)) as sink:
        said = sink.write(IDS).said(ProtocolError)

        assert "Is the endpoint a Kinesis endpoint?" in said
        assert operation in said
        assert len(sink.calls(operation)) == 1
        assert sink.times_stored() == {}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("status", "body"),
    [
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
    ],
    ids=lambda v: repr(v[:12]) if isinstance(v, bytes) else v,
)
def test_an_error_that_is_not_of_kinesis_is_waited_out(
    operation: str, status: int, body: bytes
) -> None:
    """F45: what stands in between may be well again soon; everything is then stored once."""
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
