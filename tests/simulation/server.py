"""A simulated server: the real runtime, on a machine with its own loop and clocks, and parts without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.agents import OPERATED_SPECS, SPECS, Journal, agents_of
from tests.simulation.bus import Network, SimulatedBus
from tests.simulation.connection import Connection, Disk
from tests.simulation.loop import HostLoop, World
from tests.simulation.operated.quotas import QUOTAS
from tests.simulation.receivers import Receivers, SimulatedEncoder

from dragoman.core.counters import Histogram
from dragoman.core.errors import Unavailable
from dragoman.core.names import make_task_key
from dragoman.core.push.delivery import PushRetryPolicy
from dragoman.ids import IDS
from dragoman.runtime import AuditOptions, Ports, PushOptions, Runtime, RuntimeConfig, open_runtime
from dragoman.runtime.access import Limits
from dragoman.runtime.observe.watchdog import Watchdog
from dragoman.runtime.sessions import Heartbeat
from dragoman.runtime.timings import Clocks

if TYPE_CHECKING:  # brings the libraries of extensions
    from tests.simulation.called.parts import CalledParts

    from dragoman.agents.workers.hub import LocalWorkerHub

RETRY_POLICY: Final = PushRetryPolicy(first_delay=0.2, max_delay=2.0)
"""Short delays, for many retries in a history."""

LIMITS: Final = Limits(blocking_wait=10.0)
DRAIN_SECONDS: Final = 5.0

LATE_RENEWAL: Final = 5.0
"""Seconds from a renewal to the answer of the next, after which a lease of 10 may have lapsed in between."""


class SimulatedHeartbeat(Heartbeat):
    """Renews the session from the loop, and waits for the store as the thread of the real one does."""

    def __init__(self, store: Connection, session: int, *, lease: float, **options: Any) -> None:
        super().__init__(store, session, lease=lease, **options)
        self._connection = store
        self._number = session
        self._seconds = lease
        self._serial = asyncio.Lock()
        self._began = self.begin_renewal()
        self._beating: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.delay)
            await self.renew_in_thread()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])

    async def renew_in_thread(self) -> bool:
        async with self._serial:
            began = self.begin_renewal()
            try:
                remaining = await self._connection.renew(self._number, self._seconds)
            except Unavailable as error:
                return self.note_failure(error)
            answered = asyncio.get_running_loop().time()
            if answered - self._began > LATE_RENEWAL:
                self._connection.on_lapse(self._began, answered - self._began)
            self._began = began
            return self.note_renewal(began, remaining)


class NoWatchdog(Watchdog):
    """No thread watches the loop: a simulated callback takes a microsecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.delays = Histogram()

    def stop(self) -> None:
        return


