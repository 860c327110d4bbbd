"""By which version of HTTP a test's subscriptions travel.

The stories of the source run over both. ``KINESIS_TRANSPORT=http1``, or ``http2``, takes one only.
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
    """Whether a double was started with TLS, and so for HTTP/2."""
    try:
        return bool(kinesis.tls_endpoint)
    except (AttributeError, RuntimeError):
        return False


def aws_options(kinesis: KinesisServer) -> AwsOptions:
    """Where a double is: over HTTP/2 where it speaks it."""
    if has_tls(kinesis):
        return AwsOptions("us-east-1", kinesis.tls_endpoint, "access", "secret", transport="http2")
    return AwsOptions("us-east-1", kinesis.endpoint, "access", "secret")


def place_options(kinesis: KinesisServer) -> dict[str, str]:
    """The options of a source that say the same."""
    if has_tls(kinesis):
        return {"endpoint": kinesis.tls_endpoint, "transport": "http2"}
    return {}
