"""One connection to Kinesis: a client for control calls, and a raw path for the calls that carry
data.

Control calls and PutRecords go through aiobotocore's client. SubscribeToShard and GetRecords are
signed with botocore's public signer, because botocore's event parser costs ten times more than the
decoding itself; what comes back is bytes, decoded by :mod:`kinesis_ds.agent`. GetRecords is sent
with aiohttp, and SubscribeToShard too, unless it travels over HTTP/2 (:mod:`kinesis_ds.aws.http2`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

from kinesis_ds.aws import transport
from kinesis_ds.aws.credentials import AssumedRole, models, use_own_credentials
from kinesis_ds.aws.errors import foreign_error, service_error, translate
from kinesis_ds.aws.http2.connector import NoHttp2Error
from kinesis_ds.aws.http2.pool import Http2Pool
from kinesis_ds.aws.trust import trust_bundle, trust_for_http1, trust_for_http2
from kinesis_ds.clock import SystemClock
from kinesis_ds.codecs import JSONDecodeError, dumps, loads
from kinesis_ds.errors import ProtocolError, TransientError
from kinesis_ds.limits import MAX_FRAME_BYTES
from kinesis_ds.plan.position import After, At, AtTimestamp, Position, TrimHorizon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions

_TARGET_PREFIX = "Kinesis_20131202"
_CONNECT_TIMEOUT_S = 10.0
_CALL_TIMEOUT_S = 30.0
# No error of the service is longer.
_MAX_ERROR_BYTES = 64 * 1024
# aiohttp stops reading a socket at twice this, and so does a shard whose buffer is full.
_READ_AHEAD_BYTES = 128 * 1024
# A tenth of a millisecond's work; handing it to another thread costs about as much.
_LONG_TO_HASH = 64 * 1024
_HASHING_THREADS = 2
# A heartbeat has some 250, with its frame.
_HEARTBEAT_BYTES = 1024


@dataclass(frozen=True)
class EventStream:
    """A subscription's bytes as they come off the network, and a way to break it off.

    What the reader does not take holds the server back: over HTTP/1.1 by TCP, over HTTP/2 by the
    window of its stream. It is at most about 256 KiB behind. Where the stream breaks, ``chunks``
    raises an ``aiohttp.ClientError``, over both.
    """

    chunks: AsyncIterator[bytes]
    abort: Callable[[], None]


@dataclass(frozen=True)
class Answer:
    """The answer to a data call whose body is still on its way.

    Attributes:
        length: How many bytes it has, where the server says so.
        served_ms: When it was given, by the service's clock (whole seconds), where the server says
            so; milliseconds since the epoch.
        chunks: Its bytes. What the reader does not take is not read.
    """

    length: int | None
    served_ms: int | None
    chunks: AsyncIterator[bytes]


class _LazyClient:
    """aiobotocore's client, made when the first call needs it.

    Making one costs more than reading a small range, and who only reads ranges needs none.
    """

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        self._make = make
        self._made: Any = None
        self._making = asyncio.Lock()

    async def made(self) -> Any:
        """The client itself."""
        async with self._making:
            if self._made is None:
                self._made = await self._make()
            return self._made

    @property
    def meta(self) -> Any:
        """The client's own, or None before the first call."""
        return None if self._made is None else self._made.meta

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        async def call(**request: Any) -> Any:
            return await getattr(await self.made(), operation)(**request)

        call.__name__ = operation
        return call


