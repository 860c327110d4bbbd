"""A server on 127.0.0.1 that answers SubscribeToShard with bytes from a script.

It knows nothing of Kinesis but the envelope: which shard is asked for, and where to start. What it
answers is written down by the test, frame by frame, with the faults that the test is about.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from tests.support.polling import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


class Gate:
    """A place in a script that waits until the test opens it."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        # Opened on another thread, so an event of this loop would not do.
        while not self._open.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Cut:
    """A place in a script where the connection is torn."""


FOREVER = Gate()
CUT = Cut()
Step = bytes | Gate | Cut


class Play:
    """Answer 200 and take the steps one after the other, then end the body properly."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps


@dataclass
class Refuse:
    """Answer with an error; ``pieces`` of its body come with a pause between them."""

    status: int
    body: bytes
    pieces: int = 1

    @classmethod
    def with_code(cls, code: str, message: str = "", status: int = 400, pieces: int = 1) -> Refuse:
        return cls(status, orjson.dumps({"__type": code, "message": message}), pieces)


class Silence:
    """Take the request and never answer."""


Script = Play | Refuse | Silence


@dataclass(frozen=True)
class Call:
    """One SubscribeToShard as it was received."""

    shard_id: str
    position: dict[str, Any]


class LoopbackServer:
    """Runs on a thread of its own from construction until :meth:`close`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.open = 0
        self.get_records: Callable[[str], dict[str, Any]] = lambda iterator: {"Records": []}
        self._scripts: dict[str, deque[Script]] = defaultdict(deque)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._port = 0
        self._thread = threading.Thread(target=self._run, name="loopback-server")
        self._thread.start()
        eventually(lambda: self._port, "the loopback server listens")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def play(self, shard_id: str, *scripts: Script) -> None:
        """Answers to the next calls for a shard; later calls are held open and silent."""
        self._scripts[shard_id].extend(scripts)

    def positions(self, shard_id: str) -> list[str]:
        """Where the calls for a shard asked to start, as ``TYPE`` or ``TYPE:number``."""
        return [
            ":".join(str(v) for v in call.position.values())
            for call in self.calls
            if call.shard_id == shard_id
        ]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    # --- on its thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        body = orjson.loads(await request.read())
        if operation == "SubscribeToShard":
            return await self._subscribe(request, body)
        if operation == "GetShardIterator":
            start = body.get("StartingSequenceNumber", "")
            return web.json_response({"ShardIterator": f"{body['ShardIteratorType']}:{start}"})
        if operation == "GetRecords":
            return web.json_response(self.get_records(body["ShardIterator"]))
        raise AssertionError(f"not in any script: {operation}")

    async def _subscribe(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        shard_id = body["ShardId"]
        waiting = self._scripts[shard_id]
        script = waiting.popleft() if waiting else Play(FOREVER)
        self.calls.append(Call(shard_id, body["StartingPosition"]))
        self.open += 1
        try:
            if isinstance(script, Refuse):
                return await self._refuse(request, script)
            if isinstance(script, Silence):
                await FOREVER.passed()
            return await self._play(request, script)
        finally:
            self.open -= 1

    async def _refuse(self, request: web.Request, script: Refuse) -> web.StreamResponse:
        response = web.StreamResponse(status=script.status)
        response.enable_chunked_encoding()
        await response.prepare(request)
        size = -(-len(script.body) // script.pieces)
        for at in range(0, len(script.body), size):
            await response.write(script.body[at : at + size])
            await asyncio.sleep(0.01)
        await response.write_eof()
        return response

    async def _play(self, request: web.Request, script: Any) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "application/vnd.amazon.eventstream"}
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for step in script.steps:
                if isinstance(step, bytes):
                    await response.write(step)
                elif isinstance(step, Gate):
                    await step.passed()
                elif request.transport is not None:
                    request.transport.close()  # sends what was written, and no proper end
                    await FOREVER.passed()
            await response.write_eof()
        return response
