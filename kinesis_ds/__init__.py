"""Spark DataSource V2 connector for Amazon Kinesis Data Streams, in pure Python.

``spark.readStream.format("kinesis")`` reads by enhanced fan-out,
``df.writeStream.format("kinesis")`` writes through a bounded in-flight queue, and both keep shard
sequence numbers in Spark's own checkpoints. Importing this package imports neither PySpark nor the
AWS clients.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import (
    AccessError,
    AgentError,
    ConsumerError,
    DataLossError,
    InternalError,
    KinesisConnectorError,
    OffsetError,
    OptionError,
    ProtocolError,
    SchemaError,
    StreamNotFoundError,
    StreamRecreatedError,
    ThrottledError,
    TransientError,
    WriteError,
)

if TYPE_CHECKING:
    from kinesis_ds.datasource import KinesisDataSource
    from kinesis_ds.observe.listener import ShardTableListener
    from kinesis_ds.repeats import drop_repeats

__all__ = [
    "AccessError",
    "AgentError",
    "ConsumerError",
    "DataLossError",
    "InternalError",
    "KinesisConnectorError",
    "KinesisDataSource",
    "OffsetError",
    "OptionError",
    "ProtocolError",
    "SchemaError",
    "ShardTableListener",
    "StreamNotFoundError",
    "StreamRecreatedError",
    "ThrottledError",
    "TransientError",
    "WriteError",
    "drop_repeats",
]


# What imports PySpark is imported only when it is asked for.
_LAZY = {
    "KinesisDataSource": "kinesis_ds.datasource",
    "ShardTableListener": "kinesis_ds.observe.listener",
    "drop_repeats": "kinesis_ds.repeats",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # seldom asked for

        return version("kinesis_ds")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
