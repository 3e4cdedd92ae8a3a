"""Capacity and backlog of remote agents, and the job subscriptions of one process.

Local agents take as many turns as there are slots. A remote agent reports its own capacity, which changes while the
server runs. A task is claimed only when its agent has room, so a waiting task stays SUBMITTED and any process with room
may take it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import TaskRef
from dragoman.ports import Agent, Bus, Job, RemoteAgent, Store, Unsubscribe

log = logging.getLogger("dragoman.runtime")


class RemoteCapacity:
    """Capacity of remote agents. Local agents are reported as always having capacity."""

    def __init__(self, agents: Mapping[str, Agent], worker_wait: float) -> None:
        """`worker_wait`: seconds that tasks wait for an absent agent."""
        self._worker_wait = worker_wait
        self._agents = {name: agent for name, agent in agents.items() if isinstance(agent, RemoteAgent)}
        self._used: dict[str, int] = {}
        self._backlog = set(self._agents)
        self._fetching: set[str] = set()
        self._backlog_exceeds_room = set(self._agents)
        """Agents for which, as far as known, more tasks wait than they have room for; new tasks must not overtake
        them."""

    def __contains__(self, agent: str) -> bool:
        return agent in self._agents

    def add(self, agent: RemoteAgent) -> None:
        """Adds an agent; tasks of it may already wait in the store."""
        self._agents[agent.spec.id] = agent
        self._backlog.add(agent.spec.id)
        self._backlog_exceeds_room.add(agent.spec.id)

    def remove(self, name: str) -> None:
        """Removes an agent."""
        self._agents.pop(name, None)
        self._backlog.discard(name)
        self._backlog_exceeds_room.discard(name)

    def check_available(self, agent: str) -> None:
        """Raises Unavailable for an agent that has been absent for longer than tasks wait for it."""
        if agent in self._agents and self.is_absent_too_long(agent):
            away = self._agents[agent].seconds_absent
            if not self._agents[agent].is_worker_backed:
                raise Unavailable(f'agent "{agent}" has been unavailable for {away:.0f} s; try again later')
            raise Unavailable(f'no worker of agent "{agent}" has been connected for {away:.0f} s; try again later')

    def is_absent_too_long(self, agent: str) -> bool:
        """Whether the agent has been absent for longer than tasks wait for it."""
        return self._agents[agent].seconds_absent > self._worker_wait

    @property
    def absent_too_long(self) -> list[str]:
        """All such agents."""
        return [name for name in self._agents if self.is_absent_too_long(name)]

    def is_worker_backed(self, agent: str) -> bool:
        """Whether workers run this agent. True for unknown agents."""
        return agent not in self._agents or self._agents[agent].is_worker_backed

    def seconds_absent(self, agent: str) -> float | None:
        """Seconds since a remote agent became unavailable, 0 while it is available; None for local agents."""
        remote = self._agents.get(agent)
        return remote.seconds_absent if remote else None

    def room(self, agent: str) -> int:
        """Turns of a remote agent that may begin now; 0 for local agents."""
        remote = self._agents.get(agent)
        return max(remote.capacity - self._used.get(agent, 0), 0) if remote else 0

    def accepts_message(self, agent: str) -> bool:
        """Whether a new message may begin a turn without overtaking waiting tasks."""
        return agent not in self._agents or (agent not in self._backlog_exceeds_room and self.room(agent) > 0)

    @property
    def runnable_agents(self) -> list[str]:
        """The remote agents that have any capacity, used or not."""
        return [name for name, agent in self._agents.items() if agent.capacity > 0]

    def try_acquire(self, agent: str) -> bool:
        """Takes a place until `release`. False when the agent has no room."""
        if agent not in self._agents:
            return True
        if self.room(agent) <= 0:
            return False
        self.acquire(agent)
        return True

    def acquire(self, agent: str) -> None:
        """Takes a place for a turn that is already claimed."""
        if agent in self._agents:
            self._used[agent] = self._used.get(agent, 0) + 1

    def release(self, agent: str) -> None:
        """Gives a place back."""
        if (used := self._used.get(agent)) is None:
            return
        if used > 1:
            self._used[agent] = used - 1
        else:
            del self._used[agent]

    def runner(self, agent: str, task_id: str) -> str:
        """Which remote process runs a turn of a task; empty when none does."""
        return self._agents[agent].runner_of(task_id) if agent in self._agents else ""

    def describe_run(self, agent: str, task_id: str) -> str:
        """What to expect of that process, in a few sentences; empty when nothing is known."""
        return self._agents[agent].describe_run(task_id) if agent in self._agents else ""

    def describe_next(self, agent: str) -> str:
        """What happens next to a waiting task of the agent, in sentences."""
        if agent not in self._agents or self.room(agent) > 0:
            return "It waits for a worker and will be taken at once."
        remote = self._agents[agent]
        if not (away := remote.seconds_absent):
            if not remote.is_worker_backed:
                return f'It waits for capacity of agent "{agent}", which already runs its maximum number of turns.'
            return f'It waits for capacity at a worker of agent "{agent}"; all connected workers are busy or draining.'
        remaining = max(self._worker_wait - away, 0)
        if remote.problem:
            return (
                f'It waits for agent "{agent}", which has been unavailable for {away:.0f} s ({remote.problem}). '
                f"The server retries every few seconds; in {remaining:.0f} s (--worker-wait) the task ends as FAILED."
            )
        return (
            f'It waits for a worker of agent "{agent}". None has been connected for {away:.0f} s; in {remaining:.0f} s '
            "(--worker-wait) the task ends as FAILED. Start one with: dragoman worker."
        )

    # Backlog ----------------------------------------------------------------------------------------------------

    def note_backlog(self, agent: str) -> None:
        """Tasks of the agent may wait in the store."""
        self._backlog.add(agent)
        if self.room(agent) <= 0:
            self._backlog_exceeds_room.add(agent)

    def note_fetched(self, agent: str, *, enough: bool) -> None:
        """Records a fetch of the agent's waiting tasks, and whether it got all of them (`enough` room)."""
        if enough:
            self._backlog_exceeds_room.discard(agent)
        else:
            self._backlog_exceeds_room.add(agent)

    def assume_backlog(self) -> None:
        """Tasks of any agent may wait in the store, without a known job."""
        self._backlog.update(self._agents)

    def agents_with_backlog(self) -> list[str]:
        """Agents with room and a possible backlog that no fetch is running for. Marks them as being fetched, until
        `end_fetch`."""
        if not self._backlog:
            return []
        agents = [name for name in self._backlog if name not in self._fetching and self.room(name) > 0]
        self._fetching.update(agents)
        return agents

    def next_fetch_size(self, agent: str) -> int:
        """How many waiting tasks of the agent to fetch; 0 without a known backlog or without room.

        Clears the known backlog, until `note_backlog`.
        """
        if agent not in self._backlog or not (room := self.room(agent)):
            return 0
        self._backlog.discard(agent)
        return room

    def end_fetch(self, agent: str) -> None:
        """The fetch for this agent has ended."""
        self._fetching.discard(agent)


