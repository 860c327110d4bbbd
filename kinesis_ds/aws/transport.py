"""Choose the version of HTTP for subscriptions: what the user wants, and what is possible here."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from kinesis_ds.errors import OptionError

if TYPE_CHECKING:
    from kinesis_ds.options.option import Transport

logger = logging.getLogger(__name__)

_INSTALL = "pip install 'awscrt>=0.31.3'"


def prefers_http2(wanted: Transport, endpoint: str) -> bool:
    """Return True if HTTP/2 is to be tried at an endpoint; log once why not.

    Raises:
        OptionError: The option ``transport`` demands HTTP/2, and it cannot be had.
    """
    if wanted == "http1":
        return False
    refusal = _refusal(endpoint)
    if refusal is None:
        return True
    if wanted == "http2":
        raise http2_impossible(endpoint, *refusal)
    log_fall_back(endpoint, *refusal)
    return False


def check_transport(wanted: Transport, endpoint: str | None) -> None:
    """Check before anything is sent that HTTP/2 can be had, if the option demands it.

    Args:
        wanted: The option ``transport``.
        endpoint: URL of the endpoint; None for AWS.

    Raises:
        OptionError: The option demands HTTP/2, and it cannot be had.
    """
    if wanted == "http2":
        prefers_http2(wanted, endpoint or "https://")


def http2_impossible(endpoint: str, why: str, remedy: str) -> OptionError:
    """Return the error for ``transport=http2`` where HTTP/2 cannot be had."""
    return OptionError(
        f"transport is http2, and {why} ({_shown(endpoint)}).", f"{remedy}, or set transport=auto."
    )


@functools.lru_cache(maxsize=64)
def log_fall_back(endpoint: str, why: str, remedy: str) -> None:
    """Log that subscriptions travel over HTTP/1.1; once per process and endpoint."""
    log = logger.warning if remedy == _INSTALL else logger.info
    log("subscriptions use HTTP/1.1 endpoint=%s: %s", _shown(endpoint), why)


def no_alpn() -> tuple[str, str]:
    """Return reason and remedy for an endpoint that does not offer HTTP/2."""
    return "the endpoint offers no HTTP/2 (by ALPN)", "Check the endpoint"


def _refusal(endpoint: str) -> tuple[str, str] | None:
    """Return why HTTP/2 cannot be had, and a remedy; None if it can."""
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "https":
        return "the endpoint is without TLS", "Use an https:// endpoint"
    if not http2_installed():
        return f"awscrt 0.31.3 or newer is not installed ({_INSTALL})", _INSTALL
    proxied = urllib.request.getproxies().get("https")
    if proxied and not urllib.request.proxy_bypass(parts.hostname or ""):
        return (
            "it would not go through the proxy that HTTPS_PROXY names",
            "Add the endpoint to NO_PROXY",
        )
    return None


@functools.cache
def http2_installed() -> bool:
    """Return True if `awscrt` is installed, in a version that has flow control per stream."""
    if importlib.util.find_spec("awscrt") is None:
        return False
    try:
        from awscrt.http import Http2ClientConnection  # noqa: PLC0415
        from awscrt.io import is_alpn_available  # noqa: PLC0415
    except ImportError:
        return False
    known = inspect.signature(Http2ClientConnection.new).parameters
    return "manual_window_management" in known and is_alpn_available()


def _shown(endpoint: str) -> str:
    return endpoint.partition("?")[0] if endpoint != "https://" else "AWS"
