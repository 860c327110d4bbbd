"""Which error an error answer is, and how its body is read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesis_ds.aws import http1
from kinesis_ds.aws.answers import error_answer
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    TransientError,
)

DEEP = b"[" * 1000 + b"]" * 1000


def error_of(body: bytes, status: int, **headers: str) -> Any:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_answer(status, given.get("x-amzn-ErrorType"), body, "GetRecords", "shard s")


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


class Pieces:
    """A body that comes piece by piece."""

    def __init__(self, *pieces: bytes) -> None:
        self.content = self
        self._pieces = list(pieces)

    async def read(self, at_most: int) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if len(piece) > at_most:
            self._pieces.insert(0, piece[at_most:])
        return piece[:at_most]


@pytest.mark.parametrize(
    ("pieces", "read"),
    [
        ([b'{"__type":"X"}'], b'{"__type":"X"}'),
        ([b'{"__ty', b"pe", b'":"X"}'], b'{"__type":"X"}'),
        ([], b""),
        ([b"x" * 90, b"x" * 90], b"x" * 100),
    ],
)
def test_an_error_is_read_whole_in_however_many_pieces_it_comes(
    pieces: list[bytes], read: bytes
) -> None:
    """A first piece alone would be no JSON, and denied access a passing error then (F45)."""
    assert asyncio.run(http1.read_beginning(Pieces(*pieces), 100)) == read  # type: ignore[arg-type]
