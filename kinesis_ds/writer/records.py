"""What travels to Kinesis: records, and the requests that carry them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kinesis_ds.limits import SHARD_BYTES_PER_S, SHARD_RECORDS_PER_S

_RECORD_COST = 1 / SHARD_RECORDS_PER_S


@dataclass(slots=True, eq=False)
class Record:
    """One Kinesis record on its way: a row, or an aggregate of several.

    Attributes:
        data, partition_key, explicit_hash_key: As PutRecords takes them.
        size: What Kinesis counts: data and partition key, in bytes.
        row: Its row's number within the task, from 0; of an aggregate the first one's.
        rows: How many rows it stands for.
        held: What its rows hold of the window's bytes. For a plain record its size.
        keys: The partition keys of an aggregate's rows, each once; empty for a plain record.
        first_try: When it was first sent, in monotonic seconds; None before that.
        tries: How often it was sent.
        since: When it began to wait where it waits now; the lanes' own.
        cost: Shard-seconds that it takes: of the two limits of a shard, the one it uses up more of.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size: int
    row: int
    rows: int = 1
    held: int = 0
    keys: tuple[str, ...] = ()
    first_try: float | None = None
    tries: int = 0
    since: float = 0.0
    cost: float = field(init=False)

    def __post_init__(self) -> None:
        cost = self.size / SHARD_BYTES_PER_S
        self.cost = cost if cost > _RECORD_COST else _RECORD_COST


@dataclass(frozen=True, slots=True)
class Request:
    """Records that travel in one PutRecords call; ``size`` in bytes, as Kinesis counts."""

    records: list[Record]
    size: int


@dataclass(frozen=True)
class PackingLimits:
    """What one request and one record may hold. Sizes count partition keys.

    Attributes:
        request_records: Records a request.
        request_bytes: Bytes a request. A single record larger than this travels alone.
        record_bytes: Bytes a record; the stream's own limit.
    """

    request_records: int
    request_bytes: int
    record_bytes: int


def plain(data: bytes, key: str, hash_key: str | None, size: int, row: int) -> Record:
    """The record of one row."""
    return Record(data, key, hash_key, size, row, 1, size)
