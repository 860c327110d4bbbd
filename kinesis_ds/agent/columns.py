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
from kinesis_ds.position import MAX_DIGITS

np: Any
try:
    import numpy as np
except ImportError:  # all works without it, at half the speed
    np = None

if TYPE_CHECKING:
    from collections.abc import Sequence

# With fewer records a few dozen calls cost more than parsing; over longer ones a parser passes as
# fast as a search for quotes does. Both as `python -m benchmarks.decode` shows.
MIN_RECORDS = 64
MAX_RECORD_BYTES = 8_000
# Where the keys before and behind the records are looked for.
_AROUND_BYTES = 2_048
_MAX_QUOTES = 40

_RECORDS = re.compile(rb'"Records"\s*:\s*\[')
_COMMA = re.compile(rb"\s*,\s*(?=\{)")
_NUMBER = re.compile(rb'"\s*:\s*([0-9.eE+-]+)')
_MARK = re.compile(rb'["\\{}\[\]]')
_QUOTE = re.compile(rb'"')
_QUOTE_BYTE, _BACKSLASH_BYTE, _SPACE_BYTE = b'"\\ '
_PADDING_BYTE, _NOTHING_BYTE = b"=A"
_DIGITS = b"0123456789"


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
    columns = _cut(memoryview(payload)[start:end])
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


