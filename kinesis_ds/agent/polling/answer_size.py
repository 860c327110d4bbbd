"""Estimates how large the answers to GetRecords will be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.limits import KIB

if TYPE_CHECKING:
    from kinesis_ds.agent.growth import Growth

# Room for the first answer, and for each one at the tip, where answers are small: so little that
# the share of an idle shard among thousands suffices, and no busy one can keep it waiting.
_LEAST_ROOM = 16 * KIB
# Asked for while nothing is known of the stream's records, which may be large, or aggregates that
# grow: an answer that finds no room is read in vain.
_FIRST_RECORDS = 64
# Taken for the size of a record until one was seen.
_FIRST_RECORD_BYTES = 1 * KIB


class AnswerSize:
    """Estimates how much room to ask for, and how many records fit into the room that is given.

    Sizes are in bytes as they come over the network: JSON with base64. Room is as much, or more
    where records grow when they are decoded (see :mod:`kinesis_ds.agent.growth`). The size of
    records is an estimate. An answer that turns out larger is given more while it arrives, if the
    pool has more; if not, it is dropped unread and asked for again. So the pool's bound is not
    overshot by a byte, but for a single record larger than all of it, which comes when nothing else
    is held, and for records that grow more than those before. What a bad estimate costs is an
    answer read twice.
    """

    def __init__(
        self, max_records: int, bytes_per_s: int, buffer_bytes: int, growth: Growth
    ) -> None:
        self._max_records = max_records
        self._growth = growth
        self._most = buffer_bytes // 4
        # About a second's worth, and no more than leaves room for others.
        self._full = max(_LEAST_ROOM, min(bytes_per_s * 4 // 3, buffer_bytes // 4))
        self._per_record: float = _FIRST_RECORD_BYTES
        self._expected = self._full

    def room(self) -> int:
        """Return how many bytes of room are of use."""
        return max(min(self.room_for(self._expected), self._most), self.least())

    def least(self) -> int:
        """Return with how little room a call is worth making: that of one record."""
        return max(_LEAST_ROOM, self.room_for(int(self._per_record)))

    def room_for(self, wire: int, limit: int = 1) -> int:
        """Return how much room the records of an answer of ``wire`` bytes are expected to take.

        Args:
            limit: How many records were asked for: with fewer the answer is smaller.
        """
        return self._growth.room(wire, let_through=limit == 1)

    def limit(self, room: int) -> int:
        """Return how many records to ask for when there are ``room`` bytes of room."""
        records = room / self._per_record * room / self._growth.room(room, let_through=False)
        most = _FIRST_RECORDS if self._growth.is_guessed else self._max_records
        return max(1, min(self._max_records, most, int(records)))

    def learn(self, size: int, records: int, held: int, *, more: bool) -> None:
        """Note that ``records`` records came in ``size`` bytes.

        Args:
            held: Bytes that they take in the buffer.
            more: The shard holds more, so the next answer will be full as well.
        """
        self._growth.learn(size, held)
        if records:
            each = size / records
            # Up at once and down slowly: a large record is rarely the last one.
            self._per_record = max(each, 0.75 * self._per_record + 0.25 * each)
        self._expected = self._full if more else min(self._full, max(_LEAST_ROOM, 2 * size))

    def refused(self, size: int, limit: int) -> None:
        """Note that a call for ``limit`` records was answered with ``size`` bytes: too many.

        Its records are larger than expected. How much larger is known only if ``limit`` was 1.
        """
        more = size + size // 8  # it may grow meanwhile
        self._expected = min(self._full, more)
        self._per_record = more if limit == 1 else max(4 * self._per_record, size / limit)
