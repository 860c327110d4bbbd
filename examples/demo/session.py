"""What both jobs of the demo need around their query: a small Spark, and an end to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_PR_SET_PDEATHSIG = 1


def die_with(conductor: int) -> None:
    """Have this process killed when the conductor dies, however it dies. On Linux only.

    The JVM ends when this process, which started it, is gone, and its Python workers end with it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != conductor:
            os._exit(1)


def small_spark(name: str, folder: str) -> SparkSession:
    """A Spark for two cores that the demo's jobs and the local Kinesis share."""
    scratch = Path(folder) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        # Two JVMs that live for two minutes: compiling less is faster here.
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
        )
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class StopSignal:
    """SIGTERM as something to wait for, so that a query can be stopped in good order."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self._asked.set())

    @property
    def asked(self) -> bool:
        return self._asked.is_set()


def wait(query: StreamingQuery, seconds: float) -> None:
    """Let the query run on; raise what it failed of."""
    # Its stub says int; it takes fractions.
    if query.awaitTermination(seconds):  # type: ignore[arg-type]
        raise RuntimeError("the query ended by itself")
