"""What coordinator and agent processes say to each other survives the wire, and shows no secret."""

from __future__ import annotations

import dataclasses

import orjson
import pytest

from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.framing import LENGTH, Deframer, decode, encode
from kinesis_ds.errors import AccessError, AgentError, InternalError
from kinesis_ds.limits import MAX_HASH_KEY
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.read import PollingOptions
from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, At, AtTimestamp
from kinesis_ds.plan.ranges import ShardRange
from kinesis_ds.plan.shards import Shard

SECRET = "wJalrXUtnFEMI-bPxRfiCYEXAMPLEKEY"
NUMBER = "49" + "0" * 53 + "7"
RANGES = (
    ShardRange("s1", TRIM_HORIZON, After(NUMBER, 17)),
    ShardRange("s2", At("007"), SHARD_END),
    ShardRange("s3", AtTimestamp(5), After("8")),
)
AWS = AwsOptions("us-east-1", None, "key", SECRET, SECRET, role_external_id=SECRET)
EFO = AgentOptions("orders", "arn", "consumer", 30.0, fail_on_data_loss=True, host="127.0.0.1")
POLLED = dataclasses.replace(EFO, polling=PollingOptions(0.5, 10, 20), retention_s=86400.0)
SHARD = Shard("s", ("p", "q"), NUMBER, closed=True, hash_range=(1, MAX_HASH_KEY))
MESSAGES = [
    messages.Hello(messages.CONTROL_VERSION, AWS, 1 << 40, 8_000_000, 30),
    messages.OpenAgent(1, EFO),
    messages.OpenAgent(1, POLLED),
    messages.CloseAgent(1),
    messages.Assign(1, SHARD, After(NUMBER)),
    messages.MarkClosed(1, "s"),
    messages.Free(1, {"s": SHARD_END, "t": After(NUMBER, 3)}),
    messages.Diagnosis(7, None),
    messages.Hold(1, 2, RANGES, ()),
    messages.Hold(1, 2, RANGES, (Limits(1), Limits(None, 1 << 50, at_least_one=True), Limits())),
    messages.Targets(1, 2, 1_700_000_000_123, 1_700_000_000_456),
    messages.Statistics(1),
    messages.Ready(1, 4711),
    messages.Opened(1, "grpc://127.0.0.1:1", SECRET),
    messages.Opened(1, "grpc+tls://10.0.0.5:1", SECRET, "an authority"),
    messages.Moved(1, {"s": After(NUMBER, 3), "t": TRIM_HORIZON}, news=False),
    messages.Changed(1),
    messages.Diagnose(7, 1, "s"),
    messages.Answer(1, [[3, 100, "SHARD_END", 5], None], None),
]
# An error has no equality; what it says is compared below.
WITH_ERRORS = [
    messages.Diagnosis(7, AccessError("denied", "Allow it."), raised=True),
    messages.Failed(AccessError("denied", "Allow it.")),
    messages.Beat({"1": AccessError("denied", "Allow it.")}, {"1": ["shardId-0"]}),
    messages.Answer(1, None, AccessError("denied", "Allow it.")),
]


def through_the_wire(message: messages.Message) -> messages.Message:
    sent = encode(message)
    head, body = sent[: LENGTH.size], sent[LENGTH.size :]
    assert LENGTH.unpack(head) == (len(body),)
    return decode(body)


def name(value: object) -> str:
    return type(value).__name__


def test_every_message_is_among_these() -> None:
    """A message that is added is tried, too."""
    abstract = {"Question"}
    assert {name(m) for m in MESSAGES + WITH_ERRORS} == messages.Message.kinds.keys() - abstract


@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_a_message_survives_the_wire_and_shows_no_secret(message: messages.Message) -> None:
    """Equal behind it, the moments of positions too, and its repr may be logged."""
    again = through_the_wire(message)

    assert again == message
    assert repr(again) == repr(message)
    assert SECRET not in repr(message)


@pytest.mark.parametrize(
    ("question", "value"),
    [
        (messages.Hold, (Held(3, 100, After(NUMBER, 17), 1_700_000_000_123), None)),
        (messages.Targets, {"s": SHARD_END, "t": After(NUMBER, 3)}),
        (messages.Statistics, {"pid": 7, "agents": {"1": {"s": {"records": 3}}}}),
    ],
)
def test_an_answer_arrives_as_what_it_was(question: type[messages.Question], value: object) -> None:
    """In the form that the question says."""
    answer = through_the_wire(messages.Answer(1, question.answer.to_wire(value), None))

    assert isinstance(answer, messages.Answer)
    assert question.answer.from_wire(answer.value) == value


@pytest.mark.parametrize("message", WITH_ERRORS, ids=name)
def test_an_error_arrives_as_what_it_was(message: messages.Message) -> None:
    """Class, message, remedy and code, so that it fails the query as if it had been raised here."""

    def error_in(carrier: messages.Message) -> AccessError:
        if isinstance(carrier, messages.Beat):
            return carrier.failures["1"]  # type: ignore[return-value]
        return carrier.error  # type: ignore[attr-defined, no-any-return]

    error_in(message).code = "AccessDeniedException"
    error = error_in(through_the_wire(message))

    assert type(error) is AccessError
    assert (error.message, error.remedy) == ("denied", "Allow it.")
    assert error.code == "AccessDeniedException"


def test_an_error_of_a_class_that_is_none_of_ours_is_internal() -> None:
    """Whatever the other side names, nothing but an error of ours is made of it."""
    body = orjson.dumps(["Failed", ["orjson", "what happened", "", ""]])

    message = decode(body)
    assert isinstance(message, messages.Failed)
    assert type(message.error) is InternalError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'["Nothing"]',
        b'["CloseAgent"]',
        b'["CloseAgent",1,2]',
        b'["Assign",1,["s"],"TRIM_HORIZON"]',
        b'["Assign",1,["s",[],"0",false,"x","1"],"TRIM_HORIZON"]',
        b'["Free",1,{"s":"NOWHERE"}]',
        b'["Free",1,["s"]]',
        b'["Hello",1,{"secret":"%s"},1,1,1]' % SECRET.encode(),
        b'["Failed",null]',
    ],
)
def test_what_is_no_message_is_refused_without_being_shown(body: bytes) -> None:
    """It may hold secrets."""
    with pytest.raises(AgentError, match="malformed control message") as caught:
        decode(body)

    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("size", [1, 3, 4, 50, 10_000])
def test_messages_arrive_in_pieces_of_any_size(size: int) -> None:
    """Each comes out as soon as its last byte is there, in order."""
    sent = b"".join(map(encode, MESSAGES))
    deframer = Deframer()

    pieces = [sent[i : i + size] for i in range(0, len(sent), size)]
    assert [m for piece in pieces for m in deframer.feed(piece)] == MESSAGES


def test_a_length_that_no_message_has_is_refused() -> None:
    """Before any of it is waited for."""
    with pytest.raises(AgentError, match="claims to have 4294967295 bytes"):
        next(Deframer().feed(b"\xff\xff\xff\xff"))


def test_another_version_is_refused_with_what_to_do() -> None:
    """A package that was replaced under a running query starts processes of the new version."""
    messages.check_version(messages.CONTROL_VERSION)
    with pytest.raises(AgentError, match=r"speaks control protocol 9.*Restart the query"):
        messages.check_version(9)
