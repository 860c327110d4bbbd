"""Runs each test on each target, with what is known to be different there marked so.

A server that cannot start fails its tests; it never skips them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import ProtocolError

from devtools.waiting import NotInTimeError
from integration.contract import targets
from integration.contract.differences import DIFFERENCES, reason
from integration.contract.stream import Stream
from integration.contract.subscription import EndedError
from integration.contract.targets import Target
from kinesis_ds.testing import KinesisServer, ManualClock, Settings

MakeStream = Callable[..., Stream]

# Longer than this on a real server is a soak; longer than that nobody waits for.
_SOAK_FROM_S = 10
_NEVER_FROM_S = 3600

# What a difference can look like. Anything else, such as a server that is gone, is a failure.
_SIGNS_OF_A_DIFFERENCE = (
    AssertionError,
    pytest.fail.Exception,
    ClientError,
    EndedError,
    KeyError,  # an answer without a member that it should have
    NotInTimeError,
    ProtocolError,
    ResponseParserError,
    ValueError,  # more or fewer shards than there should be
)

# The double and LocalStack are held to all of it in every run. The two servers that give a second
# opinion are held to these files, ministack to what other tests rely on it for; the rest is `long`.
_SHORT = {
    "ministack": {"test_routing", "test_errors", "test_writing", "test_subscriptions"},
    "kinesis-local": {"test_routing", "test_errors"},
}

# Made before the fixture that puts real credentials out of reach.
_AWS = targets.client() if "aws" in targets.names() else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of the contract runs on every target."""
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", targets.names(), indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)  # before the markers select what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long on a real server, and what is different there."""
    different = {(test, row.server): row for row in DIFFERENCES for test in row.tests}
    for item in items:
        if not item.path.is_relative_to(os.path.dirname(__file__)):
            continue
        assert isinstance(item, pytest.Function)
        target = item.callspec.params["target"]
        _mark_slow(item, target)
        if target in _SHORT and item.path.stem not in _SHORT[target]:
            item.add_marker(pytest.mark.long)
        test = f"{item.path.stem}::{_name_without_target(item, target)}"
        if row := different.get((test, target)):
            item.add_marker(
                pytest.mark.xfail(
                    reason=reason(row),
                    strict=row.run,
                    run=row.run,
                    raises=_SIGNS_OF_A_DIFFERENCE,
                )
            )


def _name_without_target(item: pytest.Function, target: str) -> str:
    values = [v for v in item.callspec._idlist if v != target]
    return item.originalname + (f"[{'-'.join(values)}]" if values else "")


def _mark_slow(item: pytest.Function, target: str) -> None:
    marker = item.get_closest_marker("takes")
    if target == "double":
        return
    if marker is None:
        item.add_marker(pytest.mark.timeout(120))
        return
    (seconds,) = marker.args
    if seconds >= _NEVER_FROM_S:
        item.add_marker(
            pytest.mark.skip(reason=f"needs {seconds / 3600:.0f} h of the server's time to pass")
        )
    elif seconds > _SOAK_FROM_S:
        item.add_marker(pytest.mark.soak)
        item.add_marker(pytest.mark.timeout(seconds + 120))


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """The Kinesis of this test, started with the first test that needs it."""
    match request.param:
        case "aws":
            yield Target("aws", _AWS, patience_s=30, limited=True)
        case "double":
            clock = ManualClock()
            # A second for what has to be seen, since a call moves the clock by up to 0.2 s.
            settings = Settings(stream_ready_s=1.5, consumer_ready_s=1.5)
            with KinesisServer(clock=clock, settings=settings) as server:
                yield Target(
                    request.param,
                    targets.client(server.endpoint),
                    pass_time=clock.advance,
                    now=clock.monotonic,
                    moves_time=True,
                    patience_s=10,
                    limited=True,
                )
        case name:
            server = request.getfixturevalue(name.replace("-", "_"))
            yield Target(name, targets.client(server.endpoint))


@pytest.fixture
def make_stream(target: Target) -> Iterator[MakeStream]:
    """Make streams that live as long as the test: `make_stream(shards=4)`."""
    with contextlib.ExitStack() as streams:
        yield lambda shards=1: streams.enter_context(target.stream(shards))


@pytest.fixture
def stream(make_stream: MakeStream) -> Stream:
    """A stream with one shard, for this test alone."""
    return make_stream()
