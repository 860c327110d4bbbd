"""The records of an event as columns, without a Python object a record. Pure.

The JSON of an event is written by a machine: all of its records have the same keys in the same
order, so the same bytes stand between their values. Where that is so, the positions of the quotes
say where each value lies, and NumPy and Arrow cut out all values at once.

No byte is taken on trust. The values are checked for what they may hold, what stands between them
is compared with what stood in the first record, and that one was parsed as JSON. So an event is
understood as a parser would, or not at all: then :func:`columns_of` returns None, and the caller
parses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.codecs import JSONDecodeError, b64decode, loads
from kinesis_ds.plan.position import MAX_DIGITS

np: Any
try:
    import numpy as np
except ImportError:  # all works without it, at half the speed
    np = None

if TYPE_CHECKING:
    from collections.abc import Sequence

# With fewer records some fifty calls cost more than parsing; over longer ones a parser passes as
# fast as a search for quotes does. Measured side by side, this is about where they meet.
MIN_RECORDS = 200
MAX_RECORD_BYTES = 8_000
# Where the keys before and behind the records are looked for.
_AROUND_BYTES = 2_048
_MAX_QUOTES = 40
# Seconds and milliseconds: 1700000000.123, or 1.700000000123 before an E9, as the service writes.
_TIME_BYTES = 14
_BLOCK = 64 * 1024

_RECORDS = re.compile(rb'"Records"\s*:\s*\[')
_COMMA = re.compile(rb"\s*,\s*(?=\{)")
_NUMBER = re.compile(rb'"\s*:\s*([0-9.eE+-]+)')
# One that holds nothing but plain values, and no escape.
_RECORD = re.compile(rb'\{[^"\\{}\[\]]*(?:"[^"\\]*"[^"\\{}\[\]]*)*\}')
_QUOTE = re.compile(rb'"')
_QUOTE_BYTE, _BACKSLASH_BYTE, _SPACE_BYTE, _ZERO_BYTE, _POINT_BYTE = b'"\\ 0.'
_PADDING_BYTE, _NOTHING_BYTE = b"=A"
_DIGITS = b"0123456789"
if np is not None:
    _PLACES = np.arange(_TIME_BYTES)
    # What a digit at each place of a time is worth, in milliseconds, by the place of the point.
    _MS = [10**n for n in range(12, -1, -1)]
    _WORTH = {point: np.array([*_MS[:point], 0, *_MS[point:]]) for point in (1, 10)}


@dataclass(frozen=True)
class Columns:
    """The values of some records of one shard, in order; the arrays are of one length.

    Attributes:
        numbers: Sequence numbers: ``string``, digits.
        data: ``binary``.
        keys: Partition keys: ``string``; null for records that have none.
        seconds: When they arrived: ``float64``, seconds since the epoch.
        encryptions: The encryption type of each, or one for all of them.
    """

    numbers: pa.Array
    data: pa.Array
    keys: pa.Array
    seconds: pa.Array
    encryptions: Sequence[Any]

    def behind(self, count: int) -> Columns:
        """Without the first so many."""
        many = len(self.encryptions) > 1
        return replace(
            self,
            numbers=self.numbers[count:],
            data=self.data[count:],
            keys=self.keys[count:],
            seconds=self.seconds[count:],
            encryptions=self.encryptions[count:] if many else self.encryptions,
        )


def columns_of(payload: bytes | memoryview) -> tuple[dict[str, Any], Columns] | None:
    """An event as JSON has it, but with no records, and the columns of its records.

    None where the records are few, long, or not all of one form.
    """
    if np is None or len(payload) < MIN_RECORDS * _MAX_QUOTES:
        return None
    payload = memoryview(payload)
    opening = _RECORDS.search(payload, 0, _AROUND_BYTES)
    if opening is None:
        return None
    start = opening.end()
    tail_at = max(start, len(payload) - _AROUND_BYTES)
    closing = bytes(payload[tail_at:]).rfind(b"}]")
    if closing < 0:
        return None
    end = tail_at + closing + 1
    around = _parsed(bytes(payload[:start]) + bytes(payload[end:]))
    if around is None or around.get("Records") != []:
        return None
    columns = _cut(payload[start:], end - start)
    return None if columns is None else (around, columns)


class _Form(NamedTuple):
    """The form of the first record, which the others must have.

    Attributes:
        quotes: How many it has.
        values: The values that vary, in their order: name, and number of the quote that opens it;
            None for the one that has no quotes, the time.
        between: The bytes before each of them, then those behind the last.
        encryption: Its encryption type.
    """

    quotes: int
    values: list[tuple[str, int | None]]
    between: list[bytes]
    encryption: Any


def _cut(text: memoryview, length: int) -> Columns | None:
    """So many bytes of ``text`` are what stands between the brackets."""
    first = _RECORD.match(text[:length])
    if first is None or first.end() > MAX_RECORD_BYTES or length < MIN_RECORDS * first.end():
        return None
    form, comma = _form_of(first.group()), _COMMA.match(text, first.end())
    if form is None or comma is None:
        return None
    octets = np.frombuffer(text, np.uint8)
    quotes = _quotes(octets[:length])
    if len(quotes) % form.quotes:
        return None
    across = form.between[-1] + comma.group() + form.between[0]
    bounds = _bounds(quotes.reshape(-1, form.quotes), form, across, length)
    flat = bounds.reshape(-1)
    # Arrow follows offsets without a look: they must rise, and stay inside.
    if flat[0] < 0 or flat[-1] > length or not (flat[1:] >= flat[:-1]).all():
        return None
    if not _same_between(octets, bounds, length, form, across):
        return None
    values = {
        name: _Values(octets, bounds[:, 2 * i], bounds[:, 2 * i + 1])
        for i, (name, _) in enumerate(form.values)
    }
    numbers, data = _rising(values["SequenceNumber"]), _decoded(values["Data"])
    seconds = _seconds(values["ApproximateArrivalTimestamp"])
    given = values.get("PartitionKey")
    keys = pa.nulls(len(bounds), pa.string()) if given is None else _texts(given)
    if numbers is None or data is None or seconds is None or keys is None:
        return None
    return Columns(numbers, data, keys, seconds, (form.encryption,))


# --- the first record ---------------------------------------------------------------------------


def _form_of(text: bytes) -> _Form | None:
    record = _parsed(text)
    quotes = [match.start() for match in _QUOTE.finditer(text)]
    if record is None or len(quotes) > _MAX_QUOTES:
        return None
    values: list[tuple[str, int | None]] = []
    between = []
    at = behind = 0
    for name, value in record.items():
        # Keys that come twice are once in the record: then this does not come out even.
        if text[quotes[at] + 1 : quotes[at + 1]] != name.encode():
            return None
        at += 2
        start = end = 0
        if isinstance(value, str):
            if name in ("SequenceNumber", "Data", "PartitionKey"):
                start, end = quotes[at] + 1, quotes[at + 1]
                values.append((name, at))
            at += 2
        elif name == "ApproximateArrivalTimestamp":
            number = _NUMBER.match(text, quotes[at - 1])
            if number is None:
                return None
            start, end = number.span(1)
            values.append((name, None))
        if start:
            between.append(text[behind:start])
            behind = end
    if at != len(quotes):
        return None
    names = {name for name, _ in values}
    if not {"SequenceNumber", "Data", "ApproximateArrivalTimestamp"} <= names:
        return None
    between.append(text[behind:])
    return _Form(len(quotes), values, between, record.get("EncryptionType"))


# --- all records --------------------------------------------------------------------------------


class _Values(NamedTuple):
    """One value of each record.

    Attributes:
        octets: What they stand in.
        starts, ends: Where.
    """

    octets: Any
    starts: Any
    ends: Any


def _quotes(octets: Any) -> Any:
    """Where the quotes are."""
    found = []
    for start in range(0, len(octets), _BLOCK):
        # Not all at once: what is written for a block is still near when it is read again.
        block = octets[start : start + _BLOCK]
        found.append(np.flatnonzero(block == _QUOTE_BYTE) + start)
    return np.concatenate(found)


def _bounds(quotes: Any, form: _Form, across: bytes, length: int) -> Any:
    """Where each value starts and ends: ``int32``, a row a record, two a value.

    Args:
        quotes: Where the quotes are: a row a record.
        across: What stands between the last value of a record and the first of the next.
        length: Of all the records, in bytes.
    """
    last = len(form.values) - 1
    bounds = np.empty((len(quotes), 2 * len(form.values)), np.int32)
    for i, (_, quote) in enumerate(form.values):
        if quote is not None:
            bounds[:, 2 * i] = quotes[:, quote] + 1
            bounds[:, 2 * i + 1] = quotes[:, quote + 1]
    # The time has no quotes: it is what its neighbours leave.
    i = next(i for i, (_, quote) in enumerate(form.values) if quote is None)
    start, end = bounds[:, 2 * i], bounds[:, 2 * i + 1]
    if i:
        start[:] = bounds[:, 2 * i - 1] + len(form.between[i])
    else:
        start[0] = len(form.between[0])
        start[1:] = bounds[:-1, -1] + len(across)
    if i < last:
        end[:] = bounds[:, 2 * i + 2] - len(form.between[i + 1])
    else:
        end[:-1] = bounds[1:, 0] - len(across)
        end[-1] = length - len(form.between[-1])
    return bounds


def _same_between(octets: Any, bounds: Any, length: int, form: _Form, across: bytes) -> bool:
    """Whether all that is no value is as in the first record."""
    last = len(form.values) - 1
    gaps = [(form.between[i + 1], bounds[:, 2 * i + 1], bounds[:, 2 * i + 2]) for i in range(last)]
    gaps.append((across, bounds[:-1, -1], bounds[1:, 0]))
    return octets[bounds[-1, -1] : length].tobytes() == form.between[-1] and all(
        (ends - starts == len(wanted)).all()
        and _at(octets, starts, len(wanted)).tobytes() == wanted * len(starts)
        for wanted, starts, ends in gaps
    )


# --- the values ---------------------------------------------------------------------------------


def _rising(values: _Values) -> pa.Array | None:
    """Sequence numbers; None where they are not digits of one length that never fall."""
    length = int(values.ends[0] - values.starts[0])
    if not 0 < length <= MAX_DIGITS or not (values.ends - values.starts == length).all():
        return None
    texts = _at(values.octets, values.starts, length)
    octets = texts.view(np.uint8)
    if not (octets - _ZERO_BYTE < 10).all():  # below "0" it is over 200: these are unsigned
        return None
    if not (texts[:-1] <= texts[1:]).all():
        return None
    offsets = np.arange(0, len(octets) + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    )


def _texts(values: _Values) -> pa.Array | None:
    """Text without an escape; None where there is one, or what JSON has no room for."""
    texts = _gathered(values)
    octets = np.frombuffer(_octets(texts), np.uint8)
    if not len(octets):
        return _as_text(texts)
    if octets.min() < _SPACE_BYTE or (octets == _BACKSLASH_BYTE).any():
        return None
    if octets.max() < 128:
        return _as_text(texts)
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8
        return None


def _seconds(values: _Values) -> pa.Array | None:
    """Times; None where one is no number of JSON, or is one below 1."""
    octets, starts, ends = values
    first = octets[starts[0] : ends[0]].tobytes()
    point, behind = (1, b"E9") if first.endswith(b"E9") else (10, b"")
    sizes = ends - starts - len(behind)
    if (
        sizes.min() < point
        or sizes.max() > _TIME_BYTES
        or (sizes == point + 1).any()
        or starts[-1] + _TIME_BYTES > len(octets)
        or (behind and _at(octets, ends - len(behind), len(behind)).tobytes() != behind * len(ends))
    ):
        return _other_seconds(values)
    digits = _at(octets, starts, _TIME_BYTES).view(np.uint8).reshape(-1, _TIME_BYTES)
    has_point = digits[:, point] == _POINT_BYTE
    digits -= _ZERO_BYTE  # what stands below it becomes large
    digits[sizes[:, None] <= _PLACES] = 0
    digits[:, point] = 0
    if not ((digits < 10).all() and digits[:, 0].all() and (has_point | (sizes == point)).all()):
        return _other_seconds(values)
    # Both are whole, so that this is the number nearest to the text, as a parser has it.
    seconds = (digits @ _WORTH[point]) / 1000.0
    return pa.Array.from_buffers(pa.float64(), len(seconds), [None, pa.py_buffer(seconds)])


def _other_seconds(values: _Values) -> pa.Array | None:
    """As :func:`_seconds`, of any form."""
    texts = _gathered(values)
    octets = _octets(texts).to_pybytes()
    if octets.translate(None, _DIGITS + b".eE+-") or b".e" in octets or b".E" in octets:
        return None
    if not (values.ends > values.starts).all():
        return None
    first, last = values.octets[values.starts], values.octets[values.ends - 1]
    if not ((first > ord("0")) & (first <= ord("9")) & (last >= ord("0"))).all():
        return None
    try:
        return _as_text(texts).cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _decoded(values: _Values) -> pa.Array | None:
    """What is written in base64; None where one is not.

    All texts are decoded as one, with their padding, which is overwritten in place, made to stand
    for zeros; these are left out again afterwards.
    """
    sizes = values.ends - values.starts
    if (sizes & 3).any():
        return None
    size = int(sizes[0])
    alike = size > 0 and bool((sizes == size).all())
    if alike:
        characters = _at(values.octets, values.starts, size).view(np.uint8)
    else:
        characters = np.frombuffer(_octets(_gathered(values)), np.uint8)
        if not characters.flags.writeable:
            characters = characters.copy()
    ends = np.cumsum(sizes)
    last = ends[sizes > 0] - 1
    one = characters[last] == _PADDING_BYTE
    two = one & (characters[last - 1] == _PADDING_BYTE)
    characters[last[one]] = _NOTHING_BYTE
    characters[last[two] - 1] = _NOTHING_BYTE
    try:
        octets = b64decode(characters, None, True)  # it has no other name for it
    except ValueError:
        return None
    starts = np.concatenate(([0], ends)) // 4 * 3
    if not one.any():
        return _array(pa.binary(), starts, octets)
    missing = one.astype(np.int32) + two
    if alike and (missing == missing[0]).all():
        size = size // 4 * 3
        rows = np.frombuffer(octets, np.uint8).reshape(-1, size)[:, : size - missing[0]]
        offsets = np.arange(len(rows) + 1) * rows.shape[1]
        return _array(pa.binary(), offsets, np.ascontiguousarray(rows))
    sizes = sizes // 4 * 3
    sizes[sizes > 0] -= missing
    return _gathered(_Values(octets, starts[:-1], starts[:-1] + sizes))


# --- arrays -------------------------------------------------------------------------------------


def _array(kind: pa.DataType, offsets: Any, octets: bytes | memoryview) -> pa.Array:
    """An array over bytes that are there, nothing copied. ``offsets``: ``int32``, rising."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _gathered(values: _Values) -> pa.Array:
    """The values as ``binary``: fresh, their bytes without gaps."""
    bounds = np.empty(2 * len(values.starts), np.int32)
    bounds[::2], bounds[1::2] = values.starts, values.ends
    parts = _array(pa.binary(), bounds, values.octets)
    chosen = pa.array(np.arange(0, len(parts), 2, dtype=np.int32))
    return pc.take(parts, chosen, boundscheck=False)


def _at(octets: Any, starts: Any, size: int) -> Any:
    """So many bytes from each start on, as one value each; all of them have to be there."""
    everywhere = np.ndarray((len(octets) - size + 1,), f"S{size}", octets, 0, (1,))
    return everywhere[starts]


def _as_text(array: pa.Array) -> pa.Array:
    """The same as text; for bytes that are known to be ASCII."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


def _offsets(array: pa.Array) -> Any:
    """Where the values of a fresh array lie, the first at 0."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)


def _octets(array: pa.Array) -> pa.Buffer:
    """The bytes of all values of a fresh array."""
    return array.buffers()[2].slice(0, int(_offsets(array)[-1]))


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        parsed = loads(text)
    except JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None
