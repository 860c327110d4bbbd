"""One pool for several streams, whose shards have the same names."""

from __future__ import annotations

from kinesis_ds.agent.context import AgentOptions, ShardContext
from kinesis_ds.agent.pool import BufferPool
from kinesis_ds.plan.shards import Shard


def key(stream: str) -> str:
    """The name in the pool of a stream's only shard."""

    async def nothing_found(shard_id: str) -> None:
        """Nobody asks here."""

    options = AgentOptions(stream, f"arn:{stream}", "", 1.0, True, "127.0.0.1")
    return ShardContext(options, Shard("s"), nothing_found, lambda: None).pool_key


def test_shards_of_one_name_are_kept_apart() -> None:
    """What one holds, waits for or closes is nothing to the other; the bound is of both."""
    pool = BufferPool(100)
    orders, returns = key("orders"), key("returns")
    for shard in (orders, returns):
        pool.open(shard)
    assert pool.request(orders, 40, lambda: None)
    assert pool.request(returns, 50, lambda: None)

    granted: list[str] = []
    assert not pool.request(orders, 30, lambda: granted.append("orders"))
    assert not pool.withdraw(returns)
    pool.change(returns, -10, 0)
    assert (pool.used(orders), pool.used(returns)) == (40, 40)
    pool.close(returns)

    assert granted == ["orders"]
    assert (pool.used(orders), pool.used(returns)) == (70, 0)
    assert pool.statistics().used_bytes == 70
