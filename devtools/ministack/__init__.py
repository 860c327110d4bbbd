"""ministack: a second opinion beside LocalStack, with a closer SubscribeToShard.

It knows the 5-second rule, take-over and ChildShards, and answers at once. It also drops a parent
shard's records on a reshard and pads short sequence numbers: no test of completeness belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from devtools.installing import Recipe, python_of
from devtools.server import HOST, Server


class Ministack(Server):
    """ministack with Kinesis only. See `Server` for how it is started and who ends it."""

    recipe = Recipe(
        name="ministack",
        requirement="ministack==1.5.33",
        constraints=Path(__file__).resolve().parent / "constraints.txt",
    )

    def command(self, folder: Path) -> Sequence[str | Path]:
        return python_of(folder), "-m", "ministack"

    def environment(self, folder: Path) -> dict[str, str]:
        return {
            "BIND_HOST": HOST,
            "GATEWAY_PORT": str(self.port),
            "SERVICES": "kinesis",
            "LOG_LEVEL": "WARNING",
        }
