"""Benchmarks. Each prints a table with ratios to a named peer that was measured in the same run."""
