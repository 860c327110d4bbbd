"""One connection to Kinesis: a client for control calls, and a raw path for the calls that carry
data.

Control calls and PutRecords go through aiobotocore's client. SubscribeToShard and GetRecords are
signed with botocore's public signer and sent with aiohttp, because botocore's event parser costs
ten times more than the decoding itself; what comes back is bytes, decoded by
:mod:`kinesis_ds.agent`.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

from kinesis_ds.aws.faults import foreign_error, service_error, translate
from kinesis_ds.errors import ProtocolError
from kinesis_ds.limits import MAX_FRAME_BYTES
from kinesis_ds.position import After, AtTimestamp, Position, TrimHorizon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kinesis_ds.options import AwsOptions

_TARGET_PREFIX = "Kinesis_20131202"
_CONNECT_TIMEOUT_S = 10.0
_CALL_TIMEOUT_S = 30.0
# aiohttp stops reading a socket at twice this, and so does a shard whose buffer is full.
_READ_AHEAD_BYTES = 128 * 1024


@dataclass(frozen=True)
class EventStream:
    """A subscription's bytes as they come off the socket, and a way to break it off.

    What the reader does not take stays in the socket, and TCP holds the server back.
    """

    chunks: AsyncIterator[bytes]
    abort: Callable[[], None]


class Connection:
    """An open connection. Use as ``async with Connection(aws) as connection``.

    Belongs to one event loop. Closing it cancels nothing: end the subscriptions first.

    Attributes:
        client: aiobotocore's Kinesis client, for control calls and PutRecords.
    """

    def __init__(
        self, aws: AwsOptions, *, max_connections: int = 50, client_attempts: int = 4
    ) -> None:
        self._aws = aws
        self._session: AioSession = get_session()
        if aws.access_key:
            self._session.set_credentials(aws.access_key, aws.secret_key, aws.session_token)
        self._config = AioConfig(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_CALL_TIMEOUT_S,
            max_pool_connections=max_connections,
            retries={"total_max_attempts": client_attempts, "mode": "standard"},
            # The connector builds every request itself; validating 500 records a call is costly.
            parameter_validation=False,
            user_agent_extra="kinesis_ds",
        )
        self._stack = contextlib.AsyncExitStack()
        self.client: Any = None
        self._http: aiohttp.ClientSession = None  # type: ignore[assignment]

    async def __aenter__(self) -> Connection:
        try:
            self.client = await self._stack.enter_async_context(
                self._session.create_client(
                    "kinesis",
                    region_name=self._aws.region,
                    endpoint_url=self._aws.endpoint,
                    config=self._config,
                )
            )
            self._http = await self._stack.enter_async_context(
                aiohttp.ClientSession(
                    # Each subscription holds a connection of its own for as long as it lives.
                    connector=aiohttp.TCPConnector(limit=0, ssl=self._trusted()),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                    read_bufsize=_READ_AHEAD_BYTES,
                    auto_decompress=False,
                    trust_env=True,
                )
            )
        except BaseException as exc:
            await self._stack.aclose()
            if isinstance(exc, Exception):
                raise translate(exc, "CreateClient", self.endpoint_label) from exc
            raise
        return self

    def _trusted(self) -> ssl.SSLContext | bool:
        """The certificates to trust: those that botocore trusts for the control calls."""
        bundle = self._session.get_config_variable("ca_bundle") or os.environ.get(
            "REQUESTS_CA_BUNDLE"
        )
        if not bundle:
            return True
        folder = os.path.isdir(bundle)
        return ssl.create_default_context(
            cafile=None if folder else bundle, capath=bundle if folder else None
        )

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    @property
    def endpoint_label(self) -> str:
        """Where calls go, for messages."""
        url = self.client.meta.endpoint_url if self.client is not None else self._aws.endpoint
        return f"endpoint {url}" if url else "AWS"

    async def call(self, operation: str, body: Mapping[str, Any], target: str) -> dict[str, Any]:
        """One data call; its JSON answer with blobs still in base64.

        Raises:
            KinesisConnectorError: What the service or the network said.
        """
        try:
            async with self._http.post(
                self.client.meta.endpoint_url,
                data=(payload := orjson.dumps(body)),
                headers=await self._signed_headers(operation, payload),
                timeout=aiohttp.ClientTimeout(
                    total=_CALL_TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S
                ),
            ) as response:
                answer = await response.read()
                if response.status != 200:
                    raise _error_of(response, answer, operation, target)
        except Exception as exc:
            raise translate(exc, operation, target) from exc
        return _json_object(answer, operation, target)

    @contextlib.asynccontextmanager
    async def subscribe(
        self, consumer_arn: str, shard_id: str, position: Position, target: str
    ) -> AsyncIterator[EventStream]:
        """Open a subscription. Leaving the context closes its connection.

        Raises:
            KinesisConnectorError: The call was refused, or the connection broke.
        """
        payload = orjson.dumps(
            {
                "ConsumerARN": consumer_arn,
                "ShardId": shard_id,
                "StartingPosition": _starting(position),
            }
        )
        try:
            async with self._http.post(
                self.client.meta.endpoint_url,
                data=payload,
                headers=await self._signed_headers("SubscribeToShard", payload),
            ) as response:
                if response.status != 200:
                    answer = await _beginning(response, 64 * 1024)
                    raise _error_of(response, answer, "SubscribeToShard", target)
                yield EventStream(response.content.iter_any(), response.close)
        except Exception as exc:
            raise translate(exc, "SubscribeToShard", target) from exc

    async def _signed_headers(self, operation: str, payload: bytes) -> dict[str, str]:
        credentials = await self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = await credentials.get_frozen_credentials()
        request = AWSRequest(
            "POST",
            self.client.meta.endpoint_url,
            data=payload,
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"{_TARGET_PREFIX}.{operation}",
            },
        )
        SigV4Auth(frozen, "kinesis", self.client.meta.region_name).add_auth(request)
        return dict(request.headers.items())


def shard_iterator_request(position: Position) -> dict[str, Any]:
    """The members of GetShardIterator that name a position."""
    members = _starting(position)
    request = {"ShardIteratorType": members["Type"]}
    if "SequenceNumber" in members:
        request["StartingSequenceNumber"] = members["SequenceNumber"]
    if "Timestamp" in members:
        request["Timestamp"] = members["Timestamp"]
    return request


def _starting(position: Position) -> dict[str, Any]:
    if isinstance(position, After):
        return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position.sequence_number}
    if isinstance(position, AtTimestamp):
        return {"Type": "AT_TIMESTAMP", "Timestamp": position.ms / 1000}
    if isinstance(position, TrimHorizon):
        return {"Type": "TRIM_HORIZON"}
    raise ValueError(f"nothing can be read at {position}")


async def _beginning(response: aiohttp.ClientResponse, at_most: int) -> bytes:
    """The body, cut where it gets too long to be an error; it may come in pieces."""
    body = b""
    while len(body) < at_most and (piece := await response.content.read(at_most - len(body))):
        body += piece
    return body


def _error_of(
    response: aiohttp.ClientResponse, body: bytes, operation: str, target: str
) -> Exception:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = {}
    if not isinstance(parsed, dict):
        parsed = {}
    code = _text(parsed, "__type") or response.headers.get("x-amzn-ErrorType") or ""
    code = code.rpartition("#")[2].partition(":")[0] or f"HTTP {response.status}"
    message = _text(parsed, "message") or _text(parsed, "Message")
    if not parsed and response.status < 500:
        return foreign_error(operation, target, response.status)
    return service_error(operation, target, code, message, response.status)


def _text(parsed: dict[str, Any], member: str) -> str:
    value = parsed.get(member)
    return value if isinstance(value, str) else ""


def _json_object(answer: bytes, operation: str, target: str) -> dict[str, Any]:
    if len(answer) > MAX_FRAME_BYTES:
        raise ProtocolError(f"{operation} for {target} answered {len(answer)} bytes.")
    try:
        parsed = orjson.loads(answer)
    except orjson.JSONDecodeError as exc:
        raise ProtocolError(
            f"{operation} for {target} answered something that is not JSON."
        ) from exc
    if not isinstance(parsed, dict):
        raise ProtocolError(f"{operation} for {target} answered JSON that is no object.")
    return parsed
