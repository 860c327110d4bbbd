"""Who asks: credentials that stay good for as long as a query runs.

Three kinds. Static keys are what the options say. Those of the AWS chain are found and renewed by
aiobotocore (environment, profile, web identity, container, instance); only files are followed here,
because botocore reads keys in files once. Those of a role (``roleArn``) come from STS, which is
asked with one of the other two.

A role's credentials sit in botocore's own refreshable ones: one caller renews them, the others go
on with what there is, and wait only when that is about to expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import logging
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioCredentials,
    AioDeferredRefreshableCredentials,
    AioRefreshableCredentials,
)
from botocore.loaders import Loader, create_loader

from kinesis_ds.aws.errors import hidden, translate
from kinesis_ds.errors import AccessError, InvalidRequestError, KinesisConnectorError, ProtocolError

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

logger = logging.getLogger(__name__)

# How long a caller waits for STS, to connect and then for the answer. Who asked tries again.
_STS_TIMEOUT_S = 5.0
# While credentials are good STS, or a provider of the chain, is asked for new ones this often at
# most. In their last 15 minutes botocore asks at every call, and in the last 10 one call after the
# other: while STS fails, for such as live no longer, and where a provider gives the same again.
_ASK_AGAIN_AFTER_S = 30.0
# Who waited while another asked is told the same; who tries again after a pause asks anew.
_FAILED_FOR_S = 1.0
# Clocks differ, and a signature is checked when it arrives: the last minute is not used, or of
# short-lived credentials the last tenth.
_SPARE_S = 60.0

_FILES = {"shared-credentials-file": "credentials_file", "config-file": "config_file"}
_NOT_FOR_SESSION_NAMES = re.compile(r"[^\w+=,.@-]", re.ASCII)
_LONGEST_SESSION_NAME = 64
_STS_HOST = re.compile(r"(?:^|\.)sts(?:-fips)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com(?:\.cn)?$")


@functools.lru_cache(maxsize=4)
def models(data_path: str | None) -> Loader:
    """The descriptions of AWS's services. Reading them is most of what a client costs, so that
    happens once a process.
    """
    return create_loader(data_path)


def default_session_name() -> str:
    """The RoleSessionName where the options have none: CloudTrail then shows the machine."""
    host = _NOT_FOR_SESSION_NAMES.sub("-", socket.gethostname())
    return f"kinesis_ds-{host}"[:_LONGEST_SESSION_NAME]


def sts_region(endpoint: str) -> str | None:
    """The region for which requests to an STS endpoint of AWS are signed; None for other hosts."""
    host = urlsplit(endpoint).hostname or ""
    if host == "sts.amazonaws.com":
        return "us-east-1"
    found = _STS_HOST.search(host)
    return found[1] if found else None


def use_own_credentials(session: AioSession, aws: AwsOptions) -> None:
    """Have a session ask with the keys of the options, or else with what the AWS chain finds."""
    if aws.access_key:
        session.set_credentials(aws.access_key, aws.secret_key, aws.session_token)
    else:
        session.register_component("credential_provider", FollowedChain(session))


class FollowedChain:
    """The AWS credential chain, which follows files that somebody else rotates, and renews the rest
    at a pace.
    """

    def __init__(self, session: AioSession) -> None:
        self._chain = session.get_component("credential_provider")
        self._files = {
            method: os.path.expanduser(session.get_config_variable(variable))
            for method, variable in _FILES.items()
        }
        self._finding = asyncio.Lock()
        self._found: Any = None

    async def load_credentials(self) -> Any:
        """What the chain finds, the same object each time; None when it finds nothing."""
        async with self._finding:
            if self._found is None:
                # Looked at before they are read: a change in between is seen later.
                states = {method: _state(file) for method, file in self._files.items()}
                found = await self._chain.load_credentials()
                if isinstance(found, AioRefreshableCredentials):
                    found = PacedCredentials(found)
                elif found is not None and found.method in self._files:
                    found = FileCredentials(
                        found,
                        self._chain.get_provider(found.method),
                        self._files[found.method],
                        states[found.method],
                    )
                self._found = found
            return self._found


class FileCredentials(AioCredentials):  # type: ignore[misc]
    """Keys from a file, as they are in it now.

    A file that cannot be read or lacks the profile is taken for one that is being written: the keys
    that were read before stay.
    """

    def __init__(self, first: AioCredentials, provider: Any, file: str, state: object) -> None:
        super().__init__(first.access_key, first.secret_key, first.token, method=first.method)
        self.account_id = getattr(first, "account_id", None)
        self._provider = provider
        self._file = file
        self._state = state

    async def get_frozen_credentials(self) -> Any:
        """The keys to sign with."""
        state = _state(self._file)
        if state != self._state:
            self._state = state
            await self._read_again()
        return await super().get_frozen_credentials()

    async def _read_again(self) -> None:
        try:
            found = await self._provider.load()
        except Exception as exc:
            logger.warning("%s cannot be used as it is now (%s)", self._file, type(exc).__name__)
            return
        if found is None:
            logger.warning("%s has no keys for this profile now", self._file)
            return
        logger.info("credentials read again file=%s", self._file)
        self.access_key, self.secret_key, self.token = (
            found.access_key,
            found.secret_key,
            found.token,
        )


class PacedCredentials:
    """Credentials that their provider renews, when there is reason to ask it."""

    def __init__(self, found: AioRefreshableCredentials) -> None:
        self._found = found
        self._frozen: Any = None
        self._asked_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    async def get_account_id(self) -> Any:
        """The account, where the provider tells it. botocore asks at every call of its client."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)

    async def get_frozen_credentials(self) -> Any:
        """The keys to sign with."""
        good = self._frozen is not None and not self._found.refresh_needed(_SPARE_S)
        now = asyncio.get_running_loop().time()
        if good and now - self._asked_at < _ASK_AGAIN_AFTER_S:
            return self._frozen
        self._asked_at = now
        try:
            self._frozen = await self._found.get_frozen_credentials()
        except Exception:
            if not good:
                raise
            # botocore has told why, in a warning of its own.
            logger.warning("going on with the credentials at hand method=%s", self._found.method)
        return self._frozen


