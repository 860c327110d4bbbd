"""The in-flight window, for any bounds and any requests, under concurrent use."""

from __future__ import annotations

import queue
import threading

from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.writer.inflight import InFlightWindow

DEADLINE_S = 20.0
REQUESTS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 150)), min_size=1, max_size=40)


@given(
    work=st.lists(REQUESTS, min_size=1, max_size=3),
    bounds=st.tuples(st.integers(1, 20), st.integers(1, 200), st.integers(1, 4)),
)
def test_the_bounds_hold_whoever_admits_and_releases_when(
    work: list[list[tuple[int, int]]], bounds: tuple[int, int, int]
) -> None:
    """Nothing exceeds a bound, unless it is alone; and everything gets through in the end."""
    window = InFlightWindow(*bounds, label="stream s")
    admitted: queue.Queue[tuple[int, int] | None] = queue.Queue()
    seen: list[tuple[int, int, int]] = []

    def admit(requests: list[tuple[int, int]]) -> None:
        for records, size in requests:
            window.acquire(records, size, DEADLINE_S)
            while not window.try_acquire_request():  # the sender would wait for an answer
                threading.Event().wait(0.0005)
            admitted.put((records, size))

    def release() -> None:
        while (request := admitted.get(timeout=DEADLINE_S)) is not None:
            now = window.statistics()
            seen.append((now.records, now.bytes, now.requests))
            records, size = request
            # As the sender does: the answer frees the request, the records may follow later.
            window.release(requests=1)
            window.release(records=records - 1, size=size)
            window.release(records=1)

    writers = [threading.Thread(target=admit, args=(requests,)) for requests in work]
    releasers = [threading.Thread(target=release) for _ in range(2)]
    for thread in writers + releasers:
        thread.start()
    for thread in writers:
        thread.join(DEADLINE_S)
    for _ in releasers:
        admitted.put(None)
    for thread in releasers:
        thread.join(DEADLINE_S)
    window.drain(DEADLINE_S)

    most_records, most_bytes, most_requests = bounds
    every = [request for requests in work for request in requests]
    largest_records = max(records for records, _ in every)
    largest_bytes = max(size for _, size in every)
    end = window.statistics()
    assert len(seen) == len(every)
    assert (end.records, end.bytes, end.requests) == (0, 0, 0)
    # Each bound, or a single request that is larger than it and was admitted alone.
    assert end.peak_records <= max(most_records, largest_records)
    assert end.peak_bytes <= max(most_bytes, largest_bytes)
    assert end.peak_requests <= most_requests
