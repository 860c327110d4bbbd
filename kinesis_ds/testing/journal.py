"""Keep the calls that the double has received."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesis_ds.testing.faults import Target

_KEPT = 100_000


@dataclass(frozen=True)
class Call:
    """One call as it was received.

    Attributes:
        target: The operation, and the stream, shard and consumer that it is about.
        request: The members of the request, without records and their data.
        records: How many records a PutRecord or PutRecords brought.
        at: When it was answered by the double's clock, in seconds since the epoch.
        outcome: ``ok``, or an error code, or the name of the fault that struck.
        access_key: Id of the access key that signed it.
    """

    target: Target
    request: Mapping[str, Any]
    records: int
    at: float
    outcome: str
    access_key: str


class Journal:
    """The last 100,000 calls, oldest first. The server's loop writes it; any thread may read it."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque(maxlen=_KEPT)

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def calls(
        self, operation: str | None = None, shard: str | None = None, stream: str | None = None
    ) -> list[Call]:
        """Return the calls of one operation, shard or stream; what is None is not looked at."""
        return [
            call
            for call in tuple(self._calls)
            if operation in (None, call.target.operation)
            and shard in (None, call.target.shard)
            and stream in (None, call.target.stream)
        ]

    def __iter__(self) -> Iterator[Call]:
        return iter(tuple(self._calls))

    def __len__(self) -> int:
        return len(self._calls)
