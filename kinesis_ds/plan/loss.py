"""Data loss: its errors and warnings, and the one decision between them. Pure.

A record is lost to a query when Kinesis no longer has it and the query has not read it. Whoever
finds that out makes a :class:`Loss` with one of the functions here and calls :meth:`Loss.accept`.
Nobody else looks at ``failOnDataLoss``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kinesis_ds.errors import DataLossError, KinesisConnectorError, StreamRecreatedError
from kinesis_ds.plan.position import After, AtTimestamp, Position

_HOUR_MS = 3_600_000
# AWS refuses requests signed with a clock that is further off, and reading begins soon after.
_MARGIN_MS = 300_000
_RESTART = "or start with a new checkpointLocation."
_SKIP_THEM = f"Set failOnDataLoss=false to go on without them, {_RESTART}"
_SKIP_TO_OLDEST = f"Set failOnDataLoss=false to go on at the oldest record, {_RESTART}"


@dataclass(frozen=True)
class Loss:
    """A loss that was found, worded for both decisions.

    Attributes:
        error: Raised where the query is to fail.
        warning: Logged where the query is to go on.
    """

    error: KinesisConnectorError
    warning: str

    def accept(self, *, fail_on_data_loss: bool) -> str:
        """Return the warning to log if the query may go on.

        Raises:
            KinesisConnectorError: ``error``, if ``fail_on_data_loss``.
        """
        if fail_on_data_loss:
            raise self.error
        return self.warning


def going_on(error: KinesisConnectorError, how: str = "Going on without it") -> Loss:
    """Return the loss that ``error`` reports. ``how`` says in the warning what the query does."""
    return Loss(error, f"{error.message} {how} (failOnDataLoss=false).")


def shard_gone(stream: str, shard_id: str, position: Position) -> Loss:
    """Return the loss of a shard that is still to be read and that the stream no longer lists."""
    return going_on(
        DataLossError(
            f"Shard {shard_id} of stream {stream} is in the checkpoint ({position}) and no longer "
            "in the stream.",
            f"Its unread records have expired. {_SKIP_THEM}",
        )
    )


def stream_recreated(stream: str) -> Loss:
    """Return the loss of a stream that was deleted and created again since the checkpoint."""
    return Loss(
        StreamRecreatedError(
            f"The stream {stream} was deleted and created again since the checkpoint was written.",
            "Its positions mean nothing in the new stream. Start with a new checkpointLocation.",
        ),
        f"stream {stream} was deleted and created again; reading it from its oldest record "
        "(failOnDataLoss=false)",
    )


def position_refused(
    label: str, position: Position, refusal: str, how: str = "going on at the oldest record"
) -> Loss:
    """Return the loss behind a position that Kinesis refuses.

    Args:
        label: Names the shard and its stream.
        refusal: What Kinesis answered.
        how: What the reader does if the query goes on.
    """
    return Loss(
        DataLossError(
            f"{label}: Kinesis no longer knows the position {position} ({refusal})",
            f"Records may have expired before they were read. {_SKIP_TO_OLDEST}",
        ),
        f"{label}: the position {position} is gone; {how} (failOnDataLoss=false)",
    )


def records_expired(label: str, position: Position, why: str) -> Loss:
    """Return the loss behind a position that a polled shard has reached too late.

    Args:
        label: Names the shard and its stream.
        why: A sentence that says how it was noticed.
    """
    return Loss(
        DataLossError(
            f"{label}: records behind the position {position} may have expired before they were "
            f"read. {why}",
            _SKIP_TO_OLDEST,
        ),
        f"{label}: the position {position} is gone; going on at the oldest record "
        f"(failOnDataLoss=false). {why}",
    )


def expired_unread(label: str, position: Position, retention_hours: int) -> Loss:
    """Return the loss that is possible behind a checkpoint older than the stream's retention.

    Args:
        label: Names the shard and its stream.
        retention_hours: How long the stream keeps records, in hours.
    """
    return going_on(
        DataLossError(
            f"{label[0].upper()}{label[1:]} was last read up to {position}, longer ago than the "
            f"{retention_hours} hours that the stream keeps records, and its oldest record lies "
            "behind that. Records in between may have expired unread.",
            f"{_SKIP_TO_OLDEST} If nothing was written to the shard in all that time, nothing is "
            "missing.",
        ),
        "Going on at the oldest record",
    )


def age_unknown(label: str, error: KinesisConnectorError) -> Loss:
    """Return the loss that cannot be excluded: Kinesis refused to say how old the records are."""
    return Loss(error, f"{label}: cannot tell whether records have expired unread: {error}")


def fewer_than_planned(message: str) -> Loss:
    """Return the loss of records that were there when a range was planned, as ``message`` says."""
    return going_on(
        DataLossError(message, f"Records may have expired in between. {_SKIP_THEM}"),
        "Going on without the others",
    )


def may_have_expired(position: Position, now_ms: int, retention_hours: int) -> bool:
    """Return True if a record behind a checkpointed position may be older than the retention.

    A position of an offset of version 1 does not say when it was seen and counts as young.

    Args:
        position: The position in the checkpoint.
        now_ms: Milliseconds since the epoch, right to a few minutes.
        retention_hours: How long the stream keeps records, in hours.
    """
    seen_ms = position.ms if isinstance(position, AtTimestamp) else None
    if isinstance(position, After):
        seen_ms = position.seen_ms
    return seen_ms is not None and seen_ms < now_ms - retention_hours * _HOUR_MS + _MARGIN_MS
