"""The parent's side of an agent process."""

from __future__ import annotations

import pytest

from kinesis_ds.agent.remote.child import describe


@pytest.mark.parametrize(
    ("status", "expected"), [(3, "exit status 3"), (-9, "signal SIGKILL"), (-99, "signal 99")]
)
def test_how_it_died_is_said_in_words(status: int, expected: str) -> None:
    """A number says little."""
    assert describe(status) == expected
