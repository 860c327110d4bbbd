"""The environment of every test that starts processes: no real account can be reached."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import pytest

from devtools.server import REGION


@contextlib.contextmanager
def local_environment() -> Iterator[None]:
    """Set credentials without meaning, for this process and every process that it starts.

    One JVM serves many tests, and its Python workers keep the environment in which it was started.
    So it must not matter which test comes first.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        # Spark starts its Python workers as `python3`, whatever that is, unless told.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield
