"""What an error of the service, of botocore or of the network means for us. No I/O.

The classes of :mod:`kinesis_ds.errors` are chosen here and nowhere else, so that "is it worth
trying again?" has one answer everywhere.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import traceback

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    HTTPClientError,
    InvalidConfigError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    RefreshWithMFAUnsupportedError,
    SSOError,
    TokenRetrievalError,
    UnknownCredentialError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from kinesis_ds.errors import (
    AccessError,
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

_ACCESS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_THROTTLED = frozenset(
    {
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalFailureException",
        "InternalError",
        "ServiceUnavailable",
        "RequestTimeout",
    }
)

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException"})

# Calls that credentials come from. botocore makes them on the way to another call.
_FOR_CREDENTIALS = frozenset(
    {
        "AssumeRole",
        "AssumeRoleWithSAML",
        "AssumeRoleWithWebIdentity",
        "CreateOAuth2Token",
        "CreateToken",
        "GetRoleCredentials",
    }
)
_NO_CREDENTIALS = (
    ConfigNotFound,
    ConfigParseError,
    CredentialRetrievalError,
    InvalidConfigError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    RefreshWithMFAUnsupportedError,
    SSOError,
    TokenRetrievalError,
    UnknownCredentialError,
)
# Providers that ask a server beside the machine, which may be out of breath.
_ASK_A_SERVER = frozenset({"container-role", "iam-role"})
_GAVE_EXPIRED = "refreshed credentials are still expired"

# Refused signatures are explained by quoting the request's headers, and a program that gives
# credentials may print them among its errors.
_CREDENTIALS = re.compile(
    r"((?:credential|signature|security-token|secret[_-]?access[_-]?key|session[_-]?token"
    r"|access[_-]?key[_-]?id|external[_-]?id)[\"']?\s*[=:]\s*[\"']?)[^\s,'\"&<]+",
    re.IGNORECASE,
)


# Where an answer is made sense of, and under which names it is at hand there.
_READERS = frozenset({"aiobotocore.endpoint", "aiobotocore.parsers", "botocore.parsers"})
_ANSWERS = ("response_dict", "response")


def service_error(
    operation: str, target: str, code: str, message: str, status: int = 400
) -> KinesisConnectorError:
    """The error for an error answer (or an exception frame) of Kinesis.

    Args:
        operation: API operation, for example ``SubscribeToShard``.
        target: What it was about, for people: ``stream orders`` or ``shard shardId-0 of orders``.
        code: The service's error code, without namespace.
        message: The service's own words.
        status: HTTP status; 5xx counts as transient whatever the code says.
    """
    message = hidden(message)
    said = f"{operation} for {target} answered {code}" + (f": {message}" if message else "")
    if not said.endswith("."):
        said += "."
    error: KinesisConnectorError
    if code in _EXPIRED:
        error = AccessError(
            said,
            "The session token has expired, and with it the keys that it came with. Credentials "
            "of a role (roleArn) are renewed, and so are those of web identity, container and "
            "instance; a credentials file is read again when it changes.",
        )
    elif (
        operation in _FOR_CREDENTIALS
        and code not in _THROTTLED | _TRANSIENT
        and (status < 500 or code in _ACCESS)
    ):
        error = AccessError(
            said,
            f"Check the credentials that ask, that they may call sts:{operation} on the role, and "
            "that the role's trust policy lets them."
            if operation.startswith("AssumeRole")
            else "Check the profile, and sign in again.",
        )
    elif code.startswith("KMS") and code in _ACCESS:
        error = AccessError(
            said, "Check the stream's KMS key: its state, and kms:Decrypt and kms:GenerateDataKey."
        )
    elif code in _ACCESS:
        error = AccessError(
            said, f"Check the credentials, and that they may call kinesis:{operation} on it."
        )
    elif code == "ResourceNotFoundException":
        error = StreamNotFoundError(
            said, "Check the name, the region, the account and the endpoint."
        )
    elif code == "ResourceInUseException":
        error = ResourceInUseError(said)
    elif code in _THROTTLED:
        error = ThrottledError(
            said, "A service limit was reached; the connector waits and tries again."
        )
    elif status >= 500 or code in _TRANSIENT:
        error = TransientError(said)
    else:
        error = InvalidRequestError(
            said, "Kinesis refused the request itself; trying again will not help."
        )
    error.code = code
    return error


def hidden(text: str) -> str:
    """A text of others, without the credentials in it."""
    return _CREDENTIALS.sub(r"\1(hidden)", text)


def foreign_error(operation: str, target: str, status: int) -> KinesisConnectorError:
    """The error for an answer that is none of Kinesis: a proxy's, a load balancer's.

    What such a machine cannot do now it may do later, but for a request that is too large for it.
    """
    service = "an STS" if operation in _FOR_CREDENTIALS else "a Kinesis"
    said = f"{operation} for {target} answered HTTP {status} without {service} error."
    error: KinesisConnectorError
    if status in (413, 414):
        error = InvalidRequestError(
            said, "What stands between here and Kinesis limits requests: lower batchMaxBytes."
        )
    elif status == 429:
        error = ThrottledError(
            said, "A limit was reached that is not of Kinesis; the connector tries again."
        )
    elif status < 300:
        error = ProtocolError(
            f"{operation} for {target} answered HTTP {status} with something that is not an answer "
            f"of {service.split()[1]}.",
            f"Is the endpoint {service} endpoint?",
        )
    else:
        error = TransientError(said, f"Is the endpoint {service} endpoint?")
    error.code = f"HTTP {status}"
    return error


def translate(exc: BaseException, operation: str, target: str) -> KinesisConnectorError:
    """The connector's error for whatever a client library raised.

    Never copies request headers or credentials into the message.
    """
    if isinstance(exc, KinesisConnectorError):
        return exc
    if isinstance(exc, (ClientError, BotoCoreError)):
        # Ours is raised from it, and whoever prints ours prints it, too.
        exc.args = tuple(hidden(arg) if isinstance(arg, str) else arg for arg in exc.args)
    if isinstance(exc, ClientError):
        if exc.operation_name in _FOR_CREDENTIALS and exc.operation_name != operation:
            operation, target = exc.operation_name, f"the AWS credential chain ({operation})"
        error = exc.response.get("Error", {})
        # Errors inside an event stream carry no ResponseMetadata.
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        code = error.get("Code") or "Unknown"
        if code == str(status):  # botocore's word for an answer that has no code
            return foreign_error(operation, target, status)
        return service_error(operation, target, code, error.get("Message") or "", status)
    status = _status_of_unreadable(exc)
    if status is not None:
        return foreign_error(operation, target, status)
    if isinstance(exc, _NO_CREDENTIALS) or _GAVE_EXPIRED in str(exc):
        return _no_credentials(exc, operation, target)
    if isinstance(exc, NoRegionError):
        return OptionError(
            f"No AWS region is known for {target}.", "Set the option region, or AWS_DEFAULT_REGION."
        )
    said = str(exc).rstrip(".")
    if isinstance(exc, (ssl.SSLError, aiohttp.ClientSSLError)):
        return TransientError(
            f"{operation} for {target}: the TLS connection failed ({exc}).",
            "Check endpoint and certificates.",
        )
    if isinstance(
        exc,
        (
            aiohttp.ClientError,
            asyncio.TimeoutError,
            BotoConnectionError,
            HTTPClientError,
            OSError,
            EOFError,
        ),
    ):
        return TransientError(
            f"{operation} for {target}: {type(exc).__name__}{f': {said}' if said else ''}.",
            "Is the endpoint right, and reachable from here?",
        )
    if isinstance(exc, BotoCoreError):
        return InvalidRequestError(f"{operation} for {target}: {exc}.")
    return InternalError(
        f"{operation} for {target}: {type(exc).__name__}: {exc}.", "Please report this."
    )


def _no_credentials(exc: BaseException, operation: str, target: str) -> KinesisConnectorError:
    said = f"No usable AWS credentials for {operation} on {target}: {hidden(str(exc)).rstrip('.')}."
    if _GAVE_EXPIRED in str(exc):
        return AccessError(said, "Is this machine's clock right?")
    asked = getattr(exc, "kwargs", {}).get("provider") in _ASK_A_SERVER
    if isinstance(exc, MetadataRetrievalError) or asked:
        return TransientError(said, "The connector tries again.")
    return AccessError(
        said,
        "Set awsAccessKey and awsSecretKey, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
        "profile, or a role.",
    )


def _status_of_unreadable(exc: BaseException) -> int | None:
    """The HTTP status of the answer that botocore tripped over; None for other errors.

    It expects what the model promises, and whatever else comes is an AttributeError, a TypeError, a
    RecursionError or the like, in which nothing but the traceback tells what it was about.
    """
    if isinstance(exc, (BotoCoreError, aiohttp.ClientError, OSError)):
        return None
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        if frame.f_globals.get("__name__") not in _READERS:
            continue
        for name in _ANSWERS:
            answer = frame.f_locals.get(name)
            status = answer.get("status_code") if isinstance(answer, dict) else None
            if isinstance(status, int):
                return status
    return None
