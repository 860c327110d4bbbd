"""Choose where an agent listens, and say clearly why it cannot listen there."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from typing import Any

from kinesis_ds.errors import OptionError

# A query that is started again may find its port still held by the process that it replaces.
_TAKEN_FOR_S = 5.0
_TRY_EVERY_S = 0.1


def check_host(host: str) -> None:
    """Check that an agent can listen on this host.

    Raises:
        OptionError: It is no address of this machine, or cannot be resolved.
    """
    find_port(host, 0, 0)


def find_port(host: str, first: int, last: int) -> int:
    """Return a free port from ``first`` to ``last``; 0, for any, if both are 0.

    Waits a few seconds if all are taken.

    Raises:
        OptionError: The agent cannot listen on this host, or on none of these ports.
    """
    family, address = _resolved(host)
    give_up = time.monotonic() + _TAKEN_FOR_S
    while True:
        for port in range(first, last + 1):
            refusal = _refusal(family, address, port)
            if refusal is None:
                return port
            if refusal.errno != errno.EADDRINUSE:
                raise _cannot_listen(host, port, refusal)
        if time.monotonic() > give_up:
            ports = f"port {first}" if first == last else f"each of the ports {first} to {last}"
            raise OptionError(
                f"agentPort: {ports} of {host} is taken by another process on the driver.",
                "Give each query ports of its own, or leave agentPort out.",
            )
        time.sleep(_TRY_EVERY_S)


def _resolved(host: str) -> tuple[socket.AddressFamily, Any]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as exc:
        raise OptionError(
            f"agentHost is {host}, and the driver cannot resolve this name: {exc}.",
            "Set agentHost to an address of the driver.",
        ) from exc
    return family, address


def _refusal(family: socket.AddressFamily, address: Any, port: int) -> OSError | None:
    """Return why nobody can listen there; None if one can.

    gRPC shares a port with whoever else shares it, and says nothing; a plain socket does not.
    """
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        # Connections that have ended keep a port for minutes, which does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address[0], port, *address[2:]))
        except OSError as exc:
            return exc
    return None


def _cannot_listen(host: str, port: int, refusal: OSError) -> OptionError:
    if refusal.errno == errno.EADDRNOTAVAIL:
        return OptionError(
            f"agentHost is {host}, which is no address of the driver.",
            "Set agentHost to an address of the driver that all executors can reach. If they reach "
            "it by another one (as behind a network address translation), set agentHost to 0.0.0.0 "
            "and agentAdvertisedHost to that one.",
        )
    at = f"port {port} of {host}" if port else host
    return OptionError(
        f"The agent cannot listen on {at}: {refusal.strerror or refusal}.",
        "Set agentHost and agentPort to what the driver may listen on.",
    )
