"""The alarm for half-open connections, on virtual time."""

from __future__ import annotations

import asyncio

from kinesis_ds.agent.efo.silence import SilenceAlarm
from tests.support.virtual_time import run_in_virtual_time


def test_silence_breaks_the_connection_off() -> None:
    """Nothing from the network for the limit: abort, once (F1)."""
    aborted = []

    async def main() -> None:
        alarm = SilenceAlarm(lambda: aborted.append(asyncio.get_running_loop().time()), 40.0)
        with alarm:
            await asyncio.sleep(500)
        assert alarm.rang
        alarm.close()

    run_in_virtual_time(main())
    assert aborted == [40.0]


def test_a_heartbeat_in_time_keeps_the_connection() -> None:
    """Chunks shortly before the limit, again and again: no alarm."""
    aborted = []

    async def main() -> None:
        alarm = SilenceAlarm(lambda: aborted.append(1), 40.0)
        for _ in range(50):
            with alarm:
                await asyncio.sleep(39.9)
        alarm.close()
        assert not alarm.rang

    run_in_virtual_time(main())
    assert aborted == []


def test_silence_is_noticed_within_the_limit_after_the_last_chunk() -> None:
    """Whenever the last chunk came, the alarm rings one limit later."""
    aborted = []

    async def main() -> None:
        alarm = SilenceAlarm(lambda: aborted.append(asyncio.get_running_loop().time()), 40.0)
        with alarm:
            await asyncio.sleep(25)
        with alarm:
            await asyncio.sleep(500)
        alarm.close()

    run_in_virtual_time(main())
    assert aborted == [65.0]


def test_time_held_back_by_our_own_full_buffer_is_no_silence() -> None:
    """Only waiting for the network counts (F2)."""
    aborted = []

    async def main() -> None:
        alarm = SilenceAlarm(lambda: aborted.append(1), 40.0)
        for _ in range(5):
            with alarm:
                await asyncio.sleep(1)
            await asyncio.sleep(300)  # waiting for room
        alarm.close()

    run_in_virtual_time(main())
    assert aborted == []


def test_a_closed_alarm_is_silent() -> None:
    """Nothing is aborted after the stream has ended."""
    aborted = []

    async def main() -> None:
        alarm = SilenceAlarm(lambda: aborted.append(1), 40.0)
        with alarm:
            alarm.close()
            await asyncio.sleep(500)

    run_in_virtual_time(main())
    assert aborted == []
