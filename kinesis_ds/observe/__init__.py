"""What a running query tells: counters in files, the table of shards, the listener."""
