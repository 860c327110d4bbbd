"""Who asks: keys of the options, files that are rotated, and roles that are renewed in time."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioCredentialResolver, AioRefreshableCredentials
from botocore.exceptions import ClientError, CredentialRetrievalError, MetadataRetrievalError

from kinesis_ds.aws import credentials
from kinesis_ds.aws.connection import Connection
from kinesis_ds.aws.errors import translate
from kinesis_ds.aws.role import default_session_name, sts_region
from kinesis_ds.aws.streams import describe_stream
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    ProtocolError,
    ThrottledError,
    TransientError,
)
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.plan.position import TRIM_HORIZON
from kinesis_ds.plan.stream import StreamId
from kinesis_ds.testing import KinesisServer, ManualClock, Settings
from tests.support.polling import eventually
from tests.support.sts import StsDouble

ROLE = "arn:aws:iam::123456789012:role/reader"
EXTERNAL_ID = "Hush-ExternalId"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TOKEN = "FwoGZXIvYXdzEXAMPLETOKEN//////////wEaD"
KEY = "AKIAIOSFODNN7EXAMPLE"
REQUEST = {
    "StreamName": "orders",
    "ShardId": "shardId-000000000000",
    "ShardIteratorType": "TRIM_HORIZON",
}
MINUTE = 60.0


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's user, and no metadata service is asked."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kinesis(clock: ManualClock) -> Iterator[KinesisServer]:
    """A double with a stream ``orders``, which refuses what has expired."""
    with KinesisServer(Settings(enforce_limits=False), clock=clock) as kinesis:
        kinesis.create_stream("orders")
        kinesis.put("orders", b"one")
        yield kinesis


@pytest.fixture
def sts(kinesis: KinesisServer, clock: ManualClock) -> Iterator[StsDouble]:
    with StsDouble(kinesis, clock.wall) as sts:
        yield sts


def role_options(kinesis: KinesisServer, sts: StsDouble, **more: Any) -> AwsOptions:
    given: dict[str, Any] = {
        "region": "us-east-1",
        "endpoint": kinesis.endpoint,
        "access_key": KEY,
        "secret_key": SECRET,
        "session_token": TOKEN,
        "role_arn": ROLE,
        "role_external_id": EXTERNAL_ID,
        "sts_endpoint": sts.endpoint,
    }
    return AwsOptions(**{**given, **more})


async def ask(connection: Connection) -> None:
    """A data call."""
    await connection.call("GetShardIterator", REQUEST, "the shard")


@contextlib.asynccontextmanager
async def asking(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock, **more: Any
) -> AsyncIterator[Connection]:
    """A connection that asks as the role, and has done so once."""
    async with Connection(role_options(kinesis, sts, **more), clock=clock) as connection:
        await ask(connection)
        yield connection


def signed_with(kinesis: KinesisServer) -> list[str]:
    """The access keys of all calls."""
    return [call.access_key for call in kinesis.calls]


# --- a role -------------------------------------------------------------------------------------


def test_every_kind_of_call_asks_as_the_role(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """Control calls, data calls and subscriptions, and STS is asked once, with the given keys."""
    arn = kinesis.call("DescribeStreamSummary", StreamName="orders")
    stream = arn["StreamDescriptionSummary"]["StreamARN"]
    kinesis.call("RegisterStreamConsumer", StreamARN=stream, ConsumerName="c")
    clock.advance(MINUTE)
    consumer = kinesis.call("DescribeStreamConsumer", StreamARN=stream, ConsumerName="c")

    async def every_kind() -> None:
        async with Connection(
            role_options(kinesis, sts, role_session_name="orders-job"), clock=clock
        ) as connection:
            await asyncio.gather(
                ask(connection),
                describe_stream(connection, StreamId(name="orders")),
                ask(connection),
                describe_stream(connection, StreamId(name="orders")),
            )
            consumer_arn = consumer["ConsumerDescription"]["ConsumerARN"]
            async with connection.subscribe(
                consumer_arn, REQUEST["ShardId"], TRIM_HORIZON, "the shard"
            ) as subscription:
                assert await subscription.chunks.__anext__()

    asyncio.run(every_kind())

    (asked,) = sts.asked
    assert (asked.role, asked.session_name, asked.external_id) == (ROLE, "orders-job", EXTERNAL_ID)
    assert (asked.access_key, asked.token) == (KEY, TOKEN)
    assert signed_with(kinesis) == sts.issued * 5


def test_without_external_id_and_session_name(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """No external id is sent, and a valid session name is."""

    async def call() -> None:
        async with asking(kinesis, sts, clock, role_external_id=None):
            pass

    asyncio.run(call())

    (asked,) = sts.asked
    assert asked.external_id == ""
    assert asked.session_name == default_session_name()


@pytest.mark.parametrize("host", ["", "ip-10-0-0-1", "läptop of mine", "x" * 200, "a/b:c"])
def test_the_default_session_name_is_valid_on_any_host(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 to 64 characters, of those that AWS allows; it begins with our name."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    name = default_session_name()

    assert name.startswith("kinesis_ds-")
    assert len(name) <= 64
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-")


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://sts.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://sts.eu-west-1.amazonaws.com/", "eu-west-1"),
        ("https://sts.amazonaws.com", "us-east-1"),
        ("https://sts-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("https://sts.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("https://vpce-0a-b.sts.ap-south-1.vpce.amazonaws.com", "ap-south-1"),
        ("http://127.0.0.1:4566", None),
        ("https://sts.example.com", None),
        ("https://sts.eu-west-1.amazonaws.com.evil.example", None),
    ],
)
def test_requests_to_an_sts_of_aws_are_signed_for_its_region(
    endpoint: str, region: str | None
) -> None:
    """Whatever the stream's region is: a signature for another one is refused."""
    assert sts_region(endpoint) == region


