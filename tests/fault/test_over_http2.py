"""Stories of the source over HTTP/2, one for each kind of trouble.

``KINESIS_TRANSPORT=http2 pytest tests/fault -k "not sink"`` runs all of them that way.
"""

from __future__ import annotations

import pytest

from tests.fault.test_errors_before_the_first_event import (
    test_subscriptions_that_end_at_once_are_opened_with_the_same_start,
)
from tests.fault.test_exceptions_in_the_stream import (
    test_what_passes_is_read_on_behind_the_events_before_it,
)
from tests.fault.test_half_open_connection_is_given_up import (
    test_silence_ends_the_subscription_and_reading_goes_on_behind_it,
)
from tests.fault.test_late_events_of_a_replaced_subscription import (
    test_behind_a_damaged_event_nothing_is_taken_from_its_connection,
)
from tests.fault.test_memory_under_a_stalled_consumer import (
    test_the_bound_holds_the_subscriptions_are_given_back_and_nothing_is_lost,
)
from tests.fault.test_one_blocked_shard_delays_only_itself import (
    test_a_full_shard_stops_alone_and_loses_nothing,
)
from tests.fault.test_stopping import test_closing_an_agent_leaves_nothing
from tests.support.transports import Transport

# What is imported here is run here once more, with this transport.
__all__ = [
    "test_a_full_shard_stops_alone_and_loses_nothing",
    "test_behind_a_damaged_event_nothing_is_taken_from_its_connection",
    "test_closing_an_agent_leaves_nothing",
    "test_silence_ends_the_subscription_and_reading_goes_on_behind_it",
    "test_subscriptions_that_end_at_once_are_opened_with_the_same_start",
    "test_the_bound_holds_the_subscriptions_are_given_back_and_nothing_is_lost",
    "test_what_passes_is_read_on_behind_the_events_before_it",
]

pytestmark = pytest.mark.fault


@pytest.fixture
def transport() -> Transport:
    """Instead of the one that is chosen for all stories."""
    return "http2"
