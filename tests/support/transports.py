"""The version of HTTP that the subscriptions of a test use.

The stories of the source run over both. ``KINESIS_TRANSPORT=http1`` or ``http2`` selects one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from kinesis_ds.options.aws import AwsOptions

if TYPE_CHECKING:
    from kinesis_ds.testing import KinesisServer

Transport = Literal["http1", "http2"]

_BOTH: tuple[Transport, ...] = ("http1", "http2")
TRANSPORTS = tuple(t for t in _BOTH if t == os.environ.get("KINESIS_TRANSPORT")) or _BOTH


def has_tls(kinesis: KinesisServer) -> bool:
    """Return whether a double was started with TLS, and so with HTTP/2."""
    try:
        return bool(kinesis.tls_endpoint)
    except (AttributeError, RuntimeError):
        return False


def aws_options(kinesis: KinesisServer) -> AwsOptions:
    """Return the options for a double, over HTTP/2 where it supports that."""
    if has_tls(kinesis):
        return AwsOptions("us-east-1", kinesis.tls_endpoint, "access", "secret", transport="http2")
    return AwsOptions("us-east-1", kinesis.endpoint, "access", "secret")


def place_options(kinesis: KinesisServer) -> dict[str, str]:
    """Return the same as options of a source."""
    if has_tls(kinesis):
        return {"endpoint": kinesis.tls_endpoint, "transport": "http2"}
    return {}
