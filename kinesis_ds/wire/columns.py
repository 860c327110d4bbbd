"""The values of a shard's records as columns, before they are decoded further. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kinesis_ds.codecs import b64decode
from kinesis_ds.errors import ProtocolError
from kinesis_ds.plan.position import MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEQUENCE_NUMBER = itemgetter("SequenceNumber")
_DATA = itemgetter("Data")


@dataclass(frozen=True)
class ReceivedColumns:
    """Records of one shard as Kinesis sent them, in order. All arrays have the same length.

    Attributes:
        numbers: Sequence numbers: ``string``, decimal digits.
        data: The data of the records, no longer in base64: ``binary``.
        keys: Partition keys: ``string``; null for records that have none.
        seconds: Arrival times: ``float64``, seconds since the epoch.
        encryptions: The encryption type of each record, or a single one for all of them.
    """

    numbers: pa.Array
    data: pa.Array
    keys: pa.Array
    seconds: pa.Array
    encryptions: Sequence[Any]

    def without_first(self, count: int) -> ReceivedColumns:
        """Return the columns without their first ``count`` records."""
        many = len(self.encryptions) > 1
        return replace(
            self,
            numbers=self.numbers[count:],
            data=self.data[count:],
            keys=self.keys[count:],
            seconds=self.seconds[count:],
            encryptions=self.encryptions[count:] if many else self.encryptions,
        )


def columns_of(items: list[dict[str, Any]]) -> ReceivedColumns:
    """Return records that were parsed from JSON as columns, checked.

    Raises:
        ProtocolError: The records are out of order.
        ValueError, KeyError, TypeError, pa.ArrowException: A record is malformed.
    """
    numbers = list(map(_SEQUENCE_NUMBER, items))
    _check_numbers(numbers)
    encryptions = [item.get("EncryptionType") for item in items]
    seconds = [item["ApproximateArrivalTimestamp"] for item in items]
    if not set(map(type, seconds)) <= {int, float}:
        raise TypeError("an arrival time that is no number")
    # b64decode(text, altchars=None, validate=True). ``map`` keeps the loop in C: decoding base64
    # is a third of all the work.
    blobs = list(map(b64decode, map(_DATA, items), repeat(None), repeat(True)))
    return ReceivedColumns(
        numbers=pa.array(numbers, pa.string()),
        data=pa.array(blobs, pa.binary()),
        keys=pa.array([item.get("PartitionKey") for item in items], pa.string()),
        seconds=pa.array(seconds, pa.float64()),
        encryptions=encryptions,
    )


def _check_numbers(numbers: list[str]) -> None:
    """Check that sequence numbers are digits and rise.

    Numbers of the same length, the usual case, are compared as text.
    """
    digits = "".join(numbers).encode()
    lengths = set(map(len, numbers))
    if not (digits.isdigit() and max(lengths) <= MAX_DIGITS and min(lengths)):
        raise ValueError("a sequence number that is no number")
    if numbers != sorted(numbers, key=None if len(lengths) == 1 else int):
        raise ProtocolError("Kinesis sent the records of a shard out of order.")
