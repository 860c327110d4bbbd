"""Answer HTTP requests: with what the account answers, and with the faults around it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.event_stream import EventStreamWriter, TakenOver
from kinesis_ds.testing.fault_script import FaultScript, StreamFaults
from kinesis_ds.testing.faults import (
    AnswerWith,
    CallAction,
    Delay,
    Disconnect,
    FailRecords,
    MiscountResults,
    NoAnswer,
    Refuse,
)
from kinesis_ds.testing.journal import Journal
from kinesis_ds.testing.received_call import TARGET_PREFIX, ReceivedCall, read_call
from kinesis_ds.testing.swallowing import stream_of

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.clock import Changes, ServerClock
    from kinesis_ds.testing.faults import Target
    from kinesis_ds.testing.http import Reply, Request
    from kinesis_ds.testing.replay import Replay
    from kinesis_ds.testing.swallowing import Swallow

logger = logging.getLogger(__name__)

_JSON = "application/x-amz-json-1.1"
# Operations that change nothing begin with these.
_READING = ("Describe", "List", "Get")


class Endpoint:
    """Answers requests. Use it on one loop only, which owns the account too.

    Attributes:
        account: The model of the service.
        script: The faults still to come.
        journal: The calls that came.
        replays: By stream and shard, what is sent in place of the shard's records.
        swallows: By stream, what answers PutRecords in place of the account.
        called: How many calls were answered or given up.
        session_ends: By access key, when it expires, in seconds since the epoch.
        crashes: Exceptions of the double itself; a test that caused one proves nothing.
    """

    def __init__(self, account: Account, clock: ServerClock, changes: Changes) -> None:
        self.account = account
        self.script = FaultScript()
        self.journal = Journal()
        self.replays: dict[tuple[str, str], Replay] = {}
        self.swallows: dict[str, Swallow] = {}
        self.called = 0
        self.session_ends: dict[str, float] = {}
        self.crashes: list[Exception] = []
        self._next_call: asyncio.Future[None] | None = None
        self._clock = clock
        self._changes = changes

    async def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request. An exception of the double itself is kept in ``crashes``."""
        try:
            if self.swallows and await self._swallow(request, reply):
                return
            await self._handle(request, reply)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as exc:
            logger.exception("the double failed")
            self.crashes.append(exc)
            reply.tear()
        finally:
            self._count()

    async def next_call(self, ticket: int, within_s: float) -> None:
        """Wait until more calls were answered than ``ticket``, at most ``within_s`` seconds of the
        machine's time.
        """
        if self.called != ticket:
            return
        if self._next_call is None:
            self._next_call = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._next_call}, timeout=within_s)

    def _count(self) -> None:
        self.called += 1
        if self._next_call is not None and not self._next_call.done():
            self._next_call.set_result(None)
        self._next_call = None

    async def _swallow(self, request: Request, reply: Reply) -> bool:
        """Answer PutRecords into a stream that swallows, without faults and journal; else return
        False.
        """
        if request.headers.get("x-amz-target") != TARGET_PREFIX + "PutRecords":
            return False
        swallow = self.swallows.get(stream_of(request.body) or "")
        if swallow is None:
            return False
        await self._answer(reply, 200, swallow.answer(request.body))
        return True

    async def _handle(self, request: Request, reply: Reply) -> None:
        try:
            call = read_call(request, self.account)
        except ServiceError as exc:
            await self._refuse(reply, exc)
            return

        def note(outcome: str) -> None:
            self.journal.add(call.noted(self._clock.wall(), outcome))

        try:
            self._check_session(call.access_key)
            actions, in_stream = self.script.on_call(call.target, self._clock.wall())
            await self._act(call, actions, in_stream, reply, note)
        except ServiceError as exc:
            note(exc.code)
            await self._refuse(reply, exc)

    def _check_session(self, access_key: str) -> None:
        if self.session_ends.get(access_key, float("inf")) <= self._clock.wall():
            raise ServiceError(
                "ExpiredTokenException", "The security token included in the request is expired"
            )

    async def _act(
        self,
        call: ReceivedCall,
        actions: list[CallAction],
        in_stream: StreamFaults,
        reply: Reply,
        note: Callable[[str], None],
    ) -> None:
        """Answer a call, with the faults that strike it, and note how it went.

        Raises:
            ServiceError: The call is refused. That is not noted yet.
        """
        afterwards: list[CallAction] = []
        for action in actions:
            match action:
                case Refuse():
                    raise ServiceError(action.code, action.message, action.status)
                case AnswerWith():
                    # Noted before the answer: whoever has the answer may look for the call.
                    note("AnswerWith")
                    await self._answer(reply, action.status, action.body, action.content_type)
                    return
                case NoAnswer() | Disconnect() | Delay() if not action.performed:
                    if not await self._obstruct(action, reply, note):
                        return
                case _:
                    afterwards.append(action)
        if call.target.operation == "SubscribeToShard":
            await self._subscribe(call, afterwards, in_stream, reply, note)
            return
        answer = self._perform(call, afterwards)
        for action in afterwards:
            if not await self._obstruct(action, reply, note):
                return
        note("+".join(type(a).__name__ for a in afterwards) or "ok")
        await self._answer(reply, 200, orjson.dumps(answer))

    async def _obstruct(
        self, action: CallAction, reply: Reply, note: Callable[[str], None]
    ) -> bool:
        """Keep an answer back as a fault says, if it says so; return whether it may be sent."""
        match action:
            case NoAnswer():
                note("NoAnswer")
                await asyncio.get_running_loop().create_future()
            case Disconnect():
                reply.tear()
                note("Disconnect")
                return False
            case Delay():
                await self._changes.sleep(action.seconds)
        return True

    def _perform(self, call: ReceivedCall, actions: list[CallAction]) -> dict[str, Any]:
        """Let a call take effect, and return its answer."""
        if (replayed := self._replayed(call)) is not None:
            return replayed
        refused: dict[int, FailRecords] = {}
        entries = call.members.get("Records")
        if isinstance(entries, list):
            for action in actions:
                if isinstance(action, FailRecords):
                    refused |= dict.fromkeys(action.strikes(len(entries)), action)
        if refused:
            answer = self._put_the_rest(call.members, entries or [], refused)
        else:
            now = self._clock.wall()
            answer = self.account.call(call.target.operation, call.members, now)
        for action in actions:
            if isinstance(action, MiscountResults):
                results = answer["Records"]
                answer["Records"] = (results + results[:1] * max(0, action.by))[
                    : len(results) + action.by
                ]
        self._wake(call.target, answer)
        return answer

    def _replayed(self, call: ReceivedCall) -> dict[str, Any] | None:
        """Return the answer of a shard that is replayed; None if the account answers the call."""
        stream, shard = call.target.stream or "", call.target.shard or ""
        replay = self.replays.get((stream, shard))
        if replay is None:
            return None
        if call.target.operation == "GetShardIterator":
            return replay.iterator(stream, shard, call.members)
        return replay.get_records(call.members) if call.target.operation == "GetRecords" else None

    def _put_the_rest(
        self, members: dict[str, Any], entries: list[Any], refused: Mapping[int, FailRecords]
    ) -> dict[str, Any]:
        kept = [entry for i, entry in enumerate(entries) if i not in refused]
        answer: dict[str, Any] = {"FailedRecordCount": 0, "Records": []}
        if kept:
            answer = self.account.call(
                "PutRecords", {**members, "Records": kept}, self._clock.wall()
            )
        results = iter(answer["Records"])
        return {
            **answer,
            "FailedRecordCount": answer["FailedRecordCount"] + len(refused),
            "Records": [
                {"ErrorCode": refused[i].code, "ErrorMessage": refused[i].message}
                if i in refused
                else next(results)
                for i in range(len(entries))
            ],
        }

    def _wake(self, target: Target, answer: Mapping[str, Any]) -> None:
        """Wake the subscriptions for which a call may have changed something."""
        if target.operation in ("PutRecord", "PutRecords"):
            for result in answer.get("Records", [answer]):
                if "ShardId" in result:
                    self._changes.wake((target.stream, result["ShardId"]))
        elif not target.operation.startswith(_READING):
            self._changes.wake_all()

    async def _subscribe(
        self,
        call: ReceivedCall,
        afterwards: list[CallAction],
        in_stream: StreamFaults,
        reply: Reply,
        note: Callable[[str], None],
    ) -> None:
        subscription = self.account.subscribe(self._without_replay(call), self._clock.wall())
        note("+".join(type(a).__name__ for a in afterwards) or "ok")
        key = (subscription.stream_name, subscription.shard_id)
        self._changes.wake(key)  # whoever held the shard has been taken over
        try:
            for action in afterwards:
                if not await self._obstruct(action, reply, lambda outcome: None):
                    return
            content_type = {"Content-Type": "application/vnd.amazon.eventstream"}
            await reply.start(200, content_type | self._headers())
            writer = EventStreamWriter(
                reply, subscription, in_stream, self._clock, self._changes, self.replays.get(key)
            )
            with contextlib.suppress(TakenOver):
                await writer.run(call.members["StartingPosition"])
        finally:
            subscription.close()
            self._changes.wake(key)

    def _without_replay(self, call: ReceivedCall) -> dict[str, Any]:
        """Return a request that the account can check: it does not know replayed records."""
        if (call.target.stream or "", call.target.shard or "") not in self.replays:
            return call.members
        return {**call.members, "StartingPosition": {"Type": "TRIM_HORIZON"}}

    async def _refuse(self, reply: Reply, error: ServiceError) -> None:
        body = orjson.dumps({"__type": error.code, "message": error.message})
        await self._answer(reply, error.status, body)

    async def _answer(
        self, reply: Reply, status: int, body: bytes, content_type: str = _JSON
    ) -> None:
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        await reply.start(status, headers | self._headers())
        await reply.write(body)
        await reply.end()

    def _headers(self) -> dict[str, str]:
        return {
            "x-amzn-RequestId": str(uuid.uuid4()),
            "Date": formatdate(self._clock.wall(), usegmt=True),
        }
