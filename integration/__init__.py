"""Tests against Kinesis-compatible servers, each started here on a port of its own."""
