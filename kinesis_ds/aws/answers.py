"""Read the answers of data calls: JSON, or the error that an answer reports."""

from __future__ import annotations

from typing import Any

from kinesis_ds.aws.errors import foreign_error, service_error
from kinesis_ds.codecs import JSONDecodeError, loads
from kinesis_ds.errors import ProtocolError

# Error answers are read up to here; no error of the service is longer.
MAX_ERROR_BYTES = 64 * 1024


def json_object(body: bytes, operation: str, target: str) -> dict[str, Any]:
    """Return the JSON object in the body of an answer.

    Raises:
        ProtocolError: The body is not a JSON object.
    """
    try:
        parsed = loads(body)
    except JSONDecodeError as exc:
        raise ProtocolError(
            f"{operation} for {target} answered something that is not JSON.",
            "Is the endpoint a Kinesis endpoint?",
        ) from exc
    if not isinstance(parsed, dict):
        raise ProtocolError(
            f"{operation} for {target} answered JSON that is no object.",
            "Is the endpoint a Kinesis endpoint?",
        )
    return parsed


def error_answer(
    status: int, error_type: str | None, body: bytes, operation: str, target: str
) -> Exception:
    """Return the error that an answer reports; its body may be anything.

    Args:
        status: HTTP status of the answer.
        error_type: Its header ``x-amzn-ErrorType``.
        body: Its body, cut at ``MAX_ERROR_BYTES``.
        operation: The call, for example ``GetRecords``.
        target: What the call was about, for messages.
    """
    try:
        parsed = loads(body)
    except JSONDecodeError:
        parsed = {}
    if not isinstance(parsed, dict):
        parsed = {}
    code = _text(parsed, "__type") or error_type or ""
    code = code.rpartition("#")[2].partition(":")[0]
    message = _text(parsed, "message") or _text(parsed, "Message")
    if not code and status < 500:
        return foreign_error(operation, target, status)
    return service_error(operation, target, code or f"HTTP {status}", message, status)


def _text(parsed: dict[str, Any], member: str) -> str:
    value = parsed.get(member)
    return value if isinstance(value, str) else ""
