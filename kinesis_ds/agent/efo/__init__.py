"""Reads a shard by enhanced fan-out: the machine decides, the runner does it."""
