"""Options: parsing, names, and messages that say everything except secrets."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from kinesis_ds.errors import OptionError
from kinesis_ds.limits import MIB
from kinesis_ds.options.aws import AwsOptions
from kinesis_ds.options.option import Option
from kinesis_ds.options.parse import parse_read_options, parse_write_options, stream_named
from kinesis_ds.options.read import PollingOptions, ReadOptions
from kinesis_ds.options.table import OPTIONS
from kinesis_ds.options.write import AggregationOptions, WriteOptions
from kinesis_ds.plan.position import TRIM_HORIZON, AtTimestamp
from kinesis_ds.plan.start import Latest
from kinesis_ds.plan.stream import StreamId

ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def read(**options: str) -> ReadOptions:
    return parse_read_options({"streamName": "orders", **options})


def write(**options: str) -> WriteOptions:
    return parse_write_options({"streamName": "orders", **options})


def refusal(options: dict[str, str], *, of_read: bool = True) -> str:
    with pytest.raises(OptionError) as caught:
        parse_read_options(options) if of_read else parse_write_options(options)
    return str(caught.value)


# --- defaults -----------------------------------------------------------------------------------


def test_defaults_of_a_source() -> None:
    """The options of a query that only names its stream."""
    assert read() == ReadOptions(
        streams=(StreamId("orders"),),
        aws=AwsOptions(),
        mode="efo",
        initial_position=Latest(),
        ending_position=Latest(),
        consumer_names=(),
        consumer_prefix="kinesis_ds_",
        registered_consumers=(),
        register_timeout_s=300.0,
        deregister=False,
        deregister_timeout_s=300.0,
        consumer_refresh_s=300.0,
        fail_on_data_loss=True,
        max_records=None,
        max_bytes=None,
        parents_first=True,
        deaggregate=True,
        metadata=False,
        polling=PollingOptions(min_period_s=0.2, max_records=10_000, bytes_per_s=2 * MIB),
        shards_per_task=None,
        max_tasks=None,
        buffer_bytes=256 * MIB,
        agent_processes=1,
        discovery_interval_s=10.0,
        idle_timeout_s=30.0,
        agent_host="127.0.0.1",
        agent_advertised_host="127.0.0.1",
        agent_ports=(0, 0),
        diagnostics_dir=None,
    )


def test_defaults_of_a_sink() -> None:
    """The options of a sink that only names its stream."""
    assert write() == WriteOptions(
        stream=StreamId("orders"),
        aws=AwsOptions(),
        max_in_flight_records=10_000,
        max_in_flight_bytes=32 * MIB,
        max_in_flight_requests=16,
        batch_max_records=500,
        batch_max_bytes=5 * MIB,
        linger_s=0.1,
        ordered=False,
        aggregation=None,
        skip_oversized=False,
        retry_timeout_s=120.0,
        diagnostics_dir=None,
        ledger=True,
        checkpoint=None,
    )


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.default is not None], ids=lambda o: o.key
)
def test_every_default_passes_its_own_parser(option: Option) -> None:
    """A default is written in the same form as users write values."""
    assert option.default is not None
    option.parse(option.default)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.key)
def test_every_option_is_documented_and_named_once(option: Option) -> None:
    """Each name, in any case, leads to one option, and each option has a text."""
    names = [n.lower() for o in OPTIONS for n in (o.key, *o.aliases)]

    assert option.doc.endswith(".")
    assert option.modes <= {"read", "write"}
    assert all(names.count(n.lower()) == 1 for n in (option.key, *option.aliases))


# --- names --------------------------------------------------------------------------------------

VALUES = {
    "streamName": "s",
    "streamARN": ARN,
    "region": "eu-west-1",
    "endpoint": "http://localhost:4566",
    "awsAccessKey": "key",
    "awsSecretKey": "secret",
    "sessionToken": "token",
    "roleArn": "arn:aws:iam::123456789012:role/reader",
    "roleSessionName": "session",
    "stsEndpoint": "http://localhost:4566",
    "initialPosition": "trim_horizon",
    "consumerMode": "polling",
    "consumerName": "app",
    "failOnDataLoss": "false",
    "maxRecordsPerFetch": "17",
    "aggregation": "true",
}
COMPANY = {
    "awsAccessKey": {"awsSecretKey": "x"},
    "awsSecretKey": {"awsAccessKey": "x"},
    "sessionToken": {"awsAccessKey": "x", "awsSecretKey": "x"},
    "roleSessionName": {"roleArn": "arn:aws:iam::123456789012:role/reader"},
    "stsEndpoint": {"roleArn": "arn:aws:iam::123456789012:role/reader"},
}


@pytest.mark.parametrize(
    ("option", "alias"),
    [(o, a) for o in OPTIONS for a in o.aliases],
    ids=lambda v: v if isinstance(v, str) else v.key,
)
def test_an_alias_means_the_same(option: Option, alias: str) -> None:
    """A job of another connector runs without renaming its options."""
    options = dict(COMPANY.get(option.key, {}))
    if option.key not in ("streamName", "streamARN"):
        options["streamName"] = "orders"
    if option.consumer == "polling":
        options["consumerMode"] = "polling"
    value = VALUES[option.key]
    parse: Any = parse_read_options if "read" in option.modes else parse_write_options

    by_alias = parse({**options, alias: value})
    assert by_alias == parse({**options, option.key: value})
    if option.key not in ("streamName", "streamARN"):
        assert by_alias != parse({**options, option.key: value, **_another(option)})


def _another(option: Option) -> dict[str, str]:
    """Return another value for an option, so that a name without effect is noticed."""
    others = {
        "consumerMode": "efo",
        "failOnDataLoss": "true",
        "initialPosition": "latest",
        "maxRecordsPerFetch": "18",
        "aggregation": "false",
        "roleArn": "arn:aws:iam::123456789012:role/writer",
        "endpoint": "http://localhost:4567",
        "stsEndpoint": "http://localhost:4567",
    }
    return {option.key: others.get(option.key, "other")}


@pytest.mark.parametrize(
    "spelling", ["consumername", "CONSUMERNAME", "ConsumerName", "KINESIS.consumername"]
)
def test_names_have_no_case(spelling: str) -> None:
    """Spark turns option names into lower case in some places."""
    assert read(**{spelling: "app"}).consumer_names == ("app",)


def test_two_names_of_one_option_with_one_value_are_fine() -> None:
    """Only different values are an error."""
    assert read(endpoint="http://h:1", endpointUrl="http://h:1").aws.endpoint == "http://h:1"
    said = refusal({"streamName": "s", "endpoint": "http://h:1", "endpointUrl": "http://h:2"})
    assert "endpointUrl and endpoint both set endpoint; give one" in said


@pytest.mark.parametrize("key", ["path", "checkpointLocation", "CHECKPOINTLOCATION", "queryName"])
def test_what_spark_adds_is_passed_over(key: str) -> None:
    """Keys that Spark adds to the options are no error."""
    assert read(**{key: "/x"}) == read()
    checkpoint = "/x" if key.lower() == "checkpointlocation" else None
    assert write(**{key: "/x"}) == replace(write(), checkpoint=checkpoint)


# --- the sink -----------------------------------------------------------------------------------


# As PySpark 4.3 passes on OPTIONS (streamName 'orders', ...) COMMENT '...' TBLPROPERTIES ('p'='q').
TABLE = {
    "provider": "kinesis",
    "owner": "me",
    "comment": "all orders",
    "p": "q",
    "streamname": "orders",
    "option.streamname": "orders",
    "region": "eu-central-1",
    "option.region": "eu-central-1",
}


def test_the_properties_of_a_table_are_no_options() -> None:
    """Spark passes them on when a table is created; a misspelt option is still told."""
    assert parse_read_options(TABLE).streams == (StreamId("orders"),)

    error = refusal({**TABLE, "streamnam": "x", "option.streamnam": "x"})
    assert "1 problem with the options: (1) unknown option 'streamnam'; did you mean" in error
    assert "unknown option 'provider'" in refusal({**TABLE, "provider": "me"})


def test_a_table_is_read_without_its_options() -> None:
    """Spark does not pass them on; whoever gave them there is told where they belong."""
    hint = "a table's own options do not reach the source"
    assert hint in refusal({})
    assert hint not in refusal({"region": "eu-central-1"})


def test_how_a_sink_writes() -> None:
    """Each choice is given by a word, in any case."""
    found = write(
        linger="2s",
        ordering="KEY",
        aggregation="true",
        aggregationMaxBytes="1mb",
        aggregationMaxRecords="7",
        onOversizedRecord="Skip",
        ledger="false",
    )

    assert (found.linger_s, found.ordered, found.skip_oversized) == (2.0, True, True)
    assert found.aggregation == AggregationOptions(1 * MIB, 7, ids=False)
    assert found.ledger is False


def test_ids_of_records_bring_aggregation_with_them() -> None:
    """Ids exist only in aggregates, so recordIds with aggregation=false is an error."""
    assert write(recordIds="true").aggregation == AggregationOptions(50 * 1024, 100_000, ids=True)
    said = refusal({"streamName": "s", "recordIds": "true", "aggregation": "false"}, of_read=False)
    assert "recordIds writes aggregates" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ordering": "shard"}, "ordering is 'shard', expected none or key"),
        ({"onOversizedRecord": "drop"}, "expected fail or skip"),
        ({"aggregationMaxBytes": "11mb"}, "from 1 KiB to 10 MiB"),
        ({"aggregationMaxBytes": "1mb"}, "aggregationMaxBytes needs aggregation=true"),
        ({"aggregationMaxRecords": "5"}, "aggregationMaxRecords needs aggregation=true"),
        ({"linger": "-1s"}, "linger is '-1s', expected a duration"),
        (
            {"streamName": "a,b"},
            "a sink writes to one stream, or to the stream that the column stream",
        ),
    ],
)
def test_a_sink_that_cannot_be_meant(options: dict[str, str], said: str) -> None:
    """The error comes when the query is built."""
    assert said in refusal({"streamName": "s", **options}, of_read=False)


def test_a_stream_is_needed_where_rows_name_none() -> None:
    """With a column of streams, the option is for rows whose stream is empty."""
    assert "give streamName or streamARN" in refusal({}, of_read=False)
    assert parse_write_options({}, routed=True).stream is None
    assert parse_write_options({"streamName": "s"}, routed=True).stream == StreamId("s")


@pytest.mark.parametrize(
    ("text", "stream"), [("orders", StreamId("orders")), (ARN, StreamId(arn=ARN))]
)
def test_a_row_names_its_stream_by_name_or_arn(text: str, stream: StreamId) -> None:
    """A row may name its stream in the same two ways as the options."""
    assert stream_named(text) == stream


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", Latest()),
        (" LATEST ", Latest()),
        ("trim_horizon", TRIM_HORIZON),
        ("EARLIEST", TRIM_HORIZON),
        ("at_timestamp 2026-11-20T12:00:00Z", AtTimestamp(1_795_176_000_000)),
        ("at_timestamp=2026-11-20T12:00:00.123+00:00", AtTimestamp(1_795_176_000_123)),
        ("AT_TIMESTAMP: 2026-11-20T14:00:00+02:00", AtTimestamp(1_795_176_000_000)),
        ("at_timestamp 2026-11-20 12:00:00", AtTimestamp(1_795_176_000_000)),
        ("at_timestamp 2026-11-20", AtTimestamp(1_795_132_800_000)),
        ("at_timestamp 1795176000", AtTimestamp(1_795_176_000_000)),
        ("at_timestamp 1795176000.5", AtTimestamp(1_795_176_000_500)),
        ("at_timestamp 1970-01-01T00:00:00Z", AtTimestamp(0)),
    ],
)
def test_initial_position(text: str, expected: object) -> None:
    """Every documented form of a start."""
    assert read(initialPosition=text).initial_position == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "newest",
        "at_timestamp",
        "at_timestamp tomorrow",
        "at_timestamp 12",
        "at_timestamp 1969-12-31T23:59:59Z",
        "2026-11-20",
    ],
)
def test_a_start_that_means_nothing_is_refused(text: str) -> None:
    """A time before 1970 is refused too: no record has one, and no checkpoint can store it."""
    assert "initialPosition is" in refusal({"streamName": "s", "initialPosition": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1.0),
        ("1000ms", 1.0),
        ("1.5 m", 90.0),
        ("2min", 120.0),
        ("1h", 3600.0),
        (" 10S ", 10.0),
    ],
)
def test_durations_carry_their_unit(text: str, expected: float) -> None:
    """Milliseconds to days, with fractions."""
    assert read(subscriptionIdleTimeout=text).idle_timeout_s == expected


@pytest.mark.parametrize(
    "text", ["", "10", "10 parsecs", "-1s", "s", "0s", "999ms", "3601s", "2h", "1e3s", "1d"]
)
def test_a_duration_without_unit_or_out_of_range_is_refused(text: str) -> None:
    """The message names the range."""
    said = refusal({"streamName": "s", "subscriptionIdleTimeout": text})
    assert "subscriptionIdleTimeout is" in said
    assert "from 1s to 3600s" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1048576", MIB),
        ("1048576b", MIB),
        ("1024k", MIB),
        ("1024KB", MIB),
        ("1m", MIB),
        ("1 MB", MIB),
        ("2g", 2048 * MIB),
        ("2gb", 2048 * MIB),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    """Plain bytes, or kb, mb, gb with 1024 between them."""
    assert read(fetchBufferSize=text).buffer_bytes == expected


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5mb", "1048575", "mb", "1tb", "1 2mb", "1048577gb", "lots"]
)
def test_a_size_out_of_form_or_range_is_refused(text: str) -> None:
    """The message shows the form and the range."""
    assert "bytes, or a number with kb, mb or gb" in refusal(
        {"streamName": "s", "fetchBufferSize": text}
    )


@pytest.mark.parametrize(
    ("key", "text", "bounds"),
    [
        ("maxInFlightBytes", "1kb", "gb, at least 1 MiB"),
        ("maxInFlightBytes", "9" * 400, "gb, at least 1 MiB"),
        ("maxInFlightBytes", "1048577gb", "gb, from 1 MiB to 1 PiB"),
        ("batchMaxBytes", "11mb", "gb, from 1 KiB to 10 MiB"),
        ("maxInFlightRecords", "0", "a whole number at least 1"),
    ],
)
def test_bounds_are_told_in_units_that_people_read(key: str, text: str, bounds: str) -> None:
    """Messages show limits as KiB, MiB or GiB, and no upper limit if nobody reaches it."""
    assert bounds in refusal({"streamName": "s", key: text}, of_read=False)


@pytest.mark.parametrize(
    ("key", "low", "high"), [("batchMaxRecords", 1, 500), ("maxInFlightRequests", 1, 1000)]
)
def test_counts_have_bounds(key: str, low: int, high: int) -> None:
    """Both limits are allowed; values beyond them, signs and fractions are not."""
    for text in (str(low), str(high), f" {high} "):
        write(**{key: text})
    for text in (str(low - 1), str(high + 1), "-1", "1.0", "ten", ""):
        assert f"a whole number from {low} to {high}" in refusal(
            {"streamName": "s", key: text}, of_read=False
        )


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("FALSE", False), (" True ", True)])
def test_booleans(text: str, *, expected: bool) -> None:
    """True or false in any case."""
    assert read(failOnDataLoss=text).fail_on_data_loss is expected


@pytest.mark.parametrize("text", ["yes", "1", "", "truee"])
def test_other_booleans_are_refused(text: str) -> None:
    """Other words are not guessed."""
    assert "expected true or false" in refusal({"streamName": "s", "failOnDataLoss": text})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://localhost:4566", "http://localhost:4566"),
        ("https://kinesis.eu-west-1.amazonaws.com/", "https://kinesis.eu-west-1.amazonaws.com"),
        (" http://[::1]:80 ", "http://[::1]:80"),
    ],
)
def test_endpoint(text: str, expected: str) -> None:
    """A URL of scheme, host and port; a slash at its end is dropped."""
    assert read(endpoint=text).aws.endpoint == expected


@pytest.mark.parametrize(
    "text", ["localhost:4566", "ftp://h", "http://", "http://h/path", "http://h?q", "http://a b"]
)
def test_an_endpoint_that_is_no_url_is_refused(text: str) -> None:
    """The message shows the form."""
    assert "http://host[:port]" in refusal({"streamName": "s", "endpoint": text})


@pytest.mark.parametrize("text", ["", " ", "a/b", "ä", "x" * 129, "a,,b", "a,"])
def test_a_stream_name_has_its_alphabet(text: str) -> None:
    """Names that AWS would refuse are refused before any call."""
    assert "1 to 128 letters" in refusal({"streamName": text})


@pytest.mark.parametrize(
    "text",
    ["orders", "arn:aws:kinesis:eu:12345:stream/x", ARN.replace("kinesis", "sqs"), ARN + "/c"],
)
def test_a_stream_arn_has_its_form(text: str) -> None:
    """A text that is not the ARN of a stream is refused."""
    assert "arn:<partition>:kinesis" in refusal({"streamARN": text})


@pytest.mark.parametrize("text", ["auto", "HTTP1", " http1 ", "http2"])
def test_the_transport_is_one_of_three(text: str) -> None:
    """It is passed on with the endpoint; another word is refused."""
    assert parse_read_options({"streamName": "s", "transport": text}).aws.transport == (
        text.strip().lower()
    )
    assert parse_read_options({"streamName": "s"}).aws.transport == "auto"
    assert "expected auto, http1 or http2" in refusal({"streamName": "s", "transport": "http3"})
    plain = {"streamName": "s", "endpoint": "http://localhost:4566", "transport": "http2"}
    assert "give an https:// endpoint" in refusal(plain)


def test_an_empty_text_is_refused() -> None:
    """An empty value is a mistake, not the default."""
    assert "region is ' ', expected a non-empty text" in refusal({"streamName": "s", "region": " "})


# --- the stream and the region ------------------------------------------------------------------


def test_the_region_of_an_arn_is_used() -> None:
    """An ARN contains the region of its stream, and so does an endpoint of AWS."""
    assert parse_read_options({"streamARN": ARN}).aws.region == "eu-central-1"
    assert parse_read_options({"streamARN": ARN, "kinesis.region": "x"}).aws.region == (
        "eu-central-1"
    )
    assert read().aws.region is None


def test_a_region_that_contradicts_the_stream_is_refused() -> None:
    """It is accepted with a local server, which may call itself any region."""
    said = refusal({"streamARN": ARN, "region": "us-east-1"})
    assert "region is 'us-east-1', and streamARN is in eu-central-1; leave region out" in said

    local = {"streamARN": ARN, "region": "us-east-1", "endpoint": "http://localhost:4566"}
    assert parse_read_options(local).aws.region == "us-east-1"


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://kinesis.us-east-2.amazonaws.com",
        "https://kinesis.us-east-2.amazonaws.com:443/",
        "https://kinesis-fips.us-east-2.amazonaws.com",
        "https://KINESIS.us-east-2.api.aws",
        "https://vpce-0a1b-2c3d.kinesis.us-east-2.vpce.amazonaws.com",
        "https://123456789012.data-kinesis.us-east-2.amazonaws.com",
    ],
)
def test_the_region_of_an_endpoint_of_aws_is_used(endpoint: str) -> None:
    """Jobs of other connectors give only the endpoint.

    AWS refuses requests that are signed for another region.
    """
    assert read(endpoint=endpoint).aws.region == "us-east-2"
    assert read(endpoint=endpoint, region="us-east-2").aws.region == "us-east-2"
    assert "region is 'eu-west-1', and endpoint is in us-east-2" in refusal(
        {"streamName": "s", "endpoint": endpoint, "region": "eu-west-1"}
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost:4566",
        "https://kinesis.example.com",
        "https://kinesis.us-east-2.amazonaws.com.example.com",
        "http://kinesis.us-east-2.localhost.localstack.cloud:4566",
    ],
)
def test_another_endpoint_names_no_region(endpoint: str) -> None:
    """A local server is in the region that the user gives."""
    assert read(endpoint=endpoint).aws.region is None
    assert read(endpoint=endpoint, region="eu-west-1").aws.region == "eu-west-1"


def test_a_stream_is_named_in_requests_the_way_it_was_given() -> None:
    """Requests use the ARN or the name, never both."""
    assert StreamId(arn=ARN).request() == {"StreamARN": ARN}
    assert StreamId(name="orders").request() == {"StreamName": "orders"}
    assert (StreamId(arn=ARN).label, StreamId(name="orders").label, StreamId().label) == (
        ARN,
        "orders",
        "?",
    )


@pytest.mark.parametrize("options", [{}, {"streamName": "a", "streamARN": ARN}])
def test_exactly_one_stream(options: dict[str, str]) -> None:
    """No stream at all, or name and ARN together, is one problem."""
    assert "1 problem with the options: (1) give streamName or streamARN (exactly one" in refusal(
        options
    )


# --- messages -----------------------------------------------------------------------------------


def test_all_problems_come_together() -> None:
    """One error counts and numbers five mistakes."""
    said = refusal(
        {
            "fetchBufferSize": "tiny",
            "failOnDataLoss": "maybe",
            "consumrName": "x",
            "batchMaxRecords": "5",
            "awsAccessKey": "AKIA",
        }
    )

    assert "6 problems with the options" in said
    for problem in (
        "fetchBufferSize is 'tiny', expected bytes",
        "failOnDataLoss is 'maybe', expected true or false",
        "unknown option 'consumrName'; did you mean consumerName?",
        "batchMaxRecords is an option of writing only",
        "awsAccessKey and awsSecretKey go together",
        "give streamName or streamARN",
    ):
        assert problem in said
    assert all(f"({i}) " in said for i in range(1, 7))


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("streamname2", "streamName"),
        ("StartingPositon", "startingPosition"),
        ("kinesis.endpointURI", "kinesis.endpointUrl"),
        ("initial_position", "initialPosition"),
    ],
)
def test_an_unknown_option_names_the_nearest(key: str, hint: str) -> None:
    """The message suggests the name that was probably meant."""
    assert f"unknown option {key!r}; did you mean {hint}?" in refusal({"streamName": "s", key: "x"})


def test_an_unknown_option_like_no_other_has_no_hint() -> None:
    """No hint is better than a wrong one, and options of the other mode are never suggested."""
    assert "unknown option 'zzz'." in refusal({"streamName": "s", "zzz": "x"})
    assert "did you mean batchMax" not in refusal({"streamName": "s", "batchMaxRecord": "x"})


def test_a_hint_is_given_for_the_first_twenty_only() -> None:
    """To look for similar names takes time; every unknown option is named all the same."""
    said = refusal({"streamName": "s", **{f"streamNam{i}": "x" for i in range(30)}})

    assert said.count("unknown option") == 30
    assert said.count("did you mean streamName?") == 20


def test_which_options_are_secrets() -> None:
    """Their values are never shown, and the page of options says so."""
    assert {o.key for o in OPTIONS if o.secret} == {
        "awsAccessKey",
        "awsSecretKey",
        "sessionToken",
        "roleExternalId",
    }


def test_an_option_of_the_other_mode_is_told_so() -> None:
    """The message does not call it unknown."""
    said = refusal({"streamName": "s", "consumerName": "x"}, of_read=False)
    assert "consumerName is an option of reading only" in said


def test_a_token_needs_its_keys() -> None:
    """A session token without keys is an error."""
    assert "sessionToken needs awsAccessKey" in refusal({"streamName": "s", "sessionToken": SECRET})


@pytest.mark.parametrize(
    "options",
    [
        {"awsSecretKey": SECRET},
        {"awsSecretKey": SECRET, "kinesis.awsSecretKey": SECRET + "2", "awsAccessKey": SECRET},
        {"awsSecretKeyy": SECRET},
        {"awsAccessKey": SECRET, "awsSecretKey": " "},
        {"sessionToken": SECRET},
    ],
)
def test_secrets_are_in_no_error(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong with a secret, its value is neither shown nor logged."""
    with caplog.at_level(logging.DEBUG):
        assert SECRET not in refusal({"streamName": "s", **options})
    assert SECRET not in caplog.text


