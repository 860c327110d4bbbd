"""From a request to its answer: the model, with the faults around it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import uuid
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.event_stream import EventStreamWriter, TakenOver
from kinesis_ds.testing.faults import (
    AnswerWith,
    CallAction,
    Delay,
    Disconnect,
    FailRecords,
    FaultScript,
    MiscountResults,
    NoAnswer,
    Refuse,
    StreamFaults,
    Target,
)
from kinesis_ds.testing.journal import Call, Journal
from kinesis_ds.testing.swallowing import stream_of

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.clock import Changes, ServerClock
    from kinesis_ds.testing.http import Reply, Request
    from kinesis_ds.testing.replay import Replay
    from kinesis_ds.testing.swallowing import Swallow

logger = logging.getLogger(__name__)

_JSON = "application/x-amz-json-1.1"
_PREFIX = "Kinesis_20131202."
_QUIET = ("Describe", "List", "Get")
_ACCESS_KEY = re.compile(r"Credential=([^/,\s]+)")


class Endpoint:
    """Answers requests. Everything runs on one loop, which owns the account.

    Attributes:
        called: How many calls have been answered or given up.
        session_ends: Until when each temporary access key may be used, by the wall clock.
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
        """Answer one request."""
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
        """Return when another call has been answered than the ``ticket`` first ones."""
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
        """Answer it at wire speed, where it is one to be answered so: no faults, no journal."""
        if request.headers.get("x-amz-target") != _PREFIX + "PutRecords":
            return False
        swallow = self.swallows.get(stream_of(request.body) or "")
        if swallow is None:
            return False
        await self._answer(reply, 200, swallow.answer(request.body))
        return True

    async def _handle(self, request: Request, reply: Reply) -> None:
        try:
            operation, members = _parse(request)
        except ServiceError as exc:
            await self._refuse(reply, exc)
            return
        target = self._target(operation, members)
        signed = _ACCESS_KEY.search(request.headers["authorization"])
        access_key = signed[1] if signed else ""
        note = functools.partial(self._note, target, members, access_key)
        try:
            self._check_session(access_key)
            actions, in_stream = self.script.on_call(target, self._clock.wall())
            outcome = await self._act(target, members, actions, in_stream, reply, note)
        except ServiceError as exc:
            note(exc.code)
            await self._refuse(reply, exc)
        else:
            if outcome:
                note(outcome)

    def _check_session(self, access_key: str) -> None:
        if self.session_ends.get(access_key, float("inf")) <= self._clock.wall():
            raise ServiceError(
                "ExpiredTokenException", "The security token included in the request is expired"
            )

    async def _act(
        self,
        target: Target,
        members: dict[str, Any],
        actions: list[CallAction],
        in_stream: StreamFaults,
        reply: Reply,
        note: Callable[[str], None],
    ) -> str:
        """Answer the call; returns how it went, empty when that was noted already."""
        afterwards: list[CallAction] = []
        for action in actions:
            match action:
                case Refuse():
                    raise ServiceError(action.code, action.message, action.status)
                case AnswerWith():
                    # Before it is answered: whoever has the answer may look for the call.
                    note("AnswerWith")
                    await self._answer(reply, action.status, action.body, action.content_type)
                    return ""
                case NoAnswer(performed=False):
                    note("NoAnswer")
                    await asyncio.get_running_loop().create_future()
                case Disconnect(performed=False):
                    reply.tear()
                    return "Disconnect"
                case Delay(performed=False):
                    await self._changes.sleep(action.seconds)
                case _:
                    afterwards.append(action)
        if target.operation == "SubscribeToShard":
            await self._subscribe(target, members, afterwards, in_stream, reply, note)
            return ""
        answer = self._perform(target, members, afterwards)
        for action in afterwards:
            match action:
                case NoAnswer():
                    note("NoAnswer")
                    await asyncio.get_running_loop().create_future()
                case Disconnect():
                    reply.tear()
                    return "Disconnect"
                case Delay():
                    await self._changes.sleep(action.seconds)
        note("+".join(type(a).__name__ for a in afterwards) or "ok")
        await self._answer(reply, 200, orjson.dumps(answer))
        return ""

    def _perform(
        self, target: Target, members: dict[str, Any], actions: list[CallAction]
    ) -> dict[str, Any]:
        if (replayed := self._replayed(target, members)) is not None:
            return replayed
        refused: dict[int, FailRecords] = {}
        entries = members.get("Records")
        if isinstance(entries, list):
            for action in actions:
                if isinstance(action, FailRecords):
                    refused |= dict.fromkeys(action.strikes(len(entries)), action)
        if refused:
            answer = self._put_the_rest(members, entries or [], refused)
        else:
            answer = self.account.call(target.operation, members, self._clock.wall())
        for action in actions:
            if isinstance(action, MiscountResults):
                results = answer["Records"]
                answer["Records"] = (results + results[:1] * max(0, action.by))[
                    : len(results) + action.by
                ]
        self._wake(target, answer)
        return answer

    def _replayed(self, target: Target, members: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer of a shard in wire-speed mode; None for what it does not answer itself."""
        replay = self.replays.get((target.stream or "", target.shard or ""))
        if replay is None:
            return None
        if target.operation == "GetShardIterator":
            return replay.iterator(target.stream or "", target.shard or "", members)
        return replay.get_records(members) if target.operation == "GetRecords" else None

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
        if target.operation in ("PutRecord", "PutRecords"):
            for result in answer.get("Records", [answer]):
                if "ShardId" in result:
                    self._changes.wake((target.stream, result["ShardId"]))
        elif not target.operation.startswith(_QUIET):
            self._changes.wake_all()

    async def _subscribe(
        self,
        target: Target,
        members: dict[str, Any],
        afterwards: list[CallAction],
        in_stream: StreamFaults,
        reply: Reply,
        note: Callable[[str], None],
    ) -> None:
        subscription = self.account.subscribe(self._known(target, members), self._clock.wall())
        note("+".join(type(a).__name__ for a in afterwards) or "ok")
        key = (subscription.stream_name, subscription.shard_id)
        self._changes.wake(key)  # whoever held the shard has been taken over
        try:
            for action in afterwards:
                match action:
                    case NoAnswer():
                        await asyncio.get_running_loop().create_future()
                    case Disconnect():
                        reply.tear()
                        return
                    case Delay():
                        await self._changes.sleep(action.seconds)
            content_type = {"Content-Type": "application/vnd.amazon.eventstream"}
            await reply.start(200, content_type | self._headers())
            writer = EventStreamWriter(
                reply, subscription, in_stream, self._clock, self._changes, self.replays.get(key)
            )
            with contextlib.suppress(TakenOver):
                await writer.run(members["StartingPosition"])
        finally:
            subscription.close()
            self._changes.wake(key)

    def _known(self, target: Target, members: dict[str, Any]) -> dict[str, Any]:
        """A request as the account can judge it: it knows nothing of replayed records."""
        if (target.stream or "", target.shard or "") not in self.replays:
            return members
        return {**members, "StartingPosition": {"Type": "TRIM_HORIZON"}}

    def _target(self, operation: str, members: Mapping[str, Any]) -> Target:
        stream, shard = members.get("StreamName"), members.get("ShardId")
        consumer = members.get("ConsumerName")
        for arn in (members.get("StreamARN"), members.get("ConsumerARN")):
            if isinstance(arn, str) and ":stream/" in arn:
                stream, _, rest = arn.partition(":stream/")[2].partition("/consumer/")
                consumer = rest.partition(":")[0] or consumer
        if operation == "GetRecords":
            stream, shard = self.account.place_of_iterator(members.get("ShardIterator"))
        return Target(operation, _text(stream), _text(shard), _text(consumer))

    def _note(
        self, target: Target, members: Mapping[str, Any], access_key: str, outcome: str
    ) -> None:
        entries = members.get("Records")
        records = len(entries) if isinstance(entries, list) else int("Data" in members)
        kept = {k: v for k, v in members.items() if k not in ("Records", "Data")}
        self.journal.add(Call(target, kept, records, self._clock.wall(), outcome, access_key))

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


def _parse(request: Request) -> tuple[str, dict[str, Any]]:
    """Operation and members of a request.

    Raises:
        ServiceError: It is none.
    """
    operation = request.headers.get("x-amz-target", "")
    if not operation.startswith(_PREFIX):
        raise ServiceError("UnknownOperationException", "The X-Amz-Target header names no call.")
    if not request.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 "):
        # Signatures are accepted, not checked; a request without one would be refused by AWS.
        raise ServiceError("MissingAuthenticationTokenException", "Missing Authentication Token")
    if not request.headers.get("content-type", "").startswith("application/x-amz-json-1."):
        raise ServiceError("SerializationException", "Only JSON 1.1 is spoken here.")
    try:
        members = orjson.loads(request.body or b"{}")
    except orjson.JSONDecodeError:
        raise ServiceError("SerializationException", "The body is not JSON.") from None
    if not isinstance(members, dict):
        raise ServiceError("SerializationException", "The body is no JSON object.")
    return operation.removeprefix(_PREFIX), members


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
