"""What a batch takes where a trigger has limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.limits import admit, share_out
from kinesis_ds.plan.offsets import SourceOffset, StreamOffset
from kinesis_ds.plan.position import After, Position

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from kinesis_ds.plan.ranges import ShardRange


class Stream:
    """A stream whose agents hold records of these sizes; each is one byte behind the last.

    Attributes:
        asked: How often its agents were asked.
    """

    def __init__(self, arn: str, **sizes: list[int] | None) -> None:
        self.arn = arn
        self.asked = 0
        self._sizes = sizes

    def offset(self, **positions: Position) -> StreamOffset:
        return StreamOffset("orders", self.arn, 1, "consumer", positions)

    def end(self) -> StreamOffset:
        return self.offset(**{s: After(str(len(n or "x"))) for s, n in self._sizes.items()})

    def hold(
        self, ranges: Sequence[ShardRange], limits: Sequence[Limits] = ()
    ) -> list[Held | None]:
        self.asked += 1
        return [
            self._held(r, limit)
            for r, limit in zip(ranges, limits or [Limits()] * len(ranges), strict=True)
        ]

    def _held(self, wanted: ShardRange, limits: Limits) -> Held | None:
        sizes = self._sizes[wanted.shard_id]
        if sizes is None:
            return None
        rows = nbytes = 0
        for size in sizes:
            exceeds = (limits.max_records is not None and rows >= limits.max_records) or (
                limits.max_bytes is not None and nbytes + size > limits.max_bytes
            )
            if exceeds and (rows or not limits.at_least_one):
                break
            rows, nbytes = rows + 1, nbytes + size
            if exceeds:
                break
        end = After(str(rows)) if rows else wanted.start
        # The later the name, the earlier the first record came.
        return Held(rows, nbytes, end, 1000 - ord(wanted.shard_id[0]))


def taken(limits: Limits, *streams: Stream) -> list[dict[str, int]]:
    """How many records of each shard are admitted, by stream."""
    base = SourceOffset({s.arn: s.offset(**dict.fromkeys(s._sizes, After("0"))) for s in streams})
    end = SourceOffset({s.arn: s.end() for s in streams})
    admitted = admit(base, end, limits, {s.arn: s.hold for s in streams})
    assert all(s.asked <= 2 for s in streams)
    return [
        {n: int(p.sequence_number) for n, p in admitted.streams[s.arn].shards.items()}  # type: ignore[union-attr]
        for s in streams
    ]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param(Limits(5), {"x": 2, "y": 2, "z": 1}, id="as much for each as it has"),
        pytest.param(Limits(1), {"x": 0, "y": 0, "z": 1}, id="one: the oldest"),
        pytest.param(Limits(None, 25), {"x": 0, "y": 2, "z": 1}, id="what is too large waits"),
        pytest.param(Limits(None, 4), {"x": 0, "y": 0, "z": 1}, id="or comes alone"),
        pytest.param(Limits(99, 99_999), {"x": 2, "y": 3, "z": 1}, id="all"),
    ],
)
def test_limits_are_shared_out(limits: Limits, expected: dict[str, int]) -> None:
    """Fairly; the oldest first where not each can have some; and never nothing at all."""
    assert taken(limits, Stream("arn", x=[100, 100], y=[5, 5, 5], z=[5])) == [expected]


def test_the_oldest_waits_where_it_is_too_large_and_others_fit() -> None:
    """It comes when nothing else does: a batch keeps its limit as long as that moves the query."""
    assert taken(Limits(None, 25), Stream("arn", y=[5, 5, 5], z=[100])) == [{"y": 2, "z": 0}]


def test_streams_share_one_limit_and_what_is_not_held_stays() -> None:
    """A record over the limit comes alone among all streams, not in each."""
    one, other = Stream("1", b=[10], x=None), Stream("2", a=[10], c=[10])

    assert taken(Limits(None, 6), one, other) == [{"b": 0, "x": 0}, {"a": 0, "c": 1}]


def test_without_limits_nobody_is_asked() -> None:
    """All of it is taken."""
    stream = Stream("arn", a=[1, 1])

    assert taken(Limits(), stream) == [{"a": 2}]
    assert stream.asked == 0


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"),
    [
        pytest.param(10, {"a": 3, "b": 4}, {"a": 3, "b": 4}, id="enough for all"),
        pytest.param(10, {"a": 100, "b": 100}, {"a": 5, "b": 5}, id="equal parts"),
        pytest.param(10, {"a": 100, "b": 2}, {"a": 8, "b": 2}, id="what one does not need"),
        pytest.param(1, {"a": 5, "b": 5, "c": 5}, {"a": 1, "b": 0, "c": 0}, id="the first"),
        pytest.param(5, {"a": 5, "b": 5, "c": 5}, {"a": 2, "b": 2, "c": 1}, id="the remainder"),
        pytest.param(7, {"a": 100, "b": 1, "c": 100}, {"a": 3, "b": 1, "c": 3}, id="in turn"),
        pytest.param(3, {}, {}, id="nobody"),
    ],
)
def test_a_limit_is_shared_out(
    limit: int, wanted: dict[str, int], expected: dict[str, int]
) -> None:
    """Equal parts to those who want them, the remainder to the most urgent."""
    assert share_out(limit, wanted, list(wanted)) == expected


@given(
    st.integers(1, 1000),
    st.dictionaries(st.integers(0, 20), st.integers(0, 300), max_size=12),
    st.randoms(use_true_random=False),
)
def test_shares_are_fair_and_use_the_limit(
    limit: int, wanted: dict[int, int], rng: random.Random
) -> None:
    """All of the limit that anybody wants is given; who got less than he wants got no less, but
    for one, than anybody else.
    """
    order = list(wanted)
    rng.shuffle(order)
    shares = share_out(limit, wanted, order)

    assert shares.keys() == wanted.keys()
    assert all(0 <= shares[name] <= wanted[name] for name in wanted)
    assert sum(shares.values()) == min(limit, sum(wanted.values()))
    short = [name for name in wanted if shares[name] < wanted[name]]
    most = max(shares.values(), default=0)
    assert all(shares[name] >= most - 1 for name in short)
    ranks = [shares[name] for name in order if name in short]
    assert ranks == sorted(ranks, reverse=True)
