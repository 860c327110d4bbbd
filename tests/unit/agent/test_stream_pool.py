"""One pool for several streams, whose shards have the same names."""

from __future__ import annotations

from kinesis_ds.agent.pool import BufferPool, StreamPool


def test_shards_of_one_name_are_kept_apart() -> None:
    """What one holds, waits for or closes is nothing to the other; the bound is of both."""
    pool = BufferPool(100)
    orders, returns = StreamPool(pool, "arn:orders"), StreamPool(pool, "arn:returns")
    for stream in (orders, returns):
        stream.open("s")
    assert orders.request("s", 40, lambda: None)
    assert returns.request("s", 50, lambda: None)

    granted: list[str] = []
    assert not orders.request("s", 30, lambda: granted.append("orders"))
    assert not returns.withdraw("s")
    returns.change("s", -10, 0)
    assert (orders.used("s"), returns.used("s")) == (40, 40)
    returns.close("s")

    assert granted == ["orders"]
    assert (orders.used("s"), returns.used("s")) == (70, 0)
    assert orders.statistics().used_bytes == 70
