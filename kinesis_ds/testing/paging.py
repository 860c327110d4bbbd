"""Read the tokens of next pages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_ds.testing.errors import ServiceError
from kinesis_ds.testing.tokens import unseal

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account


def page_of(account: Account, kind: str, token: str, now: float) -> dict[str, Any]:
    """Return the fields that a page token was made from.

    Raises:
        ServiceError: InvalidArgumentException if it is not a token of this kind, or
            ExpiredNextTokenException.
    """
    fields = unseal(kind, token)
    if fields is None:
        raise ServiceError("InvalidArgumentException", "NextToken is invalid.")
    if now - fields["issued"] > account.settings.iterator_life_s:
        raise ServiceError("ExpiredNextTokenException", "NextToken has expired.")
    return fields
