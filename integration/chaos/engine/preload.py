"""Is imported once, by the process that drivers are forked from: so they start in milliseconds.

It must not start a thread or open anything, since a fork would inherit only half of it.
"""

from __future__ import annotations

import botocore.loaders
import botocore.session

from integration.chaos.engine import query, source, worker

# A client costs 0.2 s of parsing its service's description; here it is parsed once for all.
_LOADER = botocore.loaders.create_loader()
for _name in ("endpoints", "partitions", "sdk-default-configuration", "_retry"):
    _LOADER.load_data(_name)
for _kind in ("service-2", "endpoint-rule-set-1", "paginators-1", "waiters-2"):
    _LOADER.load_service_model("kinesis", _kind)
botocore.session.create_loader = lambda *_args, **_kwargs: _LOADER

__all__ = ["query", "source", "worker"]
