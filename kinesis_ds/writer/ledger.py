"""Keeps a note of each batch that is written, in the checkpoint as ``_kinesis_sink/<batch>``.

Spark runs a batch again if it was killed after the sink's commit and before its own note of it. The
ledger then shows that the batch is in the stream. Only the driver reads and writes it. What the
tasks need of it they get with the pickled writer, so executors need no access to the checkpoint.

It saves repeats and is needed for nothing else. So an error of the ledger is a warning, never a
failed query, and the sink goes on at least once.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kinesis_ds.writer.ledger_format import (
    Entry,
    EntryError,
    WrittenBatches,
    decode_entry,
    encode_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

FOLDER = "_kinesis_sink"
KEEP = 100

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)")
# Up to the last @: a password with a slash in it makes no valid URI, but it is a password.
_USER = re.compile(r"(?<=://).*@", re.DOTALL)
_BATCH = re.compile(r"0|[1-9][0-9]*")
_TEMPORARY = re.compile(r"\.[0-9]+\.[0-9a-f]{32}\.tmp")
# Schemes that have another name in Hadoop than in pyarrow.
_SCHEMES = {"s3a": "s3"}
# File systems that show a file under its name while it is being written, and rename in one step. An
# object store shows an object only when it is complete.
_RENAMING = frozenset({"local", "hdfs"})

_AT_LEAST_ONCE = (
    "so a batch that Spark runs again, because the query was killed at its very end, is written "
    "again; nothing is lost"
)
# Warnings that were given. A writer is made twice a batch, and a file system may be away for hours.
_warned: set[str] = set()
# A store that cannot be reached fails late (pyarrow tries S3 for two minutes), and would do so in
# each batch. So it is then left alone for ten times as long as the failure took.
_SLOW_S = 1.0
_REST = 10
_rests_until: dict[str, float] = {}


class Ledger:
    """The entries in the checkpoint of one query.

    Args:
        files: The file system, a ``pyarrow.fs.FileSystem``.
        root: The path of the checkpoint in it.
        shown: The location for messages, without a password.
        keep: How many entries are kept.
    """

    def __init__(self, files: Any, root: str, shown: str, keep: int = KEEP) -> None:
        self._fs = files
        self._root = root
        self._shown = shown
        self._keep = keep

    def __repr__(self) -> str:
        return f"Ledger({self._shown!r})"

    @classmethod
    def open(cls, location: str | None, *, warn: bool = True) -> Ledger | None:
        """Open the ledger of the checkpoint at ``location``.

        Returns None, with one warning, where there is no location or its file system cannot be
        opened; also, for a while, where it could not be reached lately.

        Args:
            location: A path, or a URI of a file system that pyarrow knows (``file:``, ``s3:``,
                ``s3a:``, ``hdfs:`` and others); like Spark, nothing in it is unquoted.
            warn: False where another process of the same query warns.
        """
        if not location:
            if warn:
                _warn_once(
                    "no location",
                    "the sink keeps no account of its batches: its options hold no checkpoint, "
                    "%s. Give the checkpoint as .option('checkpointLocation', ...) of the writer: "
                    "a sink is not told of spark.sql.streaming.checkpointLocation",
                    _AT_LEAST_ONCE,
                )
            return None
        shown = redacted(location)
        began = time.monotonic()
        if began < _rests_until.get(shown, began):
            return None
        try:
            files, root = _file_system(location)
        # Libraries that are missing, schemes that are unknown, no region, no credentials: pyarrow
        # has no common error for them, and none of them is worth a query.
        except Exception as exc:
            _rest(shown, began)
            if warn:
                _warn_once(
                    f"open {shown}",
                    "the sink keeps no account of its batches: pyarrow cannot open the file system "
                    "of %s (%s), %s. Use a checkpoint on a file system that pyarrow.fs has on the "
                    "driver",
                    shown,
                    _why(exc, location),
                    _AT_LEAST_ONCE,
                )
            return None
        return cls(files, root, shown)

    def written(self) -> WrittenBatches:
        """Return the batches that need not be written again.

        That is the newest entry that Spark can run again, usually the newest of all: one listing
        and two reads of small files. An entry does not count if it cannot be read, or does not
        belong to the checkpoint as it is now.

        Caller: the driver, before each batch.
        """
        began = time.monotonic()
        try:
            for batch_id in sorted(self._batches(self._names()), reverse=True):
                entry = self._entry(batch_id)
                if entry is not None:
                    batch = (entry.query_id, entry.batch_id, entry.target)
                    return WrittenBatches(frozenset({batch}))
        except Exception as exc:  # see the head of this file: it must not fail the query
            self._warn("read", exc, "read")
            _rest(self._shown, began)
        return WrittenBatches()

    def record(self, entry: Entry) -> None:
        """Write the entry of a batch, in one step; then remove entries that are old.

        An error is only a warning. If it failed the query, Spark would run the batch again, and its
        records would be written twice for certain. This way they are written twice only if the
        query is also killed before Spark's own note, which follows at once.

        Caller: the driver, when all tasks have succeeded.
        """
        began = time.monotonic()
        try:
            offsets = self._offsets(entry.batch_id)
            if offsets is None:
                raise FileNotFoundError(
                    f"offsets/{entry.batch_id} is not there. Where Spark's default file system is "
                    "not the driver's disk, the location needs its scheme, as in hdfs:// or s3://"
                )
            self._put(entry.batch_id, encode_entry(entry, offsets))
            _warned.discard(f"record {self._shown}")
        except Exception as exc:  # see above
            self._warn("record", exc, "write")
            _rest(self._shown, began)
            return
        try:
            self._clean(entry.batch_id)
        except Exception as exc:  # what is left does no harm, and the next batch tries again
            self._warn("clean", exc, "remove old entries from")

    def _entry(self, batch_id: int) -> Entry | None:
        """Return the entry of a batch, if it is of the very batch that Spark would run again."""
        try:
            entry, offsets = decode_entry(self._read(self._path(str(batch_id))))
            if entry.batch_id != batch_id:
                raise EntryError(f"is of batch {entry.batch_id}")
        except EntryError as exc:
            _warn_once(
                f"entry {self._shown} {batch_id}",
                "the sink's note of batch %d cannot be used: %s/%s/%d %s. If Spark runs that batch "
                "again, it is written again; nothing is lost",
                batch_id, self._shown, FOLDER, batch_id, exc,
            )  # fmt: skip
            return None
        except FileNotFoundError:
            return None
        return entry if offsets == self._offsets(batch_id) else None

    def _offsets(self, batch_id: int) -> str | None:
        try:
            return hashlib.sha256(self._read(f"{self._root}/offsets/{batch_id}")).hexdigest()
        except FileNotFoundError:
            return None

    def _names(self) -> list[str]:
        from pyarrow import fs  # noqa: PLC0415

        selector = fs.FileSelector(self._path(), allow_not_found=True)
        found = self._fs.get_file_info(selector)
        return [info.base_name for info in found if info.type == fs.FileType.File]

    def _batches(self, names: list[str]) -> Iterator[int]:
        return (int(name) for name in names if _BATCH.fullmatch(name))

    def _put(self, batch_id: int, text: bytes) -> None:
        path = self._path(str(batch_id))
        if self._fs.type_name not in _RENAMING:
            self._write(path, text)
            return
        self._fs.create_dir(self._path(), recursive=True)
        temporary = self._path(f".{batch_id}.{uuid.uuid4().hex}.tmp")
        self._write(temporary, text)
        if self._fs.type_name == "hdfs" and str(batch_id) in self._names():
            self._fs.delete_file(path)  # a rename there replaces nothing
        self._fs.move(temporary, path)

    def _clean(self, batch_id: int) -> None:
        """Remove old entries, temporary files that a kill left, and entries of later batches.

        Those are there when the checkpoint was set back.
        """
        names = self._names()
        gone = [n for n in self._batches(names) if not batch_id - self._keep < n <= batch_id]
        for name in [*map(str, gone), *filter(_TEMPORARY.fullmatch, names)]:
            self._fs.delete_file(self._path(name))

    def _read(self, path: str) -> bytes:
        with self._fs.open_input_stream(path) as file:
            return bytes(file.read())

    def _write(self, path: str, text: bytes) -> None:
        with self._fs.open_output_stream(path) as file:
            file.write(text)

    def _path(self, name: str = "") -> str:
        return f"{self._root}/{FOLDER}/{name}".rstrip("/")

    def _warn(self, what: str, exc: Exception, verb: str) -> None:
        _warn_once(
            f"{what} {self._shown}",
            "the sink could not %s its account of batches in %s/%s (%s), %s. The driver needs to "
            "read, write, list and delete there through pyarrow.fs",
            verb, self._shown, FOLDER, _why(exc, self._shown), _AT_LEAST_ONCE,
        )  # fmt: skip


def redacted(location: str) -> str:
    """Return a location for a message, without user name and password."""
    return _USER.sub("***@", location)


def _file_system(location: str) -> tuple[Any, str]:
    """Return the file system of a location, and the path in it.

    Hadoop, and so Spark, takes every character of a location as it is; pyarrow takes some for
    escapes and options.
    """
    from pyarrow import fs  # noqa: PLC0415

    uri = _URI.fullmatch(location)
    if uri is None or uri["scheme"] == "file":
        path = location if uri is None else uri["path"]
        return fs.LocalFileSystem(), path.rstrip("/")
    scheme = _SCHEMES.get(uri["scheme"].lower(), uri["scheme"].lower())
    path = quote(re.sub("/+", "/", uri["path"]))
    files, root = fs.FileSystem.from_uri(f"{scheme}://{uri['authority'] or ''}{path}")
    return files, root.rstrip("/")


def _rest(shown: str, began: float) -> None:
    now = time.monotonic()
    if now - began > _SLOW_S:
        _rests_until[shown] = now + _REST * (now - began)


def _why(exc: Exception, location: str) -> str:
    """Return an error as text. Some errors repeat the location, which may hold a password."""
    kind = type(exc).__name__
    return kind if "@" in location else f"{kind}: {exc}"


def _warn_once(what: str, message: str, *args: object) -> None:
    if what not in _warned:
        _warned.add(what)
        logger.warning(message, *args)
