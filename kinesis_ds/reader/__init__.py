"""The source: what PySpark calls to read, in the driver and in the tasks.

Read in this order:

* ``stream``: the stream reader that PySpark calls in the driver. ``batch``: the same for a batch
  read, which is planned in one go.
* ``coordinator``: answers with offsets and ranges. ``source``: the streams of the query, the
  network loop and the agents. ``source_stream``: a stream that was looked up. ``open_stream``: a
  stream that is being read.
* ``discovery``: gives shards to the agent in their turn. ``diagnosis``: finds out why a shard
  cannot be read. ``expiry``: whether records expired behind a checkpoint.
* ``planning``: the ranges of a micro-batch. ``partition`` carries them to ``task``, which reads
  them from the agent, or from Kinesis.
* ``progress``: lag and counters. ``without_traceback``: how errors reach the user.
"""
