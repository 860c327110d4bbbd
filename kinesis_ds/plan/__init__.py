"""Plans: what is read next, from where to where, and by which task. Pure: no I/O, no Spark.

Read in this order:

* ``position``: a place in one shard. ``shards``, ``lineage``, ``stream``: shards and what they were
  split or merged into; a stream's names and properties.
* ``offsets``: the positions of a query in all its streams, and their form in the checkpoint.
  ``start``: where a new query starts.
* ``ranges``: the next offset, and the ranges between two offsets. ``limits`` and ``held``: how much
  of what the agents hold goes into one batch. ``batch``: the ranges of a batch read.
* ``planned_range``: one range of a task; ``decoding`` and ``ticket`` are parts of it. ``tasks``:
  which ranges share a task.
* ``loss``: what happens when records are gone before they were read.
"""
