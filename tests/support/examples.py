"""How many examples Hypothesis draws: few and always the same, or many and others each time.

    pytest                              # few, the same on every machine and in every run
    pytest --hypothesis-profile=many    # ten times as many, as `make test-all` does
    pytest --hypothesis-profile=soak    # for a quarter of an hour

A test whose faults are rare among what is drawn asks for a multiple: ``@times(3)``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "few",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
_few = settings.get_profile("few")
for _name, _examples in (("many", 500), ("soak", 2_000)):
    settings.register_profile(
        _name, _few, derandomize=False, max_examples=_examples, print_blob=True
    )
settings.load_profile("few")


def times(factor: int, *, steps: int = 50) -> settings:
    """Draw so many times what the profile says; a run of a state machine has at most ``steps``."""
    return settings(max_examples=factor * settings().max_examples, stateful_step_count=steps)
