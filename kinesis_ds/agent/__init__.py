"""The shard agent: owns subscriptions and buffers of some shards and serves exact ranges.

The way of a record: ``network`` (event loop; cuts the socket's bytes into frames) -> ``lanes`` (one
serial lane a shard on shared threads; checks and decodes) -> ``buffer`` (Arrow, bounded) ->
``server`` (Arrow Flight) -> the read task. ``subscription`` decides when to open, renew, wait and
stop; it does no I/O.
"""