def _cut(region: memoryview) -> Columns | None:
    """``region`` is what stands between the brackets."""
    front = bytes(region[: MAX_RECORD_BYTES + _AROUND_BYTES])
    end = _end_of_record(front)
    if end is None or end > MAX_RECORD_BYTES or len(region) < MIN_RECORDS * end:
        return None
    form, comma = _form_of(front[:end]), _COMMA.match(front, end)
    if form is None or comma is None:
        return None
    quotes = np.flatnonzero(np.frombuffer(region, np.uint8) == _QUOTE_BYTE)
    if len(quotes) % form.quotes:
        return None
    across = form.between[-1] + comma.group() + form.between[0]
    bounds = _bounds(quotes.reshape(-1, form.quotes), form, across, len(region))
    # Arrow follows offsets without a look: they must rise, and stay inside.
    if bounds[0] < 0 or bounds[-1] > len(region) or not (bounds[1:] >= bounds[:-1]).all():
        return None
    parts = _array(pa.binary(), bounds, region)
    if not _same_between(parts, bounds, region, form, across):
        return None
    step = 2 * len(form.values)
    found = {name: _every(parts, 2 * i, step) for i, (name, _) in enumerate(form.values)}
    numbers, data = _rising(found["SequenceNumber"]), _decoded(found["Data"])
    seconds = _seconds(found["ApproximateArrivalTimestamp"])
    given = found.get("PartitionKey")
    keys = pa.nulls(len(quotes) // form.quotes, pa.string()) if given is None else _texts(given)
    if numbers is None or data is None or seconds is None or keys is None:
        return None
    return Columns(numbers, data, keys, seconds, (form.encryption,))


# --- the first record ---------------------------------------------------------------------------


def _end_of_record(text: bytes) -> int | None:
    """Where the first record ends; None where it holds anything but plain values."""
    inside = False
    for mark in _MARK.finditer(text):
        at = mark.start()
        byte = text[at]
        if byte == _BACKSLASH_BYTE:
            return None
        if byte == _QUOTE_BYTE:
            inside = not inside
        elif not inside:
            if byte == ord("}"):
                return at + 1
            if at:
                return None  # an object or a list
    return None


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


def _bounds(quotes: Any, form: _Form, across: bytes, length: int) -> Any:
    """Where each value starts and ends, one after the other: ``int32``, two a value.

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
    return bounds.reshape(-1)


def _same_between(
    parts: pa.Array, bounds: Any, region: memoryview, form: _Form, across: bytes
) -> bool:
    """Whether all that is no value is as in the first record.

    It is enough that the pieces are equal as one: each begins and ends with a quote or has its
    length by construction, and as many quotes are in each as there should be.
    """
    between = [*form.between[1:-1], across]
    records = len(bounds) // (2 * len(between))
    wanted = b"".join(between) * (records - 1) + b"".join(between[:-1])
    found = _octets(_every(parts, 1, 2))
    tail = bytes(region[bounds[-1] :])
    return found.equals(pa.py_buffer(wanted)) and tail == form.between[-1]


# --- the values ---------------------------------------------------------------------------------


def _rising(texts: pa.Array) -> pa.Array | None:
    """Sequence numbers; None where they are not digits of one length that never fall."""
    offsets, octets = _offsets(texts), np.frombuffer(_octets(texts), np.uint8)
    length = int(offsets[1])
    if not 0 < length <= MAX_DIGITS or not (np.diff(offsets) == length).all():
        return None
    if not (octets - ord("0") < 10).all():  # below "0" it is over 200: these are unsigned
        return None
    if not pc.all(pc.less_equal(texts[:-1], texts[1:])).as_py():
        return None
    return _as_text(texts)


def _texts(texts: pa.Array) -> pa.Array | None:
    """Text without an escape; None where there is one, or what JSON has no room for."""
    octets = np.frombuffer(_octets(texts), np.uint8)
    if (octets < _SPACE_BYTE).any() or (octets == _BACKSLASH_BYTE).any():
        return None
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8
        return None


def _seconds(texts: pa.Array) -> pa.Array | None:
    """Times; None where one is no number of JSON, or is one below 1."""
    octets = _octets(texts).to_pybytes()
    offsets = _offsets(texts)
    if octets.translate(None, _DIGITS + b".eE+-") or b".e" in octets or b".E" in octets:
        return None
    if not (offsets[1:] > offsets[:-1]).all():
        return None
    characters = np.frombuffer(octets, np.uint8)
    first, last = characters[offsets[:-1]], characters[offsets[1:] - 1]
    if not ((first > ord("0")) & (first <= ord("9")) & (last >= ord("0"))).all():
        return None
    try:
        return _as_text(texts).cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _decoded(texts: pa.Array) -> pa.Array | None:
    """What is written in base64; None where one is not.

    All texts are decoded as one, with their padding, which is overwritten in place, made to stand
    for zeros; these are left out again afterwards.
    """
    offsets = _offsets(texts)
    if (offsets & 3).any():
        return None
    characters = np.frombuffer(_octets(texts), np.uint8)
    if not characters.flags.writeable:
        characters = characters.copy()
    lengths = np.diff(offsets)
    ends = offsets[1:][lengths > 0]
    one = characters[ends - 1] == _PADDING_BYTE
    two = one & (characters[ends - 2] == _PADDING_BYTE)
    characters[ends[one] - 1] = _NOTHING_BYTE
    characters[ends[two] - 2] = _NOTHING_BYTE
    try:
        octets = b64decode(characters, None, True)  # it has no other name for it
    except ValueError:
        return None
    starts = offsets // 4 * 3
    if not one.any():
        return _array(pa.binary(), starts, octets)
    sizes = lengths // 4 * 3
    sizes[lengths > 0] -= one + two.astype(np.int32)
    bounds = np.empty(2 * len(texts), np.int32)
    bounds[::2] = starts[:-1]
    bounds[1::2] = starts[:-1] + sizes
    parts = _array(pa.binary(), bounds, octets)
    return _every(parts, 0, 2)


# --- arrays -------------------------------------------------------------------------------------


def _array(kind: pa.DataType, offsets: Any, octets: bytes | memoryview) -> pa.Array:
    """An array over bytes that are there, nothing copied. ``offsets``: ``int32``, rising."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _every(parts: pa.Array, first: int, step: int) -> pa.Array:
    """Each so many-th of an array, from the ``first`` on: fresh, its bytes without gaps."""
    chosen = pa.array(np.arange(first, len(parts), step, dtype=np.int32))
    return pc.take(parts, chosen, boundscheck=False)


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
