"""What is made of an answer's body, before anybody looks for what was asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kinesis_ds.aws.connection import _error_of
from kinesis_ds.errors import AccessError, KinesisConnectorError, TransientError

DEEP = b"[" * 1000 + b"]" * 1000


@dataclass
class Response:
    """Status and headers of an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


def error_of(body: bytes, status: int, **headers: str) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return _error_of(Response(status, given), body, "GetRecords", "shard s")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"__type":5}',
        b'{"__type":["AccessDeniedException"]}',
        b'{"__type":"#"}',
        b'{"__type":' + DEEP + b"}",
        b'{"message":' + DEEP + b"}",
    ],
)
def test_a_server_out_of_breath_is_waited_for_whatever_it_says(body: bytes) -> None:
    """A 5xx answer with a senseless body does not end the query."""
    error = error_of(body, 503)

    assert isinstance(error, TransientError)
    assert error.code == "HTTP 503"


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b'{"__type":"com.amazon#AccessDeniedException:http"}', {}, "AccessDeniedException"),
        (b'{"__type":7,"message":"no"}', {"x_amzn_ErrorType": "AccessDenied:"}, "AccessDenied"),
    ],
)
def test_the_code_is_found_in_body_or_header(
    body: bytes, headers: dict[str, str], code: str
) -> None:
    """Without its namespace and what is behind it."""
    error: KinesisConnectorError = error_of(body, 400, **headers)

    assert isinstance(error, AccessError)
    assert error.code == code
