"""Errors of credentials are told apart, and show no secret."""

from __future__ import annotations

import traceback

import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError, MetadataRetrievalError

from kinesis_ds.aws.errors import translate
from kinesis_ds.errors import (
    AccessError,
    KinesisConnectorError,
    TransientError,
)
from tests.support.roles import (
    KEY,
    SECRET,
    TOKEN,
)


@pytest.mark.parametrize(
    ("exc", "kind", "said"),
    [
        (
            CredentialRetrievalError(provider="custom-process", error_msg="sign in first"),
            AccessError,
            "sign in first",
        ),
        (
            CredentialRetrievalError(provider="container-role", error_msg="timed out"),
            TransientError,
            "timed out",
        ),
        (MetadataRetrievalError(error_msg="timed out"), TransientError, "timed out"),
        (
            RuntimeError("Credentials were refreshed, but the refreshed credentials are still "
                         "expired."),
            AccessError,
            "clock",
        ),
        (
            ClientError(
                {"Error": {"Code": "InvalidIdentityToken", "Message": "no such provider"}},
                "AssumeRoleWithWebIdentity",
            ),
            AccessError,
            "sts:AssumeRoleWithWebIdentity",
        ),
        (
            ClientError(
                {"Error": {"Code": "UnauthorizedException", "Message": "Session token not found"}},
                "GetRoleCredentials",
            ),
            AccessError,
            "sign in again",
        ),
    ],
    ids=lambda v: "" if isinstance(v, str) else getattr(v, "__name__", type(v).__name__),
)  # fmt: skip
def test_what_the_chain_says_is_about_credentials(
    exc: Exception, kind: type[KinesisConnectorError], said: str
) -> None:
    """Not about the call that needed them, and never a bug of ours."""
    error = translate(exc, "DescribeStreamSummary", "stream orders")

    assert type(error) is kind
    assert said in str(error)
    assert "kinesis:DescribeStreamSummary" not in str(error)


@pytest.mark.parametrize(
    "printed",
    [
        f'{{"SecretAccessKey": "{SECRET}", "SessionToken": "{TOKEN}", "AccessKeyId": "{KEY}"}}',
        f"aws_secret_access_key={SECRET}\naws_session_token = {TOKEN} aws_access_key_id: {KEY}",
    ],
)
def test_what_a_credential_process_prints_is_not_shown(printed: str) -> None:
    """Its standard error is part of botocore's message."""
    exc = CredentialRetrievalError(provider="custom-process", error_msg=printed)
    error = translate(exc, "ListShards", "stream orders")
    told = "".join(traceback.format_exception(error.with_traceback(None))) + str(exc)

    for secret in (SECRET, TOKEN, KEY):
        assert secret not in told


def test_what_is_chained_to_an_error_shows_no_credentials_either() -> None:
    """Spark prints the whole chain where a task fails."""
    exc = ClientError(
        {
            "Error": {
                "Code": "InvalidSignatureException",
                "Message": f"host:h\nx-amz-security-token:{TOKEN}\nCredential={KEY}/2026",
            }
        },
        "ListShards",
    )

    def fail() -> None:
        try:
            raise exc
        except ClientError as cause:
            raise translate(cause, "ListShards", "stream orders") from cause

    with pytest.raises(AccessError) as caught:
        fail()
    printed = "".join(traceback.format_exception(caught.value))
    assert "InvalidSignatureException" in printed
    assert TOKEN not in printed
    assert KEY not in printed


def test_an_expired_session_token_is_named() -> None:
    """With what would be renewed."""
    exc = ClientError(
        {"Error": {"Code": "ExpiredTokenException", "Message": "The token is expired"}},
        "ListShards",
    )
    error = translate(exc, "ListShards", "stream orders")

    assert isinstance(error, AccessError)
    assert "The session token has expired" in str(error)
    assert "roleArn" in str(error)
