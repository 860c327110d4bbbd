"""The AWS credential chain, so that its credentials stay valid for as long as a query runs.

aiobotocore finds credentials and renews them (environment, profile, web identity, container,
instance). Two things are added here: keys in a file are read again when the file changes, because
botocore reads a file only once; and a provider is not asked for new credentials at every call.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from aiobotocore.credentials import AioCredentials, AioRefreshableCredentials

if TYPE_CHECKING:
    from aiobotocore.session import AioSession


logger = logging.getLogger(__name__)

# While the credentials are good, a provider is asked for new ones at most this often. botocore
# asks at every call in the last 15 minutes of their life, and in the last 10 each call waits for
# the answer. That happens while a provider fails, when it gives the same credentials again, and
# when its credentials never live longer.
# https://github.com/boto/botocore/blob/develop/botocore/credentials.py (RefreshableCredentials)
ASK_AGAIN_AFTER_S = 30.0
# Clocks differ, and a signature is checked when it arrives: credentials are not used in the last
# minute of their life (a role's in the last tenth, if that is shorter).
SPARE_S = 60.0

_FILES = {"shared-credentials-file": "credentials_file", "config-file": "config_file"}


class FollowedChain:
    """The AWS credential chain; what it finds follows changed files and is renewed with pauses.

    Registered with botocore as its ``credential_provider``.

    Args:
        session: The session whose chain it is.
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
        """Return what the chain finds, the same object each time; None if it finds nothing."""
        async with self._finding:
            if self._found is None:
                # Taken before the files are read, so that a change in between is noticed later.
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
    """Keys from a file, read again when the file changes.

    While the file cannot be read or lacks the profile, somebody is probably writing it: the keys
    that were read before stay in use.

    Args:
        first: The keys that were found first.
        provider: botocore's provider, which reads the file.
        file: Path of the file.
        state: The file's state before it was read.
    """

    def __init__(self, first: AioCredentials, provider: Any, file: str, state: object) -> None:
        super().__init__(first.access_key, first.secret_key, first.token, method=first.method)
        self.account_id = getattr(first, "account_id", None)
        self._provider = provider
        self._file = file
        self._state = state

    async def get_frozen_credentials(self) -> Any:
        """Return the keys to sign with."""
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
    """Credentials that their provider renews; it is asked at most every half minute.

    Args:
        found: Credentials as the chain found them.
    """

    def __init__(self, found: AioRefreshableCredentials) -> None:
        self._found = found
        self._frozen: Any = None
        self._asked_at = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    async def get_account_id(self) -> Any:
        """Return the account, if the provider names it. botocore asks before every control call."""
        return getattr(await self.get_frozen_credentials(), "account_id", None)

    async def get_frozen_credentials(self) -> Any:
        """Return the keys to sign with.

        Raises:
            Exception: The provider failed, and the keys at hand are about to expire.
        """
        good = self._frozen is not None and not self._found.refresh_needed(SPARE_S)
        now = asyncio.get_running_loop().time()
        if good and now - self._asked_at < ASK_AGAIN_AFTER_S:
            return self._frozen
        self._asked_at = now
        try:
            self._frozen = await self._found.get_frozen_credentials()
        except Exception:
            if not good:
                raise
            # botocore has logged the reason, in a warning of its own.
            logger.warning(
                "new credentials cannot be had; the present ones are still used method=%s",
                self._found.method,
            )
        return self._frozen


def _state(file: str) -> object:
    """Return a value that changes when the file is written or replaced."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
