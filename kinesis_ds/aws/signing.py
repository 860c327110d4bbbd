"""Sign data calls with botocore's public signer (SigV4)."""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

_TARGET_PREFIX = "Kinesis_20131202"
# Hashing so many bytes takes a tenth of a millisecond, and handing them to a thread about as long.
_HASH_ON_THREAD_BYTES = 64 * 1024
_HASHING_THREADS = 2


@dataclass(frozen=True)
class SignedRequest:
    """A data call that is ready to be sent.

    Attributes:
        operation: Its name in the API.
        endpoint: URL to send it to.
        headers: Its headers, with the signature and maybe a session token; not in the repr.
        payload: Its body, JSON.
    """

    operation: str
    endpoint: str
    headers: dict[str, str] = field(repr=False)
    payload: bytes = field(repr=False)


class RequestSigner:
    """Signs data calls with the credentials of a session. Close it when done.

    Args:
        session: Gives the credentials, those that are valid at each call.
    """

    def __init__(self, session: AioSession) -> None:
        self._session = session
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, "kinesis-hashing")

    def close(self) -> None:
        """End the threads."""
        self._hashing.shutdown()

    async def sign(
        self, operation: str, payload: bytes, endpoint: str, region: str
    ) -> SignedRequest:
        """Return the request with its signature.

        Raises:
            NoCredentialsError: There are no credentials.
        """
        credentials = await self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = await credentials.get_frozen_credentials()
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"{_TARGET_PREFIX}.{operation}",
        }
        if len(payload) >= _HASH_ON_THREAD_BYTES:
            # The hash is most of what a signature costs; meanwhile the loop has other things to do.
            # The signer takes the hash from the header, and signs that header, too.
            hashed = asyncio.get_running_loop().run_in_executor(self._hashing, _sha256, payload)
            headers["X-Amz-Content-SHA256"] = await hashed
        request = AWSRequest("POST", endpoint, data=payload, headers=headers)
        SigV4Auth(frozen, "kinesis", region).add_auth(request)
        return SignedRequest(operation, endpoint, dict(request.headers.items()), payload)


def _sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
