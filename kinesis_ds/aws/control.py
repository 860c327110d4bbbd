"""Make control calls through aiobotocore's client, and read their answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kinesis_ds.aws.errors import translate
from kinesis_ds.errors import KinesisConnectorError, ProtocolError, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesis_ds.plan.stream import StreamId


async def control_call(
    method: Callable[..., Awaitable[Any]], stream: StreamId, **request: Any
) -> Any:
    """Call a method of the client.

    Raises:
        KinesisConnectorError: The call failed; the client's exception, translated.
    """
    try:
        return await method(**request)
    except Exception as exc:
        operation = "".join(word.capitalize() for word in method.__name__.split("_"))
        error: KinesisConnectorError = translate(exc, operation, f"stream {stream.label}")
        raise error from exc


@contextlib.contextmanager
def reading_answer(operation: str, stream: StreamId) -> Iterator[None]:
    """Turn what reading an answer raises into an error about the answer.

    Raises:
        ProtocolError: A member of the answer is missing or has another type.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise ProtocolError(
            f"{operation} for stream {stream.label} was answered without what Kinesis promises "
            f"({type(exc).__name__}: {shown(exc.args[0] if exc.args else '')}).",
            "Is the endpoint a Kinesis endpoint?",
        ) from exc
