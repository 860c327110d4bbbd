"""A stream's agent in several processes, as the coordinator sees it; the processes are scripted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kinesis_ds.agent.context import AgentOptions
from kinesis_ds.agent.remote import messages
from kinesis_ds.agent.remote.placement import least_loaded
from kinesis_ds.agent.remote.proxy import RemoteAgent
from kinesis_ds.errors import AccessError, KinesisConnectorError
from kinesis_ds.plan.held import Held, Limits
from kinesis_ds.plan.position import SHARD_END, TRIM_HORIZON, After
from kinesis_ds.plan.ranges import ShardRange, any_records
from kinesis_ds.plan.ticket import AgentAddress
from tests.support.builders import shard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS = AgentOptions("orders", "arn", "c", 30.0, fail_on_data_loss=True, host="127.0.0.1")
ADDRESS = AgentAddress("grpc://127.0.0.1:1", "token")


class Scripted:
    """Two processes that say what they are told to."""

    def __init__(self) -> None:
        self.count = 2
        self.failure: KinesisConnectorError | None = None
        self.sent: list[tuple[int, messages.Message]] = []
        self.asked: list[dict[int, messages.Question]] = []
        self.answer: Callable[[int, messages.Question], Any] = lambda process, question: None
        self.woken: list[bool] = []
        self.counted_at = time.monotonic()
        self.forgotten: list[int] = []
        self.agent = RemoteAgent(1, OPTIONS, self, _undiagnosed, lambda: None)

    def least_loaded(self) -> int:
        return least_loaded([self.agent.load(0), self.agent.load(1)])

    def send(self, process: int, message: messages.Message) -> None:
        self.sent.append((process, message))

    post = send

    def ask(self, questions: Mapping[int, messages.Question]) -> dict[int, Any]:
        self.asked.append(dict(questions))
        return {process: self.answer(process, q) for process, q in questions.items()}

    def counters(self) -> dict[int, dict[str, Any]]:
        told = {"millis_behind": 5, "millis_behind_estimated": False}
        a = {"records": 3, "state": "ended", **told}
        c = {"records": 1, "state": "streaming", **told}
        return {0: {"at": self.counted_at, "agents": {"1": {"a": a, "c": c}}}, 1: {}}

    def wake(self, *, news: bool) -> None:
        self.woken.append(news)

    def forget(self, agent: int) -> None:
        self.forgotten.append(agent)


async def _undiagnosed(shard_id: str) -> None:
    del shard_id


def processes(*shard_ids: str) -> Scripted:
    """Two processes, with these shards dealt out to them in turn."""
    scripted = Scripted()
    for shard_id in shard_ids:
        scripted.agent.assign(shard(shard_id), TRIM_HORIZON)
    scripted.sent.clear()
    return scripted


def reaching(*shard_ids: str, end: int = 9) -> list[ShardRange]:
    return [ShardRange(s, TRIM_HORIZON, After(str(end))) for s in shard_ids]


def test_shards_are_dealt_out_and_stay() -> None:
    """Each process is told of its own; one more goes where one has ended."""
    scripted = processes()
    for shard_id in "abcd":
        scripted.agent.assign(shard(shard_id), TRIM_HORIZON)
    assert [p for p, _ in scripted.sent] == [0, 1, 0, 1]

    scripted.agent.moved(1, {"d": SHARD_END}, news=True)
    scripted.agent.assign(shard("child", "d"), TRIM_HORIZON)
    assert scripted.sent[-1] == (1, messages.Assign(1, shard("child", "d"), TRIM_HORIZON))


def test_what_can_be_planned_is_known_without_asking() -> None:
    """Discovery asks on the loop, and Spark many times a second."""
    scripted = processes("a", "b")
    scripted.agent.moved(0, {"a": After("5")}, news=True)

    assert scripted.agent.available() == {"a": After("5"), "b": TRIM_HORIZON}
    assert (scripted.asked, scripted.woken) == ([], [True])


def test_a_process_that_has_never_held_a_shard_cannot_move_it() -> None:
    """What comes under a wrong name is dropped."""
    scripted = processes("a", "b")
    scripted.agent.moved(1, {"a": After("5"), "other": After("5")}, news=True)

    assert scripted.agent.available() == {"a": TRIM_HORIZON, "b": TRIM_HORIZON}


def test_each_process_is_asked_once_for_all_ranges_and_the_answers_come_in_order() -> None:
    """However many shards there are."""
    scripted = processes("a", "b", "c")
    scripted.answer = lambda process, q: [Held(process, 10, After("9"), 7) for _ in q.ranges]  # type: ignore[attr-defined]

    wanted = reaching("c", "b", "a")
    assert scripted.agent.hold(wanted, [Limits(1), Limits(2), Limits(3, 4)]) == [
        Held(0, 10, After("9"), 7), Held(1, 10, After("9"), 7), Held(0, 10, After("9"), 7),
    ]  # fmt: skip
    (asked,) = scripted.asked
    assert asked == {
        0: messages.Hold(0, 1, (wanted[0], wanted[2]), (Limits(1), Limits(3, 4))),
        1: messages.Hold(0, 1, (wanted[1],), (Limits(2),)),
    }


def test_of_a_process_that_is_gone_nothing_is_held() -> None:
    """So tasks read those ranges from Kinesis, and no limit counts them."""
    scripted = processes("a", "b")
    scripted.answer = lambda process, q: [Held(1, 10, After("9"), 7)] if process else None

    wanted = reaching("a", "b", "unknown")
    assert scripted.agent.hold(wanted) == [None, Held(1, 10, After("9"), 7), None]


def test_what_may_hold_records_is_news() -> None:
    """An answer that does not come is no silence."""
    scripted = processes("a", "b")
    silent, some = [Held(0, 0, After("9"))], [Held(1, 10, After("9"), 7)]
    for answers, expected in (
        ((silent, silent), False),
        ((silent, some), True),
        ((silent, None), True),
    ):
        scripted.answer = lambda process, q, answers=answers: answers[process]  # type: ignore[misc]
        assert any_records(reaching("a", "b"), scripted.agent.hold) is expected
    assert any_records(reaching("unknown"), scripted.agent.hold)


def test_a_new_process_begins_where_the_old_one_was_committed() -> None:
    """Not where it was received or planned: that is gone with it."""
    scripted = processes("a", "b", "c", "e")
    agent = scripted.agent
    agent.opened(0, ADDRESS)
    agent.moved(0, {"a": After("9"), "c": SHARD_END}, news=True)
    agent.free({"a": After("5"), "b": TRIM_HORIZON, "c": SHARD_END})
    assert scripted.sent == [(0, messages.Free(1, {"a": After("5"), "c": SHARD_END}))]
    assert agent.address_of("a") == ADDRESS
    scripted.sent.clear()

    agent.mark_closed("a")
    agent.lost(0)
    assert agent.address_of("a") is None
    assert agent.available() == {
        "a": After("5"), "b": TRIM_HORIZON, "c": SHARD_END, "e": TRIM_HORIZON,
    }  # fmt: skip
    scripted.sent.clear()
    agent.begin(0)
    assert scripted.sent == [
        (0, messages.OpenAgent(1, OPTIONS)),
        (0, messages.Assign(1, shard("a", closed=True), After("5"))),
    ]


def test_a_shard_that_is_followed_again_is_not_behind_what_is_done() -> None:
    """It was planned from the process before and read from Kinesis; nobody needs it again."""
    scripted = processes("a")
    scripted.agent.moved(0, {"a": After("9")}, news=True)
    scripted.agent.lost(0)
    scripted.agent.free({"a": After("9")})
    scripted.agent.moved(0, {"a": After("3")}, news=True)
    assert scripted.agent.available() == {"a": After("9")}

    scripted.agent.moved(0, {"a": After("11")}, news=True)
    assert scripted.agent.available() == {"a": After("11")}


def test_an_end_that_is_lost_counts_as_a_load_again() -> None:
    """Until it has been followed to its end a second time, or Spark is done with it."""
    scripted = processes("a")
    loads = [scripted.agent.load(0)]
    for happens in (
        lambda: scripted.agent.moved(0, {"a": SHARD_END}, news=True),
        lambda: scripted.agent.lost(0),
        lambda: scripted.agent.free({"a": SHARD_END}),
    ):
        happens()
        loads.append(scripted.agent.load(0))

    assert loads == [1, 0, 1, 0]


def test_a_shard_that_ended_is_forgotten_for_good() -> None:
    """No load, nothing to plan, nothing to tell a process that is started anew (issue 19, 7)."""
    scripted = processes("a", "b")
    scripted.agent.moved(0, {"a": SHARD_END}, news=True)
    scripted.agent.free({"a": SHARD_END})
    assert scripted.sent == [(0, messages.Free(1, {"a": SHARD_END}))]
    scripted.agent.forget({"a"})
    scripted.agent.moved(0, {"a": SHARD_END}, news=True)

    assert scripted.agent.available() == {"b": TRIM_HORIZON}
    assert [scripted.agent.load(p) for p in (0, 1)] == [0, 1]
    scripted.agent.lost(0)
    scripted.sent.clear()
    scripted.agent.begin(0)
    assert scripted.sent == [(0, messages.OpenAgent(1, OPTIONS))]


def test_a_failure_of_a_shard_or_of_all_processes_is_the_agents() -> None:
    """The first one of its own before that of all."""
    scripted = processes("a")
    assert scripted.agent.failure() is None
    scripted.failure = AccessError("all")
    assert scripted.agent.failure() is scripted.failure
    own = AccessError("own")
    scripted.agent.failed(own)
    scripted.agent.failed(AccessError("later"))
    assert scripted.agent.failure() is own


def test_counters_name_the_process() -> None:
    """A shard of which nothing was told yet is not there."""
    scripted = processes("a", "b", "c")

    found = scripted.agent.statistics()
    assert {s: (c["records"], c["process"]) for s, c in found.items()} == {"a": (3, 0), "c": (1, 0)}
    assert not found["c"]["millis_behind_estimated"]


def test_the_lag_of_a_process_that_does_not_answer_grows() -> None:
    """But not that of a shard that was read to its end."""
    scripted = processes("a", "b", "c")
    scripted.counted_at -= 60

    found = scripted.agent.statistics()
    assert found["a"]["millis_behind"] == 5
    assert found["c"]["millis_behind"] >= 60_005
    assert found["c"]["millis_behind_estimated"]


def test_silent_shards_are_those_of_all_processes() -> None:
    """As each said last; a process that is dead says nothing."""
    agent = processes("a", "b", "c").agent
    agent.silenced(0, ["a", "c"])
    agent.silenced(1, ["b"])
    assert sorted(agent.silent()) == ["a", "b", "c"]
    agent.silenced(0, [])
    agent.lost(1)
    assert agent.silent() == []


def test_closing_twice_tells_once() -> None:
    """Close is idempotent."""
    scripted = processes()
    scripted.agent.close()
    scripted.agent.close()
    assert scripted.forgotten == [1]
