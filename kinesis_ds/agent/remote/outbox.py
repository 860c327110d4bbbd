"""Send an agent process's messages to its parent from a thread of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import encode

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from kinesis_ds.plan.position import Position

logger = logging.getLogger(__name__)

_BEAT_S = 1.0
# Positions are sent at once, and then not again for so long: one message covers many events.
_POSITIONS_EVERY_S = 0.01
_JOIN_S = 5.0


class Outbox:
    """Collects messages and sends them from its own thread, so that nobody else blocks on it.

    Holds at most an answer to each question, and each shard that moved once. Sends a ``Beat`` every
    second.

    Args:
        connection: A blocking socket to the parent.
        positions: Returns where shards of an agent can be planned up to. Called by the thread.
        beat: Returns the next ``Beat``. Called by the thread.
    """

    def __init__(
        self,
        connection: socket.socket,
        positions: Callable[[int, list[str]], dict[str, Position]],
        beat: Callable[[], messages.Beat],
    ) -> None:
        self._connection = connection
        self._positions = positions
        self._beat = beat
        self._changed = threading.Condition()
        self._messages: deque[messages.Message] = deque()
        # By agent and shard id, whether there is news behind the move.
        self._moved: dict[int, dict[str, bool]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kinesis-control", daemon=True)
        self._thread.start()

    def put(self, message: messages.Message) -> None:
        """Send a message soon; from any thread, never blocking."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def moved(self, agent: int, shard_id: str, *, news: bool) -> None:
        """Send soon where a shard is by then; from any thread, never blocking."""
        with self._changed:
            idle = not self._moved
            shards = self._moved.setdefault(agent, {})
            shards[shard_id] = shards.get(shard_id, False) or news
            if idle:
                self._changed.notify()

    def close(self) -> None:
        """Send nothing more, and wait a few seconds for the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        beat_due = positions_due = time.monotonic()
        try:
            while True:
                with self._changed:
                    while True:
                        now = time.monotonic()
                        if self._closed:
                            return
                        due = min(beat_due, positions_due) if self._moved else beat_due
                        if self._messages or now >= due:
                            break
                        self._changed.wait(due - now)
                    batch, self._messages = list(self._messages), deque()
                    moved: dict[int, dict[str, bool]] = {}
                    if now >= positions_due:
                        moved, self._moved = self._moved, {}
                        positions_due = now + _POSITIONS_EVERY_S if moved else now
                if now >= beat_due:
                    beat_due = now + _BEAT_S
                    batch.append(self._beat())
                for agent, shards in moved.items():
                    positions = self._positions(agent, list(shards))
                    batch.append(messages.Moved(agent, positions, any(shards.values())))
                self._connection.sendall(b"".join(map(encode, batch)))
        except OSError as exc:  # the parent is gone: whoever reads from it sees that as well
            logger.debug("nobody listens any more: %s", exc)
