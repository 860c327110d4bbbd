"""``python -m kinesis_ds.diagnostics``: the older name of
``python -m kinesis_ds.observe``, kept for scripts.
"""

from __future__ import annotations

import sys

from kinesis_ds.observe.table import main

if __name__ == "__main__":
    sys.exit(main())
