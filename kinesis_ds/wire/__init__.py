"""From bytes of Kinesis to Arrow columns: frames, events, records, aggregates. Pure."""
