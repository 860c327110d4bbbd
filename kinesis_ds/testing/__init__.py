"""A double of Amazon Kinesis for tests: its protocol, its rules, its limits and its faults.

    from kinesis_ds.testing import KinesisServer

    with KinesisServer() as kinesis:
        kinesis.create_stream("orders", shards=4)
        kinesis.put("orders", b"one", b"two")
        stream = spark.readStream.format("kinesis").options(**kinesis.options("orders")).load()

It listens on 127.0.0.1 by default, accepts any credentials, keeps its records in memory, and ends
with the block. ``python -m kinesis_ds.testing`` starts one from a shell. The contract suite in
``integration/contract`` holds it against other servers.

Its TLS port needs the packages ``h2`` and ``trustme``: in a clone, ``pip install '.[testing]'``.
"""

from __future__ import annotations

from kinesis_ds.testing.clock import ManualClock, ScaledClock
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.faults import (
    Alter,
    AnswerWith,
    CloseStream,
    Corrupt,
    Cut,
    Delay,
    Disconnect,
    FailRecords,
    Fault,
    MiscountResults,
    NoAnswer,
    OutliveTakeover,
    Pause,
    Raise,
    Refuse,
    Repeat,
    SendBytes,
    Stall,
    Target,
    Trickle,
    dump_faults,
    load_faults,
)
from kinesis_ds.testing.journal import Call
from kinesis_ds.testing.replay import Replay
from kinesis_ds.testing.server import KinesisServer
from kinesis_ds.testing.settings import Settings

__all__ = [
    "Alter",
    "AnswerWith",
    "Call",
    "CloseStream",
    "Corrupt",
    "Cut",
    "Delay",
    "Disconnect",
    "FailRecords",
    "Fault",
    "KinesisServer",
    "ManualClock",
    "MiscountResults",
    "NoAnswer",
    "OutliveTakeover",
    "Pause",
    "Raise",
    "Refuse",
    "Repeat",
    "Replay",
    "ScaledClock",
    "SendBytes",
    "ServiceError",
    "Settings",
    "Stall",
    "Target",
    "Trickle",
    "dump_faults",
    "load_faults",
]
