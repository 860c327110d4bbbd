"""Errors for whoever reads Spark's output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from kinesis_ds.errors import KinesisConnectorError

F = TypeVar("F", bound=Callable[..., Any])


def plainly(method: F) -> F:
    """Let the connector's errors through without the frames that led to them.

    Spark shows the whole Python traceback; what the user needs is the one sentence at its end.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except KinesisConnectorError as exc:
            error = exc
        raise error.with_traceback(None) from None

    return call  # type: ignore[return-value]
