"""The called agents of one history: other servers, workers, what each server opens for them, and their faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.chaos.history import Fault
from tests.simulation.agents import WORKER_SPECS
from tests.simulation.called.peer import Peer, Work
from tests.simulation.called.plan import CALLED_AGENTS
from tests.simulation.called.tools import ToolServer, serve_tools
from tests.simulation.called.upstream import A2aServer, CardClient, SimulatedTransports
from tests.simulation.called.workers import SimulatedWorker
from tests.simulation.connection import Connection
from tests.simulation.loop import HostLoop
from tests.simulation.plan import PlannedFault

from dragoman.agents.upstream.registry import LocalUpstreamRegistry
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.core.agent_sources import UpstreamSpec
from dragoman.ids import IDS
from dragoman.ports import Agent, RegistryChange
from dragoman.runtime import Ports
from dragoman.runtime.lease import Lease
from dragoman.runtime.registry import AgentRegistry
from dragoman.runtime.sessions import LEASE_SECONDS
from dragoman.supervision import Background, start_task

if TYPE_CHECKING:
    from tests.simulation.history import History

WORKERS: Final = 2


class CalledParts:
    """See the module's text."""

    def __init__(self, history: History) -> None:
        self._history = history
        world = history.world

        def peer(number: int) -> Peer:
            forgets = world.random.random() < 0.3
            return Peer(world, CALLED_AGENTS[number], lambda: history.disk.profile, forgets=forgets)

        self.peers = [peer(number) for number in range(len(CALLED_AGENTS))]
        self._a2a = (
            A2aServer(self.peers[0], streams=True, idempotent=True),
            A2aServer(self.peers[1], streams=False, idempotent=False),
        )
        self._tools = ToolServer(self.peers[2])
        self.workers = [SimulatedWorker(world, history.servers, history.journal, n) for n in range(WORKERS)]

    @property
    def is_exclusive(self) -> bool:
        """Whether the only server has the store to itself, so that its next start takes over at once."""
        return self._history.plan.servers == 1

    @property
    def works(self) -> Sequence[Work]:
        """Everything that the other servers have done."""
        return [work for peer in self.peers for work in peer.works]

    def start(self) -> None:
        """Starts the other servers, and the workers, which connect as soon as a server is up."""
        for peer in self.peers:
            peer.start()
        for worker in self.workers:
            worker.start()

    async def until_connected(self) -> None:
        """Waits until workers have registered their agents."""
        servers = self._history.servers
        while not all(server.hub is not None and len(server.hub.agents) == len(WORKER_SPECS) for server in servers):  # noqa: ASYNC110  # the hub has no event for it
            await asyncio.sleep(0.1)

    def recover(self) -> None:
        """Ends all faults."""
        for peer in self.peers:
            peer.recover()
        for worker in self.workers:
            worker.recover()

    async def strike(self, fault: PlannedFault) -> None:
        """Performs one fault, to its end."""
        stage = self._history.stage
        kind, _, part = fault.kind.partition(" ")
        struck: Peer | SimulatedWorker = (
            self.peers[fault.target % len(self.peers)]
            if part == "peer"
            else self.workers[fault.target % len(self.workers)]
        )
        host = struck.host
        if host is None or host.held is not None or struck.is_cut or struck.is_refused:
            return  # it is struck already
        stage.record.add(Fault(at=stage.now, how=kind, seconds=fault.seconds, part=part))
        match kind:
            case "kill":
                struck.kill()
                await asyncio.sleep(fault.seconds)
                if host is struck.host:
                    struck.start()
            case "pause":
                host.pause()
                await asyncio.sleep(fault.seconds)
                host.resume()
            case "refuse":
                struck.refuse()
                await asyncio.sleep(fault.seconds)
                struck.heal()
            case "cut":
                struck.is_cut = True
                await asyncio.sleep(fault.seconds)
                struck.heal()

    async def open(self, ports: Ports, host: HostLoop, store: Connection, stack: AsyncExitStack) -> OpenedAgents:
        """Opens the agents of one start of a server: its own, and those that it calls."""
        lease = None if self.is_exclusive else Lease(LEASE_SECONDS, clock=host.time)
        assert not isinstance(ports.agents, AgentRegistry)
        registry, bus = AgentRegistry(ports.agents, lease), ports.bus
        outbound = CardClient(self._a2a, host)
        transports = SimulatedTransports(outbound, servers=self._a2a, client=host)
        upstreams = LocalUpstreamRegistry(
            lambda: transports,
            store,
            _PlainBox(),
            registry,
            clock=host.wall_ms,
            monotonic=host.time,
            new_id=IDS.hex,
        )
        stack.push_async_callback(upstreams.close)
        specs = [UpstreamSpec(url=server.url, id=server.peer.name) for server in self._a2a]
        mcp, tool_agent = serve_tools(self._tools, CALLED_AGENTS[2], host, outbound, registry)
        stack.push_async_callback(mcp.close)
        await mcp.refresh(tool_agent)
        await upstreams.start(specs, [CALLED_AGENTS[2]])
        called: list[Agent] = [*mcp.agents, *upstreams.all_agents()]
        for agent in called:
            registry.add(agent)
        known = [one for one in await store.worker_registry.list() if not registry.is_registered(one.agent)]
        hub = LocalWorkerHub(
            store.worker_registry,
            registry,
            known,
            clock=host.wall_ms,
            on_change=partial(bus.publish_change, RegistryChange.WORKERS),
            new_id=IDS.hex,
        )
        for worker_agent in hub.agents:
            registry.add(worker_agent)

        async def follow() -> None:
            upstreams.start_refresh()
            mcp.start()
            if self.is_exclusive:
                return
            stack.callback(start_task(Background.WORKER_REGISTRY, hub.run_sync).cancel)
            stack.push_async_callback(await bus.subscribe_changes(lambda change: hub.wakeup.set()))

        return OpenedAgents(registry, lease, hub, follow)


@dataclass(frozen=True, slots=True)
class OpenedAgents:
    """The agents of one start of a server. `follow`: starts to follow their changes."""

    registry: AgentRegistry
    lease: Lease | None
    hub: LocalWorkerHub
    follow: Callable[[], Awaitable[None]]


class _PlainBox:
    """Implements `dragoman.ports.SecretBox`: nothing is stored."""

    def encrypt(self, text: str, context: str) -> str:
        return text

    def decrypt(self, value: str, context: str) -> str:
        return value
