"""An event loop on a thread of its own, with one open connection to Kinesis.

The source and the sink use the same class, and each has loops of its own, so that one of them
never waits for the other. Nothing on a loop may block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from kinesis_ds.aws.connection import Connection
from kinesis_ds.errors import InternalError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


class NetworkLoop:
    """A thread with an event loop and an open connection. Close it when done.

    Args:
        aws: Where to connect, and as whom.
        new_loop: Makes the event loop; a test may let its time pass faster.
        new_connection: Makes the connection, which the loop then opens and closes.
        name: The name of the thread.

    Attributes:
        connection: The open connection. Use it on the loop only.

    Raises:
        KinesisConnectorError: The connection could not be set up (no region, for example).
    """

    def __init__(
        self,
        aws: AwsOptions,
        new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        *,
        new_connection: Callable[[AwsOptions], Connection] = Connection,
        name: str = "kinesis-network",
    ) -> None:
        self.connection = new_connection(aws)
        self._loop = new_loop()
        self._ready = threading.Event()
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        try:
            if not self._ready.wait(_START_TIMEOUT_S):
                raise InternalError("The network loop did not start.", "Please report this.")
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self.close()
            raise

    def wait_for(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for its result; for other threads.

        However the wait ends, the work does not go on after it.

        Raises:
            concurrent.futures.TimeoutError: There was no result within ``timeout_s``.
            concurrent.futures.CancelledError: The loop was closed meanwhile.
            InternalError: The loop had ended before.
        """
        if not self._thread.is_alive():
            work.close()
            raise InternalError("The network loop has ended.", "Please report this.")
        future = asyncio.run_coroutine_threadsafe(self._owned(work), self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float, what: str) -> T:
        """Do the same as :meth:`wait_for`, with errors that say ``what`` was being done.

        Raises:
            TransientError: There was no result within ``timeout_s``, or the loop was closed.
            InternalError: The loop had ended before.
        """
        try:
            return self.wait_for(work, timeout_s)
        except CancelledError:
            raise TransientError(f"{what} was given up: the source was closed.") from None
        except FutureTimeout:
            raise TransientError(
                f"{what} took longer than {timeout_s:g}s.", "Is the endpoint reachable from here?"
            ) from None

    def post(self, callback: Any, *args: Any) -> None:
        """Call something on the loop soon; from any thread, never blocking."""
        here = threading.get_ident() == self._thread.ident
        call_soon = self._loop.call_soon if here else self._loop.call_soon_threadsafe
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to do
            call_soon(callback, *args)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that this loop owns; call on the loop. It is cancelled at :meth:`close`."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def close(self) -> None:
        """Cancel all tasks, close the connection, end the thread. Idempotent."""
        self.post(self._stopping.set)
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.warning("the network loop did not end within %gs", _STOP_TIMEOUT_S)

    async def _owned(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work that :meth:`close` cancels, so that the thread that waits for it goes on."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "task %s failed; please report this", task.get_name(), exc_info=task.exception()
            )

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as exc:  # handed to the thread that started us
            self._failure = exc
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _live(self) -> None:
        async with self.connection:
            self._ready.set()
            await self._stopping.wait()
            while self._tasks:
                for task in tuple(self._tasks):
                    task.cancel()
                await asyncio.wait(tuple(self._tasks), timeout=1)
        # Where one of several calls made together has failed, the others may still be under way.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=1)
