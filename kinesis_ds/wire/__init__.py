"""Bytes of Kinesis to columns of Arrow and back: frames, events, records, aggregates. Pure."""
