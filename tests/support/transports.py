"""By which version of HTTP a test's subscriptions travel.

``KINESIS_TRANSPORT=http2 pytest tests/fault -k "not sink"`` runs the stories of the source over
HTTP/2; by default they run over HTTP/1.1, and ``tests/fault/test_over_http2.py`` runs some of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from kinesis_ds.options import AwsOptions

if TYPE_CHECKING:
    from kinesis_ds.testing import KinesisServer

Transport = Literal["http1", "http2"]

CHOSEN: Transport = "http2" if os.environ.get("KINESIS_TRANSPORT") == "http2" else "http1"


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
