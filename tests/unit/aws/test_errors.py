"""What an error means: one class for each, and no secret in its text."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import botocore.exceptions as botocore_errors
import pytest
from botocore.exceptions import ClientError
from botocore.parsers import create_parser
from botocore.session import get_session

from kinesis_ds.aws.errors import service_error, translate
from kinesis_ds.errors import (
    AccessError,
    DataLossError,
    InternalError,
    InvalidRequestError,
    KinesisConnectorError,
    OptionError,
    ProtocolError,
    ResourceInUseError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)

KEY = "AKIAIOSFODNN7EXAMPLE"
SIGNATURE = "fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024"
TOKEN = "FwoGZXIvYXdzEXAMPLETOKEN//////////wEaD"

CODES = [
    ("AccessDeniedException", AccessError, False),
    ("AccessDenied", AccessError, False),
    ("ExpiredTokenException", AccessError, False),
    ("UnrecognizedClientException", AccessError, False),
    ("InvalidSignatureException", AccessError, False),
    ("MissingAuthenticationTokenException", AccessError, False),
    ("KMSAccessDeniedException", AccessError, False),
    ("KMSDisabledException", AccessError, False),
    ("KMSInvalidStateException", AccessError, False),
    ("KMSNotFoundException", AccessError, False),
    ("KMSOptInRequired", AccessError, False),
    ("KMSThrottlingException", ThrottledError, True),
    ("LimitExceededException", ThrottledError, True),
    ("ProvisionedThroughputExceededException", ThrottledError, True),
    ("ThrottlingException", ThrottledError, True),
    ("ResourceInUseException", ResourceInUseError, True),
    ("ResourceNotFoundException", StreamNotFoundError, False),
    ("InternalFailure", TransientError, True),
    ("InternalFailureException", TransientError, True),
    ("ServiceUnavailable", TransientError, True),
    ("InvalidArgumentException", InvalidRequestError, False),
    ("ValidationException", InvalidRequestError, False),
    ("ExpiredIteratorException", InvalidRequestError, False),
    ("DryRunOperation", InvalidRequestError, False),
    ("SomethingNew", InvalidRequestError, False),
]


@pytest.mark.parametrize(("code", "kind", "retryable"), CODES, ids=str)
def test_every_code_has_its_class(
    code: str, kind: type[KinesisConnectorError], *, retryable: bool
) -> None:
    """Denied and malformed fail, limits and breakdowns pass, the unknown fails (F45)."""
    error = service_error("SubscribeToShard", "shard s", code, "said so")

    assert type(error) is kind
    assert error.retryable is retryable
    assert error.code == code
    assert f"SubscribeToShard for shard s answered {code}: said so." in str(error)


@pytest.mark.parametrize("code", ["SomethingNew", "HTTP 503", "InvalidArgumentException"])
@pytest.mark.parametrize("status", [500, 502, 503, 599])
def test_5xx_is_passing_whatever_the_code(code: str, status: int) -> None:
    """A broken server's words count for less than its status."""
    assert isinstance(service_error("PutRecords", "stream s", code, "", status), TransientError)


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ThrottlingException", "ResourceInUseException"]
)
def test_a_known_code_wins_over_5xx(code: str) -> None:
    """Some servers send their errors with status 500."""
    assert type(service_error("X", "s", code, "", 500)) is type(service_error("X", "s", code, ""))


def test_access_errors_name_the_permission() -> None:
    """The remedy says which permission, or that the key is meant."""
    assert "kinesis:PutRecords" in str(
        service_error("PutRecords", "s", "AccessDeniedException", "")
    )
    assert "kms:Decrypt" in str(service_error("PutRecords", "s", "KMSAccessDeniedException", ""))


