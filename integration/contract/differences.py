"""Where a server departs from what AWS documents: the one list that the suite and the docs share.

Each row was seen, not read about. The suite runs every row and fails where the server does as AWS
documents after all, so no row outlives its reason.
"""

from __future__ import annotations

from dataclasses import dataclass

_API = "https://docs.aws.amazon.com/kinesis/latest/APIReference/API_{}.html"
_GUIDE = "https://docs.aws.amazon.com/streams/latest/dev/{}.html"


@dataclass(frozen=True)
class Difference:
    """One thing that one server does otherwise.

    Attributes:
        server: the target's name.
        tests: what it breaks, as `test_file::test_name`, with `[value]` of a parametrised test.
        instead: what the server does instead, as a sentence without its subject.
        page: the page of AWS that decides.
        run: false where the test would hang, or fails only now and then.
    """

    server: str
    tests: tuple[str, ...]
    instead: str
    page: str
    run: bool = True


def reason(row: Difference) -> str:
    """Why the tests of this row are expected to fail."""
    return f"{row.server} {row.instead} (see {row.page})"


def _both(tests: tuple[str, ...], instead: str, page: str) -> tuple[Difference, Difference]:
    """A difference of kinesis-mock in both versions: alone, and inside LocalStack."""
    return (
        Difference("localstack", tests, instead, page),
        Difference("kinesis-local", tests, instead, page),
    )


def _unreadable(*names: str) -> tuple[str, ...]:
    return tuple(f"test_subscriptions::{name}" for name in names)


_NO_WRITE_LIMITS = (
    "test_writing::test_shard_takes_1000_records_a_second",
    "test_writing::test_shard_takes_1_mib_a_second",
    "test_writing::test_put_record_beyond_the_limit_is_throttled",
)
_NO_READ_LIMITS = (
    "test_get_records::test_shard_is_read_five_times_a_second",
    "test_get_records::test_read_after_10_mib_is_throttled_for_five_seconds",
    "test_get_records::test_shard_gives_2_mib_a_second",
)

