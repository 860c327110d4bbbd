"""Hypothesis draws the same examples on every machine and in every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# Each run draws others, and many: `--hypothesis-profile=soak`.
settings.register_profile(
    "soak",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=2_000,
    print_blob=True,
)
settings.load_profile("repeatable")