@pytest.mark.parametrize("parse", [parse_read_options, parse_write_options])
def test_secrets_are_in_no_repr(parse: Any) -> None:
    """``repr`` of the options shows where Kinesis is, but no keys."""
    options = parse(
        {
            "streamName": "s",
            "awsAccessKey": SECRET,
            "awsSecretKey": SECRET,
            "sessionToken": SECRET,
            "region": "eu",
        }
    )

    assert SECRET not in repr(options)
    assert SECRET not in str(options.aws)
    assert options.aws.secret_key == SECRET
    assert "region='eu'" in repr(options)


def test_a_password_in_an_endpoint_is_refused_and_not_shown() -> None:
    """Credentials have options of their own."""
    said = refusal({"streamName": "s", "endpoint": "http://me:Hush@h:1"})
    assert "http://host[:port]" in said
    assert "Hush" not in said


@pytest.mark.parametrize("key", ["consumerMode", "kinesis.consumerType"])
def test_the_consumer_modes_of_other_connectors(key: str) -> None:
    """Both ways to read are accepted under both of their names."""
    assert read(**{key: "SubscribeToShard"}) == read(**{key: "efo"}) == read()
    assert read(**{key: "GetRecords"}) == read(**{key: "polling"})
    assert read(**{key: "polling"}).mode == "polling"
    said = refusal({"streamName": "s", key: "push"})
    assert "consumerMode is 'push', expected efo or polling" in said
