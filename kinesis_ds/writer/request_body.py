"""Writes the body of a PutRecords request. Pure.

It is written by column, because a JSON serializer spends time on each record, and looks for escapes
in base64, which has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_ds.codecs import b64encode, dumps

if TYPE_CHECKING:
    from kinesis_ds.plan.stream import StreamId
    from kinesis_ds.writer.records import Request

_RECORD, _KEY, _HASH_KEY, _NEXT = (
    b'{"Records":[{"Data":"',
    b'","PartitionKey":"',
    b'","ExplicitHashKey":"',
    b'"},{"Data":"',
)


def put_records(stream: StreamId, request: Request) -> bytes:
    """Return the JSON body of the call that sends a request to a stream."""
    data, partition_keys, hash_keys = request.columns()
    keys = _escaped(partition_keys)
    if hash_keys is not None:
        keys = [
            key if hash_key is None else b"%b%b%b" % (key, _HASH_KEY, hash_key.encode())
            for key, hash_key in zip(keys, hash_keys, strict=True)
        ]
    entries = map(_KEY.join, zip(map(b64encode, data), keys, strict=True))
    target = dumps(stream.request())[1:]
    return b"".join((_RECORD, _NEXT.join(entries), b'"}],', target))


def _escaped(keys: list[str]) -> list[bytes]:
    """Return keys as JSON has them between quotes."""
    if '"' in "".join(keys):
        return [dumps(key)[1:-1] for key in keys]
    # Without quotes in the keys, those between them are where one ends and the next begins.
    return dumps(keys)[2:-2].split(b'","')
