"""Another application that uses the query's own consumer: it takes over a shard."""

from __future__ import annotations

import http.client

import orjson

from integration.chaos.schedule import SOURCE
from kinesis_ds.testing import KinesisServer, ServiceError

_ANSWER_S = 0.5


class IntruderError(Exception):
    """The shard could not be taken over, for the reason given."""


class Intruder:
    """A subscription that is held until :meth:`leave`.

    Args:
        pick: Selects one of the open shards, from 0 to 1.

    Raises:
        IntruderError: There is no consumer yet, or the service or a fault refused the call.
    """

    def __init__(self, server: KinesisServer, pick: float) -> None:
        shards = server.open_shards(SOURCE)
        address = server.endpoint.removeprefix("http://")
        self._connection = http.client.HTTPConnection(address, timeout=_ANSWER_S)
        try:
            arn = server.call("DescribeStream", StreamName=SOURCE)["StreamDescription"]["StreamARN"]
            consumers = server.call("ListStreamConsumers", StreamARN=arn)["Consumers"]
            if not consumers:
                raise IntruderError("there is no consumer yet")
            self._subscribe(consumers[0]["ConsumerARN"], shards[int(pick * len(shards))])
        except (OSError, http.client.HTTPException, ServiceError) as exc:
            self._connection.close()
            raise IntruderError(repr(exc)) from exc

    def leave(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()
        self._answer.close()

    def _subscribe(self, consumer_arn: str, shard_id: str) -> None:
        request = {
            "ConsumerARN": consumer_arn,
            "ShardId": shard_id,
            "StartingPosition": {"Type": "LATEST"},
        }
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": "Kinesis_20131202.SubscribeToShard",
            "Authorization": "AWS4-HMAC-SHA256 chaos",
        }
        self._connection.request("POST", "/", orjson.dumps(request), headers)
        self._answer = self._connection.getresponse()
        if self._answer.status != 200:
            raise IntruderError(self._answer.read().decode(errors="replace"))
