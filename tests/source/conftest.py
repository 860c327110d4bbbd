"""The source against the double in fast time, as in the fault stories, and nothing going wrong."""

from __future__ import annotations

from tests.fault.conftest import (
    agent,
    bundle,
    clock,
    ending,
    kinesis,
    pytest_generate_tests,
    serve,
    start_agent,
    start_query,
    transport,
)

__all__ = [
    "agent",
    "bundle",
    "clock",
    "ending",
    "kinesis",
    "pytest_generate_tests",
    "serve",
    "start_agent",
    "start_query",
    "transport",
]
