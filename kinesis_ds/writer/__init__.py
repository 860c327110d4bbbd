"""The sink: rows in, PutRecords out, with a hard bound on what is under way in between.

The way of a row, file by file:

1. :mod:`stream` and :mod:`batch` are the writers that Spark makes and pickles. Each task calls
   :func:`task.write_task` with its rows.
2. :mod:`slices` turns Spark's Arrow batches into columns, a bounded slice at a time.
3. :mod:`rows` checks a slice and cuts it into pieces, each a block of columns (:mod:`records`).
4. :mod:`inflight` is the window. The task's thread waits there until there is room for a piece, and
   then hands it to the network loop.
5. :mod:`sender` takes the piece on the network loop and adds it to the rows that wait for its
   stream (:mod:`waiting`): each in the queue (:mod:`shard_queue`) of the shard that
   :mod:`prediction` expects it to land on, perhaps after a stay in an aggregate
   (:mod:`aggregating`) or behind another row of its partition key (:mod:`key_order`).
6. :mod:`scheduler` chooses what is sent next. :mod:`readiness` and :mod:`pacing` say when a queue
   may send.
7. :mod:`target_streams` makes the PutRecords call, with a body from :mod:`request_body`.
8. :mod:`results` says what the answer means for each record. The scheduler settles it: rows that
   are stored leave the window, the others wait again.
9. :mod:`task` returns the commit message when the window is empty, and :mod:`stream` records the
   batch in its ledger (:mod:`ledger`, :mod:`ledger_format`) on the driver.

The tasks of a worker process share a service with its network loop and its connection
(:mod:`service`), which :mod:`registry` keeps, as it keeps their counters (:mod:`counters`).
"""
