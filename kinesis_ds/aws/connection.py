"""One connection to Kinesis: a client for control calls, and signed requests for data calls.

Control calls go through aiobotocore's client. Data calls (SubscribeToShard, GetRecords, PutRecords)
are signed here with botocore's signer and return bytes, because botocore's parser costs ten times
more than the decoding itself. They are sent with aiohttp over HTTP/1.1 (:mod:`.http1`);
SubscribeToShard travels over HTTP/2 (:mod:`.http2`) where that can be had.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session

from kinesis_ds.aws import http1, transport
from kinesis_ds.aws.answers import MAX_ERROR_BYTES, error_answer, json_object
from kinesis_ds.aws.client import LazyClient
from kinesis_ds.aws.errors import translate
from kinesis_ds.aws.http2.connector import NoHttp2Error
from kinesis_ds.aws.http2.pool import Http2Pool
from kinesis_ds.aws.session import configure_session
from kinesis_ds.aws.signing import RequestSigner, SignedRequest
from kinesis_ds.aws.starting_position import starting_position
from kinesis_ds.aws.trust import trust_bundle, trust_for_http1, trust_for_http2
from kinesis_ds.clock import SystemClock
from kinesis_ds.codecs import dumps
from kinesis_ds.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions
    from kinesis_ds.plan.position import Position

_CALL_TIMEOUT_S = 30.0
# A heartbeat has about 250 bytes, its frame included.
_MAX_HEARTBEAT_BYTES = 1024


@dataclass(frozen=True)
class EventStream:
    """The bytes of a subscription as they arrive.

    What the reader does not take holds the server back: over HTTP/1.1 through TCP, over HTTP/2
    through the window of the stream. The reader is at most about 256 KiB behind.

    Attributes:
        chunks: The bytes. Raises an ``aiohttp.ClientError`` when the stream breaks.
        abort: Breaks the stream off, so that its reader gets that error.
    """

    chunks: AsyncIterator[bytes]
    abort: Callable[[], None]


@dataclass(frozen=True)
class Answer:
    """The answer to a data call whose body is still on its way.

    Attributes:
        length: Length of the body in bytes; None if the server does not say.
        served_ms: When it was given, by the service's clock, in milliseconds since the epoch (whole
            seconds); None if the server does not say.
        chunks: The bytes of the body. What the reader does not take stays in the socket.
    """

    length: int | None
    served_ms: int | None
    chunks: AsyncIterator[bytes]


class Connection:
    """An open connection. Use as ``async with Connection(aws) as connection``.

    Belongs to one event loop. Closing it cancels nothing: end the subscriptions first.

    Args:
        aws: Where Kinesis is, and whose credentials sign.
        max_connections: How many connections the client may open.
        client_attempts: How often the client tries a call.
        clock: Tells when a role's credentials expire.

    Attributes:
        client: aiobotocore's Kinesis client, for control calls.
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
            connect_timeout=http1.CONNECT_TIMEOUT_S,
            read_timeout=_CALL_TIMEOUT_S,
            max_pool_connections=max_connections,
            retries={"total_max_attempts": client_attempts, "mode": "standard"},
            # The connector builds every request itself; validating 500 records a call is costly.
            parameter_validation=False,
            user_agent_extra="kinesis_ds",
        )
        self._stack = contextlib.AsyncExitStack()
        self._open = False
        self.client: Any = LazyClient(self._make_client)
        self._signer = RequestSigner(self._session)
        self._http1: aiohttp.ClientSession = None  # type: ignore[assignment]
        self._http2: Http2Pool | None = None
        self._speaks_http2 = True

    async def __aenter__(self) -> Connection:
        try:
            role = configure_session(self._session, self._aws, self._clock)
            if role is not None:
                self._stack.push_async_callback(role.aclose)
            trust = trust_for_http1(trust_bundle(self._session))
            self._http1 = await self._stack.enter_async_context(http1.http1_session(trust))
        except BaseException as exc:
            await self._stack.aclose()
            self._signer.close()
            if isinstance(exc, Exception):
                raise translate(exc, "Connect", self.endpoint_label) from exc
            raise
        self._open = True
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._open = False
        await self._stack.aclose()
        self._signer.close()

    async def _make_client(self) -> Any:
        if not self._open:
            raise TransientError(f"The connection to {self.endpoint_label} was closed.")
        return await self._stack.enter_async_context(
            self._session.create_client(
                "kinesis", endpoint_url=self._aws.endpoint, config=self._config
            )
        )

    @property
    def endpoint_label(self) -> str:
        """Where calls go, for messages."""
        meta = self.client.meta
        url = meta.endpoint_url if meta else self._aws.endpoint
        return f"endpoint {url}" if url else "AWS"

    async def _endpoint_and_region(self) -> tuple[str, str]:
        """Return where data calls go; without the option ``endpoint`` the client knows it."""
        region = self._session.get_config_variable("region")
        if self._aws.endpoint and region:
            return self._aws.endpoint, region
        meta = (await self.client.made()).meta
        return meta.endpoint_url, meta.region_name

    async def _signed(self, operation: str, body: Mapping[str, Any] | bytes) -> SignedRequest:
        payload = body if isinstance(body, bytes) else dumps(body)
        endpoint, region = await self._endpoint_and_region()
        return await self._signer.sign(operation, payload, endpoint, region)

    async def call(
        self, operation: str, body: Mapping[str, Any] | bytes, target: str
    ) -> dict[str, Any]:
        """Make a data call and return its JSON answer, with blobs still in base64.

        Args:
            operation: Its name in the API.
            body: Its members, with blobs in base64; or these as JSON.
            target: What the call is about, for messages.

        Raises:
            KinesisConnectorError: The call was refused, or the network failed.
        """
        async with self.answer(operation, body, target) as answer:
            read = b"".join([chunk async for chunk in answer.chunks])
        return json_object(read, operation, target)

    @contextlib.asynccontextmanager
    async def answer(
        self, operation: str, body: Mapping[str, Any] | bytes, target: str
    ) -> AsyncIterator[Answer]:
        """Make a data call and yield its answer, whose body is then read piece by piece.

        Leaving the context before the end of the body closes the socket.

        Raises:
            KinesisConnectorError: The call was refused, or the network failed.
        """
        timeout = aiohttp.ClientTimeout(total=_CALL_TIMEOUT_S, sock_connect=http1.CONNECT_TIMEOUT_S)
        try:
            request = await self._signed(operation, body)
            async with http1.post(self._http1, request, target, timeout=timeout) as response:
                yield Answer(
                    response.content_length,
                    http1.served_ms(response),
                    http1.body_chunks(response, operation, target),
                )
        except Exception as exc:
            raise translate(exc, operation, target) from exc

    @contextlib.asynccontextmanager
    async def subscribe(
        self, consumer_arn: str, shard_id: str, position: Position, target: str
    ) -> AsyncIterator[EventStream]:
        """Open a subscription. Leaving the context ends it.

        Args:
            consumer_arn: The consumer that subscribes.
            shard_id: The shard to read.
            position: Where to begin.
            target: What the call is about, for messages.

        Raises:
            KinesisConnectorError: The call was refused, or the connection broke.
        """
        operation = "SubscribeToShard"
        body = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard_id,
            "StartingPosition": starting_position(position),
        }
        try:
            async with contextlib.AsyncExitStack() as stack:
                pool = await self._http2_pool()
                request = await self._signed(operation, body)
                stream: EventStream | None = None
                if pool is not None:
                    try:
                        stream = await stack.enter_async_context(
                            self._over_http2(pool, request, target)
                        )
                    except NoHttp2Error as exc:
                        self._give_up_http2(pool, exc)
                if stream is None:
                    response = await stack.enter_async_context(
                        http1.post(self._http1, request, target)
                    )
                    stream = EventStream(
                        response.content.iter_any(), functools.partial(http1.break_off, response)
                    )
                yield stream
        except Exception as exc:
            raise translate(exc, operation, target) from exc

    @contextlib.asynccontextmanager
    async def _over_http2(
        self, pool: Http2Pool, request: SignedRequest, target: str
    ) -> AsyncIterator[EventStream]:
        async with pool.post(request.headers, request.payload) as stream:
            if stream.status != 200:
                body = b""
                async for piece in stream:
                    body += piece
                    if len(body) >= MAX_ERROR_BYTES:
                        break
                error_type = stream.headers.get("x-amzn-errortype")
                raise error_answer(stream.status, error_type, body, request.operation, target)
            yield EventStream(stream, stream.abort)

    async def _http2_pool(self) -> Http2Pool | None:
        """Return the connections over HTTP/2; None if subscriptions travel over HTTP/1.1.

        Raises:
            OptionError: The option ``transport`` demands HTTP/2, and it cannot be had.
        """
        if self._speaks_http2 and self._http2 is None:
            endpoint, _ = await self._endpoint_and_region()
            self._speaks_http2 = transport.prefers_http2(self._aws.transport, endpoint)
            if self._speaks_http2:
                self._make_http2_pool(endpoint)
        return self._http2

    def _make_http2_pool(self, endpoint: str) -> None:
        # Another caller may have made one, or closed the connection, in the meantime.
        if self._http2 is None and self._open:
            trust = trust_for_http2(trust_bundle(self._session))
            self._http2 = Http2Pool(endpoint, trust, _is_heartbeat)
            self._stack.push_async_callback(self._http2.aclose)

    def _give_up_http2(self, pool: Http2Pool, exc: NoHttp2Error) -> None:
        """Use HTTP/1.1 from now on, because the endpoint speaks nothing else."""
        if self._aws.transport == "http2":
            raise transport.http2_impossible(pool.endpoint, *transport.no_alpn()) from exc
        transport.log_fall_back(pool.endpoint, *transport.no_alpn())
        self._speaks_http2 = False
        self._http2 = None


def _is_heartbeat(chunk: bytes) -> bool:
    """Return True if this looks like an event without records.

    A wrong guess costs a little time and nothing else.
    """
    return len(chunk) <= _MAX_HEARTBEAT_BYTES and b'"Records":[]' in chunk
