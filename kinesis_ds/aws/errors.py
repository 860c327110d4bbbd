"""Translate errors of the service, of botocore and of the network into the connector's own.

Which class of :mod:`kinesis_ds.errors` an error gets is decided here and nowhere else, so that "is
it worth trying again?" has the same answer everywhere. No I/O.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import traceback

import aiohttp
from botocore import exceptions as boto

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

# Error codes by what they mean. https://docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html
# and the pages of the calls, such as API_PutRecords.html and API_SubscribeToShard.html beside it.
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

# Calls that return credentials. botocore makes them before the call that needs the credentials.
_CREDENTIAL_CALLS = frozenset(
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
    boto.ConfigNotFound,
    boto.ConfigParseError,
    boto.CredentialRetrievalError,
    boto.InvalidConfigError,
    boto.MetadataRetrievalError,
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.RefreshWithMFAUnsupportedError,
    boto.SSOError,
    boto.TokenRetrievalError,
    boto.UnknownCredentialError,
)
# botocore's names for providers that ask a server near the machine, which may be overloaded.
_PROVIDERS_WITH_SERVER = frozenset({"container-role", "iam-role"})
# From botocore's error when a provider gives credentials that have expired already.
_GAVE_EXPIRED = "refreshed credentials are still expired"

# Error texts that may quote credentials: the service explains a refused signature by quoting the
# headers of the request, and a credential process may print credentials among its errors.
_CREDENTIALS = re.compile(
    r"((?:credential|signature|security-token|secret[_-]?access[_-]?key|session[_-]?token"
    r"|access[_-]?key[_-]?id|external[_-]?id)[\"']?\s*[=:]\s*[\"']?)[^\s,'\"&<]+",
    re.IGNORECASE,
)


# Where botocore's providers of credentials are.
_CREDENTIAL_MODULES = frozenset({"aiobotocore.credentials", "botocore.credentials"})

# The modules that parse an answer, and the names of their local variables that hold it.
_PARSER_MODULES = frozenset({"aiobotocore.endpoint", "aiobotocore.parsers", "botocore.parsers"})
_ANSWER_VARIABLES = ("response_dict", "response")


def service_error(
    operation: str, target: str, code: str, message: str, status: int = 400
) -> KinesisConnectorError:
    """Return the error for an error answer, or for an exception inside an event stream.

    Args:
        operation: API operation, for example ``SubscribeToShard``.
        target: What the call was about: ``stream orders`` or ``shard shardId-0 of orders``.
        code: The service's error code, without namespace.
        message: The service's own text; credentials in it are hidden.
        status: HTTP status; 5xx counts as transient for codes that are not known here.
    """
    message = without_credentials(message)
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
        operation in _CREDENTIAL_CALLS
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


def without_credentials(text: str) -> str:
    """Return an error text with the credentials in it replaced by ``(hidden)``."""
    return _CREDENTIALS.sub(r"\1(hidden)", text)


def foreign_error(operation: str, target: str, status: int) -> KinesisConnectorError:
    """Return the error for an answer that is not from Kinesis but from a proxy or load balancer.

    Such errors pass, so they are worth another try; except for a request that is too large, and for
    a 2xx answer that is no answer of the service.
    """
    service = "an STS" if operation in _CREDENTIAL_CALLS else "a Kinesis"
    said = f"{operation} for {target} answered HTTP {status} without {service} error."
    error: KinesisConnectorError
    if status in (413, 414):
        error = InvalidRequestError(
            said, "A proxy or gateway on the way limits the size of requests: lower batchMaxBytes."
        )
    elif status == 429:
        error = ThrottledError(
            said, "Something on the way to Kinesis limits the calls; the connector tries again."
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
    """Return the connector's error for any exception of a client library.

    Hides credentials, in the message and in the exception itself. An error of the connector is
    returned as it is.

    Args:
        exc: What was raised.
        operation: API operation that failed.
        target: What the call was about, for messages.
    """
    if isinstance(exc, KinesisConnectorError):
        return exc
    if isinstance(exc, (boto.ClientError, boto.BotoCoreError)):
        # Our error is raised from it, so printing our error prints this one, too.
        exc.args = tuple(
            without_credentials(arg) if isinstance(arg, str) else arg for arg in exc.args
        )
    if isinstance(exc, boto.ClientError):
        if exc.operation_name in _CREDENTIAL_CALLS and exc.operation_name != operation:
            operation, target = exc.operation_name, f"the AWS credential chain ({operation})"
        error = exc.response.get("Error", {})
        # Errors inside an event stream carry no ResponseMetadata.
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        code = error.get("Code") or "Unknown"
        if code == str(status):  # what botocore says for an answer without a code
            return foreign_error(operation, target, status)
        return service_error(operation, target, code, error.get("Message") or "", status)
    status = _status_of_unreadable(exc)
    if status is not None:
        return foreign_error(operation, target, status)
    if isinstance(exc, _NO_CREDENTIALS) or _GAVE_EXPIRED in str(exc) or _is_of_provider(exc):
        return _no_credentials(exc, operation, target)
    if isinstance(exc, boto.NoRegionError):
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
            boto.ConnectionError,
            boto.HTTPClientError,
            OSError,
            EOFError,
        ),
    ):
        return TransientError(
            f"{operation} for {target}: {type(exc).__name__}{f': {said}' if said else ''}.",
            "Is the endpoint right, and reachable from here?",
        )
    if isinstance(exc, boto.BotoCoreError):
        return InvalidRequestError(f"{operation} for {target}: {exc}.")
    return InternalError(
        f"{operation} for {target}: {type(exc).__name__}: {exc}.", "Please report this."
    )


def _no_credentials(exc: BaseException, operation: str, target: str) -> KinesisConnectorError:
    reason = without_credentials(str(exc)).rstrip(".")
    said = f"No usable AWS credentials for {operation} on {target}: {reason}."
    if _GAVE_EXPIRED in str(exc):
        return AccessError(said, "Is this machine's clock right?")
    asked = getattr(exc, "kwargs", {}).get("provider") in _PROVIDERS_WITH_SERVER
    if isinstance(exc, boto.MetadataRetrievalError) or asked:
        return TransientError(said, "The connector tries again.")
    return AccessError(
        said,
        "Set awsAccessKey and awsSecretKey, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a "
        "profile, or a role.",
    )


def _is_of_provider(exc: BaseException) -> bool:
    """Return True for what a provider of credentials makes of a wrong configuration.

    That is a file or program that is not there, or what cannot be read: botocore wraps neither.
    """
    return isinstance(exc, (ValueError, FileNotFoundError)) and any(
        frame.f_globals.get("__name__") in _CREDENTIAL_MODULES
        for frame, _ in traceback.walk_tb(exc.__traceback__)
    )


def _status_of_unreadable(exc: BaseException) -> int | None:
    """Return the HTTP status of an answer that botocore could not parse; None for other errors.

    botocore expects answers as the model has them. Another answer makes it raise an AttributeError,
    a TypeError, a RecursionError or the like, and only the traceback then tells of the answer.
    """
    if isinstance(exc, (boto.BotoCoreError, aiohttp.ClientError, OSError)):
        return None
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        if frame.f_globals.get("__name__") not in _PARSER_MODULES:
            continue
        for name in _ANSWER_VARIABLES:
            answer = frame.f_locals.get(name)
            status = answer.get("status_code") if isinstance(answer, dict) else None
            if isinstance(status, int):
                return status
    return None
