"""Agents read shards ahead of the query, buffer the records, and serve exact ranges of them.

The way of a record through this room, for a subscription::

    aws/loop           the network loop reads the socket
    efo/runner         cuts the bytes into messages, once the pool has room for them
    executor           decodes the messages of a shard in order, on a few shared threads
    buffer             holds the records as Arrow batches until Spark has committed them
    range_server       serves a planned range over Arrow Flight
    range_client       fetches it, in Spark's read task

A polled shard differs in one step: ``polling/runner`` calls GetRecords instead. When to call, to
wait and to give up is decided by machines without I/O: ``efo/machine`` and ``polling/machine``,
with their common part in ``machine``.

``interface`` is what the coordinator knows of all this. ``agent`` is the agent in the coordinator's
own process; ``remote`` runs the same agent in processes of its own.
"""
