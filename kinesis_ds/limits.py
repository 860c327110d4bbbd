"""Limits and rules of the service, and the few constants that are ours.

The figures of the service were read in the API model of botocore 1.43 (``kinesis/2013-12-02``) on
2026-11-20; the page of each operation is ``docs.aws.amazon.com/kinesis/latest/APIReference``.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# PutRecords: "Each PutRecords request can support up to 500 records", 10 MiB with partition keys.
PUT_RECORDS_MAX_RECORDS: Final = 500
PUT_RECORDS_MAX_BYTES: Final = 10 * MIB
# UpdateMaxRecordSize: a stream takes 1 MiB (the default) to 10 MiB a record, partition key
# included.
RECORD_MAX_BYTES_DEFAULT: Final = 1 * MIB
RECORD_MAX_BYTES: Final = 10 * MIB
# PutRecords: "Each shard can support writes up to 1,000 records per second, up to a maximum data
# write total of 1 MB per second."
SHARD_RECORDS_PER_S: Final = 1000
SHARD_BYTES_PER_S: Final = 1 * MIB
PARTITION_KEY_MAX_CHARS: Final = 256
MAX_HASH_KEY: Final = 2**128 - 1

# A stream has at most 20 consumers (50 in On-demand Advantage mode), and keeps records for a day
# unless it was told otherwise.
CONSUMERS_PER_STREAM: Final = 20
RETENTION_HOURS_DEFAULT: Final = 24

# SubscribeToShard: one call a second per consumer and shard; within 5 s of a successful call the
# next one is refused (ResourceInUseException); a subscription lasts up to 5 minutes.
SUBSCRIBE_MIN_INTERVAL_S: Final = 1.0
SUBSCRIBE_AFTER_SUCCESS_S: Final = 5.0
SUBSCRIPTION_LIFETIME_S: Final = 300.0

# GetRecords: 5 calls and 2 MiB a second per shard, at most 10,000 records or 10 MiB an answer.
GET_RECORDS_MIN_INTERVAL_S: Final = 0.2
GET_RECORDS_MAX_RECORDS: Final = 10_000
GET_RECORDS_BYTES_PER_S: Final = 2 * MIB
# GetShardIterator: "A shard iterator expires 5 minutes after it is returned".
SHARD_ITERATOR_LIFETIME_S: Final = 300.0

# Idle subscriptions are sent an empty event about every 5 s, so silence this long is a dead socket.
SUBSCRIPTION_SILENCE_S: Final = 40.0

# Ours. An event holds at most 10 MiB of records on AWS (about 13.4 MiB as base64 in JSON), but some
# servers put a whole shard into one. A longer frame is refused with an error that says so.
MAX_FRAME_BYTES: Final = 128 * MIB
# Ours. A buffered record costs a few dozen bytes of bookkeeping even when it is empty.
MAX_BUFFERED_RECORDS: Final = 8_000_000
# Ours. Each has a network loop and decoding threads of its own; more only cost memory on any
# machine that one driver gets.
MAX_AGENT_PROCESSES: Final = 32
