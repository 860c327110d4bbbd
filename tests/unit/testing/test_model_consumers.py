"""Registered consumers in the double."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.model import ARN, Model


def register_code(model: Model, name: str, stream: str = "s") -> str:
    members = {"StreamARN": ARN + stream, "ConsumerName": name}
    return model.code("RegisterStreamConsumer", None, **members)


def description(model: Model, **members: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.ask("DescribeStreamConsumer", None, **members)
    shown: dict[str, Any] = found["ConsumerDescription"]
    return shown


def test_the_life_of_a_consumer() -> None:
    """CREATING, ACTIVE, DELETING, gone; one that follows has another ARN."""
    model = Model(consumer_ready_s=0.1)
    model.create()
    members = {"StreamARN": ARN + "s", "ConsumerName": "c"}
    made = model.ask("RegisterStreamConsumer", None, **members)["Consumer"]
    assert made["ConsumerStatus"] == "CREATING"
    assert made["ConsumerARN"] == f"{ARN}s/consumer/c:{made['ConsumerCreationTimestamp']:.0f}"
    assert register_code(model, "c") == "ResourceInUseException"
    model.now += 0.1
    shown = description(model, **members)
    assert shown["ConsumerStatus"] == "ACTIVE"
    assert shown["StreamARN"] == ARN + "s"

    model.ask("DeregisterStreamConsumer", None, **members)
    assert description(model, **members)["ConsumerStatus"] == "DELETING"
    assert register_code(model, "c") == "ResourceInUseException"
    model.now += 0.1
    assert model.code("DescribeStreamConsumer", None, **members) == "ResourceNotFoundException"
    assert model.register() != made["ConsumerARN"]
    gone = {"ConsumerARN": made["ConsumerARN"]}
    assert model.code("DescribeStreamConsumer", None, **gone) == "ResourceNotFoundException"


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "DeregisterStreamConsumer"])
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param({"ConsumerARN": "{arn}"}, "ok", id="by ARN"),
        pytest.param({"StreamARN": ARN + "s", "ConsumerName": "c"}, "ok", id="by name"),
        pytest.param(
            {"ConsumerARN": "{arn}", "StreamARN": ARN + "s", "ConsumerName": "c"}, "ok", id="all"
        ),
        pytest.param(
            {"ConsumerARN": "{arn}", "ConsumerName": "d"}, "InvalidArgumentException", id="disagree"
        ),
        pytest.param({"ConsumerName": "c"}, "InvalidArgumentException", id="name alone"),
        pytest.param({}, "InvalidArgumentException", id="nothing"),
        pytest.param(
            {"StreamARN": ARN + "s", "ConsumerName": "d"}, "ResourceNotFoundException", id="unknown"
        ),
        pytest.param(
            {"ConsumerARN": ARN + "s/consumer/c:1"}, "ResourceNotFoundException", id="other time"
        ),
        pytest.param({"ConsumerARN": "c"}, "ValidationException", id="no ARN"),
    ],
)
def test_a_consumer_is_named_in_two_ways(
    operation: str, members: dict[str, str], expected: str
) -> None:
    """By its ARN, by its stream and its name, or by all of them if they agree."""
    model = Model()
    model.create()
    arn = model.register()
    filled = {name: text.format(arn=arn) for name, text in members.items()}

    assert model.code(operation, None, **filled) == expected


def test_twenty_consumers_a_stream() -> None:
    """The next one is refused."""
    model = Model()
    model.create()
    for i in range(20):
        model.register(f"c{i}")
        model.now += 1

    assert register_code(model, "c20") == "LimitExceededException"


def test_five_consumers_are_created_at_once() -> None:
    """In all streams together."""
    model = Model(enforce_limits=False)
    model.create()
    model.create(stream="t")
    codes = [register_code(model, f"c{i}", "st"[i % 2]) for i in range(6)]

    assert codes == ["ok"] * 5 + ["LimitExceededException"]
    model.now += model.settings.consumer_ready_s
    assert register_code(model, "c5") == "ok"


def test_consumers_are_listed_in_pages() -> None:
    """By name; tokens expire."""
    model = Model()
    model.create()
    for name in ("b", "a", "c"):
        model.register(name)
    members = {"StreamARN": ARN + "s"}
    first = model.ask("ListStreamConsumers", None, MaxResults=2, **members)
    rest = model.ask("ListStreamConsumers", None, NextToken=first["NextToken"], **members)

    assert [c["ConsumerName"] for c in first["Consumers"] + rest["Consumers"]] == ["a", "b", "c"]
    assert "NextToken" not in rest
    model.now += 301
    members["NextToken"] = first["NextToken"]
    assert model.code("ListStreamConsumers", None, **members) == "ExpiredNextTokenException"


@pytest.mark.parametrize(
    ("operation", "per_second"),
    [
        ("DescribeStreamConsumer", 20),
        ("DeregisterStreamConsumer", 5),
        ("ListStreamConsumers", 5),
        ("RegisterStreamConsumer", 5),
    ],
)
def test_rates(operation: str, per_second: int) -> None:
    """So many calls a second; one more is refused."""
    registering = operation == "RegisterStreamConsumer"
    model = Model(consumer_ready_s=0.0 if registering else 3600.0)
    model.create()
    model.ask("RegisterStreamConsumer", None, StreamARN=ARN + "s", ConsumerName="c")
    model.now += 1
    names = [f"c{i}" if registering else "c" for i in range(per_second + 1)]
    codes = [model.code(operation, None, StreamARN=ARN + "s", ConsumerName=name) for name in names]

    assert codes == ["ok"] * per_second + ["LimitExceededException"]
