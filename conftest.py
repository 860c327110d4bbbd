"""How the tests share the workers of a run in parallel: `pytest -n 4`, as `make test` does.

A worker takes one group of tests after the other, in the order that is made here. Without `-n`
nothing here changes anything but the environment, which is the same then.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import examples  # noqa: F401  # how many Hypothesis draws
from tests.support.environment import local_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What runs in the shared session of Spark is in one worker: a JVM is slow until it has run a while.
_JVM = (
    "tests/spark/",
    "examples/",
    "integration/test_back_pressure.py",
    "integration/test_bad_input.py",
    "integration/test_batch_read.py",
    "integration/test_ministack.py",
    "integration/test_moved_jobs.py",
    "integration/test_resharding.py",
    "integration/test_roles.py",
    "integration/test_smoke.py",
    "integration/test_stopping.py",
    "integration/test_writer.py",
)
# Groups by the place of their tests; the first line that fits counts. In the order in which they
# are taken: what takes long comes first, so that no worker is left with it in the end.
_GROUPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (_JVM, "jvm"),
    # Jobs with a JVM of their own, one after the other: several are more than two cores take.
    (("integration/test_",), "jobs"),
    # Each needs nothing of another.
    (("integration/chaos/",), "alone"),
    # A server is started once, by the worker that takes its tests.
    (("integration/contract/",), "target"),
    (("tests/unit/project/test_benchmarks.py",), "alone"),
    (("tests/source/test_memory_while_downstream_stands_still.py",), "alone"),
    (("tests/source/test_replay_is_deterministic.py",), "alone"),
    (("tests/fault/reader/test_agent_processes.py",), "alone"),
    (("tests/fault/writer/",), "alone"),
    (("tests/fault/", "tests/source/"), "alone"),
    (("tests/property/",), "file"),
    (("",), "file"),
)
_TARGET = re.compile(r"[\[-](double|localstack|ministack|kinesis-local|aws)[\]-]")
# How much longer than alone a test may take where workers share the cores: it only ends what hangs.
_PATIENCE = 3


def _place(nodeid: str) -> tuple[int, str]:
    """When a test's turn is, and its group."""
    turn, kind = next(
        (turn, kind) for turn, (places, kind) in enumerate(_GROUPS) if nodeid.startswith(places)
    )
    file, _, name = nodeid.partition("::")
    if kind == "alone":
        return turn, nodeid
    if kind == "file":
        return turn, file
    if kind == "target" and (target := _TARGET.search(name)):
        return turn, target[1]
    return turn, kind


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """A real account is out of reach, of all that the tests start too, whichever comes first."""
    with local_environment():
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Share one session of Spark among all tests: two tasks at a time, three tries each."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # most tests do without

    session = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        # It lives for minutes: compiling less is a third less work.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out the groups, unless another way is asked for."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415  # with `-n` only

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _place(nodeid)[1]

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """In a worker: put the groups in order, and be patient."""
    yield
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: _place(item.nodeid)[0])
    for item in items:
        if "spark" in item.fixturenames and _place(item.nodeid)[1] != "jvm":
            raise pytest.UsageError(f"{item.nodeid} needs a session of Spark: see {__file__}")
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(_PATIENCE * seconds), append=False)
