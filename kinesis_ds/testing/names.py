"""Make ARNs from names, and find the stream that a request names. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.tokens import unseal


class Names:
    """The names of one account in one region."""

    def __init__(self, region: str, account_id: str) -> None:
        self._prefix = f"arn:aws:kinesis:{region}:{account_id}:stream/"

    def stream_arn(self, name: str) -> str:
        return self._prefix + name

    def stream_in(self, arn: str) -> str | None:
        """Return the stream's name in its ARN or in a consumer's.

        None: the ARN is of another account or region.
        """
        if not arn.startswith(self._prefix):
            return None
        return arn.removeprefix(self._prefix).split("/", 1)[0]

    def stream_of(self, request: Mapping[str, Any]) -> str | None:
        """Return the name of the stream that a request, which is not checked yet, is about."""
        name = request.get("StreamName")
        if isinstance(name, str):
            return name
        for key in ("StreamARN", "ConsumerARN"):
            arn = request.get(key)
            if isinstance(arn, str):
                return self.stream_in(arn)
        for key, kind in (("ShardIterator", "iterator"), ("NextToken", "shards")):
            token = request.get(key)
            fields = unseal(kind, token) if isinstance(token, str) else None
            if fields is not None:
                return str(fields["stream"])
        return None

    def required_stream(self, request: Mapping[str, Any]) -> str:
        """Return the name of the stream that ``StreamName``, ``StreamARN`` or both give.

        Raises:
            ServiceError: InvalidArgumentException, or ResourceNotFoundException for an ARN of
                another account or region.
        """
        name, arn = request.get("StreamName"), request.get("StreamARN")
        if arn is None:
            if name is None:
                raise ServiceError(
                    "InvalidArgumentException", "Either StreamName or StreamARN must be provided."
                )
            return str(name)
        found = self.stream_in(arn)
        if found is None or not re.fullmatch(r"[a-zA-Z0-9_.-]+", found):
            raise ServiceError("ResourceNotFoundException", f"Stream {arn} not found.")
        if name is not None and name != found:
            raise ServiceError(
                "InvalidArgumentException", f"StreamName {name} and StreamARN {arn} do not agree."
            )
        return found
