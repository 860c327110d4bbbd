"""The role of the options: its credentials sign every call and are renewed in time."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from typing import Any

import pytest

from kinesis_ds.aws.connection import Connection
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
from kinesis_ds.testing import KinesisServer, ManualClock
from tests.support.polling import eventually
from tests.support.roles import (
    EXTERNAL_ID,
    KEY,
    MINUTE,
    REQUEST,
    ROLE,
    SECRET,
    TOKEN,
    ask,
    asking,
    role_options,
    signed_with,
)
from tests.support.sts import StsDouble


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
    assert all(ROLE in said and "are valid until" in said for said in told)


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