@dataclass(frozen=True)
class _Issued:
    """What STS gave: as botocore takes it, and until when it is used."""

    metadata: dict[str, str]
    good_until: datetime.datetime


class AssumedRole:
    """The role of the options, as a provider of credentials. Close it when done.

    Args:
        aws: Names the role.
        session: What STS is asked with, and by; its credentials are not the role's.
        clock: Tells when credentials expire.
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
        """The role's credentials, the same object each time. Asks nobody yet."""
        return self._credentials

    async def aclose(self) -> None:
        """Close the connections to STS."""
        await self._stack.aclose()

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.wall(), datetime.timezone.utc)

    async def _renew(self) -> dict[str, str]:
        """Called by botocore, one call at a time, when it finds the credentials too old.

        Raises:
            KinesisConnectorError: There are none that are good, and STS gives no new ones.
        """
        now = self._now()
        asked_s = (now - self._asked).total_seconds() if self._asked else float("inf")
        good = self._issued if self._issued and now < self._issued.good_until else None
        if good and asked_s < _ASK_AGAIN_AFTER_S:
            return good.metadata
        if self._failure and asked_s < _FAILED_FOR_S:
            raise _copy(self._failure)
        self._failure = None
        try:
            self._issued = await self._assume()
        except KinesisConnectorError as exc:
            if good is None:
                self._failure = exc
                raise
            logger.warning(
                "%s The credentials at hand are good until %s.",
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
            # Not "from exc": whoever prints our error would print what STS quotes, too.
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
        spare = datetime.timedelta(seconds=min(_SPARE_S, life_s / 10))
        return _Issued(metadata, expires - spare)

    @property
    def _label(self) -> str:
        return f"role {self._aws.role_arn}"

    def _new_client(self) -> Any:
        endpoint = self._aws.sts_endpoint
        region = sts_region(endpoint) if endpoint else None
        if endpoint and region is None and not self._session.get_config_variable("region"):
            region = "us-east-1"  # a server that is not AWS's does not mind
        # Older versions of botocore ask the one in Virginia unless told.
        self._session.set_config_variable("sts_regional_endpoints", "regional")
        return self._session.create_client(
            "sts",
            region_name=region,
            endpoint_url=endpoint,
            config=AioConfig(
                connect_timeout=_STS_TIMEOUT_S,
                read_timeout=_STS_TIMEOUT_S,
                retries={"total_max_attempts": 1},
                # What is wrong with a name STS says better, and without quoting the external id.
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
        told = kind(self._without_secrets(error.message), remedy)
        told.code = error.code
        return told

    def _without_secrets(self, text: str) -> str:
        """STS says what it does not like about a request, in words that may quote it."""
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
        return hidden(text)


def _copy(error: KinesisConnectorError) -> KinesisConnectorError:
    copy = type(error)(error.message, error.remedy)
    copy.code = error.code
    return copy


def _state(file: str) -> object:
    """Another one after a file was written or replaced."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
