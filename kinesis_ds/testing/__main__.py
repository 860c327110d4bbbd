"""``python -m kinesis_ds.testing``: run the double until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from kinesis_ds.testing.clock import ScaledClock
from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.faults import load_faults
from kinesis_ds.testing.host import LOOPBACK
from kinesis_ds.testing.replay import Replay
from kinesis_ds.testing.server import KinesisServer
from kinesis_ds.testing.settings import Settings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kinesis_ds.testing",
        description="A Kinesis on this machine with the service's rules and limits. It keeps "
        "its records in memory only.",
    )
    parser.add_argument(
        "--port", type=int, default=4568, help="port of HTTP/1.1 (default: %(default)s)"
    )
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help="IP address to listen on: one of loopback, or of this process's own network namespace "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--exposed",
        action="store_true",
        help="allow a --host that other machines may reach; anybody who does can read and write "
        "its streams",
    )
    parser.add_argument(
        "--tls", action="store_true", help="also serve HTTP/2 and HTTP/1.1 with TLS"
    )
    parser.add_argument(
        "--stream",
        action="append",
        default=[],
        type=_name_and_shards,
        metavar="NAME[:SHARDS]",
        help="create this stream; may be given several times",
    )
    parser.add_argument(
        "--replay",
        action="append",
        default=[],
        metavar="NAME:SHARDS:MEGABYTES:RECORD_BYTES",
        help="create a stream whose shards each send so many MB of records of this size, encoded "
        "beforehand, as fast as they are taken (for benchmarks)",
    )
    parser.add_argument(
        "--swallow",
        action="append",
        default=[],
        type=_name_and_shards,
        metavar="NAME[:SHARDS]",
        help="create a stream that acknowledges what is put into it as fast as it comes, and keeps "
        "nothing (for benchmarks)",
    )
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        help="let its time pass so many times as fast (60: subscriptions end after 5 s)",
    )
    parser.add_argument("--no-limits", action="store_true", help="limit no rates")
    parser.add_argument(
        "--while-fed",
        action="store_true",
        help="end with the standard input too, and so with whoever holds its other end",
    )
    parser.add_argument(
        "--faults", type=Path, metavar="FILE", help="JSON list of the faults that are to strike"
    )
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    faults = load_faults(arguments.faults.read_bytes()) if arguments.faults else []
    settings = Settings(enforce_limits=not arguments.no_limits)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = KinesisServer(
            settings,
            clock=ScaledClock(arguments.speed),
            faults=faults,
            port=arguments.port,
            tls=arguments.tls,
            host=arguments.host,
            exposed=arguments.exposed,
        ).start()
    except ValueError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    except OSError as exc:
        sys.stderr.write(f"port {arguments.port} at {arguments.host} cannot be had: {exc}\n")
        return 1
    try:
        _say(f"Kinesis at {server.endpoint} (region {settings.region}; any credentials)")
        if arguments.tls:
            _say(f"       and {server.tls_endpoint} (AWS_CA_BUNDLE={server.ca_file})")
        for name, shards in arguments.stream:
            server.create_stream(name, shards)
            _say(f"stream {name}: {len(server.open_shards(name))} shards")
        for name, shards in arguments.swallow:
            server.create_stream(name, shards)
            server.swallow(name)
            _say(f"stream {name}: {shards} shards that keep nothing, at wire speed")
        for wanted in arguments.replay:
            name, shards, megabytes, record_bytes = wanted.split(":")
            server.create_stream(name, int(shards))
            server.replay(name, replay := _replay(float(megabytes), int(record_bytes)))
            _say(f"stream {name}: {shards} shards, {replay.records} records each, at wire speed")
        _say("Ctrl-C ends it.")
        if arguments.while_fed:
            threading.Thread(target=_until_input_ends, args=(stop,), daemon=True).start()
        stop.wait()
        _say("")
        for (operation, outcome), count in sorted(
            Counter((call.target.operation, call.outcome) for call in server.calls).items()
        ):
            _say(f"{count:8d}  {operation}  {outcome}")
    except ServiceError as exc:  # of what it was asked to create
        sys.stderr.write(f"stream {name}: {exc}\n")
        return 1
    finally:
        server.stop()
    return 0


def _name_and_shards(text: str) -> tuple[str, int]:
    name, _, shards = text.partition(":")
    try:
        return name, int(shards or 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[:SHARDS]") from None


def _until_input_ends(stop: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop.set()


def _replay(megabytes: float, record_bytes: int) -> Replay:
    """Return events of about 256 KB, or of one record if that is larger."""
    records = max(1, min(10_000, 256_000 // max(1, record_bytes)))
    events = max(1, round(megabytes * 1_000_000 / (records * max(1, record_bytes))))
    return Replay.of(events, records, record_bytes)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
