"""Discovery: each shard is given to the agent when its turn has come, and what is gone is told."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import logging
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kinesis_ds.errors import (
    AccessError,
    ConsumerError,
    DataLossError,
    InternalError,
    KinesisConnectorError,
    OffsetError,
    StreamNotFoundError,
    ThrottledError,
)
from kinesis_ds.options.parse import parse_read_options
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After, AtTimestamp, Position
from kinesis_ds.plan.shards import Shard
from kinesis_ds.plan.stream import StreamInfo
from kinesis_ds.reader.discovery import Discovery
from tests.support.builders import listing, shard
from tests.support.virtual_time import run_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

CREATED = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
INFO = StreamInfo("orders", "arn:orders", round(CREATED.timestamp() * 1000), "ACTIVE", None)

OPTIONS = dataclasses.replace(
    parse_read_options({"streamName": "orders"}),
    discovery_interval_s=10.0,
    fail_on_data_loss=True,
    consumer_refresh_s=1e9,
)


class NotingAgent:
    """Where each shard stands, as the test says, and what it was given."""

    def __init__(self) -> None:
        self.assigned: dict[str, Position] = {}
        self.closed: list[str] = []

    def available(self) -> dict[str, Position]:
        return dict(self.assigned)

    def assign(self, shard: Shard, position: Position) -> None:
        assert shard.shard_id not in self.assigned
        self.assigned[shard.shard_id] = position

    def forget(self, shard_ids: Collection[str]) -> None:
        for shard_id in shard_ids:
            self.assigned.pop(shard_id, None)

    def mark_closed(self, shard_id: str) -> None:
        self.closed.append(shard_id)


def raw(s: Shard) -> dict[str, Any]:
    """A shard as ListShards describes it."""
    numbers = {"StartingSequenceNumber": s.first_sequence_number}
    if s.closed:
        numbers["EndingSequenceNumber"] = str(2**63 - 1)
    return {
        "ShardId": s.shard_id,
        "SequenceNumberRange": numbers,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(s.hash_range[1])},
        **dict(zip(("ParentShardId", "AdjacentParentShardId"), s.parents, strict=False)),
    }


class ScriptedClient:
    """Control calls: listings, the stream, the consumer; or an answer or error in their place."""

    def __init__(self, *listings: list[Shard] | dict[str, Any] | Exception) -> None:
        self.listings = list(listings)
        self.created = CREATED
        self.consumer: str | None = "ACTIVE"
        self.consumer_arn = "arn:c"
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.described: list[float] = []
        self.looked_up = 0

    @property
    def client(self) -> ScriptedClient:
        return self

    async def list_shards(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        if "NextToken" not in request:
            self.times.append(asyncio.get_running_loop().time())
        found = self.listings[0] if len(self.listings) == 1 else self.listings.pop(0)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, dict):
            return found
        return {"Shards": [raw(s) for s in found]}

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        self.looked_up += 1
        await asyncio.sleep(0.1)
        summary = {
            "StreamName": "orders",
            "StreamARN": "arn:orders",
            "StreamStatus": "ACTIVE",
            "StreamCreationTimestamp": self.created,
        }
        return {"StreamDescriptionSummary": summary}

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        self.described.append(asyncio.get_running_loop().time())
        if self.consumer is None:
            raise refused("ResourceNotFoundException")
        described = {"ConsumerStatus": self.consumer, "ConsumerARN": self.consumer_arn}
        return {"ConsumerDescription": described}


def refused(code: str) -> ClientError:
    response = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(response, "ListShards")  # type: ignore[arg-type]


def discovery(
    listed: Mapping[str, Shard],
    positions: Mapping[str, Position],
    *,
    own_consumer: bool = True,
    resumed: bool = False,
    **options: Any,
) -> Discovery:
    return Discovery(
        INFO,
        "app",
        "arn:c",
        listed,
        positions,
        dataclasses.replace(OPTIONS, **options),
        own_consumer=own_consumer,
        resumed=resumed,
    )


async def ended(task: asyncio.Future[None]) -> None:
    """Cancel until it is done, as the network loop does: wait_for may forget a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1)
    if not task.cancelled():
        task.exception()


def run(found: Discovery, client: ScriptedClient, agent: NotingAgent, for_s: float = 100.0) -> None:
    """Let discovery run for some (virtual) time."""

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, agent))  # type: ignore[arg-type]
        await asyncio.wait({task}, timeout=for_s)
        await ended(task)

    run_in_virtual_time(main())


