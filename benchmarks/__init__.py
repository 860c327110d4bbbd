"""Benchmarks: each prints a table with ratios against a named peer measured in the same run."""
