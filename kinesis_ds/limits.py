"""Limits and rules of the service, and a few constants of our own.

The limits of the service were read from the API model of botocore 1.43 (``kinesis/2013-12-02``) on
2026-11-20. ``docs.aws.amazon.com/kinesis/latest/APIReference`` has a page for each operation.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# PutRecords: "Each PutRecords request can support up to 500 records", and 10 MiB including the
# partition keys.
PUT_RECORDS_MAX_RECORDS: Final = 500
PUT_RECORDS_MAX_BYTES: Final = 10 * MIB
# UpdateMaxRecordSize: a stream accepts records of up to 1 MiB (the default) to 10 MiB, including
# the partition key.
RECORD_MAX_BYTES_DEFAULT: Final = 1 * MIB
RECORD_MAX_BYTES: Final = 10 * MIB
# PutRecords: "Each shard can support writes up to 1,000 records per second, up to a maximum data
# write total of 1 MB per second."
SHARD_RECORDS_PER_S: Final = 1000
SHARD_BYTES_PER_S: Final = 1 * MIB
PARTITION_KEY_MAX_CHARS: Final = 256
MAX_HASH_KEY: Final = 2**128 - 1

# RegisterStreamConsumer: a stream has at most 20 consumers (50 in On-demand Advantage mode).
# PutRecords: a stream keeps records for 24 hours by default.
CONSUMERS_PER_STREAM: Final = 20
RETENTION_HOURS_DEFAULT: Final = 24

# SubscribeToShard: one call a second for each consumer and shard. Within 5 s after a successful
# call the next one is refused (ResourceInUseException). A subscription lasts up to 5 minutes.
SUBSCRIBE_MIN_INTERVAL_S: Final = 1.0
SUBSCRIBE_AFTER_SUCCESS_S: Final = 5.0
SUBSCRIPTION_LIFETIME_S: Final = 300.0

# GetRecords: 5 calls and 2 MiB a second for each shard; at most 10,000 records or 10 MiB an answer.
GET_RECORDS_MIN_INTERVAL_S: Final = 0.2
GET_RECORDS_MAX_RECORDS: Final = 10_000
GET_RECORDS_BYTES_PER_S: Final = 2 * MIB
# GetShardIterator: "A shard iterator expires 5 minutes after it is returned".
SHARD_ITERATOR_LIFETIME_S: Final = 300.0

# Ours. An idle subscription gets an empty event about every 5 s, so after this silence its socket
# is dead.
SUBSCRIPTION_SILENCE_S: Final = 40.0
# Ours. A shard of which nothing came for so long is called silent. Three events of an idle shard
# are missing then.
SILENT_S: Final = 15.0

# Ours. On AWS an event has at most 10 MiB of records (about 13.4 MiB as base64 in JSON), but some
# servers put a whole shard into one event. A longer one is refused with an error that says so.
MAX_FRAME_BYTES: Final = 128 * MIB
# Ours. A record in a buffer costs a few dozen bytes even if it is empty.
MAX_BUFFERED_RECORDS: Final = 8_000_000
# Ours. Each process has its own network loop and decoding threads. On any machine that a driver
# runs on, more processes only cost memory.
MAX_AGENT_PROCESSES: Final = 32