SPLIT = listing(shard("p", closed=True), shard("a", "p"), shard("b", "p"))


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        pytest.param({"p": TRIM_HORIZON}, {"p": TRIM_HORIZON}, id="children wait"),
        pytest.param(
            {"p": After("5"), "a": AtTimestamp(1)},
            {"p": After("5")},
            id="a child of the checkpoint waits as well",
        ),
        pytest.param(
            {"p": SHARD_END, "a": After("3")},
            {"a": After("3"), "b": TRIM_HORIZON},
            id="found later: oldest record",
        ),
        pytest.param(
            {"p": SHARD_END, "a": SHARD_END},
            {"b": TRIM_HORIZON},
            id="an ended shard is not begun again",
        ),
        pytest.param({}, {"p": TRIM_HORIZON}, id="nothing pinned"),
    ],
)
def test_shards_are_begun_where_the_checkpoint_says(
    positions: dict[str, Position], expected: dict[str, Position]
) -> None:
    """At the stored position, or the oldest record, and behind all parents (F31)."""
    agent = NotingAgent()
    run(discovery(SPLIT, positions), ScriptedClient(list(SPLIT.values())), agent, for_s=0.5)

    assert agent.assigned == expected


def test_children_follow_when_the_parent_is_drained() -> None:
    """The end of a shard is worth a look, and its children are begun."""
    agent = NotingAgent()
    found, client = discovery(SPLIT, {"p": TRIM_HORIZON}), ScriptedClient(list(SPLIT.values()))

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, agent))  # type: ignore[arg-type]
        await asyncio.sleep(2)
        assert set(agent.assigned) == {"p"}
        agent.assigned["p"] = SHARD_END
        found.look_soon()
        await asyncio.sleep(0.1)
        assert set(agent.assigned) == {"p", "a", "b"}
        await ended(task)

    run_in_virtual_time(main())
    assert client.times == [2.0]


def test_an_end_that_is_committed_lets_the_children_begin_without_the_agent() -> None:
    """The agent forgets the parent then: nobody has to ask it for the end (issue 19, 7)."""
    found, agent = discovery(SPLIT, {"p": TRIM_HORIZON}), NotingAgent()
    client = ScriptedClient(list(SPLIT.values()))

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, agent))  # type: ignore[arg-type]
        await asyncio.sleep(3)
        assert agent.assigned == {"p": TRIM_HORIZON}
        found.end(agent, {"p"})  # type: ignore[arg-type]
        await asyncio.sleep(2)
        await ended(task)

    run_in_virtual_time(main())
    assert agent.assigned == {"a": TRIM_HORIZON, "b": TRIM_HORIZON}


def test_of_a_shard_that_the_stream_forgot_nothing_is_kept() -> None:
    """Nor in a query that reads for years. But what is missing once may come back, and is not read
    again (issue 19, 7).
    """
    old, children = shard("old", closed=True), [shard("a", "old"), shard("b", "old")]
    found, agent = discovery(listing(old, *children), {"old": TRIM_HORIZON}), NotingAgent()
    other = listing(shard("other"))

    def look(listed: Mapping[str, Shard]) -> None:
        found.learn(listed, everything=True)
        found.reconcile(None, agent)  # type: ignore[arg-type]

    look(listing(old, *children))
    found.end(agent, {"old"})  # type: ignore[arg-type]
    look(listing(*children))
    assert "'old'" in repr(vars(found)), "its children are listed"
    look(other)
    look(listing(old, *children))
    look(other)
    assert "old" not in agent.assigned
    assert "'old'" in repr(vars(found)), "it may come back"
    look(other)
    assert "'old'" not in repr(vars(found))


def test_the_list_is_refreshed_at_its_interval_and_poked_at_most_once_a_second() -> None:
    """A shard that breaks again and again does not turn into calls."""
    found, client = discovery({}, {}), ScriptedClient([])

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, NotingAgent()))  # type: ignore[arg-type]
        await asyncio.sleep(25)
        assert client.times == [10.0, 20.0]
        for _ in range(100):
            found.look_soon()
            await asyncio.sleep(0.05)
        assert len(client.times) <= 8
        await ended(task)

    run_in_virtual_time(main())


def test_a_shard_that_is_listed_as_closed_is_told_to_the_agent() -> None:
    """On some servers the list is the only evidence of the end."""
    agent = NotingAgent()
    run(
        discovery(listing(shard("p")), {"p": TRIM_HORIZON}),
        ScriptedClient([shard("p", closed=True)]),
        agent,
    )

    assert agent.closed == ["p"], "once"


