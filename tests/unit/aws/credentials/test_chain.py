"""The AWS chain: files that are rotated are followed, providers are asked with pauses."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioCredentialResolver, AioRefreshableCredentials

from kinesis_ds.aws import credentials
from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.errors import (
    AccessError,
)
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.testing import KinesisServer, ManualClock
from tests.support.roles import (
    KEY,
    MINUTE,
    ROLE,
    ask,
    role_options,
    signed_with,
)
from tests.support.sts import StsDouble


def write_keys(file: Path, key: str, **more: str) -> None:
    """A credentials file as AWS's tools write it."""
    lines = [f"aws_access_key_id = {key}", "aws_secret_access_key = x"]
    lines += [f"{name} = {value}" for name, value in more.items()]
    file.write_text("\n".join(["[default]", *lines, ""]))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A credentials file with a first key."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    write_keys(file, "AKIAFIRST", aws_session_token="first")
    return file


def by_chain(kinesis: KinesisServer) -> AwsOptions:
    return AwsOptions("us-east-1", kinesis.endpoint)


def run_with(aws: AwsOptions, query: Callable[[Connection], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Connection(aws) as connection:
            await query(connection)

    asyncio.run(run())


@pytest.mark.parametrize("variable", ["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"])
def test_a_file_that_somebody_rotates_is_followed(
    kinesis: KinesisServer, keys: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """By data calls and by the client; botocore would go on with what it read first."""
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE")
    monkeypatch.setenv("HOME", str(keys.parent))
    monkeypatch.setenv(variable, str(keys))

    async def query(connection: Connection) -> None:
        await ask(connection)
        await describe_stream(connection, StreamId(name="orders"))
        write_keys(keys, "AKIASECOND")
        kinesis.end_session("AKIAFIRST")
        await describe_stream(connection, StreamId(name="orders"))
        await ask(connection)

    run_with(by_chain(kinesis), query)

    assert signed_with(kinesis) == ["AKIAFIRST"] * 2 + ["AKIASECOND"] * 2
    assert {call.outcome for call in kinesis.calls} == {"ok"}


@pytest.mark.parametrize(
    "state", ["", "[default]\naws_access_key_id = AKIAHALF\n", "[other]\n", "garbage", None]
)
def test_a_file_that_is_being_written_changes_nothing(
    kinesis: KinesisServer, keys: Path, state: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Empty, half, gone: the keys that were read go on, it is told once, and followed later."""

    def change() -> None:
        if state is None:
            keys.unlink()
        else:
            keys.write_text(state)

    async def query(connection: Connection) -> None:
        await ask(connection)
        change()
        await ask(connection)
        await ask(connection)
        write_keys(keys, "AKIASECOND")
        await ask(connection)

    run_with(by_chain(kinesis), query)

    assert signed_with(kinesis) == ["AKIAFIRST"] * 3 + ["AKIASECOND"]
    assert [str(keys) in r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        True
    ]


def test_sts_is_asked_with_keys_from_a_rotated_file(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock, keys: Path
) -> None:
    """As the role's credentials are renewed with what is good by then."""
    options = role_options(kinesis, sts, access_key=None, secret_key=None, session_token=None)

    async def query() -> None:
        async with Connection(options, clock=clock) as connection:
            await ask(connection)
            write_keys(keys, "AKIASECOND")
            clock.advance(46 * MINUTE)
            await ask(connection)

    asyncio.run(query())

    assert [asked.access_key for asked in sts.asked] == ["AKIAFIRST", "AKIASECOND"]
    assert signed_with(kinesis) == sts.issued


def test_calls_at_once_look_for_credentials_once(
    kinesis: KinesisServer, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client and data calls share what is found, so that it is renewed once."""
    looked: list[object] = []
    load = AioCredentialResolver.load_credentials

    async def look(chain: AioCredentialResolver) -> Any:
        looked.append(chain)
        await asyncio.sleep(0)  # as one that asks a server does
        return await load(chain)

    monkeypatch.setattr(AioCredentialResolver, "load_credentials", look)

    async def query(connection: Connection) -> None:
        await asyncio.gather(
            ask(connection), describe_stream(connection, StreamId(name="orders")), ask(connection)
        )

    run_with(by_chain(kinesis), query)

    assert len(looked) == 1


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> Iterator[StsDouble]:
    """A container's agent. Its credentials always have less than ten minutes to live."""
    with StsDouble() as agent:
        agent.life_s = 9 * MINUTE
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{agent.endpoint}/credentials")
        yield agent


def test_a_provider_is_not_asked_at_every_call(kinesis: KinesisServer, renewed: StsDouble) -> None:
    """Where what it gives is always about to expire, botocore would, one call after the other."""

    async def query(connection: Connection) -> None:
        for _ in range(10):
            await asyncio.gather(*(ask(connection) for _ in range(5)))
            await describe_stream(connection, StreamId(name="orders"))

    run_with(by_chain(kinesis), query)

    assert len(kinesis.calls) == 60
    assert len(renewed.issued) <= 1 + 5  # found, and renewed by those that came first


def refreshable(life_s: float, *answers: str | Exception) -> AioRefreshableCredentials:
    """Credentials whose provider gives these keys, each for so long, or fails."""
    left = list(answers)

    def expiry() -> datetime.datetime:
        return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=life_s)

    async def refresh() -> dict[str, str]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {
            "access_key": answer,
            "secret_key": "x",
            "token": "y",
            "expiry_time": expiry().isoformat(),
        }

    return AioRefreshableCredentials("found", "x", "y", expiry(), refresh, "container-role")


def test_a_provider_that_fails_is_no_error_while_the_keys_are_good() -> None:
    """botocore gives up ten minutes before they expire."""
    found = credentials.PacedCredentials(
        refreshable(5 * MINUTE, "first", OSError("not now"), "second")
    )

    async def keys_used() -> list[str]:
        used = []
        for _ in range(3):
            used.append((await found.get_frozen_credentials()).access_key)
            found._asked_at = float("-inf")  # half a minute later
        return used

    assert asyncio.run(keys_used()) == ["first", "first", "second"]


def test_a_provider_that_fails_when_the_keys_expire_is_an_error() -> None:
    """Nothing is signed with what will have expired when it arrives."""
    found = credentials.PacedCredentials(refreshable(30.0, "first", OSError("not now")))

    async def twice() -> None:
        await found.get_frozen_credentials()
        with pytest.raises(OSError, match="not now"):
            await found.get_frozen_credentials()

    asyncio.run(twice())


def test_without_any_credentials_it_is_said_what_there_could_be(kinesis: KinesisServer) -> None:
    """And nothing is sent."""
    with pytest.raises(AccessError, match="awsAccessKey"):
        run_with(by_chain(kinesis), ask)
    assert len(kinesis.calls) == 0


@pytest.mark.parametrize("command", ["/nowhere/to/be/found", "echo no JSON", "echo {}"])
def test_a_credential_process_that_does_not_work_is_no_bug_of_ours(
    kinesis: KinesisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Nor is the endpoint to blame: it is a matter of the user's configuration."""
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    with pytest.raises(AccessError, match="No usable AWS credentials"):
        run_with(by_chain(kinesis), ask)


def test_a_role_of_the_profile_is_asked_for_at_the_right_place(
    kinesis: KinesisServer, sts: StsDouble, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``role_arn`` in a profile is aiobotocore's; refused, it is not taken for Kinesis's word."""
    sts.life_s = 100 * 365 * 24 * 60 * MINUTE  # the double's clock is not aiobotocore's
    config = keys.with_name("config")
    config.write_text(
        f"[profile job]\nrole_arn = {ROLE}\nsource_profile = default\nservices = local\n"
        f"[services local]\nsts =\n  endpoint_url = {sts.endpoint}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "job")
    run_with(by_chain(kinesis), ask)
    assert [asked.access_key for asked in sts.asked] == ["AKIAFIRST"]
    assert signed_with(kinesis) == sts.issued

    sts.refusal = (403, "AccessDenied", f"not with {KEY}")
    with pytest.raises(AccessError) as caught:
        run_with(by_chain(kinesis), ask)
    assert "sts:AssumeRole" in str(caught.value)
    assert "the AWS credential chain" in str(caught.value)
    assert "kinesis:" not in str(caught.value)
