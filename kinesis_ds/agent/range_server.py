"""Serves exact ranges of the buffers to read tasks, over Arrow Flight."""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from kinesis_ds.agent.fetches import FetchCounts, Fetches, Outcome
from kinesis_ds.agent.listening import find_port
from kinesis_ds.errors import KinesisConnectorError
from kinesis_ds.plan.ticket import AgentAddress, decode_ticket
from kinesis_ds.wire.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_ds.agent.buffer import ShardBuffer
    from kinesis_ds.plan.position import Position

logger = logging.getLogger(__name__)

TOKEN_HEADER = "x-kinesis-ds-token"  # noqa: S105  # the name of a header, no token
# Events at the tip hold a few records each; Spark is better served by fewer, larger batches.
_SMALL_BATCH_BYTES = 256 * 1024
_MERGED_BATCH_BYTES = 2 * 1024 * 1024
_SHUTDOWN_S = 2.0
# What goes through these never leaves the machine. Everything else is encrypted.
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class RangeServer:
    """A Flight server on a port of its own, with a token made for it. Close it when done.

    Beyond the loopback address it speaks TLS only, with a certificate made for it.

    Args:
        host: Address to listen on.
        buffer: Returns the buffer of a shard id; raises AgentError for a shard that is not here.
        fetches: Is told which ranges were fetched; None where nobody wants to know.
        advertised_host: Address at which tasks reach it; empty where that is ``host``.
        ports: The first and the last port to listen on; zeros for any.

    Raises:
        OptionError: It cannot listen there.

    Attributes:
        address: Where it listens, with the token.
    """

    def __init__(
        self,
        host: str,
        buffer: Callable[[str], ShardBuffer],
        fetches: Fetches | None = None,
        *,
        advertised_host: str = "",
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        token = secrets.token_urlsafe(32)
        reached = advertised_host or host
        secure = not {host, reached} <= _LOOPBACK
        tls: dict[str, Any] = {}
        root_certs = ""
        if secure:
            from kinesis_ds.agent.certificate import issue  # noqa: PLC0415  # slow, rarely wanted

            issued = issue(reached)
            tls["tls_certificates"] = [(issued.chain, issued.key)]
            root_certs = issued.root
        scheme = "grpc+tls" if secure else "grpc"
        self._server = _Server(
            f"{scheme}://{_bracketed(host)}:{find_port(host, *ports)}",
            middleware={"token": _TokenCheck(token)},
            **tls,
        )
        self._server.buffer = buffer
        self._server.fetches = fetches or Fetches(FetchCounts())
        self._server.closing = threading.Event()
        uri = f"{scheme}://{_bracketed(reached)}:{self._server.port}"
        self.address = AgentAddress(uri, token, root_certs)
        logger.info("agent listens uri=%s", self.address.uri)

    def close(self) -> None:
        """Stop serving. Ranges under way are cut off, and their tasks read them from Kinesis.

        Flight's own shutdown waits until every range under way has been fetched, and a task whose
        consumer stands still fetches nothing. So this waits only a moment for it. Idempotent.
        """
        if self._server.closing.is_set():
            return
        self._server.closing.set()
        ending = threading.Thread(
            target=self._server.shutdown, name="kinesis-flight-end", daemon=True
        )
        ending.start()
        ending.join(_SHUTDOWN_S)
        if ending.is_alive():
            logger.info(
                "a task still reads from the agent; not waiting for it uri=%s", self.address.uri
            )


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token.encode()

    def start_call(self, info: object, headers: dict[str, list[str]]) -> None:
        given = headers.get(TOKEN_HEADER, [""])[0]
        if not hmac.compare_digest(given.encode(), self._token):
            raise flight.FlightUnauthenticatedError(
                "this agent serves only the query that started it"
            )


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    buffer: Callable[[str], ShardBuffer]
    fetches: Fetches
    closing: threading.Event

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            asked = decode_ticket(ticket.ticket)
        except KinesisConnectorError as exc:
            raise flight.FlightServerError(str(exc)) from exc
        shard_id, start, end = asked
        try:
            batches = self.buffer(shard_id).read(start, end)
        except KinesisConnectorError as exc:
            self.fetches.note(*asked, Outcome.REFUSED)
            raise flight.FlightServerError(str(exc)) from exc
        self.fetches.note(*asked, Outcome.BROKEN_OFF)
        schema = batches[0].schema if batches else RECORD_SCHEMA
        return flight.GeneratorStream(schema, self._served(asked, merge_small(batches)))

    def _served(
        self, asked: tuple[str, Position, Position], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self.closing.is_set():
                raise flight.FlightUnavailableError("the agent is closing")
            yield batch
        self.fetches.note(*asked, Outcome.FETCHED)


def merge_small(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same records in the same order; small neighbours are joined to larger batches."""
    run: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if run and (size >= _MERGED_BATCH_BYTES or batch.nbytes > _SMALL_BATCH_BYTES):
            yield _joined(run)
            run, size = [], 0
        if batch.nbytes > _SMALL_BATCH_BYTES:
            yield batch
            continue
        run.append(batch)
        size += batch.nbytes
    if run:
        yield _joined(run)


def _joined(run: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(run) == 1:
        return run[0]
    (joined,) = pa.Table.from_batches(run).combine_chunks().to_batches()
    return joined


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