class Connection:
    """An open connection. Use as ``async with Connection(aws) as connection``.

    Belongs to one event loop. Closing it cancels nothing: end the subscriptions first.

    Args:
        aws: Where Kinesis is, and who asks.
        max_connections: Of the client.
        client_attempts: How often the client tries a call.
        clock: Tells when a role's credentials expire.

    Attributes:
        client: aiobotocore's Kinesis client, for control calls and PutRecords.
    """

    def __init__(
        self,
        aws: AwsOptions,
        *,
        max_connections: int = 50,
        client_attempts: int = 4,
        clock: Clock | None = None,
    ) -> None:
        self._aws = aws
        self._clock = clock or SystemClock()
        self._session: AioSession = get_session()
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
        self._open = False
        self.client: Any = _LazyClient(self._make_client)
        self._http: aiohttp.ClientSession = None  # type: ignore[assignment]
        self._http2: Http2Pool | None = None
        self._speaks_http2 = True
        self._hashing = ThreadPoolExecutor(_HASHING_THREADS, "kinesis-hashing")

    async def __aenter__(self) -> Connection:
        try:
            self._choose_credentials()
            self._http = await self._stack.enter_async_context(
                aiohttp.ClientSession(
                    # Each subscription holds a connection of its own for as long as it lives.
                    connector=aiohttp.TCPConnector(
                        limit=0, ssl=trust_for_http1(trust_bundle(self._session))
                    ),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                    read_bufsize=_READ_AHEAD_BYTES,
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            )
        except BaseException as exc:
            await self._stack.aclose()
            self._hashing.shutdown()
            if isinstance(exc, Exception):
                raise translate(exc, "Connect", self.endpoint_label) from exc
            raise
        self._open = True
        return self

    def _choose_credentials(self) -> None:
        """Have every call ask as the options say: as whom they name, or as a role that those may
        take on.
        """
        asking_sts = get_session() if self._aws.role_arn else None
        for session in filter(None, (self._session, asking_sts)):
            if self._aws.region:
                session.set_config_variable("region", self._aws.region)
            loader = models(session.get_config_variable("data_path"))
            session.register_component("data_loader", loader)
        use_own_credentials(asking_sts or self._session, self._aws)
        if asking_sts is not None:
            role = AssumedRole(self._aws, asking_sts, self._clock)
            self._stack.push_async_callback(role.aclose)
            self._session.register_component("credential_provider", role)

    async def _make_client(self) -> Any:
        if not self._open:
            raise TransientError(f"The connection to {self.endpoint_label} was closed.")
        return await self._stack.enter_async_context(
            self._session.create_client(
                "kinesis", endpoint_url=self._aws.endpoint, config=self._config
            )
        )

    async def __aexit__(self, *exc_info: object) -> None:
        self._open = False
        await self._stack.aclose()
        self._hashing.shutdown()

    @property
    def endpoint_label(self) -> str:
        """Where calls go, for messages."""
        meta = self.client.meta
        url = meta.endpoint_url if meta else self._aws.endpoint
        return f"endpoint {url}" if url else "AWS"

    async def _place(self) -> tuple[str, str]:
        """Endpoint and region of data calls; without an option for the first, botocore knows it."""
        region = self._session.get_config_variable("region")
        if self._aws.endpoint and region:
            return self._aws.endpoint, region
        meta = (await self.client.made()).meta
        return meta.endpoint_url, meta.region_name

    async def call(
        self, operation: str, body: Mapping[str, Any] | bytes, target: str
    ) -> dict[str, Any]:
        """One data call; its JSON answer with blobs still in base64.

        Args:
            operation: Its name in the API.
            body: Its members, with blobs in base64, or those as JSON.
            target: What is asked about, for messages.

        Raises:
            KinesisConnectorError: What the service or the network said.
        """
        async with self.answer(operation, body, target) as answer:
            read = b"".join([chunk async for chunk in answer.chunks])
        return json_object(read, operation, target)

    @contextlib.asynccontextmanager
    async def answer(
        self, operation: str, body: Mapping[str, Any] | bytes, target: str
    ) -> AsyncIterator[Answer]:
        """One data call, its body to be read piece by piece. Leaving the context early closes the
        socket.

        Raises:
            KinesisConnectorError: What the service or the network said.
        """
        timeout = aiohttp.ClientTimeout(total=_CALL_TIMEOUT_S, sock_connect=_CONNECT_TIMEOUT_S)
        try:
            async with self._post(operation, body, target, timeout=timeout) as response:
                yield Answer(
                    response.content_length,
                    _served_ms(response),
                    _bounded(response, operation, target),
                )
        except Exception as exc:
            raise translate(exc, operation, target) from exc

    @contextlib.asynccontextmanager
    async def subscribe(
        self, consumer_arn: str, shard_id: str, position: Position, target: str
    ) -> AsyncIterator[EventStream]:
        """Open a subscription. Leaving the context gives it up.

        Raises:
            KinesisConnectorError: The call was refused, or the connection broke.
        """
        body = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard_id,
            "StartingPosition": _starting(position),
        }
        try:
            async with contextlib.AsyncExitStack() as stack:
                pool = await self._http2_pool()
                stream: EventStream | None = None
                if pool is not None:
                    try:
                        stream = await stack.enter_async_context(
                            self._over_http2(pool, body, target)
                        )
                    except NoHttp2Error as exc:
                        self._without_http2(pool, exc)
                if stream is None:
                    stream = await stack.enter_async_context(self._over_http1(body, target))
                yield stream
        except Exception as exc:
            raise translate(exc, "SubscribeToShard", target) from exc

    @contextlib.asynccontextmanager
    async def _over_http1(self, body: Mapping[str, Any], target: str) -> AsyncIterator[EventStream]:
        async with self._post("SubscribeToShard", body, target) as response:
            yield EventStream(response.content.iter_any(), functools.partial(_break_off, response))

    @contextlib.asynccontextmanager
    async def _over_http2(
        self, pool: Http2Pool, body: Mapping[str, Any], target: str
    ) -> AsyncIterator[EventStream]:
        operation = "SubscribeToShard"
        payload = dumps(body)
        endpoint, region = await self._place()
        headers = await self._signed_headers(operation, payload, endpoint, region)
        async with pool.post(headers, payload) as stream:
            if stream.status != 200:
                said = b""
                async for piece in stream:
                    said += piece
                    if len(said) >= _MAX_ERROR_BYTES:
                        break
                error_type = stream.headers.get("x-amzn-errortype")
                raise _error_of(stream.status, error_type, said, operation, target)
            yield EventStream(stream, stream.abort)

    async def _http2_pool(self) -> Http2Pool | None:
        """The connections over HTTP/2; None where subscriptions travel over HTTP/1.1.

        Raises:
            OptionError: The user insists on HTTP/2, and it cannot be.
        """
        if self._speaks_http2 and self._http2 is None:
            endpoint, _ = await self._place()
            self._speaks_http2 = transport.prefers_http2(self._aws.transport, endpoint)
            if self._speaks_http2:
                self._open_http2(endpoint)
        return self._http2

    def _open_http2(self, endpoint: str) -> None:
        if self._http2 is None and self._open:
            self._http2 = Http2Pool(
                endpoint, trust_for_http2(trust_bundle(self._session)), _is_heartbeat
            )
            self._stack.push_async_callback(self._http2.aclose)

    def _without_http2(self, pool: Http2Pool, exc: NoHttp2Error) -> None:
        """The endpoint speaks HTTP/1.1 only."""
        if self._aws.transport == "http2":
            raise transport.insists(pool.endpoint, *transport.no_alpn()) from exc
        transport.fall_back(pool.endpoint, *transport.no_alpn())
        self._speaks_http2 = False
        self._http2 = None

    @contextlib.asynccontextmanager
    async def _post(
        self, operation: str, body: Mapping[str, Any] | bytes, target: str, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A signed call that was answered well. What is not read of the answer is given up."""
        payload = body if isinstance(body, bytes) else dumps(body)
        endpoint, region = await self._place()
        headers = await self._signed_headers(operation, payload, endpoint, region)
        options |= _proxy_of(endpoint)
        async with self._http.post(endpoint, data=payload, headers=headers, **options) as response:
            try:
                if response.status != 200:
                    said = await _beginning(response, _MAX_ERROR_BYTES)
                    error_type = response.headers.get("x-amzn-ErrorType")
                    raise _error_of(response.status, error_type, said, operation, target)
                yield response
            finally:
                _break_off(response)

    async def _signed_headers(
        self, operation: str, payload: bytes, endpoint: str, region: str
    ) -> dict[str, str]:
        credentials = await self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = await credentials.get_frozen_credentials()
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"{_TARGET_PREFIX}.{operation}",
        }
        if len(payload) >= _LONG_TO_HASH:
            # The hash is most of what a signature costs; meanwhile the loop has other things to do.
            # The signer takes it from the header, and signs that, too.
            hashed = asyncio.get_running_loop().run_in_executor(self._hashing, _sha256, payload)
            headers["X-Amz-Content-SHA256"] = await hashed
        request = AWSRequest("POST", endpoint, data=payload, headers=headers)
        SigV4Auth(frozen, "kinesis", region).add_auth(request)
        return dict(request.headers.items())


def _sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


@functools.lru_cache(maxsize=16)
def _proxy_of(endpoint: str) -> dict[str, Any]:
    """The proxy to go through, from the environment as of the first call, as aiohttp takes it.

    aiohttp would look for it anew with each request, on a thread of its own; and for a password in
    ``.netrc``, which must not get in the way of a signature.
    """
    parts = urllib.parse.urlsplit(endpoint)
    found = urllib.request.getproxies().get(parts.scheme)
    if not found or urllib.request.proxy_bypass(parts.hostname or ""):
        return {}
    return {"proxy": found}  # with user and password, where it has them


def _is_heartbeat(chunk: bytes) -> bool:
    """Whether this is an event without records, as far as that can be told without reading it.

    Where it is not, or is one and does not look like it, nothing is lost but a little time.
    """
    return len(chunk) <= _HEARTBEAT_BYTES and b'"Records":[]' in chunk


def _break_off(response: aiohttp.ClientResponse) -> None:
    """Give up a connection whose answer was not read to its end.

    Closing it would say goodbye in TLS and wait for the same from a peer that may still be sending,
    up to 30 s, in which the socket stays open: longer than the event loop may live.
    """
    connection = response.connection
    if connection is None:
        return  # read to its end, and given back
    transport = connection.transport
    response.close()
    if transport is not None:
        transport.abort()


async def _bounded(
    response: aiohttp.ClientResponse, operation: str, target: str
) -> AsyncIterator[bytes]:
    """A body as it comes, up to what an answer may be long."""
    left = MAX_FRAME_BYTES
    async for piece in response.content.iter_any():
        left -= len(piece)
        if left < 0:
            raise ProtocolError(
                f"{operation} for {target} answered more than {MAX_FRAME_BYTES} bytes.",
                "Is the endpoint a Kinesis endpoint?",
            )
        yield piece


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
    if isinstance(position, At):
        return {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": position.sequence_number}
    if isinstance(position, After):
        return {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": position.sequence_number}
    if isinstance(position, AtTimestamp):
        return {"Type": "AT_TIMESTAMP", "Timestamp": position.ms / 1000}
    if isinstance(position, TrimHorizon):
        return {"Type": "TRIM_HORIZON"}
    raise ValueError(f"nothing can be read at {position}")


def _served_ms(response: aiohttp.ClientResponse) -> int | None:
    try:
        return int(parsedate_to_datetime(response.headers["Date"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError):
        return None


async def _beginning(response: aiohttp.ClientResponse, at_most: int) -> bytes:
    """The body, cut where it gets too long to be an error; it may come in pieces."""
    body = b""
    while len(body) < at_most and (piece := await response.content.read(at_most - len(body))):
        body += piece
    return body


def _error_of(
    status: int, error_type: str | None, body: bytes, operation: str, target: str
) -> Exception:
    try:
        parsed = loads(body)
    except JSONDecodeError:
        parsed = {}
    if not isinstance(parsed, dict):
        parsed = {}
    code = _text(parsed, "__type") or error_type or ""
    code = code.rpartition("#")[2].partition(":")[0]
    message = _text(parsed, "message") or _text(parsed, "Message")
    if not code and status < 500:
        return foreign_error(operation, target, status)
    return service_error(operation, target, code or f"HTTP {status}", message, status)


def _text(parsed: dict[str, Any], member: str) -> str:
    value = parsed.get(member)
    return value if isinstance(value, str) else ""


def json_object(answer: bytes, operation: str, target: str) -> dict[str, Any]:
    """The object that an answer is.

    Raises:
        ProtocolError: It is none.
    """
    try:
        parsed = loads(answer)
    except JSONDecodeError as exc:
        raise ProtocolError(
            f"{operation} for {target} answered something that is not JSON.",
            "Is the endpoint a Kinesis endpoint?",
        ) from exc
    if not isinstance(parsed, dict):
        raise ProtocolError(
            f"{operation} for {target} answered JSON that is no object.",
            "Is the endpoint a Kinesis endpoint?",
        )
    return parsed
