"""Options of other connectors: the same names and values mean the same here, or the log says not.

The jobs themselves run in ``integration/test_moved_jobs.py``.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from integration.jobs import job_for_awslabs, job_for_databricks
from kinesis_ds.errors import OptionError
from kinesis_ds.limits import MIB
from kinesis_ds.options.foreign import IGNORED, REFUSED
from kinesis_ds.options.parse import log_without_effect, parse_read_options, parse_write_options
from kinesis_ds.options.read import ReadOptions
from kinesis_ds.plan.position import TRIM_HORIZON, AtTimestamp
from kinesis_ds.plan.stream import StreamId

ENDPOINT = "http://127.0.0.1:4566"


def as_typed(*options: dict[str, Any]) -> dict[str, str]:
    """Return options as Spark passes them on."""
    merged: dict[str, Any] = {}
    for more in options:
        merged |= more
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in merged.items()
    }


def read(**options: str) -> ReadOptions:
    return parse_read_options({"streamName": "orders", **options}, "stream")


# --- whole jobs ---------------------------------------------------------------------------------


def test_the_source_of_a_job_for_awslabs() -> None:
    """Options that mean something here are used, and all others are named in the log."""
    found = parse_read_options(
        as_typed(
            job_for_awslabs.SOURCE,
            {"kinesis.streamName": "orders", "kinesis.endpointUrl": ENDPOINT},
        ),
        "stream",
    )

    assert found.streams == (StreamId("orders"),)
    assert (found.aws.region, found.aws.endpoint) == ("us-east-1", ENDPOINT)
    assert (found.mode, found.consumer_names) == ("efo", ("TestConsumer",))
    assert found.initial_position == AtTimestamp(1_693_450_805_000)
    assert found.fail_on_data_loss is True
    assert found.discovery_interval_s == 1.0
    named = {text.partition(" ")[0] for text in found.without_effect}
    assert named == {
        name
        for name in job_for_awslabs.SOURCE
        if any(name in names for names in IGNORED) or name.startswith("kinesis.getRecords.")
    }


def test_the_sink_of_a_job_for_awslabs() -> None:
    """The lifetime of a record is taken over; the options of its client have no effect."""
    found = parse_write_options(
        as_typed(
            job_for_awslabs.SINK,
            {"kinesis.streamName": "orders", "kinesis.endpointUrl": ENDPOINT},
        )
    )

    assert (found.stream, found.aws.endpoint) == (StreamId("orders"), ENDPOINT)
    assert (found.retry_timeout_s, found.linger_s) == (30.0, 1.0)
    assert found.aggregation is not None
    assert len(found.without_effect) == 2


def test_a_job_for_databricks_by_polling() -> None:
    """Each of its limits is taken over."""
    found = parse_read_options(
        as_typed(
            job_for_databricks.SOURCE,
            job_for_databricks.POLLING,
            {"streamName": "orders,clicks", "endpoint": ENDPOINT},
        ),
        "stream",
    )

    assert found.streams == (StreamId("orders"), StreamId("clicks"))
    assert found.initial_position == AtTimestamp(1_593_105_825_000)
    assert (found.mode, found.shards_per_task, found.buffer_bytes) == ("polling", 5, 2048 * MIB)
    polling = found.polling
    assert (polling.min_period_s, polling.max_records) == (0.4, 5_000)
    assert polling.bytes_per_s == 3 * MIB // 2
    assert {text.partition(" ")[0] for text in found.without_effect} == {
        "maxFetchDuration",
        "maxShardsPerDescribe",
        "coalesceThresholdBlockSize",
        "coalesceBinSize",
    }


def test_a_job_for_databricks_by_efo() -> None:
    """The consumer gets the name that it has on Databricks."""
    found = parse_read_options(
        as_typed(
            job_for_databricks.SOURCE,
            job_for_databricks.EFO,
            {"streamName": "orders", "endpoint": ENDPOINT},
        ),
        "stream",
    )

    assert (found.mode, found.consumer_names) == ("efo", ("databricks_clickstream-bronze",))
    assert found.deregister is True
    assert (found.register_timeout_s, found.deregister_timeout_s) == (300.0, 300.0)
    assert found.consumer_refresh_s == 300.0


def test_a_job_for_qubole() -> None:
    """The names have no prefix, and the region is in the endpoint."""
    found = read(
        endpointUrl="https://kinesis.us-east-2.amazonaws.com",
        regionName="us-east-1",
        awsAccessKeyId="key",
        awsSecretKey="secret",
        startingposition="TRIM_HORIZON",
        failondataloss="false",
        awsUseInstanceProfile="true",
        **{
            "kinesis.executor.maxFetchTimeInMs": "1000",
            "kinesis.executor.maxRecordPerRead": "500",
            "kinesis.client.describeShardInterval": "2s",
        },
    )

    assert found.aws.region == "us-east-2"
    assert found.aws.access_key == "key"
    assert found.initial_position == TRIM_HORIZON
    assert found.fail_on_data_loss is False
    assert found.discovery_interval_s == 2.0


# --- values of forms of their own ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("100ms", 1.0),
        ("1s", 1.0),
        ("50s", 50.0),
        ("50 seconds", 50.0),
        ("5000", 5.0),
        ("2min", 120.0),
        ("0", 1.0),
        ("7d", 3600.0),
    ],
)
def test_an_interval_as_the_jvm_reads_it(text: str, seconds: float) -> None:
    """A number without a unit is in milliseconds.

    A value that Kinesis does not allow is moved to the nearest bound.
    """
    assert read(**{"kinesis.describeShardInterval": text}).discovery_interval_s == seconds


@pytest.mark.parametrize("text", ["soon", "", "-1", "1.5s", "1 2"])
def test_an_interval_that_the_jvm_would_not_read_is_refused(text: str) -> None:
    """The message shows the form for this name."""
    with pytest.raises(OptionError, match="expected milliseconds, or a number with its unit"):
        read(**{"kinesis.describeShardInterval": text})


def test_milliseconds_between_reads() -> None:
    """It is a plain number, and at least what Kinesis allows."""

    def period(text: str) -> float:
        options = {"kinesis.consumerType": "GetRecords", "kinesis.getRecords.fetchIntervalMs": text}
        return read(**options).polling.min_period_s

    assert (period("1500"), period("200"), period("0")) == (1.5, 0.2, 0.2)


# --- regions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "region"),
    [
        ({"kinesis.region": "us-east-1"}, "us-east-1"),
        ({"kinesis.region": "us-east-1", "kinesis.kinesisRegion": "eu-west-1"}, "eu-west-1"),
        ({"kinesis.kinesisRegion": "eu-west-1", "kinesis.region": "us-east-1"}, "eu-west-1"),
        ({"kinesis.region": "us-east-1", "region": "eu-west-1"}, "eu-west-1"),
        (
            {
                "kinesis.region": "us-east-1",
                "kinesis.endpointUrl": "https://kinesis.eu-west-1.amazonaws.com",
            },
            "eu-west-1",
        ),
    ],
)
def test_the_region_is_the_streams(options: dict[str, str], region: str) -> None:
    """`kinesis.region` is the region of a DynamoDB table there, so all other names win."""
    assert read(**options).aws.region == region


@pytest.mark.parametrize(
    "options",
    [
        {"kinesis.kinesisRegion": "eu-west-1", "region": "us-east-1"},
        {"kinesis.region": "eu-west-1", "regionName": "us-east-1"},
    ],
)
def test_two_regions_of_one_rank_are_refused(options: dict[str, str]) -> None:
    """Nobody can know which one is meant."""
    with pytest.raises(OptionError, match="both set region; give one"):
        read(**options)


# --- what is none here --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for names in IGNORED for name in names])
def test_an_option_that_means_nothing_here_is_accepted(name: str) -> None:
    """Sources and sinks accept it, nothing changes, and its value is never shown."""
    (said,) = read(**{name.lower(): "Hush"}).without_effect
    assert said.startswith(f"{name} (")
    (said,) = parse_write_options({"streamName": "s", name: "Hush"}).without_effect

    assert "Hush" not in said
    found = parse_read_options({"streamName": "orders", name: "x"}, "stream")
    assert found.streams == (StreamId("orders"),)


@pytest.mark.parametrize("name", [name for names in REFUSED for name in names])
def test_an_option_that_cannot_be_honoured_is_refused(name: str) -> None:
    """The message says what to use instead, and does not show the value."""
    for parse in (parse_read_options, parse_write_options):
        with pytest.raises(OptionError) as caught:
            parse({"streamName": "s", name: "Hush"})
        assert f"{name} cannot be honoured here: " in str(caught.value)
        assert "Hush" not in str(caught.value)


def test_awslabs_options_of_the_other_side_are_passed_over() -> None:
    """There, sources and sinks accept the options of both.

    Here only the names with a prefix are accepted on the other side.
    """
    (said,) = read(**{"kinesis.sink.recordTtl": "1"}).without_effect
    assert said == "kinesis.sink.recordTtl (an option of writing)"
    (said,) = parse_write_options(
        {"streamName": "s", "kinesis.consumerType": "GetRecords"}
    ).without_effect
    assert said == "kinesis.consumerType (an option of reading)"
    (said,) = read(
        **{"kinesis.consumerType": "GetRecords", "kinesis.consumerName": "c"}
    ).without_effect
    assert said == (
        "kinesis.consumerName (an option of consumerMode efo, and this query's is polling)"
    )


def test_all_without_effect_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The line is at WARNING and gives each reason. Without such options there is no line."""
    with caplog.at_level(logging.DEBUG):
        log_without_effect(read(maxFetchDuration="10s", maxShardsPerDescribe="100"))
        log_without_effect(read())

    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.getMessage() == (
        "options without effect on this query: maxFetchDuration (no Spark job fetches records "
        "ahead; fetchBufferSize limits what is buffered); maxShardsPerDescribe (the list of "
        "shards is read to its end, page by page)"
    )
