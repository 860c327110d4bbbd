"""Credentials expire and a query does not: they are renewed while it runs, and what stands in the
way of that is told apart (F45).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kinesis_ds.errors import AccessError, KinesisConnectorError
from kinesis_ds.reader.coordinator import Coordinator
from kinesis_ds.testing import KinesisServer
from tests.fault.conftest import StartQuery
from tests.support.agents import STREAM, numbered
from tests.support.fast import SPEED
from tests.support.micro_batches import MicroBatches, read_rows
from tests.support.polling import eventually
from tests.support.sinks import Sink, rows
from tests.support.sts import StsDouble
from tests.support.transports import place_options

pytestmark = pytest.mark.fault

ROLE = "arn:aws:iam::123456789012:role/reader"
EXPIRED = "ExpiredTokenException"
# Of the machine's time; of the double's and the connector's it is half a minute.
LIFE_S = 1.5


@pytest.fixture
def sts(kinesis: KinesisServer) -> Iterator[StsDouble]:
    """An STS whose credentials do not live long, and are refused by the double then."""
    with StsDouble(kinesis) as sts:
        sts.life_s = LIFE_S
        yield sts


def as_role(sts: StsDouble) -> dict[str, str]:
    """Options of a query that asks often enough to notice."""
    return {"roleArn": ROLE, "stsEndpoint": sts.endpoint}


def outlive(query: MicroBatches, kinesis: KinesisServer, sts: StsDouble, keys: int) -> list[str]:
    """Read, and go on reading until calls were signed with so many keys; those keys."""

    def used() -> list[str]:
        return [k for k in dict.fromkeys(c.access_key for c in kinesis.calls) if k in sts.issued]

    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    query.run_until(lambda: len(used()) >= keys, f"{keys} keys")
    kinesis.put(STREAM, *numbered(4, 6))
    assert query.read_until(6) == numbered(1, 6)
    return used()


def outcomes(kinesis: KinesisServer) -> set[str]:
    return {call.outcome for call in kinesis.calls}


@pytest.mark.each_transport
def test_a_query_outlives_the_credentials_of_its_role(
    kinesis: KinesisServer, sts: StsDouble, start_query: StartQuery
) -> None:
    """F45: none of its calls is ever signed with what has expired, and STS is asked once a life."""
    query = start_query(kinesis, **as_role(sts), shardFetchInterval="1s")
    keys = outlive(query, kinesis, sts, 4)

    assert EXPIRED not in outcomes(kinesis)
    assert keys == sts.issued[: len(keys)]
    assert len(sts.asked) <= len(keys) + 1
    query.close()


def test_a_query_outlives_the_credentials_of_its_container(
    kinesis: KinesisServer,
    sts: StsDouble,
    start_query: StartQuery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F45: what the AWS credential chain finds is renewed by it, for every kind of call."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{sts.endpoint}/credentials")
    kinesis.put(STREAM, *numbered(1, 3))
    options = {k: v for k, v in kinesis.options(STREAM).items() if not k.startswith("aws")}
    options |= place_options(kinesis)
    query = start_query(_WithOptions(kinesis, options), shardFetchInterval="1s")  # type: ignore[arg-type]
    query.read_until(3)
    first = kinesis.calls.calls()[0].access_key
    ends = kinesis.clock.wall() + SPEED * LIFE_S
    query.run_until(lambda: kinesis.clock.wall() > ends, "the end of the first key")
    kinesis.put(STREAM, *numbered(4, 6))

    assert query.read_until(6) == numbered(1, 6)
    assert EXPIRED not in outcomes(kinesis)
    assert first in sts.issued
    assert kinesis.calls.calls()[-1].access_key != first


class _WithOptions:
    """The double, reached by other options than its own."""

    def __init__(self, kinesis: KinesisServer, options: dict[str, str]) -> None:
        self.clock = kinesis.clock
        self._options = options

    def options(self, stream: str) -> dict[str, str]:
        del stream
        return self._options


def test_an_sts_that_is_down_for_longer_than_a_life_is_waited_for(
    kinesis: KinesisServer, sts: StsDouble, start_query: StartQuery
) -> None:
    """F45: without good credentials nothing is sent; the query goes on when there are some."""
    query = start_query(kinesis, **as_role(sts), shardFetchInterval="1s")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    sts.refusal = (503, "ServiceUnavailable", "")
    asked = len(sts.asked)
    query.run_until(lambda: len(sts.asked) > asked + 3, "STS asked in vain")
    sent = len(kinesis.calls)
    query.run_until(lambda: len(sts.asked) > asked + 6, "STS asked in vain")
    assert len(kinesis.calls) == sent
    kinesis.put(STREAM, *numbered(4, 6))
    sts.refusal = None

    assert query.read_until(6) == numbered(1, 6)
    assert EXPIRED not in outcomes(kinesis)


def fail(query: MicroBatches) -> KinesisConnectorError:
    """Run until the query fails; returns why."""
    with pytest.raises(KinesisConnectorError) as caught:
        query.read_until(10_000)
    return caught.value


def test_a_role_that_is_taken_away_ends_the_query(
    kinesis: KinesisServer, sts: StsDouble, start_query: StartQuery
) -> None:
    """F45: when its last credentials have expired, with role and permission named."""
    query = start_query(kinesis, **as_role(sts), shardFetchInterval="1s")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    sts.refusal = (403, "AccessDenied", "not authorized to perform: sts:AssumeRole")
    error = fail(query)

    assert isinstance(error, AccessError)
    assert ROLE in str(error)
    assert "sts:AssumeRole" in str(error)
    assert EXPIRED not in outcomes(kinesis)


def test_a_session_token_that_expires_ends_the_query(
    kinesis: KinesisServer, start_query: StartQuery
) -> None:
    """F45: keys of the options cannot be renewed; it is said what can."""
    query = start_query(kinesis, sessionToken="token", shardFetchInterval="1s")
    kinesis.put(STREAM, *numbered(1, 3))
    query.read_until(3)
    kinesis.end_session("test")
    error = fail(query)

    assert isinstance(error, AccessError)
    assert error.code == EXPIRED
    assert "roleArn" in str(error)


def test_a_task_that_reads_from_kinesis_itself_asks_as_the_role(
    kinesis: KinesisServer, sts: StsDouble, start_query: StartQuery
) -> None:
    """F45: with credentials of its own; the driver's are not sent around."""
    sts.life_s = 3600.0
    kinesis.put(STREAM, *numbered(1, 3))
    query = start_query(kinesis, **as_role(sts))
    query.read_until(3)
    logged = sorted(int(p.name) for p in (query.folder / "offsets").iterdir())
    (planned,) = Coordinator.plan(
        query.coordinator, query._before(logged[-1]), query._offset(logged[-1])
    )
    alone: Any = type(planned)(**{**vars(planned), "agent": None})

    assert [row.data for row in read_rows(alone, query.options)] == numbered(1, 3)
    assert len(sts.issued) == 2
    read = kinesis.calls.calls("GetRecords") + kinesis.calls.calls("GetShardIterator")
    assert {call.access_key for call in read} == {sts.issued[1]}


def test_a_sink_outlives_the_credentials_of_its_role() -> None:
    """F45: over one task, with each record stored once."""
    with Sink() as sink, StsDouble(sink.kinesis) as sts:
        sts.life_s = LIFE_S

        def paced() -> Iterator[Any]:
            for part in range(4):
                yield from rows(range(100 * part, 100 * part + 100))
                ends = sink.kinesis.clock.wall() + SPEED * LIFE_S
                eventually(lambda ends=ends: sink.kinesis.clock.wall() > ends, "the end of a life")

        outcome = sink.write(paced(), batchMaxRecords="50", **as_role(sts))

        sink.assert_each_once(range(400), outcome)
        assert len(sts.issued) >= 4
        assert {call.outcome for call in sink.kinesis.calls} == {"ok"}
        assert {call.access_key for call in sink.calls()} <= set(sts.issued)
