"""By which version of HTTP subscriptions travel: what the user wants, and what can be had here."""

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

_INSTALL = "pip install 'kinesis-ds[http2]'"


def prefers_http2(wanted: Transport, endpoint: str) -> bool:
    """Whether to try HTTP/2 at an endpoint.

    Raises:
        OptionError: The user insists on it, and it cannot be.
    """
    if wanted == "http1":
        return False
    refusal = _refusal(endpoint)
    if refusal is None:
        return True
    if wanted == "http2":
        raise insists(endpoint, *refusal)
    fall_back(endpoint, *refusal)
    return False


def require(wanted: Transport, endpoint: str | None) -> None:
    """What can be known of a transport before anything is sent.

    Raises:
        OptionError: The user insists on HTTP/2, and it cannot be.
    """
    if wanted == "http2":
        prefers_http2(wanted, endpoint or "https://")


def insists(endpoint: str, why: str, remedy: str) -> OptionError:
    """The error for ``transport=http2`` where it cannot be."""
    return OptionError(
        f"transport is http2, and {why} ({_shown(endpoint)}).", f"{remedy}, or set transport=auto."
    )


@functools.lru_cache(maxsize=64)
def fall_back(endpoint: str, why: str, remedy: str) -> None:
    """Say that subscriptions travel over HTTP/1.1; once a process and endpoint."""
    say = logger.warning if remedy == _INSTALL else logger.info
    say("subscriptions use HTTP/1.1 endpoint=%s: %s", _shown(endpoint), why)


def no_alpn() -> tuple[str, str]:
    """Why not, and what to do, where an endpoint does not offer HTTP/2."""
    return "the endpoint offers no HTTP/2 (by ALPN)", "Check the endpoint"


def _refusal(endpoint: str) -> tuple[str, str] | None:
    """Why HTTP/2 cannot be, and what to do; None where it can."""
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "https":
        return "the endpoint is without TLS", "Use an https:// endpoint"
    if not installed():
        return f"awscrt 0.31.3 or newer is not installed ({_INSTALL})", _INSTALL
    proxied = urllib.request.getproxies().get("https")
    if proxied and not urllib.request.proxy_bypass(parts.hostname or ""):
        return (
            "it would not go through the proxy that HTTPS_PROXY names",
            "Add the endpoint to NO_PROXY",
        )
    return None


@functools.cache
def installed() -> bool:
    """Whether there is an `awscrt` that knows the windows of streams."""
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
