"""Reads a shard by GetRecords: the machine decides, the runner does it."""
