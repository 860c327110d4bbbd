"""kinesis-local (kinesis-mock) 0.6.2 alone: newer than the one that LocalStack has inside.

A third opinion on writing, polling and resharding. Its SubscribeToShard cannot be read by boto3 or
aiobotocore, so no test of enhanced fan-out belongs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from devtools.installing import Recipe
from devtools.server import BIND_LOCALHOST, Server

_NODE = Path("node")
_PROGRAM = _NODE / "node_modules" / "kinesis-local"


class KinesisLocal(Server):
    """kinesis-local on Node. See `Server` for how it is started and who ends it."""

    recipe = Recipe(name="kinesis_local", npm={_NODE: "kinesis-local@0.6.2"})

    def command(self, folder: Path) -> Sequence[str | Path]:
        return "node", folder / _PROGRAM / "main.js"

    def environment(self, folder: Path) -> dict[str, str]:
        return {
            "KINESIS_MOCK_PLAIN_PORT": str(self.port),
            "KINESIS_MOCK_TLS_PORT": "0",  # it cannot be switched off, and nobody calls it
            "KINESIS_MOCK_CERT_PATH": str(folder / _PROGRAM / "server.json"),
            "SHARD_LIMIT": "1000",
            "LOG_LEVEL": "WARN",
            "NODE_OPTIONS": BIND_LOCALHOST,
        }
