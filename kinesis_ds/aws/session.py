"""Set up botocore sessions: region, models of the services, and whose credentials sign."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiobotocore.session import get_session
from botocore.loaders import Loader, create_loader

from kinesis_ds.aws.credentials import FollowedChain
from kinesis_ds.aws.role import AssumedRole

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

    from kinesis_ds.clock import Clock
    from kinesis_ds.options.aws import AwsOptions


@functools.lru_cache(maxsize=4)
def models(data_path: str | None) -> Loader:
    """Return the loader of the models of AWS's services.

    Reading the models is most of what making a client costs, so it happens once per process.
    """
    return create_loader(data_path)


def configure_session(session: AioSession, aws: AwsOptions, clock: Clock) -> AssumedRole | None:
    """Make a session sign as the options say.

    Returns:
        The role that signs, which the caller closes; None without the option ``roleArn``.
    """
    sts_session = get_session() if aws.role_arn else None
    for each in filter(None, (session, sts_session)):
        if aws.region:
            each.set_config_variable("region", aws.region)
        loader = models(each.get_config_variable("data_path"))
        each.register_component("data_loader", loader)
    asking = sts_session or session
    if aws.access_key:
        asking.set_credentials(aws.access_key, aws.secret_key, aws.session_token)
    else:
        asking.register_component("credential_provider", FollowedChain(asking))
    if sts_session is None:
        return None
    role = AssumedRole(aws, sts_session, clock)
    session.register_component("credential_provider", role)
    return role
