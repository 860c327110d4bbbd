"""``python -m kinesis_ds.agent``: an agent process. Sources start it, people do not.

Its standard input is one end of a socket pair; nobody but the parent holds the other.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from kinesis_ds.agent.remote.host import run


def connection() -> socket.socket:
    """The parent's connection, taken away from standard input so that nothing else reads it.

    Raises:
        OSError: Standard input is no socket.
    """
    found = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Ctrl-C reaches all processes of a terminal. The parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return found


def main() -> int:
    """The program."""
    try:
        parent = connection()
    except OSError:
        sys.stderr.write("kinesis_ds.agent is started by a source with agentProcesses > 1.\n")
        return 2
    return run(parent)


if __name__ == "__main__":
    sys.exit(main())
