"""The bus of simulated servers: it loses, repeats, reorders and delays what it carries, and separates servers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tests.simulation.loop import HostLoop, World
from tests.simulation.plan import Profile

from dragoman.bus.local import LocalBus
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Job, RegistryChange, TaskSignal, Unsubscribe


class Network:
    """Connects the buses of all servers. Every message to every server has a fate of its own."""

    def __init__(self, world: World, profile: Profile) -> None:
        self._world = world
        self.random = world.random
        self.profile = profile
        self.buses: list[SimulatedBus] = []
        self.separated: set[str] = set()
        """The servers that exchange nothing with others."""

    def send(self, sender: SimulatedBus, deliver: Callable[[SimulatedBus], None]) -> None:
        """Delivers to every other server, and sometimes to the sender once more."""
        if sender.host.name in self.separated:
            return
        chance, profile = self.random.random, self.profile
        for bus in self.buses:
            if bus.host.name in self.separated or (bus is sender and chance() >= profile.repeats):
                continue
            if profile.losses and chance() < profile.losses:
                continue
            for _ in range(2 if chance() < profile.repeats else 1):
                self._world.after(self.delay(), bus.receive, deliver)

    def delay(self) -> float:
        """Seconds on the way. Messages overtake each other."""
        profile = self.profile
        if self.random.random() < profile.delays:
            return self.random.uniform(0.0, profile.longest_delay)
        return self.random.uniform(0.0001, 0.002)


class SimulatedBus:
    """Implements `dragoman.ports.Bus` for one server: as `LocalBus` for itself, and over the network for others."""

    problem = ""

    def __init__(self, network: Network, host: HostLoop) -> None:
        self._network = network
        self.host = host
        self.local = LocalBus()
        self.closed = False
        network.buses.append(self)

    def receive(self, deliver: Callable[[SimulatedBus], None]) -> None:
        """A message arrives from the network."""
        if not self.closed:
            self.host.call_soon(deliver, self)

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self.local.publish(task, events)
        copies = [(event.sequence, event.data, event.state, event.ends) for event in events]
        self._network.send(self, lambda bus: bus.local.publish(task, [Event(*copy) for copy in copies]))

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        return await self.local.subscribe(task, deliver)

    def publish_job(self, job: Job) -> None:
        self.local.publish_job(job)
        others = [bus for bus in self._network.buses if bus is not self and not bus.closed]
        if others:
            chosen = self._network.random.choice(others)
            self._network.send(self, lambda bus: bus.local.publish_job(job) if bus is chosen else None)

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        return await self.local.subscribe_jobs(agents, handle)

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        self.local.publish_signal(task, signal)
        self._network.send(self, lambda bus: bus.local.publish_signal(task, signal))

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        return await self.local.subscribe_signals(handle)

    def publish_change(self, change: RegistryChange) -> None:
        self.local.publish_change(change)
        self._network.send(self, lambda bus: bus.local.publish_change(change))

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        return await self.local.subscribe_changes(handle)

    def vanish(self) -> None:
        """Its server was killed."""
        self.closed = True
        if self in self._network.buses:
            self._network.buses.remove(self)

    async def close(self) -> None:
        self.vanish()
        await self.local.close()
