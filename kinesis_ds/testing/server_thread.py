"""The thread and the event loop that the double runs on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.testing.account import Account
from kinesis_ds.testing.certificate import Certificate
from kinesis_ds.testing.clock import Changes
from kinesis_ds.testing.endpoint import Endpoint
from kinesis_ds.testing.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from kinesis_ds.testing.clock import ServerClock
    from kinesis_ds.testing.faults import Fault
    from kinesis_ds.testing.settings import Settings

T = TypeVar("T")
_ANSWER_WITHIN_S = 60.0


class ServerThread:
    """Runs an endpoint and its listener on a loop of its own; other threads reach both through it.

    Args:
        faults: What is to go wrong from the start.
        host: The IP address to listen on.
        port: The port of HTTP/1.1; 0 for a free one.
        tls: Also listen with TLS.

    Attributes:
        tls: Whether it listens with TLS.
        certificate: What clients have to trust; None without TLS, before the start and at the end.
    """

    def __init__(
        self,
        settings: Settings,
        clock: ServerClock,
        faults: Sequence[Fault],
        host: str,
        port: int,
        tls: bool,
    ) -> None:
        self.tls = tls
        self.certificate: Certificate | None = None
        self._settings = settings
        self._clock = clock
        self._first_faults = tuple(faults)
        self._host = host
        self._port = port
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._changes: Changes | None = None
        self._endpoint: Endpoint | None = None
        self._listener: Listener | None = None

    def start(self) -> None:
        """Start the thread, and return when it listens.

        Raises:
            OSError: The port is taken.
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("the server has been started already")
        self._thread = threading.Thread(target=self._run, name="kinesis-double", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """End all connections and the thread. Idempotent."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self.certificate is not None:
            self.certificate.remove()
            self.certificate = None

    @property
    def started(self) -> bool:
        """Whether it has been started, and has not failed before it could begin."""
        return self._stop is not None

    @property
    def port(self) -> int:
        """The port of HTTP/1.1; before it listens, the one that was asked for."""
        return self._port if self._listener is None else self._listener.port

    @property
    def tls_port(self) -> int:
        """The port with TLS; before it listens, 0."""
        return 0 if self._listener is None else self._listener.tls_port

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint. Another thread may read its journal and its crashes, and nothing else."""
        return self._once_started(self._endpoint)

    @property
    def listener(self) -> Listener:
        """The listener. Another thread may only pass its coroutines to :meth:`wait_for`."""
        return self._once_started(self._listener)

    def look(self, look: Callable[[Endpoint], T]) -> T:
        """Call a function with the endpoint, on the loop, and return its result."""

        async def on_loop() -> T:
            self.endpoint.account.settle(self._clock.wall())
            return look(self.endpoint)

        return self.wait_for(on_loop())

    def change(self, change: Callable[[Endpoint], T]) -> T:
        """Do the same with a function that changes something; then wake all that wait for it."""

        async def on_loop() -> T:
            self.endpoint.account.settle(self._clock.wall())
            try:
                return change(self.endpoint)
            finally:
                self._once_started(self._changes).wake_all()

        return self.wait_for(on_loop())

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result.

        Raises:
            RuntimeError: The server does not run.
        """
        try:
            loop = self._once_started(self._loop)
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            work.close()
            raise
        return future.result(_ANSWER_WITHIN_S)

    @staticmethod
    def _once_started(found: T | None) -> T:
        if found is None:
            raise RuntimeError("the server does not run")
        return found

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as exc:  # handed to the thread that waits for the start
            self._failure = exc
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._changes = Changes(self._clock)
        self._endpoint = Endpoint(Account(self._settings), self._clock, self._changes)
        self._endpoint.script.add(self._first_faults, self._clock.wall())
        try:
            if self.tls:
                self.certificate = Certificate(self._host)
            context = None if self.certificate is None else self.certificate.context
            self._listener = Listener(self._endpoint.handle, self._host, self._port, context)
            await self._listener.open()
            self._ready.set()
            await self._stop.wait()
        finally:
            if self._listener is not None:
                await self._listener.close()
            self._changes.close()
