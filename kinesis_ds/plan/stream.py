"""What names a stream, and what is known of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_ds.limits import (
    RECORD_MAX_BYTES_DEFAULT,
    RETENTION_HOURS_DEFAULT,
)


@dataclass(frozen=True)
class StreamId:
    """How the user named the stream: by name or by ARN (exactly one is given)."""

    name: str | None = None
    arn: str | None = None

    @property
    def label(self) -> str:
        return self.arn or self.name or "?"

    def request(self) -> dict[str, str]:
        """The members that name the stream in an API request."""
        return {"StreamARN": self.arn} if self.arn else {"StreamName": self.name or ""}


@dataclass(frozen=True)
class StreamInfo:
    """A stream as DescribeStreamSummary tells it.

    Attributes:
        server_time: The service's clock at the answer, seconds since the epoch, or None.
        max_record_bytes: Largest record the stream takes, partition key included.
        retention_hours: How long it keeps records.
        distributes: Whether it places records itself, whatever their keys.
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
    """Whether two streams, each by name or ARN, may be the same one."""
    if one.startswith("arn:") and other.startswith("arn:"):
        return one == other
    return stream_of(one) == stream_of(other)


def stream_of(name_or_arn: str) -> str:
    """The name of a stream that is given by name, by ARN, or by the ARN of a consumer."""
    return name_or_arn.split("/")[1] if name_or_arn.startswith("arn:") else name_or_arn


def region_of(arn: str) -> str:
    """The region in an ARN."""
    return arn.split(":")[3]
