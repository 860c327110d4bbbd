"""Answer PutRecords at the speed of the network: count the records and keep nothing. Pure.

The double's own work for a request is then a search through its body, so that a benchmark measures
the client. With several shards the body has to be parsed, which takes twice as long.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from itertools import count

import orjson

from kinesis_ds.testing.hashing import hash_of

_STREAM = re.compile(rb'"StreamName": ?"([^"]+)"')
# Clients write the stream's name before the records or behind them.
_EDGE_BYTES = 256
# With ten digits behind it for the place in the request: as long as those of the service.
_FIRST = 4_960_000_000_000_000_000_000_000_000_000_000_000_000_000_000
_NUMBER = b"@"


def stream_of(body: bytes) -> str | None:
    """Return the stream that the body of a PutRecords names, without parsing the body."""
    found = _STREAM.search(body[:_EDGE_BYTES]) or _STREAM.search(body[-_EDGE_BYTES:])
    return None if found is None else found[1].decode()


class Swallow:
    """Answers PutRecords for one stream as if every record had been stored in its shard.

    Args:
        shards: First hash key and id of each open shard, in the order of hash keys.

    Attributes:
        records: How many records it has answered.
    """

    def __init__(self, shards: list[tuple[int, str]]) -> None:
        self._firsts = [first for first, _ in shards]
        self._ids = [shard_id for _, shard_id in shards]
        self._request = count()
        self._shard_of_key = functools.lru_cache(maxsize=1 << 16)(self._shard_of_new_key)
        self.records = 0

    def answer(self, body: bytes) -> bytes:
        """Return the answer to a PutRecords. Sequence numbers grow from request to request."""
        if len(self._ids) == 1:
            records = body.count(b'"PartitionKey"')
            results = _results(self._ids[0], records)
        else:
            entries = orjson.loads(body)["Records"]
            records = len(entries)
            results = b",".join([_result(self._shard_of(e), i) for i, e in enumerate(entries)])
        self.records += records
        request = b"%d" % (_FIRST + next(self._request))
        return b'{"FailedRecordCount":0,"Records":[%b]}' % results.replace(_NUMBER, request)

    def _shard_of(self, entry: dict[str, str]) -> str:
        explicit = entry.get("ExplicitHashKey")
        return self._shard_of_key(entry["PartitionKey"]) if explicit is None else self._at(explicit)

    def _shard_of_new_key(self, key: str) -> str:
        return self._at(hash_of(key))

    def _at(self, hash_key: int | str) -> str:
        return self._ids[bisect_right(self._firsts, int(hash_key)) - 1]


@functools.lru_cache(maxsize=64)
def _results(shard_id: str, records: int) -> bytes:
    return b",".join([_result(shard_id, i) for i in range(records)])


def _result(shard_id: str, place: int) -> bytes:
    return b'{"SequenceNumber":"%b%010d","ShardId":"%b"}' % (_NUMBER, place, shard_id.encode())
