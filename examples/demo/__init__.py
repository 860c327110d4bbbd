"""The whole way in two minutes: write, read, kill, restart, reshard, and count.

`python -m examples.demo` starts a local Kinesis, a Spark job that writes numbered events into a
stream of four shards and a Spark job that reads them back. Half-way the reading job is killed with
SIGKILL and started again from its checkpoint; meanwhile a shard is split and two are merged. At the
end every event is accounted for.

Start reading at `writer_job` and `reader_job`, which are what a user of the connector writes, then
`verdict`, which says when the result counts as right. `conductor` tells the story.
"""
