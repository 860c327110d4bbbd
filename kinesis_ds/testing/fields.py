"""The fields of each request, with the bounds of the service's model (kinesis/2013-12-02). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kinesis_ds.testing.validation import Field, Fields, needed

NAME = Field((str,), low=1, high=128, pattern=r"[a-zA-Z0-9_.-]+")
STREAM_ARN = Field((str,), low=1, high=2048, pattern=r"arn:aws.*:kinesis:.*:\d{12}:stream/\S+")
CONSUMER_ARN = Field(
    (str,),
    low=1,
    high=2048,
    pattern=r"arn:aws.*:kinesis:.*:\d{12}:.*stream/[a-zA-Z0-9_.-]+/consumer/[a-zA-Z0-9_.-]+:\d+",
)
NUMBER = Field((str,), pattern=r"0|([1-9]\d{0,128})")
HASH_KEY = Field((str,), pattern=r"0|([1-9]\d{0,38})")
TIME = Field((int, float))
COUNT = Field((int,), low=1)
PAGE = Field((int,), low=1, high=10_000)
TOKEN = Field((str,), low=1, high=1_048_576)
FLAG = Field((bool,))
TAGS = Field((dict,), low=1, high=50)
MODE = Field(
    (dict,),
    fields={"StreamMode": Field((str,), required=True, choices=("PROVISIONED", "ON_DEMAND"))},
)
STRATEGY = Field((str,), choices=("AUTO", "USER_PARTITION_KEY"))
RECORD_KIB = Field((int,), low=1024, high=10_240)
HOURS = Field((int,), required=True)
POSITIONS = (
    "AT_SEQUENCE_NUMBER",
    "AFTER_SEQUENCE_NUMBER",
    "TRIM_HORIZON",
    "LATEST",
    "AT_TIMESTAMP",
)
SHARD_FILTERS = (
    "AFTER_SHARD_ID",
    "AT_TRIM_HORIZON",
    "FROM_TRIM_HORIZON",
    "AT_LATEST",
    "AT_TIMESTAMP",
    "FROM_TIMESTAMP",
)
PARTITION_KEY = Field((str,), low=1, high=256)

_STREAM: Fields = {"StreamName": NAME, "StreamARN": STREAM_ARN}
_BY_ARN: Fields = {"StreamARN": needed(STREAM_ARN)}
_KEY: Fields = {
    **_STREAM,
    "EncryptionType": Field((str,), required=True, choices=("KMS", "NONE")),
    "KeyId": Field((str,), required=True, low=1, high=2048),
}
_CONSUMER: Fields = {"StreamARN": STREAM_ARN, "ConsumerName": NAME, "ConsumerARN": CONSUMER_ARN}

FIELDS: Mapping[str, Fields] = {
    "CreateStream": {
        "StreamName": needed(NAME),
        "ShardCount": COUNT,
        "StreamModeDetails": MODE,
        "Tags": TAGS,
        "MaxRecordSizeInKiB": RECORD_KIB,
        "RecordDistributionStrategy": STRATEGY,
    },
    "DeleteStream": {**_STREAM, "EnforceConsumerDeletion": FLAG},
    "ListStreams": {"Limit": PAGE, "ExclusiveStartStreamName": NAME, "NextToken": TOKEN},
    "DescribeStream": {**_STREAM, "Limit": PAGE, "ExclusiveStartShardId": NAME},
    "DescribeStreamSummary": _STREAM,
    "DescribeLimits": {},
    "ListShards": {
        **_STREAM,
        "NextToken": TOKEN,
        "ExclusiveStartShardId": NAME,
        "MaxResults": PAGE,
        "StreamCreationTimestamp": TIME,
        "ShardFilter": Field(
            (dict,),
            fields={
                "Type": Field((str,), required=True, choices=SHARD_FILTERS),
                "ShardId": NAME,
                "Timestamp": TIME,
            },
        ),
    },
    "SplitShard": {**_STREAM, "ShardToSplit": needed(NAME), "NewStartingHashKey": needed(HASH_KEY)},
    "MergeShards": {**_STREAM, "ShardToMerge": needed(NAME), "AdjacentShardToMerge": needed(NAME)},
    "UpdateShardCount": {
        **_STREAM,
        "TargetShardCount": needed(COUNT),
        "ScalingType": Field((str,), required=True, choices=("UNIFORM_SCALING",)),
    },
    "UpdateStreamMode": {**_BY_ARN, "StreamModeDetails": needed(MODE)},
    "UpdateMaxRecordSize": {"StreamARN": STREAM_ARN, "MaxRecordSizeInKiB": needed(RECORD_KIB)},
    "UpdateStreamRecordDistributionStrategy": {
        **_BY_ARN,
        "RecordDistributionStrategy": needed(STRATEGY),
    },
    "IncreaseStreamRetentionPeriod": {**_STREAM, "RetentionPeriodHours": HOURS},
    "DecreaseStreamRetentionPeriod": {**_STREAM, "RetentionPeriodHours": HOURS},
    "StartStreamEncryption": _KEY,
    "StopStreamEncryption": _KEY,
    "AddTagsToStream": {**_STREAM, "Tags": needed(TAGS)},
    "RemoveTagsFromStream": {**_STREAM, "TagKeys": Field((list,), required=True, low=1)},
    "ListTagsForStream": {
        **_STREAM,
        "ExclusiveStartTagKey": Field((str,), low=1, high=128),
        "Limit": Field((int,), low=1, high=50),
    },
    "RegisterStreamConsumer": {**_BY_ARN, "ConsumerName": needed(NAME), "Tags": TAGS},
    "DescribeStreamConsumer": _CONSUMER,
    "DeregisterStreamConsumer": _CONSUMER,
    "ListStreamConsumers": {
        **_BY_ARN,
        "NextToken": TOKEN,
        "MaxResults": PAGE,
        "StreamCreationTimestamp": TIME,
    },
    "PutRecord": {
        **_STREAM,
        "Data": Field((str,), required=True),
        "PartitionKey": PARTITION_KEY,
        "ExplicitHashKey": HASH_KEY,
        "SequenceNumberForOrdering": NUMBER,
        "DryRun": FLAG,
    },
    "PutRecords": {
        **_STREAM,
        "Records": Field((list,), required=True, low=1, high=500),
        "DryRun": FLAG,
    },
    "GetShardIterator": {
        **_STREAM,
        "ShardId": needed(NAME),
        "ShardIteratorType": Field((str,), required=True, choices=POSITIONS),
        "StartingSequenceNumber": NUMBER,
        "Timestamp": TIME,
        "DryRun": FLAG,
    },
    "GetRecords": {
        "StreamARN": STREAM_ARN,
        "ShardIterator": Field((str,), required=True, low=1, high=512),
        "Limit": COUNT,
        "DryRun": FLAG,
    },
    "SubscribeToShard": {
        "ConsumerARN": needed(CONSUMER_ARN),
        "ShardId": needed(NAME),
        "StartingPosition": Field(
            (dict,),
            required=True,
            fields={
                "Type": Field((str,), required=True, choices=POSITIONS),
                "SequenceNumber": NUMBER,
                "Timestamp": TIME,
            },
        ),
        "DryRun": FLAG,
    },
}
