"""Cut the records of an event out of its JSON as columns, without a Python object a record. Pure.

The JSON of an event is written by a machine: all its records have the same keys in the same order,
so the bytes between their values are the same in every record. Where that is so, the positions of
the quotes tell where each value is, and NumPy and Arrow cut out all values at once.

Nothing is assumed. The first record is parsed as JSON. In all others, the bytes between the values
are compared with those of the first, and each value is checked for what it may contain. So the
result is always the one a JSON parser would give. Where an event does not have this form,
:func:`scan_event` returns None, and the caller parses it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kinesis_ds.codecs import JSONDecodeError, b64decode, loads
from kinesis_ds.plan.position import MAX_DIGITS
from kinesis_ds.wire.columns import ReceivedColumns

np: Any
try:
    import numpy as np
except ImportError:  # everything works without it, at half the speed
    np = None

# With fewer records, the fifty or so calls of a scan cost more than parsing. With longer records, a
# parser is as fast as a search for quotes. Measured side by side, these are about the limits.
MIN_RECORDS = 200
MAX_RECORD_BYTES = 8_000
# The keys before and after the list of records are looked for within so many bytes.
_AROUND_BYTES = 2_048
_MAX_QUOTES = 40
# The length of an arrival time with milliseconds: 1700000000.123, or, as the service writes it,
# 1.700000000123E9 (without the E9).
_TIME_BYTES = 14
_BLOCK = 64 * 1024

_RECORDS = re.compile(rb'"Records"\s*:\s*\[')
_COMMA = re.compile(rb"\s*,\s*(?=\{)")
_NUMBER = re.compile(rb'"\s*:\s*([0-9.eE+-]+)')
# A record that contains only plain values (no objects, no lists) and no escaped character.
_RECORD = re.compile(rb'\{[^"\\{}\[\]]*(?:"[^"\\]*"[^"\\{}\[\]]*)*\}')
_QUOTE = re.compile(rb'"')
_QUOTE_BYTE, _BACKSLASH_BYTE, _SPACE_BYTE, _ZERO_BYTE, _POINT_BYTE = b'"\\ 0.'
_PADDING_BYTE, _NOTHING_BYTE = b"=A"
_DIGITS = b"0123456789"
if np is not None:
    _PLACES = np.arange(_TIME_BYTES)
    # The worth of each digit of an arrival time in milliseconds, by the position of the point.
    _MS = [10**n for n in range(12, -1, -1)]
    _WORTH = {point: np.array([*_MS[:point], 0, *_MS[point:]]) for point in (1, 10)}


def scan_event(payload: bytes | memoryview) -> tuple[dict[str, Any], ReceivedColumns] | None:
    """Return an event as parsed JSON with an empty list of records, and its records as columns.

    Returns None where the records are few, long, or not all of the same form: parse the event then.
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
    """The form of the first record, which all other records must have.

    Attributes:
        quotes: The number of quotes in the record.
        values: The values that differ between records, in their order: the name, and the index of
            the quote that opens the value. The index is None for the arrival time, which has no
            quotes.
        between: The bytes before each of these values, then the bytes after the last one.
        encryption: The encryption type.
    """

    quotes: int
    values: list[tuple[str, int | None]]
    between: list[bytes]
    encryption: Any


def _cut(text: memoryview, length: int) -> ReceivedColumns | None:
    """Cut the records out of the first ``length`` bytes of ``text``: the content of the list."""
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
    # Arrow does not check offsets: they must rise, and stay inside the text.
    if flat[0] < 0 or flat[-1] > length or not (flat[1:] >= flat[:-1]).all():
        return None
    if not _same_between(octets, bounds, length, form, across):
        return None
    values = {
        name: _Values(octets, bounds[:, 2 * i], bounds[:, 2 * i + 1])
        for i, (name, _) in enumerate(form.values)
    }
    numbers, data = _sequence_numbers(values["SequenceNumber"]), _decoded_base64(values["Data"])
    seconds = _arrival_seconds(values["ApproximateArrivalTimestamp"])
    given = values.get("PartitionKey")
    keys = pa.nulls(len(bounds), pa.string()) if given is None else _plain_texts(given)
    if numbers is None or data is None or seconds is None or keys is None:
        return None
    return ReceivedColumns(numbers, data, keys, seconds, (form.encryption,))


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
        # A repeated key is only once in the parsed record: the quotes then do not match here.
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
    """The places of one value (one column) in the text of the event.

    Attributes:
        octets: The bytes of the event: ``uint8``.
        starts, ends: Where the value of each record starts and ends in them.
    """

    octets: Any
    starts: Any
    ends: Any


def _quotes(octets: Any) -> Any:
    """Return the positions of all quotes."""
    found = []
    for start in range(0, len(octets), _BLOCK):
        # In blocks, so that the result of a comparison is still in the CPU's cache when it is read.
        block = octets[start : start + _BLOCK]
        found.append(np.flatnonzero(block == _QUOTE_BYTE) + start)
    return np.concatenate(found)


