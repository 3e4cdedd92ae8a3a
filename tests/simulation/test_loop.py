"""Simulated time: the clock jumps, machines pause and die, and nothing runs in a thread."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.loop import HostLoop, Livelock, World


async def ticks(host: HostLoop, found: list[float]) -> None:
    while True:
        await asyncio.sleep(1.0)
        found.append(round(host.time(), 3))


def test_a_day_of_sleep_takes_no_time() -> None:
    world = World(1)

    async def main() -> None:
        await asyncio.sleep(86_400)
        async with asyncio.timeout(10):
            await asyncio.sleep(5)

    world.run(main())
    assert 86_405 <= world.now < 86_405.1
    assert world.faults == []


def test_a_paused_machine_runs_what_was_due_when_it_resumes() -> None:
    world, found = World(1), list[float]()
    host = world.host("a")

    async def main() -> None:
        host.create_task(ticks(host, found))
        await asyncio.sleep(1.5)
        host.pause()
        await asyncio.sleep(3.0)
        assert found == [1.0]
        host.resume()
        await asyncio.sleep(1.2)

    world.run(main())
    assert found == [1.0, 4.5, 5.5]


def test_a_killed_machine_does_nothing_more_not_even_clean_up() -> None:
    world, found = World(1), list[str]()
    host = world.host("a")

    async def runs() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            found.append("cleaned up")

    async def main() -> None:
        host.create_task(runs())
        await asyncio.sleep(1)
        host.kill()
        await asyncio.sleep(20)
        assert found == []

    world.run(main())
    assert world.faults == []


def test_clocks_of_machines_differ_in_time_and_rate() -> None:
    world = World(1)
    ahead, fast = world.host("a", skew=5.0), world.host("b", rate=1.1)
    found: list[float] = []

    async def main() -> None:
        fast.create_task(ticks(fast, found))
        await asyncio.sleep(1.0)
        assert ahead.wall_ms() - world.network.wall_ms() == 5000

    world.run(main())
    assert found == [1.0]
    assert fast.time() == pytest.approx(1.1 * world.now)


def test_no_work_runs_in_a_thread() -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="a simulation has none"):
        World(1).run(main())


def test_a_history_that_cannot_go_on_is_stopped() -> None:
    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    async def spins() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    for main in (waits, spins):
        with pytest.raises(Livelock, match="has not ended"):
            World(1).run(main())


def test_an_exception_that_nobody_handles_is_a_fault() -> None:
    world = World(1)

    async def main() -> None:
        world.network.call_soon(int, "no number")
        await asyncio.sleep(1)

    world.run(main())
    assert len(world.faults) == 1
    assert world.faults[0].startswith("network: a callback failed: ValueError")
