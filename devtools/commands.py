"""The command line of a server: `install`, `start`, `stop` and `run`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence

from devtools.installing import InstallError
from devtools.server import Server, ServerError

DEFAULT_PORT = 4566


def main(server: type[Server], argv: Sequence[str] | None = None) -> int:
    """Do what the command line says with this kind of server; return the exit status."""
    name = server.recipe.name
    parser = argparse.ArgumentParser(
        prog=f"python -m devtools.{name}", description=f"A local Kinesis ({name}) on 127.0.0.1."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser(
        "install", help="put it into .cache/; the other commands do so by themselves"
    )
    for action, text in {
        "run": "start it and stay until Ctrl-C",
        "start": "start it in the background",
        "stop": "end the one in the background",
    }.items():
        actions.add_parser(action, help=text).add_argument("--port", type=int, default=DEFAULT_PORT)
    options = parser.parse_args(argv)
    try:
        _do(server, options.action, getattr(options, "port", DEFAULT_PORT))
    except (InstallError, ServerError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    return 0


def _do(server: type[Server], action: str, port: int) -> None:
    match action:
        case "install":
            _say(str(server.recipe.install()))
        case "start":
            _say(server(port).start(detached=True).endpoint)
        case "stop":
            if not server.stop_detached(port):
                raise ServerError(f"no server of this checkout is running on port {port}")
        case "run":
            _run(server(port))


def _run(server: Server) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server:
            _say(f"{server.endpoint}  (Ctrl-C ends it)")
            subprocess.run(["tail", "-f", server.log], check=False)
    except KeyboardInterrupt:
        pass


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
