"""Estimates how much room records take once they are decoded, from those before them. Pure.

Room is reserved before a message is read, when only its size on the wire is known. Plain records
take less than that. But each user record of an aggregate becomes a row with a sequence number and
an arrival time, which take 64 bytes: rows of 10 bytes take four times what the message has, and
five times with metadata.
"""

from __future__ import annotations

# Expected until the stream has shown its first records, where these may be aggregates.
FIRST_GUESS = 5.0
# Messages differ: so much more is reserved for what grows.
_MARGIN = 1.125


class StreamGrowth:
    """The growth of the records of one stream, with which each of its shards begins.

    Args:
        guess: The growth to expect until records have come.
        guess_bytes: Where a message has to be let through, no more than this is reserved for it by
            that guess alone: in a small buffer it would stop the other shards for nothing.

    Attributes:
        most: The largest growth of a message so far; None until records have come.
    """

    def __init__(self, guess: float = 1.0, guess_bytes: int = 0) -> None:
        self.guess = guess
        self.guess_bytes = guess_bytes
        self.most: float | None = None

    def of_a_shard(self) -> Growth:
        """Return the growth of one more shard."""
        return Growth(self)


class Growth:
    """The growth of the records of one shard.

    ``learn`` is called by the shard's executor, the rest on the network loop.
    """

    def __init__(self, stream: StreamGrowth) -> None:
        self._stream = stream
        self._growth: float | None = None

    @property
    def is_guessed(self) -> bool:
        """Return True as long as growth is expected and nothing is known of it."""
        return self._growth is None and self._stream.most is None and self._stream.guess > 1

    def room(self, wire: int, *, let_through: bool = True) -> int:
        """Return how many bytes to reserve for a message or answer of ``wire`` bytes.

        Args:
            let_through: Nothing smaller can be read in its place.
        """
        stream = self._stream
        if self.is_guessed:
            room = int(wire * stream.guess)
            return max(wire, min(room, stream.guess_bytes) if let_through else room)
        growth = self._growth or stream.most or 1.0
        # Never less than they come in: until they are decoded, that is what is held.
        return int(wire * growth * _MARGIN) if growth > 1 else wire

    def learn(self, wire: int, held: int) -> None:
        """Note that ``wire`` bytes became records of ``held`` bytes. Without records, nothing."""
        if not held:
            return
        growth = held / wire
        # Up at once and down slowly: one aggregate is rarely the last one.
        self._growth = max(growth, 0.75 * (self._growth or growth) + 0.25 * growth)
        self._stream.most = max(growth, self._stream.most or growth)
