"""A double in fast time, and whatever reads from it; everything ends with the test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from kinesis_ds.aws import http1
from kinesis_ds.aws.http2 import connector
from kinesis_ds.testing import Fault, KinesisServer, ScaledClock, Settings
from tests.support.agents import STREAM, Agent
from tests.support.fast import SPEED, FastClock
from tests.support.micro_batches import AGENT_PROCESSES, MicroBatches
from tests.support.transports import TRANSPORTS, Transport, place_options


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Their time runs 20 times as fast as the machine's; on a slow one that leaves it little."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker(
            "timeout"
        ):
            item.add_marker(pytest.mark.timeout(240))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every story in which something may subscribe over both versions of HTTP.

    The second time is ``long``, unless the story is marked with ``each_transport``. A module of
    stories about one of them says so in ``TRANSPORTS``.
    """
    if "transport" not in metafunc.fixturenames or "polling" in metafunc.module.__name__:
        return
    first, *others = getattr(metafunc.module, "TRANSPORTS", TRANSPORTS)
    often = metafunc.definition.get_closest_marker("each_transport")
    marks = () if often else (pytest.mark.long,)
    chosen = [first, *(pytest.param(other, marks=marks) for other in others)]
    metafunc.parametrize("transport", chosen, indirect=True)


class Serve(Protocol):
    def __call__(
        self, settings: Settings | None = None, *faults: Fault, shards: int = 1
    ) -> KinesisServer: ...


class StartAgent(Protocol):
    def __call__(self, kinesis: KinesisServer, **options: Any) -> Agent: ...


class StartQuery(Protocol):
    def __call__(self, kinesis: KinesisServer, **options: str) -> MicroBatches: ...


@pytest.fixture
def ending() -> Iterator[contextlib.ExitStack]:
    """What was entered or given to it last ends first."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> Transport:
    """How subscriptions travel."""
    chosen: Transport = getattr(request, "param", TRANSPORTS[0])
    return chosen


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of doubles. One file for all: Spark's workers keep the name of the first."""
    return tmp_path_factory.mktemp("trusted") / "bundle.pem"


@pytest.fixture
def clock() -> ScaledClock:
    """The double's clock, in time ``SPEED`` times as fast."""
    return FastClock() if AGENT_PROCESSES == "1" else ScaledClock(SPEED)


@pytest.fixture
def serve(
    ending: contextlib.ExitStack,
    clock: ScaledClock,
    transport: Transport,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Serve:
    """A double with a stream ``orders``, in the time of ``clock``."""

    def serve(settings: Settings | None = None, *faults: Fault, shards: int = 1) -> KinesisServer:
        # A connection is made in the machine's own time.
        monkeypatch.setattr(http1, "CONNECT_TIMEOUT_S", 10 * SPEED)
        monkeypatch.setattr(connector, "_CONNECT_TIMEOUT_S", 10 * SPEED)
        monkeypatch.setattr(connector, "_ASK_PYTHON_AFTER_S", 2 * SPEED)
        tls = transport == "http2"
        kinesis = KinesisServer(settings, clock=clock, faults=faults, tls=tls)
        ending.enter_context(kinesis)
        if tls:
            with bundle.open("ab") as trusted:
                trusted.write(kinesis.ca_file.read_bytes())
            monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        kinesis.create_stream(STREAM, shards)
        return kinesis

    return serve


@pytest.fixture
def kinesis(serve: Serve) -> KinesisServer:
    """A double with a stream ``orders`` of one shard."""
    return serve()


@pytest.fixture
def start_agent(ending: contextlib.ExitStack) -> StartAgent:
    """Starts agents that are closed before the double is."""

    def start(kinesis: KinesisServer, **options: Any) -> Agent:
        agent = Agent(kinesis, **options)
        ending.callback(agent.close)
        return agent

    return start


@pytest.fixture
def agent(kinesis: KinesisServer, start_agent: StartAgent) -> Agent:
    """An agent for ``kinesis``; it reads once it is told which shards."""
    return start_agent(kinesis)


@pytest.fixture
def start_query(ending: contextlib.ExitStack, tmp_path: Path) -> StartQuery:
    """Starts sources driven as Spark drives them, over one checkpoint."""

    def start(kinesis: KinesisServer, **options: str) -> MicroBatches:
        query = MicroBatches(
            {**kinesis.options(STREAM), **place_options(kinesis), **options},
            tmp_path,
            kinesis.clock,
        )
        ending.callback(query.close)
        return query

    return start
