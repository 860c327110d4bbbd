"""``python -m kinesis_ds.agent``: an agent process. A source starts it; nobody needs to by hand.

Its standard input is one end of a socket pair; nobody but the parent holds the other end.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from kinesis_ds.agent.remote.host import run


def connection() -> socket.socket:
    """Take the connection to the parent away from standard input, so that nothing else reads it.

    Raises:
        OSError: Standard input is not a socket.
    """
    found = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Ctrl-C reaches all processes of a terminal. The parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return found


def main() -> int:
    """Run the agent process and return its exit status."""
    try:
        parent = connection()
    except OSError:
        sys.stderr.write("kinesis_ds.agent is started by a source with agentProcesses > 1.\n")
        return 2
    return run(parent)


if __name__ == "__main__":
    sys.exit(main())
