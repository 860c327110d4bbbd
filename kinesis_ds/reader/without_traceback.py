"""Keep Python tracebacks out of what Spark shows for the connector's own errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kinesis_ds.errors import KinesisConnectorError

F = TypeVar("F", bound=Callable[..., Any])


def without_traceback(method: F) -> F:
    """Raise the connector's errors from ``method`` without the frames that led to them.

    Spark prints the whole Python traceback, and the user needs only the sentence at its end. Other
    exceptions pass unchanged.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except KinesisConnectorError as exc:
            error = exc
        raise error.with_traceback(None) from None

    return call  # type: ignore[return-value]
