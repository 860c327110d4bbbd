"""Makes ``format("kinesis")`` work without a ``register`` call.

PySpark imports every installed top-level package whose name starts with ``pyspark_`` and registers
its ``DefaultSource``. This package exists for that rule and holds nothing else.
"""

from kinesis_ds.datasource import KinesisDataSource as DefaultSource

__all__ = ["DefaultSource"]
