"""``python -m kinesis_ds.observe DIRECTORY``: show the counters of running queries as a table."""

from __future__ import annotations

import sys

from kinesis_ds.observe.table import main

if __name__ == "__main__":
    sys.exit(main())
