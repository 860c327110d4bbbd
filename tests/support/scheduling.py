"""Answers to the requests of a scheduler, record by record, and what is left in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_ds.writer.results import Answers, Rejected, Retry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_ds.writer.scheduler import Scheduler


@dataclass
class Delivered:
    """The record is stored, in this shard and under this sequence number."""

    shard_id: str
    sequence_number: str


Verdict = Delivered | Retry | Rejected


def answers_of(verdicts: Iterable[Verdict]) -> Answers:
    """Return the verdicts on the records of a request as the sink reads them."""
    answers = Answers([], [], {})
    for at, verdict in enumerate(verdicts):
        if isinstance(verdict, Delivered):
            answers.shards.append(verdict.shard_id)
            answers.numbers.append(verdict.sequence_number)
        else:
            answers.shards.append(None)
            answers.numbers.append("")
            answers.failures[at] = verdict
    return answers


def verdicts_of(answers: Answers) -> list[Verdict]:
    """Return what the sink has read, record by record. It is either stored or failed."""
    verdicts: list[Verdict] = []
    for at, (shard_id, number) in enumerate(zip(answers.shards, answers.numbers, strict=True)):
        assert (shard_id is None) == (number == "") == (at in answers.failures)
        verdicts.append(answers.failures[at] if shard_id is None else Delivered(shard_id, number))
    return verdicts


def is_empty(scheduler: Scheduler) -> bool:
    """Say whether everything that was added is delivered."""
    return not (scheduler.waiting.rows or scheduler.sent or scheduler.in_unknown_shards)


def rows_in_unknown_shards(scheduler: Scheduler) -> int:
    """Return how many rows are stored in shards of which it is not known what belongs there."""
    return sum(record.rows for record, _ in scheduler.in_unknown_shards)