def test_other_sts_endpoints_are_asked_for_the_region_of_the_stream(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """Which is the only one known."""

    async def call() -> None:
        async with asking(kinesis, sts, clock, region="eu-north-1"):
            pass

    asyncio.run(call())

    assert [asked.region for asked in sts.asked] == ["eu-north-1"]


def test_by_default_the_regional_sts_is_asked() -> None:
    """Not the one in Virginia, which older versions of botocore take."""
    options = AwsOptions("eu-central-1", None, KEY, SECRET, role_arn=ROLE)

    async def endpoint() -> str:
        async with Connection(options) as connection:
            role = connection._session.get_component("credential_provider")
            async with role._new_client() as client:
                return str(client.meta.endpoint_url)

    assert asyncio.run(endpoint()) == "https://sts.eu-central-1.amazonaws.com"


def test_a_role_is_renewed_before_it_expires(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """15 minutes before, by one call, and nothing is ever signed with expired keys."""

    async def query() -> None:
        async with asking(kinesis, sts, clock) as connection:
            for _ in range(30):
                clock.advance(10 * MINUTE)
                await asyncio.gather(*(ask(connection) for _ in range(5)))
                await describe_stream(connection, StreamId(name="orders"))

    asyncio.run(query())

    assert {call.outcome for call in kinesis.calls} == {"ok"}
    assert len(sts.issued) == 1 + 30 // 5  # five times ten minutes leave less than 15
    assert list(dict.fromkeys(signed_with(kinesis))) == sts.issued


def test_while_one_caller_renews_the_others_go_on(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """An STS that does not answer holds up one call at most; the loop runs on."""

    async def query() -> None:
        async with asking(kinesis, sts, clock) as connection:
            clock.advance(46 * MINUTE)
            sts.answers.clear()
            renewing = asyncio.create_task(ask(connection))
            await asyncio.to_thread(eventually, lambda: len(sts.asked) == 2)
            await asyncio.gather(*(ask(connection) for _ in range(5)))
            assert not renewing.done()
            sts.answers.set()
            await renewing

    asyncio.run(query())

    assert len(sts.asked) == 2
    assert signed_with(kinesis) == [sts.issued[0]] * 6 + [sts.issued[1]]


def test_a_renewal_that_fails_is_no_error_while_the_keys_are_good(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told, tried again every half minute, and made good when STS is back."""

    async def query() -> None:
        async with asking(kinesis, sts, clock) as connection:
            clock.advance(46 * MINUTE)
            sts.refusal = (403, "AccessDenied", "not now")
            for _ in range(10):
                await ask(connection)
            assert len(sts.asked) == 2
            clock.advance(31)
            await ask(connection)
            assert len(sts.asked) == 3
            clock.advance(12 * MINUTE)  # botocore would have to renew now; 90 s are left
            await ask(connection)
            sts.refusal = None
            clock.advance(31)
            await ask(connection)

    asyncio.run(query())

    assert {call.outcome for call in kinesis.calls} == {"ok"}
    assert list(dict.fromkeys(signed_with(kinesis))) == sts.issued
    assert len(sts.issued) == 2
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 3
    assert all(ROLE in said and "are good until" in said for said in told)


def test_a_renewal_that_is_refused_when_the_keys_expire_names_role_and_permission(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """All callers are told, STS is asked once; nothing is sent with the old keys."""

    async def query() -> list[BaseException | None]:
        async with asking(kinesis, sts, clock) as connection:
            clock.advance(60 * MINUTE)
            sts.refusal = (403, "AccessDenied", "User is not authorized")
            return await asyncio.gather(
                *(ask(connection) for _ in range(4)),
                describe_stream(connection, StreamId(name="orders")),  # type: ignore[list-item]
                return_exceptions=True,
            )

    errors = asyncio.run(query())

    assert len(sts.asked) == 2
    assert len(kinesis.calls) == 1
    for error in errors:
        assert isinstance(error, AccessError)
        assert error.code == "AccessDenied"
        for part in (ROLE, "sts:AssumeRole", "trust policy", "roleExternalId"):
            assert part in str(error)


@pytest.mark.parametrize(
    ("refusal", "kind", "said"),
    [
        ((403, "AccessDenied", "no"), AccessError, "sts:AssumeRole"),
        ((403, "InvalidClientTokenId", "no"), AccessError, "the credentials that ask"),
        ((403, "SignatureDoesNotMatch", "no"), AccessError, "the credentials that ask"),
        ((400, "ValidationError", "roleArn is invalid"), AccessError, "roleArn is invalid"),
        ((403, "RegionDisabledException", "STS is off"), AccessError, "STS is off"),
        ((403, "ExpiredToken", "expired"), AccessError, "session token has expired"),
        ((400, "Throttling", "Rate exceeded"), ThrottledError, "Rate exceeded"),
        ((500, "InternalFailure", ""), TransientError, "stsEndpoint"),
        ((503, "ServiceUnavailable", ""), TransientError, "stsEndpoint"),
    ],
)
def test_what_sts_answers_is_told_apart(
    kinesis: KinesisServer,
    sts: StsDouble,
    clock: ManualClock,
    refusal: tuple[int, str, str],
    kind: type[KinesisConnectorError],
    said: str,
) -> None:
    """Denied fails at once, limits and breakdowns are tried again; never as a fault of Kinesis."""
    sts.refusal = refusal
    error = _failing(kinesis, sts, clock)

    assert type(error) is kind
    assert said in str(error)
    assert f"AssumeRole for role {ROLE}" in str(error)
    assert "kinesis:" not in str(error)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, "<html>not here</html>"), ProtocolError),
        ((200, "no XML at all"), ProtocolError),
        ((200, ""), ProtocolError),
        ((502, "<html>Bad gateway</html>"), TransientError),
        ((404, "no XML at all"), TransientError),
        (
            (
                200,
                "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>A</AccessKeyId>"
                "</Credentials></AssumeRoleResult></AssumeRoleResponse>",
            ),
            ProtocolError,
        ),
    ],
)
def test_answers_that_are_none_of_sts(
    kinesis: KinesisServer,
    sts: StsDouble,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, str],
    kind: type[KinesisConnectorError],
) -> None:
    """A proxy's page, or another server's answer: named as such, and not quoted."""
    monkeypatch.setattr(sts, "answer", lambda *_: answer)
    error = _failing(kinesis, sts, clock)

    assert type(error) is kind
    assert "AssumeRole" in str(error)
    assert "html" not in str(error)
    assert "XML" not in str(error)


def test_credentials_that_come_expired_are_not_used(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """The clock of this machine is ahead."""
    sts.life_s = -30
    error = _failing(kinesis, sts, clock)

    assert isinstance(error, AccessError)
    assert f"AssumeRole for role {ROLE} gave credentials that expired 30s ago" in str(error)
    assert "clock" in str(error)
    assert len(sts.asked) == 1


def test_short_lived_credentials_are_not_asked_for_at_every_call(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """botocore holds anything younger than 15 minutes for due; a call to STS for every call to
    Kinesis would be refused before long.
    """
    sts.life_s = 100.0

    async def query() -> None:
        async with asking(kinesis, sts, clock) as connection:
            for _ in range(400):
                clock.advance(1)
                await ask(connection)

    asyncio.run(query())

    assert {call.outcome for call in kinesis.calls} == {"ok"}
    assert len(sts.issued) <= 1 + 400 // 30


def test_callers_that_waited_for_a_failure_share_it(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock
) -> None:
    """A hundred shards do not ask a throttled STS one after the other; later callers ask anew."""
    sts.refusal = (400, "Throttling", "Rate exceeded")

    async def query() -> list[BaseException | None]:
        async with Connection(role_options(kinesis, sts), clock=clock) as connection:
            errors = await asyncio.gather(
                *(ask(connection) for _ in range(20)), return_exceptions=True
            )
            sts.refusal = None
            clock.advance(2)
            await ask(connection)
            return errors

    errors = asyncio.run(query())

    assert all(isinstance(error, ThrottledError) for error in errors)
    assert len({id(error) for error in errors}) == 20  # a traceback belongs to one caller
    assert len(sts.asked) == 2


def _failing(
    kinesis: KinesisServer, sts: StsDouble, clock: ManualClock, **more: Any
) -> KinesisConnectorError:
    async def call() -> None:
        async with asking(kinesis, sts, clock, **more):
            raise AssertionError("it was answered")

    with pytest.raises(KinesisConnectorError) as caught:
        asyncio.run(call())
    assert len(kinesis.calls) == 0
    return caught.value


@pytest.mark.parametrize("good", [True, False], ids=["still good", "expired"])
def test_what_sts_quotes_is_shown_nowhere(
    kinesis: KinesisServer,
    sts: StsDouble,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    good: bool,
) -> None:
    """Not in the error, not in what is chained to it, and not in any log."""
    caplog.set_level(logging.INFO)
    said: list[str] = []

    async def query() -> None:
        async with asking(kinesis, sts, clock) as connection:
            issued = sts.issued[0]
            quoted = (EXTERNAL_ID, SECRET, TOKEN, KEY, f"SecretOf{issued}", f"TokenOf{issued}")
            sts.refusal = (403, "AccessDenied", f"I do not like {' or '.join(quoted)}")
            clock.advance((46 if good else 60) * MINUTE)
            try:
                await ask(connection)
            except AccessError as error:
                said.extend([str(error), repr(error), "".join(traceback.format_exception(error))])
                assert not good
            said.append(repr(connection._aws))
            for secret in quoted:
                assert secret not in "".join(said) + caplog.text

    asyncio.run(query())

    assert "(hidden)" in "".join(said) + caplog.text


# --- the AWS chain ------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("exc", "kind", "said"),
    [
        (
            CredentialRetrievalError(provider="custom-process", error_msg="sign in first"),
            AccessError,
            "sign in first",
        ),
        (
            CredentialRetrievalError(provider="container-role", error_msg="timed out"),
            TransientError,
            "timed out",
        ),
        (MetadataRetrievalError(error_msg="timed out"), TransientError, "timed out"),
        (
            RuntimeError("Credentials were refreshed, but the refreshed credentials are still "
                         "expired."),
            AccessError,
            "clock",
        ),
        (
            ClientError(
                {"Error": {"Code": "InvalidIdentityToken", "Message": "no such provider"}},
                "AssumeRoleWithWebIdentity",
            ),
            AccessError,
            "sts:AssumeRoleWithWebIdentity",
        ),
        (
            ClientError(
                {"Error": {"Code": "UnauthorizedException", "Message": "Session token not found"}},
                "GetRoleCredentials",
            ),
            AccessError,
            "sign in again",
        ),
    ],
    ids=lambda v: "" if isinstance(v, str) else getattr(v, "__name__", type(v).__name__),
)  # fmt: skip
def test_what_the_chain_says_is_about_credentials(
    exc: Exception, kind: type[KinesisConnectorError], said: str
) -> None:
    """Not about the call that needed them, and never a bug of ours."""
    error = translate(exc, "DescribeStreamSummary", "stream orders")

    assert type(error) is kind
    assert said in str(error)
    assert "kinesis:DescribeStreamSummary" not in str(error)


@pytest.mark.parametrize(
    "printed",
    [
        f'{{"SecretAccessKey": "{SECRET}", "SessionToken": "{TOKEN}", "AccessKeyId": "{KEY}"}}',
        f"aws_secret_access_key={SECRET}\naws_session_token = {TOKEN} aws_access_key_id: {KEY}",
    ],
)
def test_what_a_credential_process_prints_is_not_shown(printed: str) -> None:
    """Its standard error is part of botocore's message."""
    exc = CredentialRetrievalError(provider="custom-process", error_msg=printed)
    error = translate(exc, "ListShards", "stream orders")
    told = "".join(traceback.format_exception(error.with_traceback(None))) + str(exc)

    for secret in (SECRET, TOKEN, KEY):
        assert secret not in told


def test_what_is_chained_to_an_error_shows_no_credentials_either() -> None:
    """Spark prints the whole chain where a task fails."""
    exc = ClientError(
        {
            "Error": {
                "Code": "InvalidSignatureException",
                "Message": f"host:h\nx-amz-security-token:{TOKEN}\nCredential={KEY}/2026",
            }
        },
        "ListShards",
    )

    def fail() -> None:
        try:
            raise exc
        except ClientError as cause:
            raise translate(cause, "ListShards", "stream orders") from cause

    with pytest.raises(AccessError) as caught:
        fail()
    printed = "".join(traceback.format_exception(caught.value))
    assert "InvalidSignatureException" in printed
    assert TOKEN not in printed
    assert KEY not in printed


def test_an_expired_session_token_is_named() -> None:
    """With what would be renewed."""
    exc = ClientError(
        {"Error": {"Code": "ExpiredTokenException", "Message": "The token is expired"}},
        "ListShards",
    )
    error = translate(exc, "ListShards", "stream orders")

    assert isinstance(error, AccessError)
    assert "The session token has expired" in str(error)
    assert "roleArn" in str(error)
