"""Read an HTTP request as a call of the API. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.faults import Target
from kinesis_ds.testing.journal import Call

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account
    from kinesis_ds.testing.http import Request

TARGET_PREFIX = "Kinesis_20131202."
_ACCESS_KEY = re.compile(r"Credential=([^/,\s]+)")


@dataclass(frozen=True)
class ReceivedCall:
    """A call of the API that came over the network and is not answered yet.

    Attributes:
        target: The operation, and the stream, shard and consumer that it is about.
        members: The members of the request.
        access_key: Id of the access key that signed it; empty if none is named.
    """

    target: Target
    members: dict[str, Any]
    access_key: str

    def noted(self, at: float, outcome: str) -> Call:
        """Return the call as the journal keeps it.

        Args:
            at: When it was answered, in seconds since the epoch.
            outcome: How: ``ok``, an error code, or the names of faults.
        """
        entries = self.members.get("Records")
        records = len(entries) if isinstance(entries, list) else int("Data" in self.members)
        kept = {k: v for k, v in self.members.items() if k not in ("Records", "Data")}
        return Call(self.target, kept, records, at, outcome, self.access_key)


def read_call(request: Request, account: Account) -> ReceivedCall:
    """Return the call that a request makes. Signatures are accepted, not checked.

    Raises:
        ServiceError: It is not a call of the API.
    """
    operation = request.headers.get("x-amz-target", "")
    authorization = request.headers.get("authorization", "")
    if not operation.startswith(TARGET_PREFIX):
        raise ServiceError("UnknownOperationException", "The X-Amz-Target header names no call.")
    if not authorization.startswith("AWS4-HMAC-SHA256 "):
        # AWS refuses a request without a signature.
        raise ServiceError("MissingAuthenticationTokenException", "Missing Authentication Token")
    if not request.headers.get("content-type", "").startswith("application/x-amz-json-1."):
        raise ServiceError("SerializationException", "Only JSON 1.1 is spoken here.")
    try:
        members = orjson.loads(request.body or b"{}")
    except orjson.JSONDecodeError:
        raise ServiceError("SerializationException", "The body is not JSON.") from None
    if not isinstance(members, dict):
        raise ServiceError("SerializationException", "The body is no JSON object.")
    signed = _ACCESS_KEY.search(authorization)
    target = _target(operation.removeprefix(TARGET_PREFIX), members, account)
    return ReceivedCall(target, members, signed[1] if signed else "")


def _target(operation: str, members: Mapping[str, Any], account: Account) -> Target:
    stream, shard = members.get("StreamName"), members.get("ShardId")
    consumer = members.get("ConsumerName")
    for arn in (members.get("StreamARN"), members.get("ConsumerARN")):
        if isinstance(arn, str) and ":stream/" in arn:
            stream, _, rest = arn.partition(":stream/")[2].partition("/consumer/")
            consumer = rest.partition(":")[0] or consumer
    if operation == "GetRecords":
        stream, shard = account.read_by_iterator(members.get("ShardIterator"))
    return Target(operation, _text(stream), _text(shard), _text(consumer))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
