"""Spark's side of the source: the driver's stream reader, its coordinator, and the read task."""
