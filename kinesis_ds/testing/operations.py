"""The function that answers each operation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kinesis_ds.testing import changing, consumers, listing, reading, streams, tagging, writing

if TYPE_CHECKING:
    from kinesis_ds.testing.account import Account

Operation = Callable[["Account", Mapping[str, Any], float], dict[str, Any]]

OPERATIONS: Mapping[str, Operation] = {
    "AddTagsToStream": tagging.add_tags,
    "CreateStream": streams.create_stream,
    "DecreaseStreamRetentionPeriod": partial(changing.change_retention, longer=False),
    "DeleteStream": streams.delete_stream,
    "DeregisterStreamConsumer": consumers.deregister,
    "DescribeLimits": streams.describe_limits,
    "DescribeStream": streams.describe_stream,
    "DescribeStreamConsumer": consumers.describe,
    "DescribeStreamSummary": streams.describe_stream_summary,
    "GetRecords": reading.get_records,
    "GetShardIterator": reading.get_shard_iterator,
    "IncreaseStreamRetentionPeriod": partial(changing.change_retention, longer=True),
    "ListShards": listing.list_shards,
    "ListStreamConsumers": consumers.list_consumers,
    "ListStreams": streams.list_streams,
    "ListTagsForStream": tagging.list_tags,
    "MergeShards": changing.merge_shards,
    "PutRecord": writing.put_record,
    "PutRecords": writing.put_records,
    "RegisterStreamConsumer": consumers.register,
    "RemoveTagsFromStream": tagging.remove_tags,
    "SplitShard": changing.split_shard,
    "StartStreamEncryption": partial(changing.change_encryption, start=True),
    "StopStreamEncryption": partial(changing.change_encryption, start=False),
    "UpdateMaxRecordSize": changing.update_max_record_size,
    "UpdateShardCount": changing.update_shard_count,
    "UpdateStreamMode": changing.update_stream_mode,
    "UpdateStreamRecordDistributionStrategy": changing.update_strategy,
}
