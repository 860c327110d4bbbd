"""Reads what Kinesis answered for each record of a PutRecords request. Pure.

There are three answers, not two: delivered, to be sent again, or rejected. An answer that this code
does not know counts as rejected, never as delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kinesis_ds.errors import ProtocolError, shown
from kinesis_ds.plan.position import MAX_DIGITS, is_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.writer.records import Request

THROTTLED_CODES = frozenset(
    {"KMSThrottlingException", "ProvisionedThroughputExceededException", "ThrottlingException"}
)
# The API names two per-record codes, ProvisionedThroughputExceededException and InternalFailure.
# The others are the same conditions under the names that the service uses for whole requests.
_RETRY_CODES = THROTTLED_CODES | {
    "InternalFailure",
    "InternalFailureException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
}


@dataclass(slots=True)
class Retry:
    """The record is not stored; Kinesis may take it later. Code and message as answered."""

    code: str
    message: str


@dataclass(slots=True)
class Rejected:
    """The record is not stored, and sending it again will not help."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers for the records of a request, in their order, by column.

    Attributes:
        shards: The id of the shard in which each is stored; None where it is not stored.
        numbers: The sequence number of each; empty where it is not stored.
        failures: The answers for those that are not stored, by their place in the request.
    """

    shards: list[str | None]
    numbers: list[str]
    failures: dict[int, Retry | Rejected]

    @property
    def stored(self) -> int:
        """How many records are stored."""
        return len(self.shards) - len(self.failures)

    def all_stored(self, first: int, end: int, shard: str | None) -> bool:
        """Say whether all records from ``first`` up to ``end`` are stored.

        Args:
            first: The first place.
            end: The place behind the last one.
            shard: If given, they must be stored in this shard.
        """
        if shard is None:
            return not any(first <= at < end for at in self.failures)
        return self.shards[first:end].count(shard) == end - first


@dataclass(frozen=True)
class ShardWrites:
    """The totals of what was stored in one shard.

    Attributes:
        stream: The stream as the query or the row names it.
        shard_id: The shard.
        first_sequence_number: The lowest sequence number. Requests overtake each other, so it is
            not always that of the first row.
        last_sequence_number: The highest sequence number.
        records: How many rows, however many of them a Kinesis record holds. Rows that readers leave
            out because they belong to another shard do not count.
        bytes: The size of their data and partition keys.
    """

    stream: str
    shard_id: str
    first_sequence_number: str
    last_sequence_number: str
    records: int
    bytes: int


def classify(answer: Any, sent: int) -> Answers:
    """Read the answer to a request of ``sent`` records.

    ``FailedRecordCount`` is not looked at: a server was seen that reports 1 for four failed
    entries. Each entry's own ``ErrorCode`` decides.

    Raises:
        ProtocolError: There is not one result for each record. Which result belongs to which record
            is then unknown, so none counts as delivered and nothing is sent again: either would be
            a guess. The task fails, and Spark's retry of it writes its rows again.
    """
    entries = answer.get("Records") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or len(entries) != sent:
        found = len(entries) if isinstance(entries, list) else "no"
        raise ProtocolError(
            f"PutRecords was sent {sent} records and answered with {found} results, so it is not "
            "known which records were stored.",
            "Is the endpoint a Kinesis endpoint?",
        )
    return _all_stored(entries) or _one_by_one(entries)


def _all_stored(entries: list[Any]) -> Answers | None:
    """Read an answer that says all is stored, a column at a time; None if it says anything else."""
    try:
        if set(map(len, entries)) != {2}:  # a shard and a number: no room for an error
            return None
        shards = list(map(itemgetter("ShardId"), entries))
        numbers = list(map(itemgetter("SequenceNumber"), entries))
        places, digits, lengths = set(shards), "".join(numbers).encode(), set(map(len, numbers))
    except (KeyError, TypeError, UnicodeEncodeError):
        return None
    good = (
        all(type(shard) is str and shard for shard in places)
        and digits.isdigit()
        and 1 <= min(lengths) <= max(lengths) <= MAX_DIGITS
    )
    return Answers(shards, numbers, {}) if good else None


def _one_by_one(entries: list[Any]) -> Answers:
    """Read an answer entry by entry, because not all is stored or something makes no sense."""
    answers = Answers([], [], {})
    for at, entry in enumerate(entries):
        stored = _is_stored(entry)
        answers.shards.append(entry["ShardId"] if stored else None)
        answers.numbers.append(entry["SequenceNumber"] if stored else "")
        if not stored:
            answers.failures[at] = _failure(entry)
    return answers


def _is_stored(entry: Any) -> bool:
    if type(entry) is not dict or entry.get("ErrorCode", "") not in ("", None):
        return False
    shard_id = entry.get("ShardId")
    return type(shard_id) is str and shard_id != "" and is_number(entry.get("SequenceNumber"))


def _failure(entry: Any) -> Retry | Rejected:
    if not isinstance(entry, dict):
        return Rejected("no result", f"{shown(entry)} was answered")
    code = entry.get("ErrorCode")
    if code is not None and code != "":
        said = entry.get("ErrorMessage")
        message = said if isinstance(said, str) else ""
        if not isinstance(code, str):
            return Rejected("unknown error", f"{shown(code)} was answered as its code. {message}")
        return Retry(code, message) if code in _RETRY_CODES else Rejected(code, message)
    return Rejected("no sequence number", "neither an error nor a sequence number was answered")


def tally(stream: str, request: Request, answers: Answers) -> list[ShardWrites]:
    """Sum up what is stored of a request, for each shard."""
    numbers = answers.numbers
    first = next(iter(answers.shards), None)
    if first is not None and answers.all_stored(0, len(answers.shards), first):
        return [ShardWrites(stream, first, *_ends(numbers), request.rows, request.window_bytes)]
    places: dict[str, list[int]] = {}
    for at, shard_id in enumerate(answers.shards):
        if shard_id is not None:
            places.setdefault(shard_id, []).append(at)
    weights = request.weights()
    return [
        ShardWrites(
            stream,
            shard_id,
            *_ends([numbers[at] for at in stored]),
            sum(weights[at][0] for at in stored),
            sum(weights[at][1] for at in stored),
        )
        for shard_id, stored in places.items()
    ]


def _ends(numbers: list[str]) -> tuple[str, str]:
    """Return the lowest and the highest of some sequence numbers."""
    if len(set(map(len, numbers))) == 1:  # numbers of one length compare as texts
        return min(numbers), max(numbers)
    return min(numbers, key=int), max(numbers, key=int)


WritesByShard = dict[tuple[str, str], ShardWrites]
"""The totals of what was stored, by the name of the stream and the id of the shard."""


def merge(writes: Iterable[ShardWrites], into: WritesByShard | None = None) -> WritesByShard:
    """Sum up by stream and shard, in any order. Adds to ``into`` and returns it, if given."""
    total = {} if into is None else into
    for new in writes:
        key = (new.stream, new.shard_id)
        if (old := total.get(key)) is None:
            total[key] = new
            continue
        ends = (old.first_sequence_number, old.last_sequence_number)
        ends = _ends([*ends, new.first_sequence_number, new.last_sequence_number])
        total[key] = ShardWrites(*key, *ends, old.records + new.records, old.bytes + new.bytes)
    return total


def take_back(written: WritesByShard, key: tuple[str, str], rows: int, size: int) -> None:
    """Subtract rows that were counted as stored in a shard, and their ``size`` in bytes."""
    had = written[key]
    written[key] = replace(had, records=had.records - rows, bytes=had.bytes - size)