class SimulatedServer:
    """One server, over its starts and ends. `number` counts from 0."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        network: Network,
        receivers: Receivers,
        journal: Journal,
        number: int,
        slots: int,
    ) -> None:
        self._world = world
        self._disk = disk
        self._network = network
        self._receivers = receivers
        self._journal = journal
        self._slots = slots
        self.number = number
        self.starts = 0
        self.host: HostLoop | None = None
        self.runtime: Runtime | None = None
        """None while it is not up."""
        self.draining = False
        self.ended = False
        """Whether it has ended in order."""
        self.stays_dead = False
        """Whether nobody starts it again."""
        self.called: CalledParts | None = None
        """The other servers and the workers; None for a server that calls nobody."""
        self.is_operated = False
        """Whether it has an audit log, and quotas."""
        self.hub: LocalWorkerHub | None = None
        self._connection: Connection | None = None
        self._bus: SimulatedBus | None = None
        self._stop: asyncio.Event | None = None
        self.on_lost: list[Callable[[], None]] = []
        """Called when the server dies or stops, for the calls that are under way."""

    @property
    def name(self) -> str:
        """The name of the current start."""
        return f"server{self.number}.{self.starts}"

    def start(self) -> None:
        """Starts the server on a new machine."""
        world, profile, rng = self._world, self._disk.profile, self._world.random
        self.starts += 1
        self.draining = self.ended = False
        self.host = host = world.host(
            self.name,
            skew=rng.uniform(-profile.skew, profile.skew),
            rate=1.0 + rng.uniform(-profile.drift, profile.drift),
        )
        self._connection = Connection(self._disk, host)
        self._bus = SimulatedBus(self._network, host)
        self._stop = asyncio.Event()
        host.create_task(self._serve(host, self._connection, self._bus, self._stop))

    async def _serve(self, host: HostLoop, connection: Connection, bus: SimulatedBus, stop: asyncio.Event) -> None:
        """Serves until it is told to stop. Starts again when the store was away, as an operator would."""
        while True:
            try:
                async with AsyncExitStack() as stack:
                    runtime = await self._open(host, connection, bus, stack)
                    self.runtime = runtime
                    await stop.wait()
                    await runtime.scheduler.drain(DRAIN_SECONDS)
                    runtime.feeds.release_waits()
                    await asyncio.sleep(0.05)
                    self._lose()
                if runtime.scheduler.running:  # agents that have not stopped end with the process
                    self._disk.on_lapse(self._world.now, 0.0)
                self.ended = True
                bus.vanish()
                connection.closed = True
                return
            except Unavailable:
                self.runtime = None
                await asyncio.sleep(0.5)

    async def _open(self, host: HostLoop, connection: Connection, bus: SimulatedBus, stack: AsyncExitStack) -> Runtime:
        """Opens the agents and the runtime. Raises Unavailable."""
        ports, config = self._ports(host, connection, bus), self._config(host)
        if self.called is None:
            return await stack.enter_async_context(open_runtime(ports, config))
        opened = await self.called.open(ports, host, connection, stack)
        ports, config = (
            replace(ports, agents=opened.registry),
            replace(config, run_lease=opened.lease, exclusive=self.called.is_exclusive),
        )
        runtime = await stack.enter_async_context(open_runtime(ports, config))
        await opened.follow()
        self.hub = opened.hub
        return runtime

    def _ports(self, host: HostLoop, connection: Connection, bus: SimulatedBus) -> Ports:
        push = PushOptions(
            self._receivers.client(host),
            SimulatedEncoder(),
            retry_policy=RETRY_POLICY,
            random=self._world.random.random,
            now=lambda: datetime.fromtimestamp(host.wall_ms() / 1000, UTC),
        )
        specs = OPERATED_SPECS if self.is_operated else SPECS
        return Ports(connection, bus, agents_of(host, self._journal, IDS.hex, specs), push)

    def _config(self, host: HostLoop) -> RuntimeConfig:
        return RuntimeConfig(
            quotas=QUOTAS if self.is_operated else None,
            audit=AuditOptions(host.wall_ms) if self.is_operated else None,
            slots=self._slots,
            exclusive=False,
            limits=LIMITS,
            clocks=Clocks(monotonic=host.time, elapsed=host.time, wall=lambda: host.wall_ms() / 1000),
            heartbeat=SimulatedHeartbeat,
            watchdog=NoWatchdog,
            new_key=lambda: make_task_key(host.wall_ms() * 1_000_000, IDS.random_bytes()),
        )

    # Faults -----------------------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether it takes calls."""
        return self.runtime is not None and not self.draining

    def kill(self) -> None:
        """Ends it at once. Its session expires by itself."""
        assert self.host is not None
        self.host.kill()
        self.runtime = None
        if self._connection is not None and self._bus is not None:
            self._connection.vanish()
            self._bus.vanish()
        self._lose()

    def stop(self) -> None:
        """Asks it to end in order."""
        assert self._stop is not None
        assert self.host is not None
        self.draining = True
        self.host.call_soon(self._stop.set)

    def recover(self) -> bool:
        """Starts it again if it has ended or was killed, or is about to end; resumes it if it is paused.

        Returns whether it had to be killed for that.
        """
        assert self.host is not None
        if self.stays_dead:
            return False
        is_late = self.draining and not self.host.killed and not self.ended
        if is_late:
            self.kill()
        if self.host.killed or self.ended:
            self.start()
        else:
            self.host.resume()
        return is_late

    def _lose(self) -> None:
        self.runtime = None
        lost, self.on_lost = self.on_lost, []
        for on_lost in lost:
            on_lost()
