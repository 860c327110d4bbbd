"""Agent processes in fast time: how a test starts them, and the program they run.

``python -m tests.support.fast_agent <wall> <monotonic>`` is such a process, with a clock that
showed ``wall`` when the machine's monotonic one did ``monotonic``, so that it agrees with the
double's.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING

from kinesis_ds.agent.__main__ import connection
from kinesis_ds.agent.remote.child import Patience
from kinesis_ds.agent.remote.host import run
from kinesis_ds.agent.remote.processes import AgentProcesses
from kinesis_ds.testing import ScaledClock
from tests.support.fast import SPEED, fast_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_ds.clock import Clock

# These are counted by a fast loop, and the processes live in the machine's time.
PATIENCE = Patience(answer_s=60 * SPEED, stop_s=8 * SPEED)


def fast_processes(clock: Clock, patience: Patience = PATIENCE) -> Callable[..., AgentProcesses]:
    """Return what a coordinator starts as agent processes, for a double with this clock."""
    agrees = (str(clock.wall()), str(time.monotonic()))
    command = (sys.executable, "-m", "tests.support.fast_agent", *agrees)
    return functools.partial(AgentProcesses, command=command, patience=patience)


def main() -> int:
    """Run the agent process."""
    wall, monotonic = map(float, sys.argv[1:])
    clock = ScaledClock(SPEED)
    showing = wall + (time.monotonic() - monotonic) * SPEED
    clock.advance(max(0.0, showing - clock.wall()))
    return run(connection(), fast_network, clock)


if __name__ == "__main__":
    sys.exit(main())
