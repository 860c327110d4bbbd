"""Growth: how much room is reserved for records that take more than they come in."""

from __future__ import annotations

import pytest

from kinesis_ds.agent.growth import StreamGrowth


@pytest.mark.parametrize(
    ("guess", "let_through", "room"),
    [
        pytest.param(1.0, True, 1000, id="no aggregates"),
        pytest.param(5.0, True, 3000, id="a guess, within its bound"),
        pytest.param(5.0, False, 5000, id="a guess, where less can be asked for"),
    ],
)
def test_before_the_first_records_there_is_a_guess(
    guess: float, let_through: bool, room: int
) -> None:
    """It is bounded where it would keep a message out."""
    growth = StreamGrowth(guess, guess_bytes=3000).of_a_shard()

    assert growth.room(1000, let_through=let_through) == room
    assert growth.room(4000, let_through=True) == max(4000, min(3000, int(4000 * guess)))
    assert growth.is_guessed == (guess > 1)


def test_what_grew_is_expected_to_grow_again_and_for_a_while() -> None:
    """Up at once and down slowly; plain records take no more than they come in."""
    growth = StreamGrowth(5.0).of_a_shard()
    growth.learn(1000, 700)
    assert growth.room(1000) == 1000
    growth.learn(1000, 4000)
    assert growth.room(1000) == 4500
    growth.learn(1000, 0)
    assert growth.room(1000) == 4500
    rooms = []
    for _ in range(20):
        growth.learn(1000, 700)
        rooms.append(growth.room(1000))
    assert rooms == sorted(rooms, reverse=True)
    assert 3000 < rooms[0] < 4000
    assert rooms[-1] == 1000


def test_a_shard_begins_with_what_others_of_its_stream_have_learnt() -> None:
    """Its own records count from its first message on."""
    stream = StreamGrowth(5.0)
    first, second = stream.of_a_shard(), stream.of_a_shard()
    first.learn(1000, 2000)
    first.learn(1000, 1000)
    assert second.room(1000) == 2250
    assert not second.is_guessed
    second.learn(1000, 800)
    assert second.room(1000) == 1000
