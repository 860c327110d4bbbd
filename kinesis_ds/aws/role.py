"""The role of the options (``roleArn``): its credentials come from STS and are renewed in time.

They are botocore's own refreshable credentials: one caller renews them, while the others go on with
those at hand and wait only when these are about to expire.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import logging
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioDeferredRefreshableCredentials

from kinesis_ds.aws.credentials import ASK_AGAIN_AFTER_S, SPARE_S
from kinesis_ds.aws.errors import translate, without_credentials
from kinesis_ds.errors import AccessError, InvalidRequestError, KinesisConnectorError, ProtocolError

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

# How long a call waits for STS, first to connect and then for the answer. The caller tries again.
_STS_TIMEOUT_S = 5.0
# After a failure, callers that waited meanwhile get the same error; later ones ask STS again.
_SHARE_FAILURE_S = 1.0

# https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html (RoleSessionName)
_NOT_FOR_SESSION_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
_MAX_SESSION_NAME = 64
# https://docs.aws.amazon.com/general/latest/gr/sts.html
_STS_HOST = re.compile(r"(?:^|\.)sts(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com(?:\.cn)?$")


def default_session_name() -> str:
    """Return the RoleSessionName to use by default; it shows the machine's name in CloudTrail."""
    host = _NOT_FOR_SESSION_NAMES.sub("-", socket.gethostname())
    return f"kinesis_ds-{host}"[:_MAX_SESSION_NAME]


def sts_region(endpoint: str) -> str | None:
    """Return the region to sign for, from the URL of an STS endpoint; None for hosts not of AWS."""
    host = urlsplit(endpoint).hostname or ""
    if host == "sts.amazonaws.com":
        return "us-east-1"
    found = _STS_HOST.search(host)
    return found[1] if found else None


@dataclass(frozen=True)
class _Issued:
    """Credentials that STS gave.

    Attributes:
        metadata: The credentials as botocore takes them; secret, so not in the repr.
        good_until: When to stop using them.
    """

    metadata: dict[str, str] = field(repr=False)
    good_until: datetime.datetime


class AssumedRole:
    """The role of the options, as a provider of credentials. Close it when done.

    Registered with botocore as a session's ``credential_provider``.

    Args:
        aws: Options that name the role.
        session: Asks STS, with credentials that may assume the role.
        clock: Tells when the role's credentials expire.
    """

    def __init__(self, aws: AwsOptions, session: AioSession, clock: Clock) -> None:
        self._aws = aws
        self._session = session
        self._clock = clock
        self._request = {
            "RoleArn": aws.role_arn,
            "RoleSessionName": aws.role_session_name or default_session_name(),
            **({"ExternalId": aws.role_external_id} if aws.role_external_id else {}),
        }
        self._stack = contextlib.AsyncExitStack()
        self._client: Any = None
        self._issued: _Issued | None = None
        self._asked: datetime.datetime | None = None
        self._failure: KinesisConnectorError | None = None
        self._credentials = AioDeferredRefreshableCredentials(
            self._renew, "assume-role", time_fetcher=self._now
        )

    async def load_credentials(self) -> Any:
        """Return the role's credentials, the same object each time. Does not ask STS yet."""
        return self._credentials

    async def aclose(self) -> None:
        """Close the connections to STS."""
        await self._stack.aclose()

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.wall(), datetime.timezone.utc)

    async def _renew(self) -> dict[str, str]:
        """Return new credentials, or those at hand while they are good.

        botocore calls this when it finds the credentials too old, never twice at the same time.

        Raises:
            KinesisConnectorError: The present credentials are too old, and STS gives no new ones.
        """
        now = self._now()
        asked_s = (now - self._asked).total_seconds() if self._asked else float("inf")
        good = self._issued if self._issued and now < self._issued.good_until else None
        if good and asked_s < ASK_AGAIN_AFTER_S:
            return good.metadata
        if self._failure and asked_s < _SHARE_FAILURE_S:
            raise copy.copy(self._failure)
        self._failure = None
        try:
            self._issued = await self._assume()
        except KinesisConnectorError as exc:
            if good is None:
                self._failure = exc
                raise
            logger.warning(
                "%s The present credentials are valid until %s.",
                exc.message,
                good.good_until.isoformat(timespec="seconds"),
            )
            return good.metadata
        finally:
            self._asked = self._now()
        logger.info("role assumed role=%s", self._aws.role_arn)
        return self._issued.metadata

    async def _assume(self) -> _Issued:
        try:
            if self._client is None:
                self._client = await self._stack.enter_async_context(self._new_client())
            answer = await self._client.assume_role(**self._request)
        except Exception as exc:
            # Not "from exc": printing our error would then print what STS quotes, too.
            raise self._refused(exc) from None
        try:
            given = answer["Credentials"]
            expires: datetime.datetime = given["Expiration"]
            metadata = {
                "access_key": given["AccessKeyId"],
                "secret_key": given["SecretAccessKey"],
                "token": given["SessionToken"],
                "expiry_time": expires.isoformat(),
            }
            life_s = (expires - self._now()).total_seconds()
        except (KeyError, TypeError, AttributeError):
            raise ProtocolError(
                f"AssumeRole for {self._label} was answered without the credentials that STS "
                "promises.",
                "Is stsEndpoint an STS endpoint?",
            ) from None
        if life_s <= 0:
            raise AccessError(
                f"AssumeRole for {self._label} gave credentials that expired {-life_s:.0f}s ago.",
                "Is this machine's clock right?",
            )
        spare = datetime.timedelta(seconds=min(SPARE_S, life_s / 10))
        return _Issued(metadata, expires - spare)

    @property
    def _label(self) -> str:
        return f"role {self._aws.role_arn}"

    def _new_client(self) -> Any:
        endpoint = self._aws.sts_endpoint
        region = sts_region(endpoint) if endpoint else None
        if endpoint and region is None and not self._session.get_config_variable("region"):
            region = "us-east-1"  # any region will do for a server that is not AWS's
        # By default older versions of botocore ask the STS in us-east-1.
        self._session.set_config_variable("sts_regional_endpoints", "regional")
        return self._session.create_client(
            "sts",
            region_name=region,
            endpoint_url=endpoint,
            config=AioConfig(
                connect_timeout=_STS_TIMEOUT_S,
                read_timeout=_STS_TIMEOUT_S,
                retries={"total_max_attempts": 1},
                # STS explains better what is wrong, and does not quote the external id.
                parameter_validation=False,
                user_agent_extra="kinesis_ds",
            ),
        )

    def _refused(self, exc: Exception) -> KinesisConnectorError:
        error = translate(exc, "AssumeRole", self._label)
        kind = AccessError if isinstance(error, InvalidRequestError) else type(error)
        remedy = error.remedy
        if error.code and kind is AccessError:
            given = "is set" if self._aws.role_external_id else "is not set"
            remedy += f" roleExternalId, which the role's trust policy may demand, {given}."
        elif error.retryable:
            remedy = (
                "Is stsEndpoint right (by default that of the region), and reachable from here?"
            )
        refused = kind(self._without_secrets(error.message), remedy)
        refused.code = error.code
        return refused

    def _without_secrets(self, text: str) -> str:
        """Return an error text of STS without the secrets that it may quote from the request."""
        aws = self._aws
        issued = self._issued.metadata if self._issued else {}
        for secret in (
            aws.role_external_id,
            aws.secret_key,
            aws.session_token,
            aws.access_key,
            *(issued[name] for name in ("secret_key", "token", "access_key") if name in issued),
        ):
            if secret:
                text = text.replace(secret, "(hidden)")
        return without_credentials(text)