async def notify_canceled(agent: RemoteAgent, store: Store, task: TaskRef, metadata: bytes) -> None:
    """Tells a remote agent that one of its tasks was canceled, with the state it keeps for that task.

    `metadata`: of the cancel request, a serialized Struct.
    """
    try:
        conversation = await store.messages(task)
        if conversation is not None and conversation.task_state:
            await agent.on_canceled(conversation.task_state, metadata)
    except Exception:
        log.exception("agent %s could not be notified of a cancel", agent.spec.id)


class JobSubscriptions:
    """The job subscriptions of one process."""

    def __init__(self, bus: Bus, on_job: Callable[[Job], None]) -> None:
        self._bus = bus
        self._on_job = on_job
        self._subscriptions: dict[str, Unsubscribe] = {}
        self._agents: frozenset[str] = frozenset()
        self._update_lock = asyncio.Lock()
        self._closed = False

    def differs(self, agents: Iterable[str]) -> bool:
        """Whether these agents differ from those of the last update."""
        return not self._closed and self._agents != frozenset(agents)

    async def update(self, agents: Iterable[str]) -> None:
        """Subscribes to the jobs of exactly these agents."""
        self._agents = frozenset(agents)
        async with self._update_lock:  # the last update wins, however long the bus takes
            for agent in self._subscriptions.keys() - self._agents:
                await self._subscriptions.pop(agent)()
            for agent in self._agents - self._subscriptions.keys():
                if not self._closed:
                    self._subscriptions[agent] = await self._bus.subscribe_jobs((agent,), self._on_job)

    async def close(self) -> None:
        """Ends all subscriptions. May be called twice."""
        self._closed = True
        await self.update(())
