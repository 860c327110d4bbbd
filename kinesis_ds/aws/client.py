"""aiobotocore's client, made when the first call needs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class LazyClient:
    """Has the methods of aiobotocore's client, and makes that client at the first call.

    Making a client takes longer than reading a small range, and reading ranges needs no client.

    Args:
        make: Makes the client.
    """

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        self._make = make
        self._made: Any = None
        self._making = asyncio.Lock()

    async def made(self) -> Any:
        """Return the client itself; make it if there is none yet."""
        async with self._making:
            if self._made is None:
                self._made = await self._make()
            return self._made

    @property
    def meta(self) -> Any:
        """The client's ``meta``; None before the first call."""
        return None if self._made is None else self._made.meta

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        async def call(**request: Any) -> Any:
            return await getattr(await self.made(), operation)(**request)

        call.__name__ = operation
        return call
