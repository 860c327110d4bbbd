"""LocalStack 4.9.2 without Docker: its Python runtime, and kinesis-mock for Kinesis on Node.

4.9.2 is the newest that runs unpatched on every Python that we support (see `startup` for 3.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from devtools.installing import Recipe, python_of
from devtools.server import BIND_LOCALHOST, HOST, Server

_HERE = Path(__file__).resolve().parent
_STARTUP = _HERE / "startup"
_KINESIS_MOCK = "0.5.2"

# In an installation, laid out as LocalStack's own image has it: kinesis-mock where LocalStack would
# download it to on first use, and the index of AWS operations, which takes 4 s to build.
_ROOT = Path("root")
_STATIC = _ROOT / "usr" / "lib" / "localstack"
_LIBRARIES = _ROOT / "var" / "lib" / "localstack" / "lib"
_MOCK = _LIBRARIES / "kinesis-local" / _KINESIS_MOCK


class LocalStack(Server):
    """LocalStack with Kinesis and STS. See `Server` for how it is started and who ends it."""

    recipe = Recipe(
        name="localstack",
        # The second is what STS stands on. LocalStack's extra for it brings ten times as much.
        requirement="localstack-core[base-runtime]==4.9.2 moto-ext==5.1.12.post22",
        constraints=_HERE / "constraints.txt",
        npm={_MOCK: f"kinesis-local@{_KINESIS_MOCK}"},
        finish=(
            *("sh", "-ec"),
            f"mkdir -p {_STATIC}; FILESYSTEM_ROOT=$PWD/{_ROOT} OVERRIDE_IN_DOCKER=0 "
            f"PYTHONPATH='{_STARTUP}' venv/bin/python -m localstack.aws.spec",
        ),
    )

    def prepare(self, folder: Path) -> None:
        """Give each server its own file system root, with what is installed linked into it."""
        for installed in (_STATIC, _LIBRARIES):
            link = self.scratch / installed
            link.parent.mkdir(parents=True)
            link.symlink_to(folder / installed)

    def command(self, folder: Path) -> Sequence[str | Path]:
        return python_of(folder), "-m", "localstack.runtime.main"

    def environment(self, folder: Path) -> dict[str, str]:
        address = f"{HOST}:{self.port}"
        return {
            "PYTHONPATH": str(_STARTUP),
            "FILESYSTEM_ROOT": str(self.scratch / _ROOT),
            "OVERRIDE_IN_DOCKER": "0",
            # Its default gateway binds every interface, whatever GATEWAY_LISTEN says.
            "GATEWAY_SERVER": "hypercorn",
            "GATEWAY_LISTEN": address,
            "LOCALSTACK_HOST": address,
            "SERVICES": "kinesis,sts",
            "EAGER_SERVICE_LOADING": "1",
            "STRICT_SERVICE_LOADING": "1",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "KINESIS_PERSISTENCE": "0",
            "KINESIS_SHARD_LIMIT": "1000",
            "KINESIS_LATENCY": "500",
            "KINESIS_MOCK_VERSION": _KINESIS_MOCK,
            "NODE_OPTIONS": BIND_LOCALHOST,
        }
