"""The errors of the connector. Each class stands for one kind of cause and remedy.

Each message says what happened, to which stream, shard, option or row, and what to do next.
"""

from __future__ import annotations

import reprlib
from typing import ClassVar

_REPR = reprlib.Repr()
_REPR.maxdict = _REPR.maxlist = 6
_REPR.maxlevel = 4
_REPR.maxstring = _REPR.maxother = 100
_MAX_SHOWN = 200


def shown(value: object) -> str:
    """Return a short text for a value in a message, however long or deeply nested the value is."""
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


class KinesisConnectorError(Exception):
    """Base class of all errors of this connector.

    Args:
        message: A sentence that says what happened, and to what.
        remedy: A sentence that says what the reader can do about it; empty if nothing.

    Attributes:
        condition: The name of the class of error, which begins the text of the error.
        retryable: True if the same call may succeed later although nobody changes anything.
        code: The error code of Kinesis if the error is an answer of the service, else empty.
    """

    condition: ClassVar[str] = "KINESIS_ERROR"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy
        self.code = ""

    def __str__(self) -> str:
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"[{self.condition}] {self.message}{remedy}"


class OptionError(KinesisConnectorError):
    """One or more options are unknown, malformed or contradict each other."""

    condition = "KINESIS_OPTIONS"


class SchemaError(KinesisConnectorError):
    """The schema of the DataFrame, or the schema that the user gave, is not supported."""

    condition = "KINESIS_SCHEMA"


class AccessError(KinesisConnectorError):
    """Credentials are missing or wrong, or a permission is missing."""

    condition = "KINESIS_ACCESS"


class StreamNotFoundError(KinesisConnectorError):
    """The stream, or the endpoint, does not exist."""

    condition = "KINESIS_STREAM_NOT_FOUND"


class ConsumerError(KinesisConnectorError):
    """The enhanced fan-out consumer cannot be registered, or no longer exists."""

    condition = "KINESIS_CONSUMER"


class OffsetError(KinesisConnectorError):
    """The query must not continue from this checkpoint."""

    condition = "KINESIS_CHECKPOINT"


class StreamRecreatedError(OffsetError):
    """The stream was deleted and created again since the checkpoint was written."""

    condition = "KINESIS_STREAM_RECREATED"


class DataLossError(KinesisConnectorError):
    """Records that the checkpoint still needs are no longer in the stream."""

    condition = "KINESIS_DATA_LOSS"


class WriteError(KinesisConnectorError):
    """A row cannot be written, or records were not delivered before the deadline."""

    condition = "KINESIS_WRITE"


class AgentError(KinesisConnectorError):
    """The shard agent does not have what it was asked for, or does not run."""

    condition = "KINESIS_AGENT"


class ProtocolError(KinesisConnectorError):
    """The network delivered bytes that are not what Kinesis documents."""

    condition = "KINESIS_PROTOCOL"


class InvalidRequestError(KinesisConnectorError):
    """Kinesis refused a call as invalid (``InvalidArgumentException`` and similar errors)."""

    condition = "KINESIS_INVALID_REQUEST"


class ResourceInUseError(KinesisConnectorError):
    """The consumer is not ACTIVE, or the last subscription to the shard was less than 5 s ago."""

    condition = "KINESIS_RESOURCE_IN_USE"
    retryable = True


class ThrottledError(KinesisConnectorError):
    """A limit of the service was reached."""

    condition = "KINESIS_THROTTLED"
    retryable = True


class TransientError(KinesisConnectorError):
    """The network failed, a call timed out, or the service answered with a 5xx status."""

    condition = "KINESIS_TRANSIENT"
    retryable = True


class InternalError(KinesisConnectorError):
    """The connector is in a state that should be impossible. Please report the message."""

    condition = "KINESIS_INTERNAL"


def unexpected(exc: Exception, label: str = "") -> InternalError:
    """Return the error to raise for an exception that should be impossible.

    Args:
        exc: The exception.
        label: What met it, as the message names it; empty: nothing is named.
    """
    said = f"{type(exc).__name__}: {exc}."
    return InternalError(f"{label}: {said}" if label else said, "Please report this.")
