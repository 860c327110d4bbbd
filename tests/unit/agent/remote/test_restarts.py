"""When a process that dies is started again, and when it is given up."""

from __future__ import annotations

from kinesis_ds.agent.remote.restarts import RestartPolicy


def test_a_process_is_replaced_at_once_then_later_and_later_then_not_at_all() -> None:
    """Five deaths within ten minutes are too many."""
    policy = RestartPolicy()
    assert [policy.died(now) for now in (0.0, 1.0, 3.0, 6.0, 11.0)] == [0.0, 1.0, 2.0, 4.0, None]


def test_deaths_long_ago_are_forgotten() -> None:
    """A process that the machine kills once a night is replaced for ever."""
    policy = RestartPolicy()
    assert [policy.died(1000.0 * night) for night in range(20)] == [0.0] * 20
