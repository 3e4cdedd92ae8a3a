"""Faults of a simulation: strikes servers, the network between them, and the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.chaos.history import Fault
from tests.simulation.plan import PlannedFault

if TYPE_CHECKING:
    from tests.simulation.history import History


ACTION_SECONDS: Final = 4.0
"""Seconds for which a fault waits for an action."""


async def strike(history: History, fault: PlannedFault, begins: float) -> None:
    """Performs one fault, to its end."""
    world, stage = history.world, history.stage
    await asyncio.sleep(max(0.0, begins + fault.at - world.now))
    if fault.kind.endswith((" peer", " worker")):
        assert history.called is not None
        await history.called.strike(fault)
        return
    server = history.servers[fault.target % len(history.servers)]
    host, seconds = server.host, fault.seconds
    if host is None or server.runtime is None or host.held is not None or server.draining:
        return  # it is struck already
    disk, network = history.disk, history.network

    def note(how: str, part: str = "server") -> None:
        stage.record.add(Fault(at=stage.now, how=how, seconds=seconds, part=part))

    match fault.kind:
        case "kill":
            note("kill")
            server.kill()
            await asyncio.sleep(seconds)
            server.recover()
        case "kill at an action":
            if await _next_action(history, host.name) and server.host is host and not host.killed:
                note("kill")
                server.kill()
                await asyncio.sleep(seconds)
                server.recover()
        case "kill for good":
            note("kill")
            server.kill()
            server.stays_dead = any(not other.stays_dead for other in history.servers if other is not server)
            if not server.stays_dead:
                await asyncio.sleep(seconds)
                server.recover()
        case "pause":
            note("pause")
            host.pause()
            await asyncio.sleep(seconds)
            host.resume()
        case "restart":
            note("drain")
            server.stop()
            await asyncio.sleep(seconds)
            if server.recover():  # the operator waits no longer
                note("kill")
        case "separate":
            network.separated.add(host.name)
            await asyncio.sleep(seconds)
            network.separated.discard(host.name)
        case "unreachable":
            note("pause", "postgres")
            disk.unreachable.add(host.name)
            await asyncio.sleep(seconds)
            disk.unreachable.discard(host.name)
        case "away":
            note("pause", "postgres")
            disk.away = True
            await asyncio.sleep(seconds)
            disk.away = False
        case "storm":
            stage.storm()


async def _next_action(history: History, process: str) -> bool:
    """Waits for an action of an agent there, and some milliseconds more: its effects are being written then.

    False without one in time.
    """
    world, observers = history.world, history.journal.observers
    seen: asyncio.Future[None] = world.network.create_future()

    def observe(acting: str) -> None:
        if acting == process and not seen.done():
            seen.set_result(None)

    observers[observe] = None
    try:
        async with asyncio.timeout(ACTION_SECONDS):
            await seen
    except TimeoutError:
        return False
    finally:
        observers.pop(observe)
    await asyncio.sleep(world.chance() * 0.004)
    return True
