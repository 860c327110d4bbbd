"""The options for access to AWS, as the parser returns them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesis_ds.options.option import Transport


@dataclass(frozen=True)
class AwsOptions:
    """Access to AWS: the endpoint, the credentials and the transport. ``repr`` shows no secret.

    Attributes:
        region: The AWS region; None to take it from the environment.
        endpoint: The URL of Kinesis, without a slash at the end; None for the endpoint of AWS.
        access_key, secret_key, session_token: Credentials; None for the AWS credential chain.
        role_arn: The role to assume with these credentials; None to use them directly.
        role_external_id: The external id that the role requires.
        role_session_name: The name of the role's session, as CloudTrail shows it.
        sts_endpoint: The URL of STS, which issues the role's credentials; None for that of AWS.
        transport: The version of HTTP for subscriptions.
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
