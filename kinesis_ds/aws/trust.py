"""The certificates to trust: the same for botocore, for aiohttp and for `awscrt`."""

from __future__ import annotations

import functools
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiobotocore.session import AioSession


@dataclass(frozen=True)
class Trust:
    """The certificates to trust: those in a file, or in a folder; by default `awscrt`'s own choice.

    Never give both: `awscrt` would ignore the file.

    Attributes:
        file: Path of a file of certificates in PEM.
        folder: Path of a folder of such files, named by their hashes (``openssl rehash``).
    """

    file: str | None = None
    folder: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context of Python's TLS that trusts the same."""
        return ssl.create_default_context(cafile=self.file, capath=self.folder)


def trust_bundle(session: AioSession) -> str | None:
    """Return the file or folder that botocore trusts for control calls; None if none is named."""
    return session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")


def trust_for_http1(bundle: str | None) -> ssl.SSLContext | bool:
    """Return what aiohttp takes as ``ssl``: a context, or True for its default."""
    return _cached_context(bundle, os.stat(bundle).st_mtime_ns) if bundle else True


def trust_for_http2(bundle: str | None) -> Trust:
    """Return what `awscrt` is to trust; without a bundle the default of Python, as aiohttp does.

    Python trusts its default file and its default folder together. Where there is a file, the
    folder holds the same certificates.
    """
    if bundle:
        return _trust(bundle)
    paths = ssl.get_default_verify_paths()
    return Trust(paths.cafile, None if paths.cafile else paths.capath)


@functools.lru_cache(maxsize=4)
def _cached_context(bundle: str, modified_ns: int) -> ssl.SSLContext:
    """Return a context for a bundle; cached until it is modified, as reading one takes 20 ms."""
    del modified_ns
    return _trust(bundle).context()


def _trust(bundle: str) -> Trust:
    return Trust(folder=bundle) if os.path.isdir(bundle) else Trust(file=bundle)
