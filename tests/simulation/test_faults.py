"""The faults of a simulation: what a call of the store or a message of the bus can meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.simulation.bus import Network, SimulatedBus
from tests.simulation.connection import Connection, Disk
from tests.simulation.loop import World
from tests.simulation.memory.database import MemoryDatabase
from tests.simulation.memory.tables import MemoryTables
from tests.simulation.plan import Profile

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Appended, TaskRef
from dragoman.ports import TaskSignal
from dragoman.testing.fixtures import created, new_ref

WRITES = 60


def on_server(profile: Profile, test: Callable[[Connection, Disk], Awaitable[None]]) -> None:
    """Runs a test with the store of one server."""
    world = World(1)
    disk = Disk(world, MemoryDatabase(lambda: int(world.now * 1000)), MemoryTables(), profile)

    async def main() -> None:
        await test(Connection(disk, world.network), disk)

    world.run(main())


def test_writes_arrive_in_order_and_take_time() -> None:
    async def test(store: Connection, disk: Disk) -> None:
        changes = [created(new_ref()) for _ in range(WRITES)]
        await asyncio.gather(*map(store.append, changes))
        assert list(disk.database.tasks) == [change.task for change in changes]
        assert disk.world.now > 0.001

    on_server(Profile(slow_calls=0.5, slowest_call=2.0), test)


def test_failed_writes_have_happened_or_not_and_say_what_is_known() -> None:
    async def test(store: Connection, disk: Disk) -> None:
        noticed: list[TaskRef] = []
        disk.on_failure = noticed.append
        changes = [created(new_ref()) for _ in range(WRITES)]
        results: list[Appended | BaseException] = await asyncio.gather(
            *map(store.append, changes), return_exceptions=True
        )
        kinds = set()
        for change, result in zip(changes, results, strict=True):
            assert isinstance(result, Unavailable)
            kinds.add((result.outcome_unknown, change.task in disk.database.tasks))
        assert kinds == {(False, False), (True, False), (True, True)}
        assert len(noticed) == WRITES

    on_server(Profile(failures=1.0), test)


def test_nothing_is_written_while_the_store_is_away() -> None:
    async def test(store: Connection, disk: Disk) -> None:
        for away in (True, False):
            disk.away = away
            disk.unreachable = set() if away else {"network"}
            results = await asyncio.gather(store.append(created(new_ref())), store.stats(), return_exceptions=True)
            assert all(isinstance(result, Unavailable) and not result.outcome_unknown for result in results)
        disk.unreachable.clear()
        await store.append(created(new_ref()))
        assert len(disk.database.tasks) == 1

    on_server(Profile(), test)


def received(profile: Profile, *, separated: bool = False) -> list[str]:
    """The servers that got a signal, in order."""
    world, found = World(1), list[str]()
    network = Network(world, profile)
    buses = [SimulatedBus(network, world.host(name)) for name in ("a", "b", "c")]
    if separated:
        network.separated.add("b")

    async def main() -> None:
        for bus in buses:
            name = bus.host.name
            await bus.subscribe_signals(lambda ref, signal, name=name: found.append(name))  # type: ignore[misc]
        buses[0].host.call_soon(buses[0].publish_signal, new_ref(), TaskSignal.CANCEL)
        await asyncio.sleep(10)

    world.run(main())
    return found


def test_a_signal_reaches_every_server() -> None:
    assert sorted(received(Profile())) == ["a", "b", "c"]


def test_messages_between_servers_are_lost_and_repeated() -> None:
    assert received(Profile(losses=1.0)) == ["a"]
    assert sorted(received(Profile(repeats=1.0))) == ["a", "a", "a", "b", "b", "c", "c"]


def test_a_separated_server_gets_nothing_from_others() -> None:
    assert sorted(received(Profile(), separated=True)) == ["a", "c"]
