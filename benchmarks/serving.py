"""Run the double in a process of its own, for benchmarks that measure its client."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

_STOP_S = 10.0


@dataclass(frozen=True)
class Served:
    """The addresses of a double.

    Attributes:
        endpoint, tls_endpoint: Its URLs; the second is empty unless it was started with TLS.
        ca_file: The certificate to trust there, for ``AWS_CA_BUNDLE``.
        pid: Its process.
    """

    endpoint: str
    tls_endpoint: str
    ca_file: str
    pid: int

    def options(
        self, stream: str, transport: str = "http1", *, tls: bool = False
    ) -> dict[str, str]:
        """Return the options of a source that reads a stream here; the certificate is not one."""
        return {
            "streamName": stream,
            "endpoint": self.tls_endpoint if tls else self.endpoint,
            "region": "us-east-1",
            "awsAccessKey": "test",
            "awsSecretKey": "test",
            "transport": transport,
        }


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[Served]:
    """``python -m kinesis_ds.testing`` with these arguments, on ports of its own. It ends with this
    process, however that ends.

    Raises:
        RuntimeError: It did not start.
    """
    command = [sys.executable, "-m", "kinesis_ds.testing", "--port", "0", "--while-fed", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        else:
            raise RuntimeError(f"the double did not start: {said}")
        yield Served(
            _found(r"(http://\S+)", said),
            _found(r"(https://\S+)", said),
            _found(r"AWS_CA_BUNDLE=([^)]+)", said),
            process.pid,
        )
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""
