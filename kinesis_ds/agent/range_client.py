"""Fetches a range from an agent, in a read task."""

from __future__ import annotations

import atexit
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from kinesis_ds.agent.range_server import TOKEN_HEADER
from kinesis_ds.errors import AgentError
from kinesis_ds.limits import MAX_AGENT_PROCESSES
from kinesis_ds.plan.ticket import AgentAddress, encode_ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_ds.plan.position import Position

# A task streams as fast as its consumer takes; what takes longer is read from Kinesis instead.
_CALL_TIMEOUT_S = 900.0
# An agent that is within reach accepts at once. Without a limit of its own gRPC takes 20 s.
_CONNECT_TIMEOUT_S = 3.0
# An agent that did not is not asked again before that; then the next task tries it.
_TRY_AGAIN_AFTER_S = 60.0
# Those of one query; where a worker serves several, the least recently used are closed.
_KEPT_CLIENTS = MAX_AGENT_PROCESSES


def stream_range(
    address: AgentAddress,
    shard_id: str,
    start: Position,
    end: Position,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Yield the records in ``(start, end]`` from an agent, as batches of ``RECORD_SCHEMA``.

    An agent that cannot be reached costs 3 s once; for a minute it is not asked again by this
    worker.

    Args:
        address: The agent.
        shard_id: The shard.
        start: The position before the first record.
        end: The last record.
        now: Seconds since any moment.

    Raises:
        AgentError: The agent is gone, refuses, does not hold the range, or broke off. Batches
            yielded before that are good and in order.
    """
    _unreachable.check(address, now())
    options = flight.FlightCallOptions(
        timeout=_CALL_TIMEOUT_S, headers=[(TOKEN_HEADER.encode(), address.token.encode())]
    )
    ticket = flight.Ticket(encode_ticket(shard_id, start, end))
    asked, answered = now(), False
    try:
        for chunk in _clients.get(address).do_get(ticket, options):
            answered = True
            yield chunk.data
    except (flight.FlightError, pa.ArrowException, OSError) as exc:
        _clients.drop(address)
        if isinstance(exc, flight.FlightUnavailableError) and not answered:
            _unreachable.note(address, asked, now())
        raise AgentError(
            f"The agent at {address.uri} did not serve shard {shard_id}: {_first_line(exc)}"
        ) from exc


class _Clients:
    """Keeps connections between the tasks of a Python worker. Not shared across a fork."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._clients: dict[AgentAddress, flight.FlightClient] = {}

    def get(self, address: AgentAddress) -> flight.FlightClient:
        if self._pid != os.getpid():
            self._pid, self._clients = os.getpid(), {}
        client = self._clients.pop(address, None) or _connect(address)
        self._clients[address] = client  # most recently used last
        while len(self._clients) > _KEPT_CLIENTS:
            self.drop(next(iter(self._clients)))
        return client

    def drop(self, address: AgentAddress) -> None:
        client = self._clients.pop(address, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        if self._pid == os.getpid():
            for address in tuple(self._clients):
                self.drop(address)


def _connect(address: AgentAddress) -> flight.FlightClient:
    tls = {"tls_root_certs": address.root_certs.encode()} if address.root_certs else {}
    timeout_ms = round(_CONNECT_TIMEOUT_S * 1000)
    # gRPC takes the shortest pause between two attempts for the time that one may take.
    pauses = ("grpc.min_reconnect_backoff_ms", "grpc.initial_reconnect_backoff_ms")
    options = [(pause, timeout_ms) for pause in pauses]
    return flight.FlightClient(address.uri, generic_options=options, **tls)


class _Unreachable:
    """Remembers the agents that cost a task time and did not answer, in a Python worker."""

    def __init__(self) -> None:
        self._since: dict[AgentAddress, float] = {}

    def check(self, address: AgentAddress, now: float) -> None:
        """Raise AgentError if an agent was found out of reach within the last minute."""
        since = self._since.get(address)
        if since is None:
            return
        if now - since >= _TRY_AGAIN_AFTER_S:
            del self._since[address]
            return
        raise AgentError(
            f"The agent at {address.uri} could not be reached {now - since:.0f}s ago; it is tried "
            f"again in {since + _TRY_AGAIN_AFTER_S - now:.0f}s."
        )

    def note(self, address: AgentAddress, asked: float, now: float) -> None:
        """Remember an agent that was asked at a time. One that refused at once costs nothing."""
        if now - asked < _CONNECT_TIMEOUT_S / 2:
            return
        self._since[address] = now
        while len(self._since) > _KEPT_CLIENTS:
            del self._since[next(iter(self._since))]


_unreachable = _Unreachable()
_clients = _Clients()
atexit.register(_clients.close)


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().splitlines()[0][:200] if str(exc).strip() else type(exc).__name__