DIFFERENCES: tuple[Difference, ...] = (
    # --- streams ---
    *_both(
        ("test_streams::test_on_demand_stream_is_not_resharded_by_hand",),
        "changes the number of shards of an on-demand stream",
        _API.format("UpdateShardCount"),
    ),
    Difference(
        "ministack",
        ("test_streams::test_on_demand_stream_is_not_resharded_by_hand",),
        "changes the number of shards of an on-demand stream",
        _API.format("UpdateShardCount"),
    ),
    Difference(
        "ministack",
        ("test_streams::test_on_demand_stream_begins_with_four_shards",),
        "makes an on-demand stream with one shard",
        _GUIDE.format("how-do-i-size-a-stream"),
    ),
    *(
        Difference(
            server,
            ("test_streams::test_summary_tells_the_record_size_limit",),
            "does not tell MaxRecordSizeInKiB",
            _API.format("StreamDescriptionSummary"),
        )
        for server in ("localstack", "kinesis-local", "ministack")
    ),
    Difference(
        "ministack",
        ("test_streams::test_new_stream_is_creating_then_active",),
        "makes a stream at once, without CREATING",
        _API.format("CreateStream"),
    ),
    Difference(
        "ministack",
        ("test_streams::test_deleted_stream_is_deleting_then_not_found",),
        "deletes a stream at once, without DELETING",
        _API.format("DeleteStream"),
    ),
    Difference(
        "ministack",
        ("test_streams::test_stream_with_consumers_is_deleted_on_demand_only",),
        "deletes a stream that has consumers",
        _API.format("DeleteStream"),
    ),
    # --- routing ---
    *_both(
        ("test_routing::test_hash_key_that_is_no_number_is_refused",),
        "answers SerializationException to an ExplicitHashKey that is no number",
        _API.format("PutRecord"),
    ),
    Difference(
        "ministack",
        (
            "test_routing::test_hash_key_outside_the_space_is_refused[above]",
            "test_routing::test_hash_key_outside_the_space_is_refused[below]",
        ),
        "accepts an ExplicitHashKey below 0 or above 2^128 - 1",
        _API.format("PutRecord"),
    ),
    Difference(
        "ministack",
        ("test_routing::test_hash_key_that_is_no_number_is_refused",),
        "answers InternalFailure to an ExplicitHashKey that is no number",
        _API.format("PutRecord"),
    ),
    # --- writing ---
    *(
        Difference(
            server, _NO_WRITE_LIMITS, "accepts any rate of writing", _API.format("PutRecords")
        )
        for server in ("localstack", "kinesis-local", "ministack")
    ),
    *_both(
        ("test_writing::test_501_records_are_refused",),
        "accepts more than 500 records in one request",
        _API.format("PutRecords"),
    ),
    *_both(
        ("test_writing::test_request_over_10_mib_is_refused",),
        "accepts a request of more than 10 MiB",
        _API.format("PutRecords"),
    ),
    Difference(
        "ministack",
        ("test_writing::test_request_of_10_mib_is_accepted",),
        "refuses a request of more than 5 MiB, which was the limit before",
        _API.format("PutRecords"),
    ),
    *(
        Difference(
            server,
            ("test_writing::test_record_over_1_mib_is_refused",),
            "leaves the partition key out of a record's size",
            _API.format("PutRecord"),
        )
        for server in ("localstack", "kinesis-local", "ministack")
    ),
    Difference(
        "kinesis-local",
        ("test_writing::test_request_with_a_record_that_is_too_large_is_refused",),
        "writes the other records of a request, and fails the large one with "
        "InvalidArgumentException in its entry",
        _API.format("PutRecords"),
    ),
    Difference(
        "localstack",
        ("test_writing::test_record_size_limit_can_be_raised",),
        "does not know UpdateMaxRecordSize (HTTP status 501)",
        _API.format("UpdateMaxRecordSize"),
    ),
    Difference(
        "ministack",
        ("test_writing::test_record_size_limit_can_be_raised",),
        "does not know UpdateMaxRecordSize (InvalidAction)",
        _API.format("UpdateMaxRecordSize"),
    ),
    Difference(
        "ministack",
        (
            "test_writing::test_sequence_number_is_canonical",
            "test_writing::test_sequence_number_has_56_digits",
        ),
        "pads sequence numbers with zeros to 30 digits",
        _API.format("PutRecord"),
    ),
    # --- iterators ---
    *_both(
        (
            "test_iterators::test_number_of_no_record_is_a_position[AT_SEQUENCE_NUMBER]",
            "test_iterators::test_number_of_no_record_is_a_position[AFTER_SEQUENCE_NUMBER]",
        ),
        "answers ResourceNotFoundException to a sequence number that is no record's",
        _API.format("GetShardIterator"),
    ),
    *_both(
        ("test_iterators::test_sequence_number_of_another_shard_is_refused",),
        "answers ResourceNotFoundException to a sequence number of another shard",
        _API.format("GetShardIterator"),
    ),
    *_both(
        ("test_iterators::test_iterator_that_is_none_is_refused",),
        "answers InternalFailure (HTTP status 500) to what is no iterator",
        _API.format("GetRecords"),
    ),
    *_both(
        ("test_iterators::test_unknown_kind_is_refused",),
        "answers SerializationException to an unknown ShardIteratorType",
        _API.format("GetShardIterator"),
    ),
    Difference(
        "localstack",
        ("test_iterators::test_at_timestamp_has_milliseconds",),
        "takes AT_TIMESTAMP in whole seconds",
        _API.format("GetShardIterator"),
    ),
    Difference(
        "ministack",
        (
            "test_iterators::test_number_of_no_record_is_a_position[AT_SEQUENCE_NUMBER]",
            "test_iterators::test_number_of_no_record_is_a_position[AFTER_SEQUENCE_NUMBER]",
        ),
        "compares sequence numbers as text, so one without its zeros is behind all records",
        _API.format("GetShardIterator"),
    ),
    Difference(
        "ministack",
        (
            "test_iterators::test_sequence_number_is_required[AT_SEQUENCE_NUMBER]",
            "test_iterators::test_sequence_number_is_required[AFTER_SEQUENCE_NUMBER]",
        ),
        "accepts AT_SEQUENCE_NUMBER and AFTER_SEQUENCE_NUMBER without a number",
        _API.format("GetShardIterator"),
    ),
    Difference(
        "ministack",
        (
            "test_iterators::test_sequence_number_of_another_shard_is_refused",
            "test_iterators::test_sequence_number_that_is_no_number_is_refused",
        ),
        "accepts any text as a sequence number",
        _API.format("GetShardIterator"),
    ),
    # --- reading ---
    *(
        Difference(
            server, _NO_READ_LIMITS, "accepts any rate of reading", _API.format("GetRecords")
        )
        for server in ("localstack", "kinesis-local", "ministack")
    ),
    Difference(
        "ministack",
        ("test_get_records::test_page_has_at_most_10_mib",),
        "returns all that there is in one page",
        _API.format("GetRecords"),
    ),
    Difference(
        "ministack",
        ("test_get_records::test_limit_over_10000_is_refused",),
        "accepts any Limit",
        _API.format("GetRecords"),
    ),
    Difference(
        "ministack",
        (
            "test_get_records::test_end_of_a_split_shard_names_its_children",
            "test_get_records::test_end_of_a_merged_shard_names_its_child",
            "test_get_records::test_closed_shard_keeps_its_records",
            "test_get_records::test_empty_closed_shard_ends_at_once",
            "test_get_records::test_latest_of_a_closed_shard_is_its_end",
            "test_resharding::test_closed_shard_has_an_ending_number",
            "test_resharding::test_ending_number_is_between_the_records_and_the_children",
            "test_resharding::test_closed_shard_is_not_split",
            "test_resharding::test_no_record_is_lost_by_resharding",
            "test_resharding::test_update_shard_count_makes_equal_shards",
            "test_resharding::test_description_pages_its_shards",
            "test_subscriptions::test_closed_shard_is_sent_to_its_end",
        ),
        "removes a shard with its records as soon as it is split, merged or replaced",
        _GUIDE.format("kinesis-using-sdk-java-after-resharding"),
    ),
    # --- resharding ---
    *_both(
        ("test_resharding::test_ending_number_is_between_the_records_and_the_children",),
        "gives every closed shard the EndingSequenceNumber 9223372036854775807, which is below "
        "all of its records",
        _API.format("SequenceNumberRange"),
    ),
    *_both(
        ("test_resharding::test_token_expires_after_five_minutes",),
        "accepts a NextToken of any age",
        _API.format("ListShards"),
    ),
    *_both(
        ("test_resharding::test_filter_at_trim_horizon_gives_the_oldest_shards",),
        "gives all shards for AT_TRIM_HORIZON",
        _API.format("ShardFilter"),
    ),
    Difference(
        "ministack",
        (
            "test_resharding::test_filter_at_trim_horizon_gives_the_oldest_shards",
            "test_resharding::test_filter_from_trim_horizon_gives_all_shards",
            "test_resharding::test_filter_after_shard_id_gives_later_shards",
            "test_resharding::test_filter_at_timestamp_gives_the_shards_open_then",
            "test_resharding::test_filter_from_timestamp_gives_the_shards_open_since",
            "test_resharding::test_filter_without_its_value_is_refused",
        ),
        "ignores ShardFilter and gives the open shards",
        _API.format("ShardFilter"),
    ),
    Difference(
        "ministack",
        (
            "test_resharding::test_pages_of_shards_follow_by_token_alone",
            "test_resharding::test_token_with_a_stream_is_refused",
            "test_resharding::test_token_expires_after_five_minutes",
        ),
        "wants the stream's name with NextToken",
        _API.format("ListShards"),
    ),
    Difference(
        "ministack",
        ("test_resharding::test_split_is_updating_then_active",),
        "splits at once, without UPDATING",
        _API.format("SplitShard"),
    ),
    Difference(
        "ministack",
        ("test_resharding::test_shards_apart_are_not_merged",),
        "merges shards that are not adjacent",
        _API.format("MergeShards"),
    ),
    Difference(
        "ministack",
        (
            "test_resharding::test_shard_count_changes_by_a_factor_of_two_at_most[below]",
            "test_resharding::test_shard_count_changes_by_a_factor_of_two_at_most[above]",
        ),
        "changes the number of shards by any factor",
        _API.format("UpdateShardCount"),
    ),
    # --- consumers ---
    *_both(
        ("test_consumers::test_consumers_are_listed_in_pages",),
        "gives no NextToken with the first MaxResults consumers",
        _API.format("ListStreamConsumers"),
    ),
    Difference(
        "ministack",
        ("test_consumers::test_new_consumer_is_creating_then_active",),
        "makes a consumer at once, without CREATING",
        _API.format("RegisterStreamConsumer"),
    ),
    Difference(
        "ministack",
        ("test_consumers::test_consumer_is_deregistered_by_arn",),
        "removes a consumer at once, without DELETING",
        _API.format("DeregisterStreamConsumer"),
    ),
    Difference(
        "ministack",
        ("test_consumers::test_five_consumers_are_created_at_a_time_and_twenty_in_all",),
        "has no limit of consumers",
        _API.format("RegisterStreamConsumer"),
    ),
    # --- errors ---
    Difference(
        "ministack",
        (
            "test_errors::test_no_stream_at_all_is_refused[describe_stream_summary]",
            "test_errors::test_no_stream_at_all_is_refused[list_shards]",
            "test_errors::test_no_stream_at_all_is_refused[put_record]",
        ),
        "answers ResourceNotFoundException where no stream is named",
        _API.format("DescribeStreamSummary"),
    ),
    Difference(
        "ministack",
        (
            "test_errors::test_name_that_is_no_stream_name_is_refused[space]",
            "test_errors::test_name_that_is_no_stream_name_is_refused[letter]",
            "test_errors::test_name_that_is_no_stream_name_is_refused[long]",
            "test_errors::test_consumer_name_with_other_characters_is_refused",
        ),
        "accepts any name of a stream or consumer",
        _API.format("CreateStream"),
    ),
    # --- subscriptions: LocalStack ---
    Difference(
        "localstack",
        ("test_subscriptions::test_idle_shard_is_heard_of_every_five_seconds",),
        "sends an event every 3 s",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "localstack",
        (
            "test_subscriptions::test_position_of_an_idle_shard_can_be_resumed[AT_SEQUENCE_NUMBER]",
            "test_subscriptions::test_position_of_an_idle_shard_can_be_resumed[AFTER_SEQUENCE_NUMBER]",
        ),
        'sends the ContinuationSequenceNumber "0" before the first record, and answers '
        "InternalError to it",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "localstack",
        ("test_subscriptions::test_backlog_is_sent_in_events_of_bounded_size",),
        "sends up to 10 MiB in one event, and MillisBehindLatest is always 0",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "localstack",
        (
            "test_subscriptions::test_second_call_within_five_seconds_is_refused",
            "test_subscriptions::test_closing_does_not_shorten_the_five_seconds",
            "test_subscriptions::test_second_call_within_a_second_is_throttled",
            "test_subscriptions::test_call_after_five_seconds_takes_over",
        ),
        "lets a consumer have any number of subscriptions to a shard",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "localstack",
        (
            "test_subscriptions::test_split_ends_a_subscription_with_the_children",
            "test_subscriptions::test_last_event_of_a_shard_has_no_position",
            "test_subscriptions::test_merge_ends_both_subscriptions_with_the_child",
            "test_subscriptions::test_update_shard_count_ends_a_subscription",
            "test_subscriptions::test_closed_shard_is_sent_to_its_end",
        ),
        "sends no ChildShards, and breaks the connection at the end of a shard",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "localstack",
        (
            "test_subscriptions::test_unknown_shard_is_not_found",
            "test_subscriptions::test_unknown_consumer_is_not_found",
            "test_subscriptions::test_sequence_number_that_is_no_number_is_refused",
        ),
        "answers InternalError (HTTP status 500) to a consumer, shard or sequence number that is "
        "not there",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "localstack",
        ("test_subscriptions::test_sequence_number_is_required",),
        "accepts AT_SEQUENCE_NUMBER without a number",
        _API.format("StartingPosition"),
    ),
    Difference(
        "localstack",
        ("test_subscriptions::test_consumer_has_to_be_active",),
        "accepts a consumer that is CREATING",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "localstack",
        ("test_subscriptions::test_deregistered_consumer_is_sent_no_more",),
        "goes on sending to a consumer that was deregistered",
        _API.format("SubscribeToShardEventStream"),
    ),
    # --- subscriptions: kinesis-local ---
    Difference(
        "kinesis-local",
        ("test_subscriptions::test_subscription_begins_with_an_initial_response",),
        "sends no initial-response, without which boto3 and aiobotocore read nothing",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "kinesis-local",
        _unreadable(
            "test_after_sequence_number_sends_the_next_record",
            "test_at_sequence_number_sends_that_record",
            "test_at_timestamp_sends_from_that_time_on",
            "test_backlog_is_sent_in_events_of_bounded_size",
            "test_call_after_five_seconds_takes_over",
            "test_closed_shard_is_sent_to_its_end",
            "test_closing_does_not_shorten_the_five_seconds",
            "test_consumer_has_to_be_active",
            "test_consumers_do_not_share_a_shard",
            "test_deleted_stream_ends_a_subscription",
            "test_deregistered_consumer_is_sent_no_more",
            "test_idle_shard_is_heard_of_every_five_seconds",
            "test_last_event_of_a_shard_has_no_position",
            "test_latest_sends_what_is_put_from_now_on",
            "test_merge_ends_both_subscriptions_with_the_child",
            "test_old_timestamp_is_the_trim_horizon",
            "test_position_after_records_can_be_resumed",
            "test_position_of_an_idle_shard_can_be_resumed[AFTER_SEQUENCE_NUMBER]",
            "test_position_of_an_idle_shard_can_be_resumed[AT_SEQUENCE_NUMBER]",
            "test_record_arrives_as_it_was_put",
            "test_second_call_within_a_second_is_throttled",
            "test_second_call_within_five_seconds_is_refused",
            "test_sequence_number_is_required",
            "test_sequence_number_that_is_no_number_is_refused",
            "test_split_ends_a_subscription_with_the_children",
            "test_subscription_ends_after_five_minutes",
            "test_trim_horizon_sends_all",
            "test_unknown_consumer_is_not_found",
            "test_unknown_shard_is_not_found",
            "test_update_shard_count_ends_a_subscription",
        ),
        "cannot be asked, since none of its subscriptions can be read",
        _API.format("SubscribeToShard"),
        run=False,
    ),
    # --- subscriptions: ministack ---
    Difference(
        "ministack",
        ("test_subscriptions::test_closing_does_not_shorten_the_five_seconds",),
        "forgets the five seconds when the connection is closed",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_second_call_within_a_second_is_throttled",),
        "answers ResourceInUseException to a second call within a second",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_last_event_of_a_shard_has_no_position",),
        "sends a ContinuationSequenceNumber with the end of a shard",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_update_shard_count_ends_a_subscription",),
        "leaves a subscription open when UpdateShardCount removes its shard",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_backlog_is_sent_in_events_of_bounded_size",),
        "sends all that there is in one event, and MillisBehindLatest is always 0",
        _API.format("SubscribeToShardEvent"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_consumer_has_to_be_active",),
        "has no consumer that is CREATING",
        _API.format("SubscribeToShard"),
    ),
    Difference(
        "ministack",
        ("test_subscriptions::test_sequence_number_that_is_no_number_is_refused",),
        "accepts any text as a sequence number",
        _API.format("StartingPosition"),
    ),
)
