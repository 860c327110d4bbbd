"""The address that the double listens on, and who could reach it there."""

from __future__ import annotations

import os
from ipaddress import ip_address
from pathlib import Path

LOOPBACK = "127.0.0.1"


def checked_host(host: str, *, exposed: bool) -> str:
    """Return an address to listen on, if only this machine can reach it or the caller accepts more.

    The double believes any credentials and keeps what anybody sends. So an address of loopback is
    good, and an address inside a network namespace, which is one end of a virtual cable.

    Args:
        host: An IP address.
        exposed: Whether other machines may reach it.

    Raises:
        ValueError: It is no IP address, or other machines may reach it and ``exposed`` is false.
    """
    try:
        address = ip_address(host)
    except ValueError:
        raise ValueError(f"{host!r} is no IP address, for example {LOOPBACK}") from None
    inside = address.is_loopback or (in_namespace() and not address.is_unspecified)
    if not inside and not exposed:
        raise ValueError(
            f"other machines may reach {host}, and this Kinesis believes any credentials; if that "
            "is what you want, pass exposed=True (--exposed)"
        )
    return host


def in_namespace() -> bool:
    """Return whether an ancestor of this process has another network namespace than the process.

    Ancestors of other users do not tell theirs, and no process does where there is no ``/proc``.
    """
    own = _namespace("self")
    ancestor = os.getppid()
    while own and ancestor:
        if _namespace(str(ancestor)) not in (own, None):
            return True
        ancestor = _parent(ancestor)
    return False


def _namespace(process: str) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except OSError:
        return None


def _parent(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return int(status.partition("\nPPid:")[2].split(maxsplit=1)[0])


def in_url(host: str) -> str:
    """Return an IP address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
