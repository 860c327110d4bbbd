"""Where Kinesis is and who asks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.options.option import Transport


@dataclass(frozen=True)
class AwsOptions:
    """Where Kinesis is and who asks, and how. ``repr`` shows no secret.

    Attributes:
        transport: By which version of HTTP subscriptions travel.
    """

    region: str | None = None
    endpoint: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    role_external_id: str | None = field(default=None, repr=False)
    role_session_name: str | None = None
    sts_endpoint: str | None = None
    transport: Transport = "auto"
