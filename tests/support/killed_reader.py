"""``python -m tests.support.killed_reader '<JSON>'``: a source with agent processes, to be killed.

It reads as many records as it is told, prints the ids of its agent processes, and then waits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kinesis_ds.testing import ScaledClock
from tests.support.fast import SPEED
from tests.support.micro_batches import MicroBatches


def main() -> None:
    """Run the program."""
    told = json.loads(sys.argv[1])
    query = MicroBatches(told["options"], Path(told["folder"]), ScaledClock(SPEED))
    query.read_until(told["records"])
    pids = [process["pid"] for process in query.coordinator.statistics()["processes"]]
    sys.stdout.write(json.dumps(pids) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
