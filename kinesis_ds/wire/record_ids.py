"""Record ids: an id for each user record of an aggregate, in its tags (option ``recordIds``). Pure.

The KPL's format lets a user record carry tags, which are pairs of a key and a value. Other readers
ignore them. An id is ``<prefix>/<row>``:

* Every user record has the tag ``r``, whose value is the number of its row.
* The first user record of an aggregate has, before that, the tag ``kinesis_ds.id.1``, whose value
  is the prefix of all ids in this aggregate. The ``1`` is the version of this form.

So an id costs about a dozen bytes a record, and each aggregate can be read without any other. Tags
in any other form belong to other producers and are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_ds.wire.kpl import TAG_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX_KEY = b"kinesis_ds.id.1"
_PREFIX_HEAD = b"\x0a%c%b\x12" % (len(_PREFIX_KEY), _PREFIX_KEY)
_ROW_HEAD = b"\x0a\x01r\x12"
# Both values are so short that their lengths, as varints, are one byte.
_PREFIX_MAX_BYTES = 100
_ROW_MAX_DIGITS = 19


def prefix_tag(prefix: str) -> bytes:
    """Return the field with the prefix of an aggregate's record ids.

    Raises:
        ValueError: The prefix is empty, or longer than 100 bytes.
    """
    value = prefix.encode()
    if not 1 <= len(value) <= _PREFIX_MAX_BYTES:
        raise ValueError(f"a prefix of record ids has 1 to {_PREFIX_MAX_BYTES} bytes")
    return _tag(_PREFIX_HEAD, value)


def row_tag(row: int) -> bytes:
    """Return the field with the row number of a user record."""
    digits = b"%d" % row
    return _ROW_TAG_HEADS[len(digits)] + digits


def _tag(head: bytes, value: bytes) -> bytes:
    return b"%b%c%b%c%b" % (TAG_FIELD, len(head) + 1 + len(value), head, len(value), value)


_ROW_TAG_HEADS = [_tag(_ROW_HEAD, b"0" * n)[: len(_ROW_HEAD) + 3] for n in range(20)]


def row_numbers(records: Any) -> list[str | None]:
    """Return the row number of each user record, as digits; None where it has not exactly one."""
    rows: list[str | None] = []
    for record in records:
        found = None
        for tag in record.tags:
            if tag.startswith(_ROW_HEAD):
                value = tag[5:]
                if found is None and value.isdigit() and tag[4] == len(value) <= _ROW_MAX_DIGITS:
                    found = value.decode("ascii")
                else:
                    found = None
                    break
        rows.append(found)
    return rows


def record_ids(records: Any) -> list[str | None]:
    """Return the id of each user record of one aggregate; None where it has none."""
    prefix = _prefix_of(records[0].tags) if records else None
    if prefix is None:
        return [None] * len(records)
    return [None if row is None else f"{prefix}/{row}" for row in row_numbers(records)]


def _prefix_of(tags: Iterable[bytes]) -> str | None:
    found = [tag[len(_PREFIX_HEAD) :] for tag in tags if tag.startswith(_PREFIX_HEAD)]
    if len(found) != 1 or not 2 <= len(found[0]) <= 1 + _PREFIX_MAX_BYTES:
        return None
    value = found[0][1:]
    if found[0][0] != len(value):
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
