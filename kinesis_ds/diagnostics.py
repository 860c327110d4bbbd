"""``python -m kinesis_ds.diagnostics``: the old name of ``python -m kinesis_ds.observe``."""

from __future__ import annotations

import sys

from kinesis_ds.observe.table import main

if __name__ == "__main__":
    sys.exit(main())
