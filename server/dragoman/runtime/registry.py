"""Agent registry: the agents of this process, of which some come and go; and the tasks of those that are away.

`AgentRegistry` is built before everything that brings agents (workers, upstreams, extensions) and everything that runs
them. `AbsentAgents` observes it for the runtime.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task.log import Append, AppendRejected, ClaimHeld, Ready, TaskRecord
from dragoman.core.task.maintenance import AgesByState
from dragoman.ports import Agent, RemoteAgent, Store, is_remote
from dragoman.runtime.lease import Lease
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.finish import NO_WORKER, OUTCOME_UNKNOWN, UPSTREAM_AWAY, SystemStatus, system_status
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.runtime")

WAITING_BATCH_SIZE: Final = 256


class AgentRegistry:
    """The agents of this process. Implements `dragoman.ports.RemoteAgentRegistry`."""

    def __init__(self, agents: Iterable[Agent] = (), lease: Lease | None = None) -> None:
        """`lease`: of this process; None if no other process uses the store."""
        self.agents: dict[str, Agent] = {}
        """The agents by id. The runtime reads these three mappings, and sees changes at once."""
        self.specs: dict[str, AgentSpec] = {}
        self.retention_ages: dict[str, AgesByState] = {}
        self._lease = lease
        self._reserved: frozenset[str] = frozenset()
        self._absent_agents: AbsentAgents | None = None
        self._on_added: list[Callable[[AgentSpec], None]] = []
        self._on_removed: list[Callable[[str], None]] = []
        for agent in agents:
            self.add(agent)

    def add(self, agent: Agent) -> None:
        """Adds an agent while nobody observes the registry yet."""
        spec = agent.spec
        self.agents[spec.id] = agent
        self.specs[spec.id] = spec
        self.retention_ages[spec.id] = spec.retention

    def reserve_ids(self, agents: Iterable[str]) -> None:
        """Marks ids of remote agents as this server's own, so no worker can bring them."""
        self._reserved = frozenset(agents)

    def observe(self, absent_agents: AbsentAgents) -> None:
        """Tells `absent_agents` of each change from now on."""
        self._absent_agents = absent_agents

    def add_listener(
        self, on_added: Callable[[AgentSpec], None], on_removed: Callable[[str], None] | None = None
    ) -> None:
        """Calls `on_added` with the spec of each agent that is added or changed, `on_removed` with the id of each
        removed one."""
        self._on_added.append(on_added)
        if on_removed is not None:
            self._on_removed.append(on_removed)

    def is_local(self, agent: str) -> bool:
        registered = self.agents.get(agent)
        return agent in self._reserved or (
            registered is not None and not (is_remote(registered) and registered.is_worker_backed)
        )

    def is_registered(self, agent: str) -> bool:
        return agent in self.agents

    async def register(self, agent: RemoteAgent) -> None:
        self.add(agent)
        for on_added in self._on_added:
            on_added(agent.spec)
        if self._absent_agents is not None:
            self._absent_agents.agent_added(agent)
        self.capacity_changed()

    async def unregister(self, agent: str) -> int:
        self.specs.pop(agent, None)  # first, so that no new messages are accepted for it
        for on_removed in self._on_removed:
            on_removed(agent)
        self.retention_ages.pop(agent, None)
        if self._absent_agents is not None:
            self._absent_agents.agent_removed(agent)
        self.agents.pop(agent, None)
        self.capacity_changed()
        return await self._absent_agents.end_tasks(agent) if self._absent_agents is not None else 0

    def lease_left(self) -> float:
        return math.inf if self._lease is None else self._lease.remaining

    def capacity_changed(self) -> None:
        if self._absent_agents is not None:
            self._absent_agents.scheduler.capacity_changed()


