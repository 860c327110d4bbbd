"""Every error the connector raises, named for whose fault it is and what may be done.

Each message says what happened, to which stream, shard, option or row, and what to do next.
``retryable`` is a property of the class: it says whether the same call may succeed later without
anybody changing anything.
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
    """A value for a message: short, however long or deep it is."""
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


class KinesisConnectorError(Exception):
    """Base of all errors of this connector.

    Args:
        message: What happened and to what.
        remedy: What the reader of the message can do about it.

    Attributes:
        code: The service's error code where the error is its answer, else empty.
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
    """The DataFrame's (or the user's) schema is not one the connector can serve."""

    condition = "KINESIS_SCHEMA"


class AccessError(KinesisConnectorError):
    """No credentials, wrong credentials, or a permission that is missing."""

    condition = "KINESIS_ACCESS"


class StreamNotFoundError(KinesisConnectorError):
    """The stream (or the endpoint that should know it) does not exist."""

    condition = "KINESIS_STREAM_NOT_FOUND"


class ConsumerError(KinesisConnectorError):
    """The enhanced fan-out consumer cannot be registered, or is gone."""

    condition = "KINESIS_CONSUMER"


class OffsetError(KinesisConnectorError):
    """A checkpoint that this reader must not continue from."""

    condition = "KINESIS_CHECKPOINT"


class StreamRecreatedError(OffsetError):
    """The stream was deleted and created again since the checkpoint was written."""

    condition = "KINESIS_STREAM_RECREATED"


class DataLossError(KinesisConnectorError):
    """Records that the checkpoint still needs are no longer in the stream."""

    condition = "KINESIS_DATA_LOSS"


class WriteError(KinesisConnectorError):
    """A row that cannot be written, or records not delivered before the deadline."""

    condition = "KINESIS_WRITE"


class AgentError(KinesisConnectorError):
    """The shard agent does not hold what it was asked for, or is not there."""

    condition = "KINESIS_AGENT"


class ProtocolError(KinesisConnectorError):
    """Bytes from the network that are not what Kinesis documents."""

    condition = "KINESIS_PROTOCOL"


class InvalidRequestError(KinesisConnectorError):
    """Kinesis refused a call as malformed (``InvalidArgumentException`` and its kin)."""

    condition = "KINESIS_INVALID_REQUEST"


class ResourceInUseError(KinesisConnectorError):
    """The consumer is not ACTIVE yet, or another subscription to the shard is younger than 5 s."""

    condition = "KINESIS_RESOURCE_IN_USE"
    retryable = True


class ThrottledError(KinesisConnectorError):
    """A service limit was reached."""

    condition = "KINESIS_THROTTLED"
    retryable = True


class TransientError(KinesisConnectorError):
    """Network failure, time-out or a 5xx answer."""

    condition = "KINESIS_TRANSIENT"
    retryable = True


class InternalError(KinesisConnectorError):
    """A state this code believed impossible. Please report it with the message."""

    condition = "KINESIS_INTERNAL"
