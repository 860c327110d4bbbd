"""One SubscribeToShard call, read while the test does something else."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from devtools.waiting import NotInTimeError

if TYPE_CHECKING:
    from integration.contract.targets import Target

_POLL_S = 0.05
_GRACE_S = 5.0


class EndedError(Exception):
    """The subscription has no more events: it ended in good order."""


class Subscription:
    """The events of a subscription, in order, each of them once.

    A thread reads them: the clock of the double has to move while a client waits. Closing it breaks
    the connection off, as a client does that goes away.
    """

    def __init__(self, target: Target, events: Any) -> None:
        self._target = target
        self._events = events
        self._arrived: queue.Queue[dict[str, Any] | Exception] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Break the connection off. Again is fine."""
        # Only this wakes a thread that is reading from the socket. At the end there is none.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            number = os.dup(self._events._raw_stream.fileno())
            with socket.socket(fileno=number) as connection:
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_GRACE_S)
        self._events.close()

    def next(self, *, within_s: float = 15.0) -> dict[str, Any]:
        """The next event. Raises what ended the subscription, `EndedError` for a good end."""
        deadline = self._target.now() + within_s
        while self._target.now() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._value(self._arrived.get(timeout=_POLL_S))
            if self._target.moves_time:
                self._target.pass_time(0.5)
        # A clock that is moved by hand says nothing of how long the server has had to send.
        grace = _GRACE_S if self._target.moves_time else _POLL_S
        with contextlib.suppress(queue.Empty):
            return self._value(self._arrived.get(timeout=grace))
        raise NotInTimeError(f"an event of a subscription: not within {within_s:g} s")

    def next_with_records(self) -> dict[str, Any]:
        """The next event that has records."""
        while not (event := self.next())["Records"]:
            pass
        return event

    def records(self, count: int) -> list[bytes]:
        """The data of the next records, at least that many of them."""
        data: list[bytes] = []
        while len(data) < count:
            data += [record["Data"] for record in self.next()["Records"]]
        return data

    def rest(self) -> tuple[list[dict[str, Any]], Exception]:
        """All further events, and what the subscription ends with, soon."""
        events: list[dict[str, Any]] = []
        end = self._until_the_end(events.append)
        return events, end

    def end(self) -> Exception:
        """What the subscription ends with, soon, and without any more records."""

        def has_no_records(event: dict[str, Any]) -> None:
            assert not event["Records"]

        return self._until_the_end(has_no_records)

    def _until_the_end(self, take: Callable[[dict[str, Any]], None]) -> Exception:
        deadline = self._target.now() + self._target.patience_s
        while True:
            try:
                event = self.next(within_s=max(0.0, deadline - self._target.now()))
            except NotInTimeError:
                raise
            except Exception as error:  # whatever it is, the test is to see it
                return error
            take(event)

    def _value(self, arrived: dict[str, Any] | Exception) -> dict[str, Any]:
        if isinstance(arrived, Exception):
            self._arrived.put(arrived)  # it stays so
            raise arrived
        return arrived

    def _read(self) -> None:
        try:
            for event in self._events:
                # An exception in the stream is raised by the SDK.
                self._arrived.put(event["SubscribeToShardEvent"])
        except Exception as error:  # whatever it is, the test is to see it
            self._arrived.put(error)
        else:
            self._arrived.put(EndedError("the subscription ended"))