def client_error(code: str, message: str, status: int | None) -> ClientError:
    response: dict[str, object] = {"Error": {"Code": code, "Message": message}}
    if status is not None:
        response["ResponseMetadata"] = {"HTTPStatusCode": status}
    return ClientError(response, "DescribeStream")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (client_error("ResourceNotFoundException", "x", 400), StreamNotFoundError),
        (client_error("Whatever", "x", 503), TransientError),
        (client_error("InternalFailureException", "x", None), TransientError),
        (botocore_errors.NoCredentialsError(), AccessError),
        (botocore_errors.PartialCredentialsError(provider="env", cred_var="x"), AccessError),
        (botocore_errors.ProfileNotFound(profile="p"), AccessError),
        (botocore_errors.NoRegionError(), OptionError),
        (botocore_errors.EndpointConnectionError(endpoint_url="http://h"), TransientError),
        (botocore_errors.ReadTimeoutError(endpoint_url="http://h"), TransientError),
        (botocore_errors.ConnectionClosedError(endpoint_url="http://h"), TransientError),
        (botocore_errors.ParamValidationError(report="x"), InvalidRequestError),
        (aiohttp.ClientPayloadError("cut"), TransientError),
        (aiohttp.ServerDisconnectedError(), TransientError),
        (asyncio.TimeoutError(), TransientError),
        (ConnectionResetError("reset"), TransientError),
        (OSError("unreachable"), TransientError),
        (EOFError(), TransientError),
        (ssl.SSLError("certificate"), TransientError),
        (ValueError("a bug"), InternalError),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else type(v).__name__,
)
def test_what_client_libraries_raise_is_translated(exc: Exception, kind: type[Exception]) -> None:
    """Whatever comes, one of our errors goes, with operation and target."""
    error = translate(exc, "DescribeStream", "stream orders")

    assert type(error) is kind
    assert "stream orders" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, TransientError),
        (403, TransientError),
        (404, TransientError),
        (408, TransientError),
        (413, InvalidRequestError),
        (414, InvalidRequestError),
        (429, ThrottledError),
        (502, TransientError),
    ],
)
def test_an_answer_without_a_code_of_kinesis_is_a_proxys(
    status: int, kind: type[Exception]
) -> None:
    """botocore puts the HTTP status where the code would be, and the page where the message is."""
    error = translate(client_error(str(status), "<html>no</html>", status), "PutRecords", "s")

    assert type(error) is kind
    assert f"HTTP {status} without a Kinesis error" in str(error)
    assert "<html>" not in str(error)


def parsed_by_botocore(status: int, body: bytes) -> Exception:
    """What botocore's own parser raises over an answer."""
    model = get_session().get_service_model("kinesis").operation_model("PutRecords")
    answer = {"status_code": status, "headers": {}, "body": body, "context": {}}
    with pytest.raises(Exception) as caught:  # each body gives another one
        create_parser("json").parse(answer, model.output_shape)
    return caught.value


@pytest.mark.parametrize("body", [b"[]", b"5", b"\xff{}", b'{"Records": ["a"]}', b'{"Records": 5}'])
def test_what_botocore_cannot_parse_is_not_called_a_bug_of_ours(body: bytes) -> None:
    """Its parser raises AttributeError, TypeError, ... over whatever the model does not foresee."""
    error = translate(parsed_by_botocore(200, body), "PutRecords", "stream s")

    assert type(error) is ProtocolError
    assert "answered HTTP 200 with something that is not an answer of Kinesis" in str(error)


@pytest.mark.parametrize("body", [b"[]", b"5", b"[" * 100_000])
def test_a_5xx_answer_that_botocore_cannot_parse_is_waited_out(body: bytes) -> None:
    """The status says enough."""
    error = translate(parsed_by_botocore(503, body), "PutRecords", "stream s")

    assert type(error) is TransientError


def test_our_own_errors_pass_unchanged() -> None:
    """An error translated once is not wrapped again."""
    error = DataLossError("gone")

    assert translate(error, "X", "y") is error


@pytest.mark.parametrize(
    "message",
    [
        f"'Credential={KEY}/20261120/us-east-1' not a valid key=value pair in header: "
        f"'AWS4-HMAC-SHA256 Credential={KEY}/2026, SignedHeaders=host, Signature={SIGNATURE}'.",
        "The request signature we calculated does not match. The Canonical String should have been"
        f"\n'POST\n/\n\nhost:h\nx-amz-security-token:{TOKEN}\nx-amz-target:y'",
        f"bad url http://h/?X-Amz-Credential={KEY}%2F2026&X-Amz-Security-Token={TOKEN}"
        f"&X-Amz-Signature={SIGNATURE}",
    ],
    ids=["authorization", "canonical string", "presigned"],
)
@pytest.mark.parametrize(
    "code", ["IncompleteSignature", "InvalidSignatureException", "SomethingNew"]
)
def test_credentials_in_the_services_words_are_hidden(code: str, message: str) -> None:
    """Some errors quote the request's own headers; keys, tokens and signatures are taken out."""
    for error in (
        service_error("PutRecords", "s", code, message),
        translate(client_error(code, message, 403), "PutRecords", "s"),
    ):
        for secret in (KEY, SIGNATURE, TOKEN):
            assert secret not in str(error)
            assert secret not in repr(error)


def test_other_words_of_the_service_are_kept() -> None:
    """Hiding secrets leaves the rest of a message as it is."""
    said = (
        "Rate exceeded for shard shardId-000000000001 in stream orders under account 123456789012."
    )

    assert said in str(
        service_error("PutRecords", "s", "ProvisionedThroughputExceededException", said)
    )
