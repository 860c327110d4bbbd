"""A certificate for the double's TLS port."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


class Certificate:
    """A certificate for one host, by an authority that lives as long as the server.

    Attributes:
        context: For a listener; offers HTTP/2 and HTTP/1.1 by ALPN.
        ca_file: The authority's certificate, for clients to trust.
    """

    def __init__(self, host: str) -> None:
        import trustme  # noqa: PLC0415  # only TLS needs it

        authority = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        authority.issue_cert(host, "localhost").configure_cert(self.context)
        self._folder = tempfile.TemporaryDirectory(prefix="kinesis-double-")
        self.ca_file = Path(self._folder.name) / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))

    def remove(self) -> None:
        """Delete the file."""
        self._folder.cleanup()
