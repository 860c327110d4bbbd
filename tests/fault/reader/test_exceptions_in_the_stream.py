"""Every exception that may come inside an event stream is understood (F46)."""

from __future__ import annotations

import pytest

from kinesis_ds.errors import AccessError, InvalidRequestError, KinesisConnectorError
from kinesis_ds.testing import Fault, KinesisServer, Raise, SendBytes, Settings
from kinesis_ds.testing.frames import message
from tests.fault.conftest import Serve, StartAgent
from tests.support.agents import STREAM, Agent, numbered, starts, subscribe_calls

pytestmark = pytest.mark.fault

ALONE = Settings(event_bytes=1)
PASSING = [
    "InternalFailureException",
    "KMSThrottlingException",
    "LimitExceededException",
    "ResourceInUseException",
    "ResourceNotFoundException",
]
FATAL: list[tuple[str, type[KinesisConnectorError]]] = [
    ("KMSAccessDeniedException", AccessError),
    ("KMSDisabledException", AccessError),
    ("KMSInvalidStateException", AccessError),
    ("KMSNotFoundException", AccessError),
    ("KMSOptInRequired", AccessError),
    ("AccessDeniedException", AccessError),
    ("SomethingNewException", InvalidRequestError),
]


@pytest.mark.each_transport
def test_what_passes_is_read_on_behind_the_events_before_it(
    serve: Serve, start_agent: StartAgent
) -> None:
    """F46: one after the other, each at its own connection; each is counted by its name."""
    faults = [Fault(Raise(code), call=n, event=2) for n, code in enumerate(PASSING, 1)]
    kinesis = serve(ALONE, *faults)
    kinesis.put(STREAM, *numbered(1, 8))
    agent = start_agent(kinesis).assign()

    agent.take_until(numbered(1, 8))
    assert agent.errors() == dict.fromkeys(PASSING, 1)
    assert agent.agent.failure() is None
    opened = [c for c in subscribe_calls(kinesis) if c.outcome == "ok"]
    numbers = [r.sequence_number for r in kinesis.records(STREAM)]
    assert starts(opened) == [
        "TRIM_HORIZON",
        *[f"AFTER_SEQUENCE_NUMBER:{number}" for number in numbers[: len(PASSING)]],
    ]


@pytest.mark.parametrize(("code", "kind"), FATAL)
def test_what_does_not_pass_is_told_by_its_name(
    serve: Serve, start_agent: StartAgent, code: str, kind: type[KinesisConnectorError]
) -> None:
    """F46: also one that nobody knows yet; what came before it is there."""
    kinesis = serve(ALONE, Fault(Raise(code, "the service's words"), event=3))
    kinesis.put(STREAM, *numbered(1, 5))
    agent = start_agent(kinesis).assign()

    failure = agent.failure()
    assert isinstance(failure, kind)
    assert code in str(failure)
    assert "the service's words" in str(failure)
    assert agent.take() == numbered(1, 2)
    assert len(subscribe_calls(kinesis)) == 1


@pytest.mark.parametrize(
    ("frame", "counted"),
    [
        pytest.param(
            message(b'{"message":"busy"}', message_type="error", error_code="InternalError"),
            "InternalError",
            id="an error without modelled type",
        ),
        pytest.param(
            message(b"", message_type="exception", exception_type="InternalFailureException"),
            "InternalFailureException",
            id="without words",
        ),
    ],
)
def test_other_forms_of_errors_are_understood(
    kinesis: KinesisServer, agent: Agent, frame: bytes, counted: str
) -> None:
    """F46: the unmodelled error message of the framing, and one without a payload."""
    kinesis.add_faults(Fault(SendBytes(frame), event=1))
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()

    agent.take_until(numbered(1, 3))
    assert agent.errors() == {counted: 1}


def test_events_of_other_kinds_are_passed_over(kinesis: KinesisServer, agent: Agent) -> None:
    """F46: an event that the service may add one day is no exception, and no record either."""
    other = message(b'{"x":1}', message_type="event", event_type="SomethingElse")
    kinesis.add_faults(Fault(SendBytes(other), event=1))
    kinesis.put(STREAM, *numbered(1, 3))
    agent.assign()

    agent.take_until(numbered(1, 3))
    assert agent.errors() == {}
