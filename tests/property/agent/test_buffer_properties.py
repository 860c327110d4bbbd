"""The buffer against a list, and the pool against its own bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_ds.agent.buffer import ShardBuffer
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, Position
from kinesis_ds.wire.decode import sequence_numbers
from tests.support.builders import records
from tests.support.examples import times

GAPS = st.integers(1, 5)


class BufferAgainstList(RuleBasedStateMachine):
    """Appends, commits and reads in any order; the model is a list of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(1 << 30)
        self.buffer = ShardBuffer("s", TRIM_HORIZON, self.pool)
        self.numbers: list[int] = []
        self.available = 0
        self.committed = 0
        self.ended = False

    @precondition(lambda self: not self.ended)
    @rule(gaps=st.lists(GAPS, max_size=5), silence=st.integers(0, 3), wire=st.integers(200, 900))
    def append(self, gaps: list[int], silence: int, wire: int) -> None:
        """An event of some records, continued at or behind the last."""
        new = []
        for gap in gaps:
            new.append((new[-1] if new else self.available) + gap)
        self.available = (new[-1] if new else self.available) + silence
        self.numbers += new
        self.pool.request("s", wire, lambda: None)
        self.buffer.append(records(new) if new else None, After(str(self.available)), wire)

    @precondition(lambda self: not self.ended)
    @rule()
    def end(self) -> None:
        """The shard is read to its end."""
        self.buffer.end()
        self.ended = True

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        """Any position up to what is available."""
        at = self.committed + round(part * (self.available - self.committed))
        self.committed = max(self.committed, at)
        self.buffer.free(After(str(at)))

    @rule(
        parts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
        beyond=st.sampled_from([0, 0, 0, 0, 1, 7]),
        to_end=st.booleans(),
    )
    def read(self, parts: tuple[float, float], beyond: int, to_end: bool) -> None:
        """Any range is served exactly, or refused as not held."""
        low, high = sorted(round(part * self.available) for part in parts)
        high += beyond
        start: Position = After(str(low)) if low else TRIM_HORIZON
        end: Position = SHARD_END if to_end else After(str(high))
        reaches_back = low >= self.committed if self.buffer.start != TRIM_HORIZON else True
        if start == TRIM_HORIZON and self.buffer.start != TRIM_HORIZON:
            reaches_back = False
        reached = self.ended or (not to_end and self._reached(high))
        held = self.buffer.hold(start, end)

        if not (reaches_back and reached):
            assert held is None
            return
        expected = [n for n in self.numbers if low < n and (to_end or n <= high)]
        assert held is not None
        assert held.records == len(expected)
        got = [n for batch in self.buffer.read(start, end) for n in sequence_numbers(batch)]
        assert got == expected

    def _reached(self, number: int) -> bool:
        return isinstance(self.buffer.available, After) and number <= self.available

    @invariant()
    def accounts_match(self) -> None:
        """The account is what is held: all behind the commit, and at most a chunk before it."""
        held = self.pool.statistics().used_records
        assert len([n for n in self.numbers if n > self.committed]) <= held <= len(self.numbers)

    def teardown(self) -> None:
        """Committed to the last record, nothing is held; closed, nothing is left."""
        self.buffer.free(After(str(max(self.available, 1))))
        statistics = self.pool.statistics()
        assert (statistics.used_bytes, statistics.used_records) == (0, 0)
        self.buffer.close()


TestBufferAgainstList = BufferAgainstList.TestCase
TestBufferAgainstList.settings = times(2, steps=30)

LIMIT = 40
SHARDS = ["a", "b", "c", "d"]


class PoolUnderLoad(RuleBasedStateMachine):
    """Shards that ask for room, use less of it than they asked for, and give it back."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(LIMIT, limit_records=20)
        self.held: dict[str, list[tuple[int, int]]] = {s: [] for s in SHARDS}
        self.waiting: dict[str, int] = {}
        for shard in SHARDS:
            self.pool.open(shard)

    @rule(shard=st.sampled_from(SHARDS), nbytes=st.integers(1, 15) | st.integers(15, 60))
    def ask(self, shard: str, nbytes: int) -> None:
        """One request at a time, as the runner does."""
        if shard in self.waiting:
            return

        def granted() -> None:
            assert self.waiting.pop(shard) == nbytes
            self.held[shard].append((nbytes, 0))

        if self.pool.request(shard, nbytes, granted):
            self.held[shard].append((nbytes, 0))
        else:
            self.waiting[shard] = nbytes

    @rule(shard=st.sampled_from(SHARDS), part=st.floats(0, 1), rows=st.integers(0, 5))
    def decode(self, shard: str, part: float, rows: int) -> None:
        """The message under way becomes records that take less room."""
        for i, (nbytes, had) in enumerate(self.held[shard]):
            if had == 0 and rows:
                used = round(part * nbytes)
                self.held[shard][i] = (used, rows)
                self.pool.change(shard, used - nbytes, rows)
                return

    @rule(shard=st.sampled_from(SHARDS))
    def commit(self, shard: str) -> None:
        """The oldest message is given back."""
        if self.held[shard]:
            nbytes, rows = self.held[shard].pop(0)
            self.pool.change(shard, -nbytes, -rows)

    @rule(shard=st.sampled_from(SHARDS))
    def withdraw(self, shard: str) -> None:
        """A shard gives up waiting."""
        assert self.pool.withdraw(shard) == (self.waiting.pop(shard, None) is not None)

    @invariant()
    def bounded(self) -> None:
        """Never more than the bound, but for one message alone that is larger."""
        every = [nbytes for shard in SHARDS for nbytes, _ in self.held[shard] if nbytes]
        assert self.pool.statistics().used_bytes == sum(every)
        assert sum(every) <= LIMIT or len(every) == 1
        assert self.pool.statistics().waiting == len(self.waiting)

    @invariant()
    def somebody_is_served(self) -> None:
        """An empty pool has no one waiting."""
        if not any(self.held.values()):
            assert not self.waiting

    def teardown(self) -> None:
        """Give everything back, again and again: everyone waiting is served, nothing is left."""
        for _ in range(20):
            for shard in SHARDS:
                while self.held[shard]:
                    self.commit(shard)
        assert not self.waiting
        statistics = self.pool.statistics()
        assert (statistics.used_bytes, statistics.used_records, statistics.waiting) == (0, 0, 0)


TestPoolUnderLoad = PoolUnderLoad.TestCase
TestPoolUnderLoad.settings = times(2, steps=40)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(20, 60))
def test_a_large_message_is_served_while_small_ones_keep_coming(
    sizes: list[int], large: int
) -> None:
    """Commits go on, small shards ask again at once, and still the large message gets its turn."""
    pool = BufferPool(LIMIT)
    for shard in SHARDS:
        pool.open(shard)
    held: list[tuple[str, int]] = []
    served: list[int] = []
    asking: set[str] = set()

    def ask(shard: str, nbytes: int) -> None:
        if shard not in asking:
            asking.add(shard)
            if pool.request(shard, nbytes, lambda: take(shard, nbytes)):
                take(shard, nbytes)

    def take(shard: str, nbytes: int) -> None:
        asking.discard(shard)
        held.append((shard, nbytes))

    for i, size in enumerate(sizes):
        ask(SHARDS[1 + i % 3], size)
    if pool.request("a", large, lambda: served.append(large)):
        served.append(large)
    for step in range(200):
        if served:
            break
        if held:
            shard, nbytes = held.pop(0)
            pool.change(shard, -nbytes, 0)
            ask(shard, sizes[step % len(sizes)])

    assert served == [large]