def _bounds(quotes: Any, form: _Form, across: bytes, length: int) -> Any:
    """Return where each value starts and ends: ``int32``, one row a record, two columns a value.

    Args:
        quotes: The positions of the quotes, one row a record.
        across: The bytes between the last value of a record and the first of the next record.
        length: The length of all records together, in bytes.
    """
    last = len(form.values) - 1
    bounds = np.empty((len(quotes), 2 * len(form.values)), np.int32)
    for i, (_, quote) in enumerate(form.values):
        if quote is not None:
            bounds[:, 2 * i] = quotes[:, quote] + 1
            bounds[:, 2 * i + 1] = quotes[:, quote + 1]
    # The arrival time has no quotes: it is what is left between its neighbours.
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
    """Return whether the bytes between the values are the same in all records."""
    last = len(form.values) - 1
    gaps = [(form.between[i + 1], bounds[:, 2 * i + 1], bounds[:, 2 * i + 2]) for i in range(last)]
    gaps.append((across, bounds[:-1, -1], bounds[1:, 0]))
    return octets[bounds[-1, -1] : length].tobytes() == form.between[-1] and all(
        (ends - starts == len(wanted)).all()
        and _at(octets, starts, len(wanted)).tobytes() == wanted * len(starts)
        for wanted, starts, ends in gaps
    )


# --- the values ---------------------------------------------------------------------------------


def _sequence_numbers(values: _Values) -> pa.Array | None:
    """Return sequence numbers; None where they are not digits of one length in rising order."""
    length = int(values.ends[0] - values.starts[0])
    if not 0 < length <= MAX_DIGITS or not (values.ends - values.starts == length).all():
        return None
    texts = _at(values.octets, values.starts, length)
    octets = texts.view(np.uint8)
    if not (octets - _ZERO_BYTE < 10).all():  # unsigned: what is below "0" becomes over 200
        return None
    if not (texts[:-1] <= texts[1:]).all():
        return None
    offsets = np.arange(0, len(octets) + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    )


def _plain_texts(values: _Values) -> pa.Array | None:
    """Return texts; None where one has an escape or a character that JSON does not allow."""
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


def _arrival_seconds(values: _Values) -> pa.Array | None:
    """Return arrival times; None where one is not a JSON number, or is below 1."""
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
        return _other_arrival_seconds(values)
    digits = _at(octets, starts, _TIME_BYTES).view(np.uint8).reshape(-1, _TIME_BYTES)
    has_point = digits[:, point] == _POINT_BYTE
    digits -= _ZERO_BYTE  # unsigned: what is below "0" becomes large
    digits[sizes[:, None] <= _PLACES] = 0
    digits[:, point] = 0
    if not ((digits < 10).all() and digits[:, 0].all() and (has_point | (sizes == point)).all()):
        return _other_arrival_seconds(values)
    # Both operands are whole numbers, so the result is the float nearest to the text, as a
    # parser's.
    seconds = (digits @ _WORTH[point]) / 1000.0
    return pa.Array.from_buffers(pa.float64(), len(seconds), [None, pa.py_buffer(seconds)])


def _other_arrival_seconds(values: _Values) -> pa.Array | None:
    """Do the same as :func:`_arrival_seconds` for numbers written in any other way, more slowly."""
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


def _decoded_base64(values: _Values) -> pa.Array | None:
    """Decode base64 values; None where one is malformed.

    All values are decoded as one text. The padding in the middle of it is first overwritten with
    the character for zero bits, and the zero bytes that result are left out afterwards.
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
        octets = b64decode(characters, None, True)  # altchars and validate, by position
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
    """Return an array over existing bytes, without a copy. ``offsets``: ``int32``, rising."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(octets)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def _gathered(values: _Values) -> pa.Array:
    """Return the values as a new ``binary`` array, whose bytes have no gaps."""
    bounds = np.empty(2 * len(values.starts), np.int32)
    bounds[::2], bounds[1::2] = values.starts, values.ends
    parts = _array(pa.binary(), bounds, values.octets)
    chosen = pa.array(np.arange(0, len(parts), 2, dtype=np.int32))
    return pc.take(parts, chosen, boundscheck=False)


def _at(octets: Any, starts: Any, size: int) -> Any:
    """Return ``size`` bytes from each start on, as one value each; all of them must exist."""
    everywhere = np.ndarray((len(octets) - size + 1,), f"S{size}", octets, 0, (1,))
    return everywhere[starts]


def _as_text(array: pa.Array) -> pa.Array:
    """Return the same array as text, unchecked: the bytes must be known to be ASCII."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


def _offsets(array: pa.Array) -> Any:
    """Return the offsets of a new array, which start at 0."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)


def _octets(array: pa.Array) -> pa.Buffer:
    """Return the bytes of all values of a new array."""
    return array.buffers()[2].slice(0, int(_offsets(array)[-1]))


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        parsed = loads(text)
    except JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None
