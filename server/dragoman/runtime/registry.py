"""Agents that come while the server runs, and the tasks of those that do not come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task.log import Append, AppendRejected, ClaimHeld, Ready, StatusChange, TaskRecord
from dragoman.core.task.maintenance import AgesByState
from dragoman.ports import Agent, RemoteAgent, Store
from dragoman.runtime.log import EventLog
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.turn.status import NO_WORKER, UPSTREAM_AWAY, system_status

log = logging.getLogger("dragoman.runtime")

ABSENCE_POLL_INTERVAL: Final = 5.0
"""Seconds between two looks for tasks that wait for agents that stayed away."""

WAITING_BATCH_SIZE: Final = 256


class AgentRegistry:
    """The agents of this process, where they may become more. Implements `dragoman.ports.Enlist`."""

    def __init__(
        self,
        store: Store,
        event_log: EventLog,
        scheduler: Scheduler,
        agents: dict[str, Agent],
        specs: dict[str, AgentSpec],
        retention_ages: dict[str, AgesByState],
    ) -> None:
        """The three dicts are those that the rest of the runtime reads: what is said there is known everywhere."""
        self._store = store
        self._log = event_log
        self._scheduler = scheduler
        self._agents = agents
        self._specs = specs
        self._retention_ages = retention_ages
        self._on_added: list[Callable[[AgentSpec], None]] = []
        self._on_removed: list[Callable[[str], None]] = []
        self._reserved: frozenset[str] = frozenset()
        self._end_statuses: dict[str, StatusChange] = {}
        """Agents that were discharged, and how tasks end that are left of them."""
        self._unfinished: set[str] = set()
        """Those of them of whose tasks some may still wait: the store did not answer."""
        self._end_tasks: set[asyncio.Task[None]] = set()
        scheduler.on_unserved = self._on_unserved

    def reserve_ids(self, agents: Iterable[str]) -> None:
        """Ids of agents elsewhere that are this server's own all the same."""
        self._reserved = frozenset(agents)

    def add_listener(
        self, on_added: Callable[[AgentSpec], None], on_removed: Callable[[str], None] | None = None
    ) -> None:
        """Calls `shown` with the spec of each agent that comes, or says something new of itself, `hidden` with the id
        of each that goes."""
        self._on_added.append(on_added)
        if on_removed is not None:
            self._on_removed.append(on_removed)

    def is_local(self, agent: str) -> bool:
        """Whether an id is that of an agent which no worker can have."""
        found = self._agents.get(agent)
        return agent in self._reserved or (
            found is not None and not (isinstance(found, RemoteAgent) and found.is_worker_backed)
        )

    def is_registered(self, agent: str) -> bool:
        """Whether an agent of this id is served, by whomever."""
        return agent in self._agents

    async def register(self, agent: RemoteAgent) -> None:
        """Serves an agent from now on, or what it says of itself now."""
        spec = agent.spec
        new = spec.id not in self._agents
        self._end_statuses.pop(spec.id, None)
        self._unfinished.discard(spec.id)
        self._agents[spec.id] = agent
        self._specs[spec.id] = spec
        self._retention_ages[spec.id] = spec.retention
        for shown in self._on_added:
            shown(spec)
        if new:
            self._scheduler.remote_capacity.add(agent)
        self._scheduler.capacity_changed()

    async def unregister(self, agent: str) -> int:
        """Serves an agent no more, and ends what waits for it as FAILED. Gives how many tasks that were."""
        self._specs.pop(agent, None)  # first, so that nobody sends to it any more
        for hidden in self._on_removed:
            hidden(agent)
        self._retention_ages.pop(agent, None)
        why = self._end_statuses[agent] = self._end_status(agent)
        self._unfinished.add(agent)
        self._scheduler.remote_capacity.remove(
            agent
        )  # before the look: of what is written after that `unserved` is told
        self._agents.pop(agent, None)
        self._scheduler.capacity_changed()
        return await self._end_waiting(agent, why)

    def capacity_changed(self) -> None:
        """Some agent elsewhere came or went, or has more room."""
        self._scheduler.capacity_changed()

    # Those that do not come back --------------------------------------------------------------------------------

    async def poll_forever(self) -> None:
        """Looks every LOOK seconds. Runs until cancelled."""
        while True:
            await asyncio.sleep(ABSENCE_POLL_INTERVAL)
            try:
                await self.end_abandoned_tasks()
            except Exception:
                log.exception("could not look for tasks that wait for no worker")

    async def end_abandoned_tasks(self) -> int:
        """Ends as FAILED what waits for agents that stayed away for too long, or are gone. Gives how many tasks."""
        whys = {agent: self._end_status(agent) for agent in self._scheduler.remote_capacity.absent_too_long}
        whys.update((agent, self._end_statuses[agent]) for agent in self._unfinished)
        return sum([await self._end_waiting(agent, why) for agent, why in whys.items()])

    async def close(self) -> None:
        """Gives up what it is still ending: claims end with the session."""
        for ending in self._end_tasks:
            ending.cancel()
        await asyncio.gather(*self._end_tasks, return_exceptions=True)

    def _on_unserved(self, record: TaskRecord) -> None:
        """Ends a task that was on its way into the store, or had a turn, when its agent was discharged."""
        ending = asyncio.create_task(self._end_unserved(record), name=f"end {record.id}, whose agent is gone")
        self._end_tasks.add(ending)
        ending.add_done_callback(self._end_tasks.discard)

    async def _end_unserved(self, record: TaskRecord) -> None:
        guard = ClaimHeld(record.session, record.token) if record.running else Ready()
        why = self._end_statuses.get(record.agent) or system_status(NO_WORKER)
        end = Append(task=record.ref, guard=guard, events=[why], release=True)
        with suppress(AppendRejected):  # another process has such an agent, or it was canceled
            await self._log.insist(end, lambda _: None, lambda: {"task": record.id})

    def _end_status(self, agent: str) -> StatusChange:
        return system_status(NO_WORKER if self._scheduler.remote_capacity.is_worker_backed(agent) else UPSTREAM_AWAY)

    async def _end_waiting(self, agent: str, status: StatusChange) -> int:
        found = 0
        while heads := await self._store.ready_tasks((agent,), WAITING_BATCH_SIZE):
            done = await asyncio.gather(*(self._end(head, status) for head in heads))
            found += sum(done)
            if not any(done):
                break
        if found:
            log.warning("tasks that nobody came to take, ended as FAILED: %d", found, extra={"agent": agent})
        self._unfinished.discard(agent)
        return found

    async def _end(self, record: TaskRecord, status: StatusChange) -> bool:
        change = Append(task=record.ref, guard=Ready(), events=[status], release=True)
        try:
            await self._log.append(change)
        except AppendRejected:  # taken, or canceled
            return False
        return True
