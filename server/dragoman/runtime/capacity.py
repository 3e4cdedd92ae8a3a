"""Room at agents that run elsewhere: how many of their turns may begin here, and whose tasks wait for that.

Agents of this process take as many turns as there are slots. What an agent elsewhere takes is its own to say, and
changes while the server runs; a task is claimed only when there is room for it, so that one that waits is still
SUBMITTED, and anybody with room may have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from dragoman.core.errors import Unavailable
from dragoman.ports import Agent, Bus, Job, RemoteAgent, Unsubscribe


class RemoteCapacity:
    """The agents elsewhere that are served here. What is asked of other agents is answered as if there were room."""

    def __init__(self, agents: Mapping[str, Agent], worker_wait: float) -> None:
        """`patience`: seconds for which tasks wait for an agent that is not there."""
        self._worker_wait = worker_wait
        self._agents = {name: agent for name, agent in agents.items() if isinstance(agent, RemoteAgent)}
        self._used: dict[str, int] = {}
        self._backlog = set(self._agents)
        self._fetching: set[str] = set()
        self._backlog_exceeds_room = set(self._agents)
        """Those of whose tasks more wait than there is room for, as far as is known: nobody may pass them."""

    def __contains__(self, agent: str) -> bool:
        return agent in self._agents

    def add(self, agent: RemoteAgent) -> None:
        """Serves an agent from now on; tasks of it may wait in the store already."""
        self._agents[agent.spec.id] = agent
        self._backlog.add(agent.spec.id)
        self._backlog_exceeds_room.add(agent.spec.id)

    def remove(self, name: str) -> None:
        """Serves an agent no more."""
        self._agents.pop(name, None)
        self._backlog.discard(name)
        self._backlog_exceeds_room.discard(name)

    def check_available(self, agent: str) -> None:
        """Raises Unavailable for an agent that has been away for so long that nobody should wait for it."""
        if agent in self._agents and self.is_absent_too_long(agent):
            away = self._agents[agent].seconds_absent
            if not self._agents[agent].is_worker_backed:
                raise Unavailable(f'agent "{agent}" has been away for {away:.0f} s; try again later')
            raise Unavailable(f'no worker of agent "{agent}" has been connected for {away:.0f} s; try again later')

    def is_absent_too_long(self, agent: str) -> bool:
        """Whether it has been away for longer than tasks wait for it."""
        return self._agents[agent].seconds_absent > self._worker_wait

    @property
    def absent_too_long(self) -> list[str]:
        """Every such agent."""
        return [name for name in self._agents if self.is_absent_too_long(name)]

    def is_worker_backed(self, agent: str) -> bool:
        """Whether it is workers that have an agent elsewhere."""
        return agent not in self._agents or self._agents[agent].is_worker_backed

    def seconds_absent(self, agent: str) -> float | None:
        """Seconds since an agent elsewhere went away, 0 while it is there; None for agents of this process."""
        found = self._agents.get(agent)
        return found.seconds_absent if found else None

    def room(self, agent: str) -> int:
        """Turns of an agent elsewhere that may begin now."""
        found = self._agents.get(agent)
        return max(found.capacity - self._used.get(agent, 0), 0) if found else 0

    def accepts_message(self, agent: str) -> bool:
        """Whether a new message may begin a turn without passing others that wait."""
        return agent not in self._agents or (agent not in self._backlog_exceeds_room and self.room(agent) > 0)

    @property
    def runnable_agents(self) -> list[str]:
        """The agents elsewhere that can have turns by way of this process, now or once others have ended."""
        return [name for name, agent in self._agents.items() if agent.capacity > 0]

    def try_acquire(self, agent: str) -> bool:
        """Takes a place, until `give`. False when there is none."""
        if agent not in self._agents:
            return True
        if self.room(agent) <= 0:
            return False
        self.acquire(agent)
        return True

    def acquire(self, agent: str) -> None:
        """Takes a place for a run, which has been claimed already."""
        if agent in self._agents:
            self._used[agent] = self._used.get(agent, 0) + 1

    def release(self, agent: str) -> None:
        """Gives a place back."""
        if (taken := self._used.get(agent)) is None:
            return
        if taken > 1:
            self._used[agent] = taken - 1
        else:
            del self._used[agent]

    def runner(self, agent: str, task_id: str) -> str:
        """Which process elsewhere runs a turn of a task; empty when none does."""
        return self._agents[agent].runner_of(task_id) if agent in self._agents else ""

    def describe_run(self, agent: str, task_id: str) -> str:
        """What is to be expected of that process, in a few sentences; empty when there is nothing to say."""
        return self._agents[agent].describe_run(task_id) if agent in self._agents else ""

    def describe_next(self, agent: str) -> str:
        """What happens next to a task of it that waits for nothing else, in words."""
        if agent not in self._agents or self.room(agent) > 0:
            return "It waits for a worker, and is taken at once."
        found = self._agents[agent]
        if not (away := found.seconds_absent):
            if not found.is_worker_backed:
                return f'It waits for room at agent "{agent}", which has as many turns as it may be given at a time.'
            return f'It waits for room at a worker of agent "{agent}"; all that are connected are busy, or drain.'
        left = max(self._worker_wait - away, 0)
        if found.problem:
            return (
                f'It waits for agent "{agent}", which has been away for {away:.0f} s ({found.problem}); '
                f"it is tried again every few seconds, and in {left:.0f} s more (--worker-wait) it ends as FAILED."
            )
        return (
            f'It waits for a worker of agent "{agent}"; none has been connected for {away:.0f} s, and in {left:.0f} s '
            "more (--worker-wait) it ends as FAILED. Start one: dragoman worker."
        )

    # Who waits --------------------------------------------------------------------------------------------------

    def note_backlog(self, agent: str) -> None:
        """Tasks of it may wait in the store."""
        self._backlog.add(agent)
        if self.room(agent) <= 0:
            self._backlog_exceeds_room.add(agent)

    def note_fetched(self, agent: str, *, enough: bool) -> None:
        """Somebody has looked for tasks of it, and there is room `enough` for those that wait, or there is not."""
        if enough:
            self._backlog_exceeds_room.discard(agent)
        else:
            self._backlog_exceeds_room.add(agent)

    def assume_backlog(self) -> None:
        """Tasks of any of them may wait in the store, though nobody said so."""
        self._backlog.update(self._agents)

    def agents_with_backlog(self) -> list[str]:
        """The agents with room whose tasks may wait, and that nobody looks after yet; they are looked after from now
        on, until `looked`."""
        if not self._backlog:
            return []
        found = [name for name in self._backlog if name not in self._fetching and self.room(name) > 0]
        self._fetching.update(found)
        return found

    def next_fetch_size(self, agent: str) -> int:
        """How many waiting tasks of it to take; 0 when none wait, as far as is known, or there is no room. Nothing is
        known of what waits after that, unless `wait` says so."""
        if agent not in self._backlog or not (room := self.room(agent)):
            return 0
        self._backlog.discard(agent)
        return room

    def end_fetch(self, agent: str) -> None:
        """Nobody looks for tasks of it any more."""
        self._fetching.discard(agent)


class JobSubscriptions:
    """The registrations of one process for jobs."""

    def __init__(self, bus: Bus, on_job: Callable[[Job], None]) -> None:
        self._bus = bus
        self._on_job = on_job
        self._subscriptions: dict[str, Unsubscribe] = {}
        self._agents: frozenset[str] = frozenset()
        self._update_lock = asyncio.Lock()
        self._closed = False

    def differs(self, agents: Iterable[str]) -> bool:
        """Whether these are others than it was last told."""
        return not self._closed and self._agents != frozenset(agents)

    async def update(self, agents: Iterable[str]) -> None:
        """From now on of these, and of no others."""
        self._agents = frozenset(agents)
        async with self._update_lock:  # what was wanted last counts, however long the bus takes
            for agent in self._subscriptions.keys() - self._agents:
                await self._subscriptions.pop(agent)()
            for agent in self._agents - self._subscriptions.keys():
                if not self._closed:
                    self._subscriptions[agent] = await self._bus.subscribe_jobs((agent,), self._on_job)

    async def close(self) -> None:
        """Of none any more. May be called twice."""
        self._closed = True
        await self.update(())
