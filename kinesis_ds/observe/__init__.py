"""Watch a running query: counters in files, a table of the shards, a listener for Spark."""