@dataclass(eq=False, repr=False)
class AbsentAgents:
    """Tells the scheduler of agents that come and go, and ends tasks that wait for one in vain."""

    store: Store
    event_log: EventLog
    scheduler: Scheduler
    _unfinished: set[str] = field(default_factory=set, init=False)
    """Removed agents whose tasks may still wait, because the store was unavailable."""
    _statuses: dict[str, SystemStatus] = field(default_factory=dict, init=False)
    """The final status for tasks of removed agents."""
    _end_tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def agent_added(self, agent: RemoteAgent) -> None:
        self._statuses.pop(agent.spec.id, None)
        self._unfinished.discard(agent.spec.id)
        self.scheduler.queues.add(agent)

    def agent_removed(self, agent: str) -> None:
        """An agent was removed; the registry does not accept messages for it any more."""
        self._statuses[agent] = self._end_status(agent)
        self._unfinished.add(agent)
        # Before the query of `end_tasks`: tasks written after this are passed to `end_unserved`.
        self.scheduler.queues.remove(agent)

    async def end_tasks(self, agent: str) -> int:
        """Ends the waiting tasks of a removed agent. Returns how many."""
        return await self._end_waiting(agent, self._statuses[agent])

    def end_unserved(self, record: TaskRecord) -> None:
        """Ends, in the background, a task that was being written or run when its agent was removed."""
        ending = asyncio.create_task(self._end_unserved(record), name=f"end {record.id} of an unregistered agent")
        self._end_tasks.add(ending)
        ending.add_done_callback(self._end_tasks.discard)

    async def _end_unserved(self, record: TaskRecord) -> None:
        guard = ClaimHeld(record.session, record.token) if record.running else Ready()
        is_canceled = await self.store.cancel_requests.pending([record.ref])
        status = OUTCOME_UNKNOWN if is_canceled else self._statuses.get(record.agent, NO_WORKER)
        end = Append(task=record.ref, guard=guard, events=[system_status(status, record)], release=True)
        try:
            await self.event_log.insist(end, lambda _: None, lambda: {"task": record.id})
        except AppendRejected:
            return  # another process runs this agent, or the task was canceled
        except Exception as error:
            log_fault(log, "the task of a removed agent could not be ended", error, task=record.id)

    async def close(self) -> None:
        """Cancels pending ends of tasks: their claims end with the session."""
        for ending in self._end_tasks:
            ending.cancel()
        await asyncio.gather(*self._end_tasks, return_exceptions=True)

    async def end_abandoned_tasks(self) -> int:
        """Ends as FAILED the tasks waiting for agents that are removed, or absent for too long. Returns how many."""
        statuses = {agent: self._end_status(agent) for agent in self.scheduler.queues.absent_too_long}
        statuses.update((agent, self._statuses[agent]) for agent in self._unfinished)
        return sum([await self._end_waiting(agent, status) for agent, status in statuses.items()])

    def _end_status(self, agent: str) -> SystemStatus:
        remote = self.scheduler.queues.remote(agent)
        return NO_WORKER if remote is None or remote.is_worker_backed else UPSTREAM_AWAY

    async def _end_waiting(self, agent: str, status: SystemStatus) -> int:
        count = waiting = 0
        while records := await self.store.ready_tasks((agent,), WAITING_BATCH_SIZE + waiting):
            canceled = await self.store.cancel_requests.pending([record.ref for record in records])
            if agent not in self._unfinished:  # a cancel waits longer: `CancelOperation.end_unconfirmed` ends it
                records = [record for record in records if record.ref not in canceled]
                if not records and len(canceled) > waiting:  # they do not hide the others
                    waiting = len(canceled)
                    continue
            if not records or not (agent in self._unfinished or agent in self.scheduler.queues.absent_too_long):
                break  # it may have returned meanwhile
            statuses = [OUTCOME_UNKNOWN if record.ref in canceled else status for record in records]
            ended = await asyncio.gather(*map(self._end, records, statuses))
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
            await self.event_log.append(change)
        except AppendRejected:  # claimed or canceled meanwhile
            return False
        return True
