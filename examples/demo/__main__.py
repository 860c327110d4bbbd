"""The command line of the demo: `python -m examples.demo --help`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from devtools.installing import InstallError
from devtools.server import ServerError
from examples.demo.conductor import DemoError, run
from examples.demo.jobs import JobError
from examples.demo.report import summary
from examples.demo.settings import Settings
from examples.demo.stream import StreamError

_INTERRUPTED = 130


def main() -> int:
    """Run the demo; 0 when nothing was lost, duplicated or out of order."""
    arguments = _parse()
    settings = _settings(arguments)
    report_file: Path = arguments.report
    console = Console(highlight=False)
    # What lies there is of another run, and must not be taken for this one's.
    report_file.unlink(missing_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        report = run(settings)
    except KeyboardInterrupt:
        console.print(
            f"Interrupted; everything is stopped. Logs: {settings.folder}", soft_wrap=True
        )
        return _INTERRUPTED
    except (DemoError, JobError, StreamError, ServerError, InstallError) as error:
        console.print(Text("FAILED: ", style="bold red") + Text(str(error)), soft_wrap=True)
        console.print(f"Logs: {settings.folder}", soft_wrap=True)
        return 1
    report_file.write_text(json.dumps(report, indent=2) + "\n")
    first, *rest = summary(report)
    console.print(
        Text(first, style="bold green" if report["passed"] else "bold red"), soft_wrap=True
    )
    for line in rest:
        console.print(line)
    console.print(f"Report: {report_file}", soft_wrap=True)
    return 0 if report["passed"] else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Write events into Kinesis with Spark and read them back, through a SIGKILL "
        "of the reading job and two reshards of the stream, and count what arrived. Without "
        "--endpoint and --aws a local Kinesis is started for the run.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--endpoint", metavar="URL", help="a Kinesis-compatible server to use")
    where.add_argument(
        "--aws", action="store_true", help="use AWS, with your credentials and at your cost"
    )
    parser.add_argument("--region", help="by default that of your AWS configuration")
    parser.add_argument(
        "--records", type=_positive, help="events to write (default: rate x seconds)"
    )
    parser.add_argument("--rate", type=_positive, default=200, help="events a second (200)")
    parser.add_argument("--seconds", type=_positive, default=60, help="how long to write (60)")
    parser.add_argument("--shards", type=_positive, default=4, help="of the stream at first (4)")
    parser.add_argument("--stream", metavar="NAME", help="name of the stream that is made")
    parser.add_argument("--keep", action="store_true", help="do not delete the stream at the end")
    parser.add_argument("--report", metavar="PATH", type=Path, default=Path("demo-report.json"))
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        endpoint=arguments.endpoint,
        region=arguments.region,
        aws=arguments.aws,
        records=arguments.records or arguments.rate * arguments.seconds,
        rate=arguments.rate,
        shards=arguments.shards,
        stream=arguments.stream or f"kinesis-ds-demo-{time.strftime('%H%M%S')}-{os.getpid()}",
        keep=arguments.keep,
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
