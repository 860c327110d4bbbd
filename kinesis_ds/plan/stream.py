"""A stream: its names, and what Kinesis says of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_ds.limits import RECORD_MAX_BYTES_DEFAULT, RETENTION_HOURS_DEFAULT


@dataclass(frozen=True)
class StreamId:
    """The stream as the user named it: by name or by ARN, exactly one of the two.

    Attributes:
        name: The stream's name, or None.
        arn: The stream's ARN, or None.
    """

    name: str | None = None
    arn: str | None = None

    @property
    def label(self) -> str:
        """Name of the stream for messages."""
        return self.arn or self.name or "?"

    def request(self) -> dict[str, str]:
        """Return the members that name the stream in an API request."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name or ""}


@dataclass(frozen=True)
class StreamInfo:
    """A stream as DescribeStreamSummary describes it.

    Attributes:
        name: The stream's name.
        arn: The stream's ARN.
        created_ms: When it was created, in milliseconds since the epoch.
        status: ``CREATING``, ``ACTIVE``, ``UPDATING`` or ``DELETING``.
        server_time: The service's clock at the answer, in seconds since the epoch, or None.
        max_record_bytes: The largest record that the stream takes, in bytes, partition key
            included.
        retention_hours: How long it keeps records, in hours.
        distributes: True if the stream places records itself, whatever their keys.
    """

    name: str
    arn: str
    created_ms: int
    status: str
    server_time: float | None
    max_record_bytes: int = RECORD_MAX_BYTES_DEFAULT
    retention_hours: int = RETENTION_HOURS_DEFAULT
    distributes: bool = False


def same_stream(one: str, other: str) -> bool:
    """Return True if two streams, each given by name or ARN, may be the same one."""
    if one.startswith("arn:") and other.startswith("arn:"):
        return one == other
    return stream_of(one) == stream_of(other)


def stream_of(name_or_arn: str) -> str:
    """Return the name of a stream, given by name, by ARN, or by the ARN of a consumer."""
    return name_or_arn.split("/")[1] if name_or_arn.startswith("arn:") else name_or_arn


def region_of(arn: str) -> str:
    """Return the region in an ARN."""
    return arn.split(":")[3]
