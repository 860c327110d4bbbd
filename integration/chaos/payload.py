"""What the records of a run hold: enough to tell them apart and to see any damage. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A record: its number in the run, its key, and its number among the key's records."""

    id: int
    key: str
    nth: int


def make_data(item: Item, size: int) -> bytes:
    """The record's data, of about ``size`` bytes more than its names."""
    head = f"{item.id}:{item.key}:{item.nth}:{size}|".encode()
    return head + (head * (size // len(head) + 1))[:size]


def read_data(data: bytes) -> Item | None:
    """The record that :func:`make_data` made; None for anything else, a damaged one too."""
    try:
        head, _, _ = data.partition(b"|")
        number, key, nth, size = head.decode().split(":")
        item = Item(int(number), key, int(nth))
        return item if make_data(item, int(size)) == data else None
    except ValueError:
        return None


def head_of(data: bytes) -> bytes:
    """The names alone, which is what is kept of a record that was seen to be whole."""
    return data.partition(b"|")[0]


def read_head(head: bytes) -> Item:
    number, key, nth, _ = head.decode().split(":")
    return Item(int(number), key, int(nth))


def tag_data(data: bytes, tag: str) -> bytes:
    """The data as the sink is given it: with the attempt that wrote it."""
    return data + b"|" + tag.encode()


def untag_data(tagged: bytes) -> tuple[bytes, str]:
    data, _, tag = tagged.rpartition(b"|")
    return data, tag.decode(errors="replace")
