"""A Spark job and its tests with `kinesis_ds.testing`: the example of docs/how-to/test-your-job."""
