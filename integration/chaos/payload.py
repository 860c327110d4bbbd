"""The data of the records of a run: they can be told apart, and any damage is seen. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A record: its number in the run, its key, and its number among the key's records."""

    id: int
    key: str
    nth: int


def make_data(item: Item, size: int) -> bytes:
    """Return the data of a record: its names, and about ``size`` bytes more."""
    head = f"{item.id}:{item.key}:{item.nth}:{size}|".encode()
    return head + (head * (size // len(head) + 1))[:size]


def read_data(data: bytes) -> Item | None:
    """Return the record in data made by :func:`make_data`; None if damaged or something else."""
    try:
        head, _, _ = data.partition(b"|")
        number, key, nth, size = head.decode().split(":")
        item = Item(int(number), key, int(nth))
        return item if make_data(item, int(size)) == data else None
    except ValueError:
        return None


def head_of(data: bytes) -> bytes:
    """Return only the names. They are kept after a record was checked."""
    return data.partition(b"|")[0]


def read_head(head: bytes) -> Item:
    number, key, nth, _ = head.decode().split(":")
    return Item(int(number), key, int(nth))


def tag_data(data: bytes, tag: str) -> bytes:
    """Return the data with the attempt that writes it, as the sink gets it."""
    return data + b"|" + tag.encode()


def untag_data(tagged: bytes) -> tuple[bytes, str]:
    data, _, tag = tagged.rpartition(b"|")
    return data, tag.decode(errors="replace")
