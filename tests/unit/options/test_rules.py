"""Rules between options: contradictions are reported together with all other problems."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from kinesis_ds.errors import OptionError
from kinesis_ds.options.parse import parse_read_options, parse_write_options
from kinesis_ds.options.read import ReadOptions
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp
from kinesis_ds.plan.start import Latest, ShardPositions
from kinesis_ds.plan.stream import StreamId

ORDERS = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
CLICKS = "arn:aws:kinesis:eu-central-1:123456789012:stream/clicks"
ROLE = "arn:aws:iam::123456789012:role/reader"
S0 = "shardId-000000000000"

Kind = Literal["stream", "batch"] | None


def read(kind: Kind = "stream", **options: str) -> ReadOptions:
    return parse_read_options({"streamName": "orders", **options}, kind)


def refusal(options: dict[str, str], kind: Kind = "stream") -> str:
    with pytest.raises(OptionError) as caught:
        parse_read_options(options, kind)
    return str(caught.value)


# --- streams ------------------------------------------------------------------------------------


def test_several_streams() -> None:
    """Names or ARNs, in the order given; blanks around the commas are ignored."""
    assert read(streamName=" orders, clicks ").streams == (StreamId("orders"), StreamId("clicks"))
    by_arn = parse_read_options({"streamARN": f"{ORDERS},{CLICKS}"})
    assert by_arn.streams == (StreamId(arn=ORDERS), StreamId(arn=CLICKS))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"streamName": "a,b,a"}, "streamName is 'a,b,a', expected each one once"),
        ({"streamName": f"a,{ORDERS}"}, "expected names; ARNs go into streamARN"),
        ({"streamARN": f"{ORDERS},{ORDERS}"}, "expected each one once"),
        ({"streamARN": f"{ORDERS},clicks"}, "expected arn:<partition>:kinesis"),
        (
            {"streamARN": f"{ORDERS},{CLICKS.replace('central', 'west')}"},
            "expected streams of one region",
        ),
    ],
)
def test_streams_that_do_not_go_together(options: dict[str, str], said: str) -> None:
    """Each stream comes once, all are named in the same way, and all are in one region."""
    assert said in refusal(options)


def test_a_sink_writes_to_one_stream() -> None:
    """A list of streams is refused."""
    with pytest.raises(OptionError, match="a sink writes to one stream"):
        parse_write_options({"streamName": "orders,clicks"})


# --- who asks -----------------------------------------------------------------------------------


def test_a_role_with_all_that_belongs_to_it() -> None:
    """All its values are passed on."""
    aws = read(
        roleArn=ROLE,
        roleExternalId="hush",
        roleSessionName="me@example.com",
        stsEndpoint="http://localhost:4566/",
    ).aws

    assert (aws.role_arn, aws.role_external_id) == (ROLE, "hush")
    assert (aws.role_session_name, aws.sts_endpoint) == ("me@example.com", "http://localhost:4566")
    assert "hush" not in repr(aws)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roleExternalId", "Hush-Hush"),
        ("roleSessionName", "s1"),
        ("kinesis.stsSessionName", "s1"),
        ("stsEndpoint", "http://h"),
    ],
)
def test_what_belongs_to_a_role_needs_one(key: str, value: str) -> None:
    """The message uses the name that the user typed, and does not show the secret."""
    said = refusal({"streamName": "s", key.lower(): value})

    assert f"{key} needs roleArn" in said
    assert "Hush" not in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roleArn", "reader"),
        ("roleArn", "arn:aws:iam::12:role/r"),
        ("roleArn", "arn:aws:sts::123456789012:assumed-role/r/s"),
        ("roleSessionName", "a"),
        ("roleSessionName", "with space"),
        ("stsEndpoint", "sts.amazonaws.com"),
    ],
)
def test_a_role_out_of_form_is_refused(key: str, value: str) -> None:
    """The error comes before any call to STS."""
    assert f"{key} is '{value}', expected" in refusal(
        {"streamName": "s", "roleArn": ROLE, key: value}
    )


# --- efo and polling ----------------------------------------------------------------------------

EFO = {
    "consumerName": "app",
    "consumerNamePrefix": "team_",
    "registeredConsumerId": "app",
    "registerConsumerTimeoutInterval": "10s",
    "requireConsumerDeregistration": "true",
    "deregisterConsumerTimeoutInterval": "10s",
    "consumerRefreshInterval": "10s",
    "subscriptionIdleTimeout": "10s",
}
POLLING = {"minFetchPeriod": "1s", "maxFetchRate": "1.0", "maxRecordsPerFetch": "5"}


@pytest.mark.parametrize("key", EFO)
def test_what_is_of_efo_is_refused_while_polling(key: str) -> None:
    """Otherwise the user would expect something that does not happen."""
    said = refusal({"streamName": "s", "consumerMode": "polling", key: EFO[key]})
    assert f"{key} is an option of consumerMode efo, and this query's is polling" in said


@pytest.mark.parametrize("key", POLLING)
def test_what_is_of_polling_is_refused_where_efo_is_asked_for(key: str) -> None:
    """A job that does not give consumerMode runs, and its log names the option."""
    said = refusal({"streamName": "s", "consumerMode": "efo", key: POLLING[key]})
    assert f"{key} is an option of consumerMode polling, and this query's is efo" in said

    assert read(**{key: POLLING[key]}).without_effect == (
        f"{key} (an option of consumerMode polling, and this query's is efo)",
    )


def test_options_of_polling() -> None:
    """Their values are in seconds and bytes."""
    polling = read(
        consumerMode="polling", minFetchPeriod="1s", maxFetchRate="0.5", maxRecordsPerFetch="5"
    ).polling

    assert (polling.min_period_s, polling.bytes_per_s, polling.max_records) == (1.0, 524_288, 5)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("minFetchPeriod", "199ms", "from 200ms to 3600s"),
        ("minFetchPeriod", "0s", "from 200ms to 3600s"),
        ("maxFetchRate", "2.1", "MB a second, from 0.1 to 2"),
        ("maxFetchRate", "0", "MB a second, from 0.1 to 2"),
        ("maxFetchRate", "1mb", "MB a second, from 0.1 to 2"),
        ("maxFetchRate", "nan", "MB a second, from 0.1 to 2"),
        ("maxRecordsPerFetch", "10001", "from 1 to 10000"),
        ("maxRecordsPerFetch", "0", "from 1 to 10000"),
        ("maxRecordsPerTrigger", "0", "a whole number at least 1"),
        ("maxRecordsPerTrigger", "-5", "a whole number at least 1"),
        ("maxBytesPerTrigger", "-5", "at least 1 byte"),
        ("maxBytesPerTrigger", "0mb", "at least 1 byte"),
        ("shardsPerTask", "0", "a whole number at least 1"),
        ("maxPartitions", "1.5", "a whole number at least 1"),
        ("consumerRefreshInterval", "2h", "from 1s to 3600s"),
        ("agentPlacement", "executors", "driver (executors is not in this version)"),
        ("includeMetadata", "1", "true or false"),
    ],
)
def test_a_value_out_of_range_is_refused(key: str, value: str, said: str) -> None:
    """The message shows the value and the range."""
    found = refusal({"streamName": "s", key: value})
    assert f"{key} is '{value}', expected" in found
    assert said in found


def test_tasks_are_counted_one_way() -> None:
    """Give the shards in a task, or the number of tasks, not both."""
    assert (read(shardsPerTask="5").shards_per_task, read(maxPartitions="5").max_tasks) == (5, 5)
    said = refusal({"streamName": "s", "shardsPerTask": "5", "maxPartitions": "2"})
    assert "give shardsPerTask or maxPartitions, not both" in said


# --- consumers ----------------------------------------------------------------------------------


def test_names_of_consumers() -> None:
    """One name for all streams or one for each, after the prefix if there is one."""
    assert read().consumer_names == ()
    assert read().consumer_prefix == "kinesis_ds_"
    assert read(consumerNamePrefix="team_").consumer_prefix == "team_"
    assert read(consumerName="app").consumer_names == ("app",)
    two = {"streamName": "orders,clicks"}
    assert read(**two, consumerName="app").consumer_names == ("app", "app")
    assert read(**two, consumerName="a, b").consumer_names == ("a", "b")
    assert read(consumerName="app", consumerNamePrefix="t_").consumer_names == ("t_app",)


def test_registered_consumers() -> None:
    """Names, or ARNs of consumers of these streams. The streams may be given by name or ARN."""
    arns = (f"{ORDERS}/consumer/app:1", f"{CLICKS}/consumer/app:2")

    for streams in ({"streamName": "orders,clicks"}, {"streamARN": f"{ORDERS},{CLICKS}"}):
        found = parse_read_options(
            {**streams, "registeredConsumerId": ",".join(arns), "registeredConsumerIdType": "arn"}
        )
        assert found.registered_consumers == arns
    found = read(streamName="a,b", registeredConsumerId="x,x", registeredConsumerIdType="name")
    assert found.registered_consumers == ("x", "x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"registeredConsumerId": "a,b"}, "lists 2 consumers for 1 streams"),
        ({"registeredConsumerId": "a/b"}, "expected consumer names, or ARNs"),
        ({"registeredConsumerId": ORDERS}, "expected consumer names, or ARNs"),
        (
            {"streamName": "orders,clicks", "registeredConsumerId": f"a,{CLICKS}/consumer/b:1"},
            "expected names or ARNs, not both",
        ),
        (
            {"registeredConsumerId": f"{CLICKS}/consumer/b:1"},
            f"the consumer {CLICKS}/consumer/b:1 belongs to another stream than orders",
        ),
        (
            {"registeredConsumerId": "a", "registeredConsumerIdType": "ARN"},
            "registeredConsumerIdType is ARN, and registeredConsumerId holds names",
        ),
        (
            {
                "registeredConsumerId": f"{ORDERS}/consumer/b:1",
                "registeredConsumerIdType": "name",
            },
            "registeredConsumerIdType is name, and registeredConsumerId holds ARNs",
        ),
        ({"registeredConsumerIdType": "name"}, "needs registeredConsumerId"),
        (
            {"registeredConsumerId": "a", "consumerName": "b"},
            "give consumerName or registeredConsumerId, not both",
        ),
        (
            {"registeredConsumerId": "a", "consumerNamePrefix": "b"},
            "give consumerNamePrefix or registeredConsumerId, not both",
        ),
        (
            {"registeredConsumerId": "a", "requireConsumerDeregistration": "true"},
            "requireConsumerDeregistration is for consumers that the query registers",
        ),
        ({"consumerName": "a,b"}, "consumerName lists 2 names"),
        (
            {"consumerName": "a" * 100, "consumerNamePrefix": "b" * 50},
            "together longer than 128 characters",
        ),
        ({"consumerName": "a b"}, "expected 1 to 128 letters"),
    ],
)
def test_consumers_that_do_not_go_together(options: dict[str, str], said: str) -> None:
    """Options of consumers contradict each other, or do not match the streams."""
    assert said in refusal({"streamName": "orders", **options})


def test_the_consumer_of_the_same_name_in_another_account_is_refused() -> None:
    """The ARN of the stream gives the account."""
    consumer = ORDERS.replace("123456789012", "210987654321") + "/consumer/app:1"
    assert "belongs to another stream" in refusal(
        {"streamARN": ORDERS, "registeredConsumerId": consumer}
    )


def test_a_registered_consumer_may_stay_registered_in_words() -> None:
    """`false` is no contradiction."""
    read(registeredConsumerId="a", requireConsumerDeregistration="false")


# --- positions ----------------------------------------------------------------------------------


def test_positions_by_shard_are_of_the_streams_that_are_read() -> None:
    """A single stream need not be named; of several streams, each must be."""
    assert read(initialPosition=f'{{"{S0}": "LATEST"}}').initial_position == ShardPositions(
        {None: {S0: Latest()}}
    )
    both = json.dumps({"orders": {S0: "LATEST"}, CLICKS: {}})
    read(streamName="orders,clicks", initialPosition=both)
    parse_read_options({"streamARN": f"{ORDERS},{CLICKS}", "initialPosition": both})


@pytest.mark.parametrize(
    ("streams", "given", "said"),
    [
        (
            "orders,clicks",
            {S0: "LATEST"},
            "initialPosition has shards without their stream, and the query reads 2 streams",
        ),
        (
            "orders",
            {"orders": {}, "clicks": {}},
            "positions of the stream clicks, which the query does not read",
        ),
        ("orders", {CLICKS: {}}, f"positions of the stream {CLICKS}, which the query does not"),
        ("orders,clicks", {"orders": {}}, "initialPosition has no entry for the stream clicks"),
        ("orders", {"orders": {}, ORDERS: {}}, "has more than one entry for the stream orders"),
    ],
)
def test_positions_of_other_streams_are_refused(streams: str, given: object, said: str) -> None:
    """They would be ignored, and the shards read from another position."""
    assert said in refusal({"streamName": streams, "initialPosition": json.dumps(given)})


def test_an_ending_is_of_batch_reads() -> None:
    """A streaming query has no end. If the kind of read is not known, the option is accepted."""
    end = "at_timestamp 1795176000"

    assert read("batch", endingPosition=end).ending_position == AtTimestamp(1_795_176_000_000)
    assert read(None, endingPosition=end).ending_position == AtTimestamp(1_795_176_000_000)
    assert "endingPosition is an option of batch reads (spark.read) only" in refusal(
        {"streamName": "s", "endingPosition": end}
    )


def test_a_batch_reads_everything_by_default() -> None:
    """From the oldest record until now; after `latest` there is nothing to read."""
    assert read("batch").initial_position == TRIM_HORIZON
    assert read("batch").ending_position == Latest()
    for start in ("latest", f'{{"{S0}": "LATEST"}}'):
        assert "initialPosition is latest, and nothing comes after it in a batch read" in refusal(
            {"streamName": "s", "initialPosition": start}, "batch"
        )
    assert read(None).initial_position == Latest()


@pytest.mark.parametrize("kind", ["batch", None])
def test_an_end_before_the_start_is_refused(kind: Kind) -> None:
    """It is found where the two can be compared."""
    said = refusal(
        {
            "streamName": "s",
            "initialPosition": f'{{"{S0}": "AFTER:9"}}',
            "endingPosition": f'{{"{S0}": "AFTER:8"}}',
        },
        kind,
    )
    assert f"endingPosition lies before initialPosition: AFTER:8 is before AFTER:9 in {S0}" in said


def test_what_is_of_streaming_has_no_effect_on_a_batch() -> None:
    """The log names it, so one job can use the same options for both."""
    found = read("batch", maxRecordsPerTrigger="5", consumerMode="polling", consumerName="app")

    assert found.without_effect == (
        "maxRecordsPerTrigger (an option of streaming queries)",
        "consumerMode (an option of streaming queries)",
        "consumerName (an option of streaming queries)",
    )


def test_a_printed_offset_may_be_start_and_end() -> None:
    """So a batch of a streaming query can be read again."""

    def offset(position: str) -> str:
        stream = {"name": "orders", "created": 5, "consumer": "c", "shards": {S0: position}}
        return json.dumps({"v": 1, "streams": {ORDERS: stream}})

    found = read("batch", initialPosition=offset("AFTER:5"), endingPosition=offset("SHARD_END"))

    assert found.initial_position == ShardPositions({ORDERS: {S0: After("5")}}, {ORDERS: 5})
    assert found.ending_position == ShardPositions({ORDERS: {S0: SHARD_END}}, {ORDERS: 5})


# --- together -----------------------------------------------------------------------------------


def test_contradictions_come_with_all_other_problems() -> None:
    """One error reports everything that is wrong with a job."""
    said = refusal(
        {
            "streamName": "orders,clicks",
            "streamARN": "x",
            "initialPosition": f'{{"{S0}": "LAST"}}',
            "maxRecordsPerTrigger": "0",
            "consumerMode": "polling",
            "consumerName": "a",
            "roleExternalId": "hush",
            "shardsPerTask": "1",
            "maxPartitions": "1",
            "serviceCredential": "hush",
            "minFetchPeriodd": "1s",
        }
    )

    assert "9 problems with the options" in said
    for problem in (
        "serviceCredential cannot be honoured here: it exists on Databricks only; use roleArn",
        "unknown option 'minFetchPeriodd'; did you mean minFetchPeriod?",
        "streamARN is 'x', expected",
        f"for {S0}, not 'LAST'",
        "maxRecordsPerTrigger is '0'",
        "give streamName or streamARN (exactly one of them)",
        "roleExternalId needs roleArn",
        "consumerName is an option of consumerMode efo",
        "give shardsPerTask or maxPartitions",
    ):
        assert problem in said
    assert "hush" not in said


# --- the agent's address ------------------------------------------------------------------------


def test_the_address_of_the_agent() -> None:
    """Tasks connect to where it listens, unless another address is given."""
    assert read().agent_advertised_host == "127.0.0.1"
    assert read(agentHost="[fe80::1]", agentPort="4040").agent_host == "fe80::1"
    options = read(agentHost="0.0.0.0", agentAdvertisedHost="driver.example", agentPort="40-49")  # noqa: S104
    assert (options.agent_host, options.agent_advertised_host) == ("0.0.0.0", "driver.example")  # noqa: S104
    assert options.agent_ports == (40, 49)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agentHost": "0.0.0.0"}, "agentHost is 0.0.0.0, to which no task can connect"),  # noqa: S104
        ({"agentHost": "::"}, "agentHost is ::, to which no task can connect"),
        ({"agentAdvertisedHost": "[::]"}, "agentAdvertisedHost is ::, to which no task"),
        ({"agentHost": "driver:4040"}, "expected a host name or an IP address, without a port"),
        ({"agentHost": "grpc://driver"}, "expected a host name or an IP address"),
        ({"agentPort": "0"}, "expected a port from 1 to 65535, or a range as 40000-40009"),
        ({"agentPort": "50-40"}, "expected a port from 1 to 65535"),
        ({"agentPort": "70000"}, "expected a port from 1 to 65535"),
        (
            {"agentPort": "4040-4042", "agentProcesses": "2", "streamName": "a,b"},
            "agentPort has 3 ports, and the query needs 4: one for each stream in each agent",
        ),
    ],
)
def test_an_address_that_no_task_could_use(options: dict[str, str], said: str) -> None:
    """Before the query starts, with what to give instead."""
    assert said in refusal({"streamName": "orders", **options})
