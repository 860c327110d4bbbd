"""What a run is told, and what the run tells its jobs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from devtools.installing import CACHE

RUNS = CACHE / "demo"
"""Everything that runs make lies here, a folder each."""

KEYS = 200
"""Partition keys in use; event n has key n mod KEYS, and is that key's (n div KEYS)-th."""


def _run_name() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


@dataclass(frozen=True)
class Settings:
    """What the command line asked for. Without endpoint and AWS, a local Kinesis is started."""

    endpoint: str | None
    region: str | None
    aws: bool
    records: int
    rate: int
    shards: int
    stream: str
    keep: bool
    folder: Path = field(default_factory=lambda: RUNS / _run_name())

    @property
    def local(self) -> bool:
        return self.endpoint is None and not self.aws


@dataclass(frozen=True)
class JobSettings:
    """What the conductor tells a job.

    Attributes:
        source: Options that name stream, region and endpoint, the same for source and sink.
        folder: Checkpoint, output and scratch files go here.
        records: Events to write. rate: Events a second.
        conductor: Process id of the conductor.
    """

    source: dict[str, str]
    folder: str
    records: int
    rate: int
    conductor: int

    @property
    def checkpoint(self) -> str:
        return str(Path(self.folder) / "checkpoint")
