"""Agent registry: agents added and removed while the server runs, and tasks of agents that stay absent."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task.log import Append, AppendRejected, ClaimHeld, Ready, TaskRecord
from dragoman.core.task.maintenance import AgesByState
from dragoman.ports import Agent, RemoteAgent, Store
from dragoman.runtime.lease import Lease
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.timings import DEFAULT_TIMINGS
from dragoman.runtime.turn.finish import NO_WORKER, UPSTREAM_AWAY, SystemStatus, system_status

log = logging.getLogger("dragoman.runtime")

WAITING_BATCH_SIZE: Final = 256


class AgentRegistry:
    """The agents of this process. Implements `dragoman.ports.RemoteAgentRegistry`."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        scheduler: Scheduler,
        agents: dict[str, Agent],
        specs: dict[str, AgentSpec],
        retention_ages: dict[str, AgesByState],
        lease: Lease | None = None,
        poll_interval: float = DEFAULT_TIMINGS.absence_poll_interval,
    ) -> None:
        """The three dicts are shared with the rest of the runtime, which sees changes at once. `lease`: of this
        process; None if no other process uses the store. `poll_interval`: seconds between polls for absent agents."""
        self._poll_interval = poll_interval
        self._lease = lease
        self._store = store
        self._log = event_log
        self._scheduler = scheduler
        self._agents = agents
        self._specs = specs
        self._retention_ages = retention_ages
        self._on_added: list[Callable[[AgentSpec], None]] = []
        self._on_removed: list[Callable[[str], None]] = []
        self._reserved: frozenset[str] = frozenset()
        self._end_statuses: dict[str, SystemStatus] = {}
        """The final status for tasks of unregistered agents."""
        self._unfinished: set[str] = set()
        """Unregistered agents whose tasks may still wait, because the store was unavailable."""
        self._end_tasks: set[asyncio.Task[None]] = set()
        scheduler.on_unserved = self._on_unserved

    def reserve_ids(self, agents: Iterable[str]) -> None:
        """Marks ids of remote agents as this server's own, so no worker can bring them."""
        self._reserved = frozenset(agents)

    def add_listener(
        self, on_added: Callable[[AgentSpec], None], on_removed: Callable[[str], None] | None = None
    ) -> None:
        """Calls `on_added` with the spec of each agent that is added or changed, `on_removed` with the id of each
        removed one."""
        self._on_added.append(on_added)
        if on_removed is not None:
            self._on_removed.append(on_removed)

    def is_local(self, agent: str) -> bool:
        """Whether an id belongs to this server, so that no worker can bring it."""
        registered = self._agents.get(agent)
        return agent in self._reserved or (
            registered is not None and not (isinstance(registered, RemoteAgent) and registered.is_worker_backed)
        )

    def is_registered(self, agent: str) -> bool:
        """Whether an agent with this id is served."""
        return agent in self._agents

    async def register(self, agent: RemoteAgent) -> None:
        """Adds an agent, or replaces its spec."""
        spec = agent.spec
        new = spec.id not in self._agents
        self._end_statuses.pop(spec.id, None)
        self._unfinished.discard(spec.id)
        self._agents[spec.id] = agent
        self._specs[spec.id] = spec
        self._retention_ages[spec.id] = spec.retention
        for on_added in self._on_added:
            on_added(spec)
        if new:
            self._scheduler.queues.add(agent)
        self._scheduler.capacity_changed()

    async def unregister(self, agent: str) -> int:
        """Removes an agent and ends its waiting tasks as FAILED. Returns how many tasks that were."""
        self._specs.pop(agent, None)  # first, so that no new messages are accepted for it
        for on_removed in self._on_removed:
            on_removed(agent)
        self._retention_ages.pop(agent, None)
        status = self._end_statuses[agent] = self._end_status(agent)
        self._unfinished.add(agent)
        # Before the query: tasks written after this are passed to `_on_unserved`.
        self._scheduler.queues.remove(agent)
        self._agents.pop(agent, None)
        self._scheduler.capacity_changed()
        return await self._end_waiting(agent, status)

    def lease_left(self) -> float:
        """Seconds for which this process may run turns; infinite if no other process uses the store."""
        return math.inf if self._lease is None else self._lease.remaining

    def capacity_changed(self) -> None:
        """A remote agent was added or removed, or its capacity changed."""
        self._scheduler.capacity_changed()

    # Absent agents ----------------------------------------------------------------------------------------------

    async def poll_forever(self) -> None:
        """Polls every `poll_interval`, until canceled."""
        while True:
            await asyncio.sleep(self._poll_interval)
            await self.end_abandoned_tasks()

    async def end_abandoned_tasks(self) -> int:
        """Ends as FAILED the tasks waiting for agents that are removed, or absent for too long. Returns how many."""
        statuses = {agent: self._end_status(agent) for agent in self._scheduler.queues.absent_too_long}
        statuses.update((agent, self._end_statuses[agent]) for agent in self._unfinished)
        return sum([await self._end_waiting(agent, status) for agent, status in statuses.items()])

    async def close(self) -> None:
        """Cancels pending ends of tasks: their claims end with the session."""
        for ending in self._end_tasks:
            ending.cancel()
        await asyncio.gather(*self._end_tasks, return_exceptions=True)

    def _on_unserved(self, record: TaskRecord) -> None:
        """Ends a task that was being written or run when its agent was unregistered."""
        ending = asyncio.create_task(self._end_unserved(record), name=f"end {record.id} of an unregistered agent")
        self._end_tasks.add(ending)
        ending.add_done_callback(self._end_tasks.discard)

    async def _end_unserved(self, record: TaskRecord) -> None:
        guard = ClaimHeld(record.session, record.token) if record.running else Ready()
        status = self._end_statuses.get(record.agent, NO_WORKER)
        end = Append(task=record.ref, guard=guard, events=[system_status(status, record)], release=True)
        with suppress(AppendRejected):  # another process runs this agent, or it was canceled
            await self._log.insist(end, lambda _: None, lambda: {"task": record.id})

    def _end_status(self, agent: str) -> SystemStatus:
        remote = self._scheduler.queues.remote(agent)
        return NO_WORKER if remote is None or remote.is_worker_backed else UPSTREAM_AWAY

    async def _end_waiting(self, agent: str, status: SystemStatus) -> int:
        count = 0
        while records := await self._store.ready_tasks((agent,), WAITING_BATCH_SIZE):
            ended = await asyncio.gather(*(self._end(record, status) for record in records))
            count += sum(ended)
            if not any(ended):
                break
        if count:
            log.warning("tasks of an absent agent, ended as FAILED: %d", count, extra={"agent": agent})
        self._unfinished.discard(agent)
        return count

    async def _end(self, record: TaskRecord, status: SystemStatus) -> bool:
        change = Append(task=record.ref, guard=Ready(), events=[system_status(status, record)], release=True)
        try:
            await self._log.append(change)
        except AppendRejected:  # claimed or canceled meanwhile
            return False
        return True