def test_all_pages_are_read() -> None:
    """A shard on the second page is not missed (F34)."""

    class Paged(ScriptedClient):
        async def list_shards(self, **request: Any) -> dict[str, Any]:
            answer = await super().list_shards(**request)
            return answer if "NextToken" in request else {**answer, "NextToken": "more"}

    agent = NotingAgent()
    client = Paged([shard("a")], [shard("b")], [shard("a")], [shard("b")])
    run(discovery({}, {}), client, agent, for_s=15.0)

    assert set(agent.assigned) == {"a", "b"}
    assert client.requests[:2] == [{"StreamARN": "arn:orders"}, {"NextToken": "more"}]


@pytest.mark.parametrize("code", ["LimitExceededException", "InternalFailure"])
def test_a_listing_that_fails_for_a_moment_is_tried_again(
    code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Discovery goes on; what is read already is read on meanwhile."""
    agent = NotingAgent()
    found = discovery({}, {})
    with caplog.at_level(logging.WARNING):
        run(found, ScriptedClient(refused(code), [shard("a")]), agent)

    assert found.failure is None
    assert set(agent.assigned) == {"a"}
    assert "discovery was held up" in caplog.text


@pytest.mark.parametrize(
    ("code", "kind"),
    [("AccessDeniedException", AccessError), ("ResourceNotFoundException", StreamNotFoundError)],
)
def test_a_listing_that_fails_for_good_fails_the_query(
    code: str, kind: type[KinesisConnectorError]
) -> None:
    """The query is told, instead of never seeing a new shard."""
    found = discovery({}, {})
    run(found, ScriptedClient(refused(code)), NotingAgent())

    assert isinstance(found.failure, kind)


def test_a_few_answers_that_are_none_are_waited_out() -> None:
    """A proxy that says "busy" for a moment, with 200, ended queries that subscriptions survive."""
    agent = NotingAgent()
    found = discovery({}, {})
    client = ScriptedClient(*[{"message": "busy"}] * 4, [shard("a")])
    run(found, client, agent)

    assert found.failure is None
    assert set(agent.assigned) == {"a"}

    again = ScriptedClient(*[{"message": "busy"}, [shard("a")]] * 5)
    found = discovery({}, {})
    run(found, again, NotingAgent())
    assert found.failure is None, "only failures in a row count"


def test_an_answer_nobody_expected_fails_the_query() -> None:
    """A crash of discovery is told as well: without it, children would wait for ever."""
    found = discovery({}, {})
    client = ScriptedClient([])
    client.listings = [KeyError("Shards")]
    run(found, client, NotingAgent())
    assert isinstance(found.failure, KinesisConnectorError)

    class Strange(ScriptedClient):
        async def list_shards(self, **request: Any) -> dict[str, Any]:
            return {"Shards": [{"ShardId": "a"}]}

    found = discovery({}, {})
    run(found, Strange(), NotingAgent())
    assert isinstance(found.failure, KinesisConnectorError)


def test_a_checkpointed_shard_that_is_gone_is_data_loss() -> None:
    """Shard, position and remedy are named; nothing is begun."""
    found = discovery(listing(shard("a")), {"a": TRIM_HORIZON, "x": After("5")})
    run(found, ScriptedClient([shard("a")]), NotingAgent())

    assert isinstance(found.failure, DataLossError)
    assert "Shard x of stream orders is in the checkpoint (AFTER:5)" in str(found.failure)


def test_a_checkpointed_shard_that_is_gone_may_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """failOnDataLoss=false: one warning, and its children are begun."""
    agent = NotingAgent()
    found = discovery(listing(shard("a", "x")), {"x": After("5")}, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        run(found, ScriptedClient([shard("a", "x")]), agent)

    assert found.failure is None
    assert agent.assigned == {"a": TRIM_HORIZON}
    assert len([r for r in caplog.records if "Shard x" in r.message]) == 1


def asked_behind(client: ScriptedClient) -> list[str | None]:
    """Behind which shard each look asked."""
    return [r.get("ExclusiveStartShardId") for r in client.requests if "NextToken" not in r]


def many(count: int) -> dict[str, Shard]:
    return listing(*(shard(f"shardId-{n:012d}") for n in range(count)))


def test_ten_thousand_shards_at_rest_are_one_call_and_no_work() -> None:
    """Nothing that is as long as the list is gone through, however often a shard breaks."""
    listed = many(10_000)
    agent = NotingAgent()
    found, client = discovery(listed, {}), ScriptedClient([])

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, agent))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert len(agent.assigned) == 10_000
        agent.available = None  # type: ignore[assignment]  # not to be called any more
        for _ in range(100):
            found.look_soon()
            await asyncio.sleep(1)
        await ended(task)

    run_in_virtual_time(main())
    assert found.failure is None
    assert found.listed is listed
    assert set(asked_behind(client)) == {"shardId-000000009999"}


def test_all_shards_are_listed_now_and_then() -> None:
    """Those that the stream has forgotten leave, at the sixtieth interval."""
    found = discovery(many(200), {})
    client = ScriptedClient(*[[]] * 59, list(many(200).values())[100:])
    run(found, client, NotingAgent(), for_s=600.5)

    assert asked_behind(client) == ["shardId-000000000199"] * 59 + [None]
    assert len(found.listed) == 100


def test_few_shards_are_all_listed_when_one_of_them_breaks() -> None:
    """It costs the same call, and finds shards whose ids are not in the order of their creation."""
    agent = NotingAgent()
    found = discovery(listing(shard("m")), {})
    client = ScriptedClient([shard("m", closed=True), shard("a", "m"), shard("b", "m")])

    async def main() -> None:
        task = asyncio.ensure_future(found.run(client, agent))  # type: ignore[arg-type]
        found.look_soon()
        await asyncio.sleep(2)
        agent.assigned["m"] = SHARD_END
        found.look_soon()
        await asyncio.sleep(2)
        await ended(task)

    run_in_virtual_time(main())
    assert asked_behind(client)[0] is None
    assert agent.assigned.keys() == {"m", "a", "b"}


def test_a_new_shard_closes_its_parents_for_the_agent() -> None:
    """What is listed are only the children."""
    agent = NotingAgent()
    found = discovery(listing(shard("m"), shard("n")), {})
    run(found, ScriptedClient([shard("x", "m"), shard("y", "m")], []), agent, for_s=30)

    assert agent.closed == ["m"]
    assert found.listed["m"].closed
    assert agent.assigned.keys() == {"m", "n"}, "the children wait"


def test_children_may_be_begun_beside_their_parents() -> None:
    """parentsFirst=false."""
    agent = NotingAgent()
    found = discovery(SPLIT, {"p": After("5")}, parents_first=False)
    run(found, ScriptedClient([]), agent, for_s=0.5)

    assert agent.assigned == {"p": After("5"), "a": TRIM_HORIZON, "b": TRIM_HORIZON}


def test_a_new_query_begins_at_an_old_time_without_a_question() -> None:
    """Only behind a checkpoint can records have expired that were still to be read."""
    agent = NotingAgent()
    found = discovery(listing(shard("a")), {"a": AtTimestamp(1)}, resumed=False)
    run(found, ScriptedClient([]), agent, for_s=0.5)

    assert agent.assigned == {"a": AtTimestamp(1)}


def test_the_consumer_is_looked_for_at_its_interval() -> None:
    """A call each time, however often shards are listed."""
    client = ScriptedClient([])
    run(discovery({}, {}, consumer_refresh_s=25.0), client, NotingAgent(), for_s=101)

    assert client.described == [25.0, 50.0, 75.0, 100.0]
    assert client.times == [float(t) for t in range(10, 101, 10)]


@pytest.mark.parametrize("status", [None, "DELETING"])
@pytest.mark.parametrize(
    ("own", "remedy"), [(True, "registers the consumer again"), (False, "Register it again")]
)
def test_a_consumer_that_is_gone_fails_the_query(
    status: str | None, own: bool, remedy: str
) -> None:
    """Found out by looking; who registers it again depends on whose it is."""
    client = ScriptedClient([])
    client.consumer = status
    found = discovery({}, {}, consumer_refresh_s=25.0, own_consumer=own)
    run(found, client, NotingAgent())

    assert isinstance(found.failure, ConsumerError)
    assert remedy in str(found.failure)
    assert client.described == [25.0]


def test_without_a_consumer_none_is_looked_for() -> None:
    """Polling has none."""
    client = ScriptedClient([shard("a")])
    client.consumer = None
    found = Discovery(INFO, "", "", {}, {}, dataclasses.replace(OPTIONS, consumer_refresh_s=5.0))
    run(found, client, NotingAgent())

    assert found.failure is None
    assert client.described == []
    assert explained(found, client, "a") is None


def explained(
    found: Discovery, client: ScriptedClient, shard_id: str
) -> KinesisConnectorError | None:
    return run_in_virtual_time(found.explain(client, shard_id))  # type: ignore[arg-type]


def test_everything_there_explains_nothing() -> None:
    """Refusals pass then."""
    assert explained(discovery({}, {}), ScriptedClient([shard("a")]), "a") is None


@pytest.mark.parametrize("status", [None, "DELETING"])
def test_a_deleted_consumer_is_named(status: str | None) -> None:
    """It is not the shard that has ended (F32)."""
    client = ScriptedClient([shard("a")])
    client.consumer = status

    error = explained(discovery({}, {}), client, "a")
    assert isinstance(error, ConsumerError)
    assert "consumer app of stream orders was deregistered" in str(error)


def test_a_consumer_registered_again_is_another_one() -> None:
    """Its ARN is new; subscriptions with the old one would be refused for ever (F35)."""
    client = ScriptedClient([shard("a")])
    client.consumer_arn = "arn:c2"

    assert isinstance(explained(discovery({}, {}), client, "a"), ConsumerError)


def test_a_stream_created_again_is_named() -> None:
    """Its positions mean nothing any more."""
    client = ScriptedClient([shard("a")])
    client.created = CREATED + datetime.timedelta(seconds=1)

    assert isinstance(explained(discovery({}, {}), client, "a"), OffsetError)


def test_a_shard_that_expired_is_named() -> None:
    """The shard is not listed any more."""
    error = explained(discovery({}, {"x": After("5")}), ScriptedClient([shard("a")]), "x")

    assert isinstance(error, DataLossError)
    assert "AFTER:5" in str(error)


def test_shards_that_ask_together_share_one_diagnosis() -> None:
    """What one of them meets is met by all: ten thousand must not ask ten thousand times."""
    found, client = discovery({}, {}), ScriptedClient([shard("a")])

    async def main() -> None:
        def ask(count: int) -> list[asyncio.Future[KinesisConnectorError | None]]:
            asks = [found.explain(client, "a") for _ in range(count)]  # type: ignore[arg-type]
            return [asyncio.ensure_future(a) for a in asks]

        first = ask(1)
        await asyncio.sleep(0.05)
        # Begun while the first was under way: what it had looked at already may be gone since.
        others = ask(100)
        assert await asyncio.gather(*first, *others) == [None] * 101
        assert client.looked_up == 2
        client.consumer = None
        errors = await asyncio.gather(*ask(100))
        assert client.looked_up == 3
        assert all(isinstance(e, ConsumerError) for e in errors)

    run_in_virtual_time(main())
    assert len(client.described) == 3
    pauses = [b - a for a, b in itertools.pairwise(client.described)]
    assert min(pauses) >= 1.0


def test_a_diagnosis_that_fails_is_shared_too() -> None:
    """A service that does not answer is not asked by one shard after the other."""
    client = ScriptedClient(refused("LimitExceededException"))
    found = discovery({}, {})

    async def main() -> None:
        asks = [found.explain(client, "a") for _ in range(100)]  # type: ignore[arg-type]
        outcomes = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(o, ThrottledError) for o in outcomes)

    run_in_virtual_time(main())
    assert client.looked_up == 1


def test_a_diagnosis_that_ends_with_a_mistake_of_ours_is_a_failure_for_all() -> None:
    """Whoever asks gets an error of the connector, which fails its shard in any process."""
    client = ScriptedClient(RuntimeError("boom"))  # type: ignore[arg-type]
    found = discovery({}, {})

    async def main() -> None:
        asks = [found.explain(client, "a") for _ in range(100)]  # type: ignore[arg-type]
        outcomes = await asyncio.gather(*asks, return_exceptions=True)
        assert {type(o) for o in outcomes} == {InternalError}
        assert "RuntimeError: boom" in str(outcomes[0])

    run_in_virtual_time(main())
    assert client.looked_up == 1


def test_a_diagnosis_that_is_cancelled_is_made_by_the_next() -> None:
    """A shard that is let go must not take the answer for the others with it."""
    client = ScriptedClient([shard("a")])
    found = discovery({}, {})

    async def main() -> None:
        asks = [
            asyncio.ensure_future(found.explain(client, "a"))  # type: ignore[arg-type]
            for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        asks[0].cancel()
        assert await asyncio.gather(*asks[1:]) == [None, None]

    run_in_virtual_time(main())
    assert client.looked_up == 2
