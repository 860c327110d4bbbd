"""Fetches a range from an agent, in a read task."""

from __future__ import annotations

import atexit
import os
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from kinesis_ds.agent.range_server import TOKEN_HEADER
from kinesis_ds.errors import AgentError
from kinesis_ds.limits import MAX_AGENT_PROCESSES
from kinesis_ds.plan.ticket import AgentAddress, encode_ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_ds.plan.position import Position

# A task streams as fast as its consumer takes; what takes longer is read from Kinesis instead.
_CALL_TIMEOUT_S = 900.0
# Those of one query; where a worker serves several, the least recently used are closed.
_KEPT_CLIENTS = MAX_AGENT_PROCESSES


def stream_range(
    address: AgentAddress, shard_id: str, start: Position, end: Position
) -> Iterator[pa.RecordBatch]:
    """Yield the records in ``(start, end]`` from an agent, as batches of ``RECORD_SCHEMA``.

    Raises:
        AgentError: The agent is gone, refuses, does not hold the range, or broke off. Batches
            yielded before that are good and in order.
    """
    options = flight.FlightCallOptions(
        timeout=_CALL_TIMEOUT_S, headers=[(TOKEN_HEADER.encode(), address.token.encode())]
    )
    ticket = flight.Ticket(encode_ticket(shard_id, start, end))
    try:
        reader = _clients.get(address).do_get(ticket, options)
        for chunk in reader:
            yield chunk.data
    except (flight.FlightError, pa.ArrowException, OSError) as exc:
        _clients.drop(address)
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
    return flight.connect(address.uri, **tls)


_clients = _Clients()
atexit.register(_clients.close)


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().splitlines()[0][:200] if str(exc).strip() else type(exc).__name__
