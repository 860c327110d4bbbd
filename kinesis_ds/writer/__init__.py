"""The sink: rows in, PutRecords out, with a hard bound on what is under way in between.

A row passes :mod:`batching` (validation and packing), :mod:`inflight` (the bound that blocks),
:mod:`sender` (concurrent requests and retries), :mod:`results` (what Kinesis said of each record),
and ends as a number in the task's commit message. :mod:`service` keeps the client warm between the
tasks of a worker process, :mod:`stream` is what Spark calls.
"""
