"""Warns, once an outage, when nothing comes of shards that are being read."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesis_ds.limits import SILENT_S

if TYPE_CHECKING:
    from kinesis_ds.agent.interface import Agent

logger = logging.getLogger(__name__)

_LOOK_S = 5.0
_NAMED = 3


async def watch_silence(agent: Agent, stream: str) -> None:
    """Look at a stream's shards every five seconds until cancelled. On the network loop.

    An outage is told within 25 s: the shards have to be silent at two looks in a row, so that a
    machine that stood still itself is not taken for one.
    """
    now = asyncio.get_running_loop().time
    before: set[str] = set()
    began: float | None = None
    while True:
        await asyncio.sleep(_LOOK_S)
        silent = set(agent.silent())
        if began is None and silent & before:
            began = now() - SILENT_S
            logger.warning(
                "nothing has come of %s of stream %s for more than %d s, not even an empty event. "
                "Reading goes on by itself when Kinesis answers again; until then the lag is "
                "estimated. Can this machine reach the endpoint?",
                _few(silent & before),
                stream,
                SILENT_S,
            )
        elif began is not None and not silent:
            logger.info("all shards are heard again stream=%s after_s=%d", stream, now() - began)
            began = None
        before = silent


def _few(shards: set[str]) -> str:
    named = ", ".join(sorted(shards)[:_NAMED])
    return named + (f" and {len(shards) - _NAMED} more shards" if len(shards) > _NAMED else "")
