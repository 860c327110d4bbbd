"""A moment that has passed by the service's clock, and what it is good for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_ds.aws import service_clock
from kinesis_ds.aws.service_clock import SETTLED_AFTER_S, passed_second, wait_until_passed
from kinesis_ds.errors import AccessError, KinesisConnectorError, ThrottledError, TransientError
from kinesis_ds.plan.stream import StreamId, StreamInfo
from tests.support.virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

STREAM = StreamId("orders")
BEGAN = 1_700_000_000.4


class Service:
    """Stands for the service: tells whole seconds of its clock, as it does in its Date header.

    Args:
        ahead_s: How far its clock is ahead of the host's.
        speed: How fast it goes.
        tells: Whether it tells the time.
    """

    endpoint_label = "endpoint http://here"

    def __init__(self, ahead_s: float = 0.0, speed: float = 1.0, *, tells: bool = True) -> None:
        self.ahead_s = ahead_s
        self.speed = speed
        self.tells = tells
        self.failures: list[KinesisConnectorError] = []
        self.calls = 0

    def now(self) -> float:
        return BEGAN + self.ahead_s + asyncio.get_running_loop().time() * self.speed

    async def describe(self, connection: Any, stream: StreamId) -> StreamInfo:
        assert (connection, stream) == (self, STREAM)
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        told = float(int(self.now())) if self.tells else None
        return StreamInfo("orders", "arn", 0, "ACTIVE", told)


class HostClock:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return BEGAN + self.monotonic()


def run(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Any, StreamId, Any], Any] = passed_second,
) -> tuple[Any, float, float]:
    """What came back, and the service's time before and after."""
    monkeypatch.setattr(service_clock, "describe_stream", service.describe)

    async def go() -> tuple[Any, float, float]:
        before = service.now()
        return await work(service, STREAM, HostClock()), before, service.now()

    return run_in_virtual_time(go())


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0, -3600.0, 0.59, 0.61])
def test_a_passed_second_lies_between_the_call_and_its_return(
    ahead_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the service's clock, wherever the host's stands (F20): all that was there before is
    earlier, and what is written from now on is later. It takes no more than two seconds.
    """
    service = Service(ahead_s)
    passed_ms, before, after = run(service, monkeypatch)

    assert passed_ms % 1000 == 0
    assert before * 1000 < passed_ms <= (after - SETTLED_AFTER_S) * 1000
    assert after - before < 2.5
    assert service.calls < 12


def test_a_server_that_tells_no_time_is_taken_to_share_the_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As local servers do."""
    passed_ms, before, after = run(Service(tells=False), monkeypatch)

    assert before * 1000 < passed_ms <= (after - SETTLED_AFTER_S) * 1000


def test_throttling_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others describe streams, too."""
    service = Service()

    async def throttled(connection: Any, stream: StreamId, clock: Any) -> None:
        service.failures = [ThrottledError("slow down")] * 5
        await wait_until_passed(connection, stream, clock, int(BEGAN * 1000))

    _, before, after = run(service, monkeypatch, throttled)
    assert after >= before + SETTLED_AFTER_S


@pytest.mark.parametrize("error", [AccessError("no"), ThrottledError("slow down")])
def test_what_does_not_pass_is_told(
    error: KinesisConnectorError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal at once, throttling after half a minute."""
    service = Service()

    async def failing(connection: Any, stream: StreamId, clock: Any) -> None:
        service.failures = [error] * 1000
        await wait_until_passed(connection, stream, clock, int(BEGAN * 1000))

    with pytest.raises(type(error)):
        run(service, monkeypatch, failing)
    assert service.calls == 1 or error.retryable


def test_a_clock_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache answers for Kinesis: nothing is planned on the strength of that."""
    with pytest.raises(TransientError, match="endpoint http://here did not come to 17000000"):
        run(Service(speed=0.0), monkeypatch)


def test_a_moment_long_ago_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question, and no wait."""
    service = Service()

    async def yesterday(connection: Any, stream: StreamId, clock: Any) -> None:
        await wait_until_passed(connection, stream, clock, int((BEGAN - 86_400) * 1000))

    _, before, after = run(service, monkeypatch, yesterday)
    assert service.calls == 1
    assert after - before < 0.1
