"""Queues of a process: its running turns, the room for more, and what waits for it in the store.

The store holds the waiting tasks. A process keeps one queue for its local agents together, which share its slots and
one query, and one for each remote agent, whose capacity changes while the server runs. A task is claimed only when its
queue has room, so a waiting task stays SUBMITTED and any process with room may take it. Nothing here does I/O, except
the job subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Protocol

from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Appended, TaskRef
from dragoman.ports import Agent, Bus, Job, RemoteAgent, StoredMessage, Unsubscribe, is_remote
from dragoman.runtime.turn.runner import TurnRunner


class Backlog(Enum):
    """Knowledge about a queue's tasks that wait in the store."""

    EMPTY = "none wait, as far as known"
    POSSIBLE = "some may wait: ask the store"
    EXCEEDING = "more wait than there is room for: ask the store, and let no new task overtake them"


class Fetch(Enum):
    """Whether tasks are being fetched from the store."""

    NONE = "no fetch"
    RUNNING = "a fetch is running"
    OUTDATED = "a fetch is running, and more tasks have come since its query"


class RunRegistry:
    """The running turns of a process, by task, and its slots."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        """The maximum of concurrent turns."""
        self.reserved = 0
        """Slots for tasks that are being written."""
        self.by_task: dict[TaskRef, TurnRunner] = {}
        self.idle_waiters: list[asyncio.Future[None]] = []
        """Those in `wait_idle`."""

    def __len__(self) -> int:
        return len(self.by_task)

    def __iter__(self) -> Iterator[TurnRunner]:
        """The runners at this moment. The registry may change meanwhile."""
        return iter(tuple(self.by_task.values()))

    def find(self, ref: TaskRef) -> TurnRunner | None:
        """The runner of this task, if it runs here."""
        return self.by_task.get(ref)

    def clear(self) -> None:
        """Removes all turns."""
        self.by_task.clear()
        self.wake_if_idle()

    @property
    def free_slots(self) -> int:
        """Turns that may still begin here."""
        return self.slots - len(self.by_task) - self.reserved

    @property
    def idle(self) -> bool:
        """Whether no turn runs and no slot is reserved."""
        return not (self.by_task or self.reserved)

    async def wait_idle(self) -> None:
        """Returns when no turn runs and no slot is reserved."""
        while not self.idle:
            waiter = asyncio.get_running_loop().create_future()
            self.idle_waiters.append(waiter)
            await waiter

    def wake_if_idle(self) -> None:
        """Wakes those in `wait_idle`. Call it after a removal or the end of a reservation."""
        if self.idle_waiters and self.idle:
            waiters, self.idle_waiters = self.idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


class AgentQueue:
    """Room and backlog of the local agents together, or of one remote agent.

    | event | backlog | fetch |
    |---|---|---|
    | `note_backlog` | EMPTY becomes POSSIBLE; EXCEEDING without room | RUNNING becomes OUTDATED |
    | `assume_backlog` | EMPTY becomes POSSIBLE | RUNNING becomes OUTDATED |
    | `resume` | EXCEEDING | RUNNING becomes OUTDATED |
    | `begin_fetch` | | NONE becomes RUNNING, if something may wait and there is room |
    | `begin_query` | | RUNNING |
    | `end_query` with as many tasks as there was room | EXCEEDING | |
    | `end_query` with fewer | POSSIBLE | |
    | `end_query` with none | EMPTY, while RUNNING; else POSSIBLE | |
    | `end_fetch` | | NONE |
    """

    __slots__ = ("_fetch", "_runs", "agent", "agents", "backlog", "reserved", "running")

    def __init__(self, runs: RunRegistry, agents: tuple[str, ...], agent: RemoteAgent | None = None) -> None:
        """`agents`: their ids; `agent`: the remote agent, None for the queue of local agents."""
        self._runs = runs
        self._fetch = Fetch.NONE
        self.agents = agents
        self.agent = agent
        self.backlog = Backlog.EXCEEDING  # until the store was asked
        self.reserved = 0
        """Slots for tasks that are being written."""
        self.running = 0
        """Running turns."""

    @property
    def capacity(self) -> int:
        """Concurrent turns that its agents can have, including those that run."""
        if self.agent is not None:
            return self.agent.capacity
        return self._runs.slots if self.agents else 0

    @property
    def room(self) -> int:
        """Turns that may begin now."""
        free = self._runs.free_slots
        if self.agent is not None:
            free = min(free, self.agent.capacity - self.running - self.reserved)
        elif not self.agents:
            return 0
        return free if free > 0 else 0

    def try_reserve(self) -> bool:
        """Takes a slot, until `release`. False when there is no room."""
        runs, agent = self._runs, self.agent  # as `room`, without further calls
        if runs.slots - len(runs.by_task) - runs.reserved <= 0:
            return False
        if not self.agents or (agent is not None and agent.capacity - self.running - self.reserved <= 0):
            return False
        self.reserved += 1
        runs.reserved += 1
        return True

    def release(self) -> None:
        """Gives a reserved slot back."""
        self.reserved -= 1
        self._runs.reserved -= 1

    # Backlog ----------------------------------------------------------------------------------------------------

    def note_backlog(self) -> None:
        """A task waits in the store."""
        if self.backlog is not Backlog.EXCEEDING:
            self.backlog = Backlog.POSSIBLE if self.room > 0 else Backlog.EXCEEDING
        self._outdate()

    def assume_backlog(self) -> None:
        """Tasks may wait in the store, without a known one."""
        if self.backlog is Backlog.EMPTY:
            self.backlog = Backlog.POSSIBLE
        self._outdate()

    def resume(self) -> None:
        """Tasks of an agent that was paused may wait in the store: no new task overtakes them."""
        self.backlog = Backlog.EXCEEDING
        self._outdate()

    def _outdate(self) -> None:
        if self._fetch is Fetch.RUNNING:
            self._fetch = Fetch.OUTDATED

    def begin_fetch(self) -> bool:
        """Whether to fetch waiting tasks now. Then `end_fetch` has to follow."""
        if self.backlog is Backlog.EMPTY or self._fetch is not Fetch.NONE or self.room <= 0:
            return False
        self._fetch = Fetch.RUNNING
        return True

    def begin_query(self) -> int:
        """How many waiting tasks to ask the store for; 0 when none may wait, or without room."""
        self._fetch = Fetch.RUNNING
        return 0 if self.backlog is Backlog.EMPTY else self.room

    def end_query(self, limit: int, found: int) -> None:
        """Records how many tasks the store had of those it was asked for."""
        if found >= limit:
            self.backlog = Backlog.EXCEEDING
        else:
            self.backlog = Backlog.POSSIBLE if found or self._fetch is Fetch.OUTDATED else Backlog.EMPTY

    def end_fetch(self) -> None:
        """The fetch has ended."""
        self._fetch = Fetch.NONE


class TurnStarter(Protocol):
    """Follows up claims. Implemented by the scheduler."""

    def follow_up(
        self, appended: Appended, message: StoredMessage | None = None, *, fresh_context: bool = False
    ) -> TurnRunner | None:
        """Begins the turn that an append has claimed, or announces the task that it has left waiting."""
        ...

    def slot_freed(self, queue: AgentQueue) -> None:
        """A slot of this queue is free again."""
        ...


class Reservation:
    """A slot for a task about to be written, until `commit` or `abort`."""

    __slots__ = ("_fresh_context", "_message", "_queue", "_starter", "runner", "session")

    def __init__(
        self, starter: TurnStarter, queue: AgentQueue, session: int, message: StoredMessage | None, fresh_context: bool
    ) -> None:
        self._starter = starter
        self._queue = queue
        self._message = message
        self._fresh_context = fresh_context
        self.session = session
        """The session to claim the task for. 0: the task has to wait, because there is no slot, older tasks wait, its
        agent is paused, or the lease has lapsed."""
        self.runner: TurnRunner | None = None
        """The claimed turn, once it has begun."""

    def commit(self, appended: Appended | None) -> None:
        """Begins the claimed turn, or announces the waiting task; aborts with None.

        A callback for `EventLog.append`.
        """
        if appended is None:
            self.abort()
            return
        if self.session:
            self._queue.release()
        self.runner = self._starter.follow_up(appended, self._message, fresh_context=self._fresh_context)
        if self.session and self.runner is None:
            self._starter.slot_freed(self._queue)

    def abort(self) -> None:
        """Gives the slot back: no commit is known. After an unknown outcome `UnsettledClaims` has the task."""
        if self.session:
            self._queue.release()
            self._starter.slot_freed(self._queue)


class AgentQueues:
    """The queues of a process: one for its local agents, one for each remote agent."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        runs: RunRegistry,
        worker_wait: float,
        *,
        runs_agents: bool,
        is_paused: Callable[[str], bool] = lambda agent: False,
    ) -> None:
        """With `runs_agents=False` the local agents are left to other processes. `is_paused`: whether turns of an agent
        may not begin."""
        self._runs = runs
        self._is_paused = is_paused
        self.worker_wait = worker_wait
        """Seconds that tasks wait for an absent remote agent."""
        remote = {name: agent for name, agent in agents.items() if is_remote(agent)}
        local = tuple(name for name in agents if name not in remote)
        self.local = AgentQueue(runs, local if runs_agents else ())
        self._remote = {name: AgentQueue(runs, (name,), agent) for name, agent in remote.items()}
        self._removed: dict[str, AgentQueue] = {}
        """Queues of removed agents whose turns still run: they count again if the agent returns."""

    def __iter__(self) -> Iterator[AgentQueue]:
        """The queues at this moment."""
        return iter((self.local, *self._remote.values()))

    def of(self, agent: str) -> AgentQueue:
        """The queue of an agent."""
        return self._remote.get(agent, self.local)

    def remote(self, agent: str) -> RemoteAgent | None:
        """The remote agent with this id; None for local and unknown ones."""
        return self._remote[agent].agent if agent in self._remote else None

    def add(self, agent: RemoteAgent) -> None:
        """Adds a remote agent, unless it has a queue; tasks of it may already wait in the store."""
        name = agent.spec.id
        if name in self._remote:
            return
        queue = self._removed.pop(name) if name in self._removed else AgentQueue(self._runs, (name,), agent)
        self._remote[name] = queue
        queue.agent, queue.backlog = agent, Backlog.EXCEEDING

    def remove(self, name: str) -> None:
        """Removes a remote agent."""
        if (queue := self._remote.pop(name, None)) is not None and queue.running + queue.reserved:
            self._removed[name] = queue

    @property
    def runnable_agents(self) -> list[str]:
        """The agents that may have turns in this process: those with any capacity, used or not."""
        return [agent for queue in self if queue.capacity > 0 for agent in queue.agents]

    # Absent agents ----------------------------------------------------------------------------------------------

    def check_available(self, agent: RemoteAgent) -> None:
        """Raises Unavailable for an agent that has been absent for longer than tasks wait for it.

        Not for a paused one: its worker may be replaced meanwhile.
        """
        if (away := agent.seconds_absent) > self.worker_wait and not self._is_paused(agent.spec.id):
            if not agent.is_worker_backed:
                raise Unavailable(f'agent "{agent.spec.id}" has been unavailable for {away:.0f} s; try again later')
            raise Unavailable(
                f'no worker of agent "{agent.spec.id}" has been connected for {away:.0f} s; try again later'
            )

    @property
    def absent_too_long(self) -> list[str]:
        """The remote agents that have been absent for longer than tasks wait for them, without those paused."""
        return [
            name
            for name in self._remote
            if (self.seconds_absent(name) or 0.0) > self.worker_wait and not self._is_paused(name)
        ]

    def seconds_absent(self, agent: str) -> float | None:
        """Seconds since a remote agent became unavailable, 0 while it is available; None for local agents."""
        remote = self.remote(agent)
        return remote.seconds_absent if remote else None


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
