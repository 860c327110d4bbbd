"""A double of Amazon Kinesis for tests, with its rules, its limits and its faults."""
