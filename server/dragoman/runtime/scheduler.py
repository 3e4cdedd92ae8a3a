"""Scheduler: queues, slots, claims, jobs and signals of one process.

A task is claimed by the append that makes it ready when a slot is free; otherwise it waits in the store, which is the
queue, stays SUBMITTED, and any process with room may take it: round robin over principals. The bus tells idle processes
of new tasks. A new task waits behind others once this process knows that more wait than it has room for. A process
keeps one queue for its local agents together, which share its slots and one query, and one for each remote agent, whose
capacity changes while the server runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final

from dragoman.core.counters import TurnCounters
from dragoman.core.errors import A2AError, Unavailable
from dragoman.core.task.log import Append, Appended, AppendRejected, Asleep, Ready, TaskRecord, TaskRef
from dragoman.ports import Agent, Bus, Job, RemoteAgent, Store, TaskSignal, Unsubscribe, is_called, is_remote
from dragoman.ports.store import StoredMessage
from dragoman.runtime.log import EventLog
from dragoman.runtime.maintenance.pauses import AgentPauses
from dragoman.runtime.turn.context import TurnServices
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.runtime")

RunTurns = Callable[[TurnRunner], Coroutine[Any, Any, None]]  # runs a runner: has to await `TurnRunner.run`


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


@dataclass(eq=False, repr=False)
class RunRegistry:
    """The running turns of a process, by task, and its slots."""

    slots: int  # the maximum of concurrent turns
    reserved: int = 0  # slots for tasks that are being written
    by_task: dict[TaskRef, TurnRunner] = field(default_factory=dict)
    idle_waiters: list[asyncio.Future[None]] = field(default_factory=list)  # those in `wait_idle`

    def __len__(self) -> int:
        return len(self.by_task)

    def __iter__(self) -> Iterator[TurnRunner]:
        """The runners at this moment. The registry may change meanwhile."""
        return iter(tuple(self.by_task.values()))

    def find(self, ref: TaskRef) -> TurnRunner | None:
        return self.by_task.get(ref)

    @property
    def free_slots(self) -> int:
        """Turns that may still begin here."""
        return self.slots - len(self.by_task) - self.reserved

    @property
    def idle(self) -> bool:
        """Whether no turn runs and no slot is reserved."""
        return not (self.by_task or self.reserved)

    async def wait_idle(self) -> None:
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


@dataclass(eq=False, repr=False, slots=True)
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
    | `end_query` with fewer | EMPTY, while RUNNING; else POSSIBLE | |
    | `end_fetch` | | NONE |
    """

    _runs: RunRegistry
    agents: tuple[str, ...]  # their ids
    agent: RemoteAgent | None = None  # the remote agent; None for the queue of local agents
    backlog: Backlog = Backlog.EXCEEDING  # until the store was asked
    reserved: int = 0  # slots for tasks that are being written
    running: int = 0  # running turns
    _fetch: Fetch = Fetch.NONE

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
            self.backlog = Backlog.POSSIBLE if self._fetch is Fetch.OUTDATED else Backlog.EMPTY

    def end_fetch(self) -> None:
        self._fetch = Fetch.NONE


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
        self.worker_wait = worker_wait  # seconds that tasks wait for an absent remote agent
        remote = {name: agent for name, agent in agents.items() if is_remote(agent)}
        local = tuple(name for name in agents if name not in remote)
        self.local = AgentQueue(runs, local if runs_agents else ())
        self._remote = {name: AgentQueue(runs, (name,), agent) for name, agent in remote.items()}
        self._removed: dict[str, AgentQueue] = {}
        """Queues of removed agents whose turns still run: they count again if the agent returns."""

    def __iter__(self) -> Iterator[AgentQueue]:
        return iter((self.local, *self._remote.values()))

    def of(self, agent: str) -> AgentQueue:
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


@dataclass(eq=False, repr=False, slots=True)
class Reservation:
    """A slot for a task about to be written, until `commit` or `abort`."""

    _scheduler: Scheduler
    _queue: AgentQueue
    session: int
    """The session to claim the task for. 0: the task has to wait, because there is no slot, older tasks wait, its agent
    is paused, or the lease has lapsed."""
    _first: StoredMessage | None = None
    runner: TurnRunner | None = None  # the claimed turn, once it has begun

    def commit(self, appended: Appended | None) -> None:
        """Begins the claimed turn, or announces the waiting task; aborts with None. For `EventLog.append`."""
        if appended is None:
            self.abort()
            return
        if self.session:
            self._queue.release()
        self.runner = self._scheduler.follow_up(appended, self._first)
        if self.session and self.runner is None:
            self._scheduler.slot_freed(self._queue)

    def abort(self) -> None:
        """Gives the slot back: no commit is known. After an unknown outcome `UnsettledClaims` has the task."""
        if self.session:
            self._queue.release()
            self._scheduler.slot_freed(self._queue)


MAX_TIMERS: Final = 10_000  # sleeping turns with a timer in this process; later ones are found by a poll


@dataclass(eq=False, repr=False)
class Wakeups:
    """Wakes sleeping turns at their time. Every process wakes all turns of its agents; the first one wins."""

    store: Store
    event_log: EventLog
    agents: Container[str]  # the ids of the agents served here
    reserve: Callable[[str], Reservation]  # reserves a slot for a turn of an agent
    interval: float  # seconds between two calls of `poll`
    _timers: dict[TaskRef, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _waking: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    @property
    def timers(self) -> int:
        """Turns that wake before the next poll, or are being woken."""
        return len(self._timers)

    async def poll(self) -> None:
        """Sets a timer for each turn that wakes before the next poll."""
        try:
            records = await self.store.sleeping_tasks(self.store.now() + round(self.interval * 1000), MAX_TIMERS)
        except Exception as error:
            log_fault(log, "sleeping turns could not be read; retrying", error)
            return
        for record in records:
            self._set_timer(record)

    def note(self, record: TaskRecord) -> None:
        """A turn of this process went to sleep."""
        if record.wake_at <= self.store.now() + round(self.interval * 1000):
            self._set_timer(record)

    def stop(self) -> None:
        while self._timers:
            self._timers.popitem()[1].cancel()

    def _set_timer(self, record: TaskRecord) -> None:
        if record.agent not in self.agents or record.ref in self._timers or len(self._timers) >= MAX_TIMERS:
            return
        delay = max(record.wake_at - self.store.now(), 0) / 1000
        self._timers[record.ref] = asyncio.get_running_loop().call_later(delay, self._start_waking, record)

    def _start_waking(self, record: TaskRecord) -> None:
        waking = asyncio.get_running_loop().create_task(self._wake(record), name=f"wake {record.id}")
        self._waking.add(waking)
        waking.add_done_callback(partial(self._end_waking, record.ref))

    def _end_waking(self, ref: TaskRef, waking: asyncio.Task[None]) -> None:
        self._waking.discard(waking)
        self._timers.pop(ref, None)

    async def _wake(self, record: TaskRecord) -> None:
        change = Append(task=record.ref, guard=Asleep(), wake=True)
        try:
            reservation = self.reserve(record.agent)
        except Unavailable:  # this server is shutting down, or the agent is away
            return
        # Rejected: another process has woken it, or it was canceled. Another error: the next poll finds it again.
        with suppress(AppendRejected, A2AError):
            await self.event_log.append(replace(change, claim_session=reservation.session), reservation.commit)


class Scheduler:
    """Runs the turns of this process."""

    def __init__(
        self,
        services: TurnServices,
        bus: Bus,
        agents: Mapping[str, Agent],
        session: int,
        run_turns: RunTurns = TurnRunner.run,
    ) -> None:
        """`session`: the number under which this process claims tasks."""
        self.services = services
        self._bus = bus
        self._agents = agents
        self._run_turns = run_turns
        self.session = session
        options = services.options
        interval = options.timings.backlog_poll_interval
        self.runs = RunRegistry(options.slots)
        self.pauses = AgentPauses(services.store.key_values, self._on_resumed, services.store.now)
        self.queues = AgentQueues(
            agents, self.runs, options.worker_wait, runs_agents=options.runs_agents, is_paused=self.is_paused
        )
        self.wakeups = Wakeups(services.store, services.event_log, agents, self.reserve, interval)
        # By agent.
        self.counts = defaultdict[str, TurnCounters](TurnCounters, {name: TurnCounters() for name in agents})
        self.on_unserved: Callable[[TaskRecord], None] = lambda _: None  # called for tasks whose agent was removed
        # Not a TaskGroup: an agent that never stops must not keep the server from stopping.
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_principal = ""  # the principal whose task was taken last
        self.draining = self._stopping = False  # whether the server is shutting down
        self._lease_term = services.lease.term if services.lease is not None else 0
        """The term of the lease in which waiting tasks were last asked for."""
        self._registrations = AsyncExitStack()
        self._job_subscriptions = JobSubscriptions(bus, self._on_job)
        """Subscriptions for jobs, which are ended when the drain begins."""

    async def start(self) -> None:
        """Subscribes to jobs and signals, and takes tasks that wait in the store."""
        await self.pauses.refresh()
        await self._job_subscriptions.update(self.queues.runnable_agents)
        self._registrations.push_async_callback(await self._bus.subscribe_signals(self._on_signal))
        if self.queues.local.begin_fetch():
            await self._fetch(self.queues.local)
        self._fill_slots()
        await self.wakeups.poll()

    def capacity_changed(self) -> None:
        """A remote agent was added or removed, or its capacity grew."""
        if self._job_subscriptions.differs(runnable := self.queues.runnable_agents):
            self._start_task(self._job_subscriptions.update(runnable), "update job subscriptions")
        self._fill_slots()

    def is_paused(self, agent: str) -> bool:
        return agent in self.pauses.by_agent

    def _on_resumed(self, agents: Iterable[str]) -> None:
        for agent in agents:
            queue = self.queues.of(agent)
            queue.resume()
            self._fill(queue)

    @property
    def running(self) -> int:
        return len(self.runs)

    @property
    def repeatable(self) -> int:
        """Turns under way that start again if this process stops, instead of ending as FAILED."""
        return sum(runner.is_repeatable for runner in self.runs)

    def leaked_threads(self, agent: str) -> int:
        """Threads of an agent that still run although their turn has ended."""
        return self._agents[agent].leaked_threads if agent in self._agents else 0

    @property
    def has_lease(self) -> bool:
        """Whether this process may claim tasks: its lease is valid, or it needs none."""
        lease = self.services.lease
        return lease is None or lease.remaining > 0

    # Claims -----------------------------------------------------------------------------------------------------

    def reserve(self, agent: str, first: StoredMessage | None = None) -> Reservation:
        """Reserves a slot for a task about to be written.

        `first`: of a new task; with None the turn reads its input. Raises Unavailable while draining, and for a remote
        agent absent for too long.
        """
        if self.draining:
            raise Unavailable("the server is shutting down and accepts no new messages; retry later")
        queue = self.queues.of(agent)
        if queue.agent is not None:
            self.queues.check_available(queue.agent)
        may_claim = (
            queue.backlog is not Backlog.EXCEEDING  # a new task does not overtake waiting ones
            and (self.services.lease is None or self.has_lease)  # most servers need none: no call
            and agent not in self.pauses.by_agent
            and queue.try_reserve()
        )
        return Reservation(self, queue, self.session if may_claim else 0, first)

    def follow_up(self, appended: Appended, first: StoredMessage | None = None) -> TurnRunner | None:
        """Begins the turn that an append has claimed, or announces the task that it has left waiting."""
        record = appended.record
        if appended.claimed and record.agent not in self._agents:
            self.on_unserved(record)
        elif appended.claimed:
            return self._begin(appended, first)
        elif record.ready:
            self._announce_waiting(record)
        elif record.running:
            self._bus.publish_signal(record.ref, TaskSignal.MESSAGE)
        return None

    def _announce_waiting(self, record: TaskRecord) -> None:
        """Handles a task that waits in the store: takes it here if there is room, else publishes a job for others."""
        if record.agent not in self._agents:
            self.on_unserved(record)
            return
        if self.is_paused(record.agent):  # `_on_resumed` asks the store
            return
        queue = self.queues.of(record.agent)
        queue.note_backlog()
        if queue.room > 0 and not self.draining:
            self._fill(queue)
        else:
            self._bus.publish_job(Job(record.agent, record.ref))

    def _begin(self, appended: Appended, first: StoredMessage | None) -> TurnRunner:
        record = appended.record
        existing = self.runs.by_task.get(record.ref)
        if existing is not None and existing.context.record.token == record.token:  # ClaimRecovery was faster
            return existing
        runner = TurnRunner(self.services, self._agents[record.agent], appended, first)
        queue = self.queues.of(record.agent)
        self.counts[record.agent].started += 1
        self._last_principal = record.principal
        # If this fails, out of memory, ClaimRecovery begins it again.
        run, began = self._run_turns(runner), time.perf_counter()
        task = runner.task = asyncio.get_running_loop().create_task(run, name=f"run {record.id}")
        self.runs.by_task[record.ref] = runner
        queue.running += 1
        task.add_done_callback(partial(self._on_run_ended, runner, queue, began))
        if self._stopping:  # claimed before the stop: it has to begin in order to end
            asyncio.get_running_loop().call_soon(runner.drain)
        return runner

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_run_ended(self, runner: TurnRunner, queue: AgentQueue, began: float, done: asyncio.Task[None]) -> None:
        record = runner.context.record
        if done.cancelled():
            error: BaseException | None = None if self._stopping else asyncio.CancelledError()
        else:
            error = done.exception()
        if error is not None and record.running:
            self._start_task(runner.abort(), f"end {record.id}").add_done_callback(
                partial(self._on_run_ended, runner, queue, began)
            )
            log_fault(log, "a turn failed outside of its agent", error, task=record.id)
            return
        counts = self.counts[record.agent]
        counts.ended_by_state[record.state] += 1
        counts.seconds.add(time.perf_counter() - began)
        if (usage := runner.context.usage_tracker) is not None:
            counts.tokens += usage.total.own.tokens - usage.initial.own.tokens
            counts.cost += usage.total.own.cost - usage.initial.own.cost
        if self.runs.by_task.get(record.ref) is runner:
            del self.runs.by_task[record.ref]
        queue.running -= 1
        if record.wake_at:
            self.wakeups.note(record)
        elif record.ready:  # released, to be repeated
            self._announce_waiting(record)
        self.slot_freed(queue)

    def slot_freed(self, queue: AgentQueue) -> None:
        runs = self.runs
        if runs.slots - len(runs.by_task) - runs.reserved <= 1:  # the last one: other queues may have waited
            self._fill_slots()
        elif queue.backlog is not Backlog.EMPTY:
            self._fill(queue)
        if runs.idle_waiters:
            runs.wake_if_idle()

    # Jobs -------------------------------------------------------------------------------------------------------

    def _on_job(self, job: Job) -> None:
        queue = self.queues.of(job.agent)
        queue.note_backlog()
        self._fill(queue)

    def _fill_slots(self) -> None:
        for queue in self.queues:
            self._fill(queue)

    def _fill(self, queue: AgentQueue) -> None:
        if not self.draining and queue.begin_fetch():
            self._start_task(self._fetch(queue), f"take waiting tasks of {', '.join(queue.agents)}")

    async def poll(self) -> None:
        """Polls the store: what was to take a task may have failed, or died."""
        with suppress(Unavailable):
            await self.pauses.refresh()
        self._look_for_waiting_tasks()
        await self.wakeups.poll()

    def _look_for_waiting_tasks(self) -> None:
        for queue in self.queues:
            queue.assume_backlog()
        self._fill_slots()

    async def _fetch(self, queue: AgentQueue) -> None:
        """Takes the waiting tasks of a queue, as far as it has room."""
        try:
            while not self.draining and self.has_lease and (room := queue.begin_query()):
                agents = [agent for agent in queue.agents if not self.is_paused(agent)]
                records = await self.services.store.ready_tasks(agents, room, self._last_principal) if agents else []
                queue.end_query(room, len(records))
                if records:
                    await asyncio.gather(*[self._claim(queue, record) for record in records])
        except Exception as error:
            log_fault(log, f"could not take waiting tasks of {', '.join(queue.agents)}; retrying", error)
        finally:
            queue.end_fetch()

    async def _claim(self, queue: AgentQueue, record: TaskRecord) -> None:
        if self.draining or not self.has_lease or self.is_paused(record.agent):
            return
        if not queue.try_reserve():
            queue.note_backlog()
            return
        change = Append(task=record.ref, guard=Ready(), claim_session=self.session)
        with suppress(AppendRejected):  # another process claimed it, or it was canceled
            await self.services.event_log.append(change, Reservation(self, queue, self.session).commit)

    def check_lease(self) -> None:
        """Stops the turns that began before a lapse of the lease. After its renewal, takes what has waited."""
        for runner in self.runs:
            runner.end_lapsed_lease()
        lease = self.services.lease
        if lease is not None and lease.term != self._lease_term and self.has_lease:
            self._lease_term = lease.term
            self._look_for_waiting_tasks()

    # Signals ----------------------------------------------------------------------------------------------------

    def _on_signal(self, ref: TaskRef, signal: TaskSignal) -> None:
        runner = self.runs.find(ref)
        if runner is None:
            return
        if signal is TaskSignal.CANCEL:
            self._start_task(self._cancel(runner), f"cancel {runner.context.task_id}")
        elif signal is TaskSignal.MESSAGE:
            runner.context.notify_message()

    async def _cancel(self, runner: TurnRunner) -> None:
        """Cancels a runner, if the store confirms it (a late signal may belong to an earlier turn) or has erased it."""
        ref, store = runner.context.record.ref, self.services.store
        with suppress(Unavailable):  # the poll for cancel requests finds it
            requests = await store.cancel_requests.pending([ref])
            if requests or await store.read(ref, history=0) is None:
                runner.cancel(metadata=requests.get(ref, b""))
                if runner.context.cancel_refusal:
                    await store.cancel_requests.withdraw(ref)
                if not requests:  # it was erased: nothing waits for another server's word
                    runner.deadlines.after(self.services.options.timings.mute_timeout, runner.end_unconfirmed)

    def called_agent(self, agent: str) -> RemoteAgent | None:
        """The agent with this id, if it calls another server."""
        served = self._agents.get(agent)
        return served if is_called(served) else None

    # Shutdown ---------------------------------------------------------------------------------------------------

    async def drain(self, grace: float, report: Callable[[int], None] | None = None) -> None:
        """Accepts no new tasks and waits up to `grace` seconds for turns and claims; then stops the rest.

        These end as FAILED, or are released if their agent has not begun or has retries left. `report` is called once a
        second with the number of running turns.
        """
        self.draining = True
        await self._job_subscriptions.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        warned = False
        while not self.runs.idle and loop.time() < deadline:
            if not warned and loop.time() >= deadline - self.services.options.timings.stop_notice:
                warned = True
                for runner in self.runs:
                    runner.context.stopping = True
            if report is not None:
                report(len(self.runs))
            with suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, max(0.0, deadline - loop.time()))):
                    await self.runs.wait_idle()
        for runner in self.runs:
            runner.drain()

    async def stop(self) -> int:
        """Stops running turns as `drain` does and unsubscribes. Returns the number of agents that did not stop."""
        timeout = 0.0 if self._stopping else self.services.options.timings.stop_timeout  # the agents had their time
        self.draining = self._stopping = True
        self.wakeups.stop()
        for runner in self.runs:
            runner.drain()
        try:
            async with asyncio.timeout(timeout):
                await self.runs.wait_idle()
        except TimeoutError:
            log.warning("%d agents did not stop; their tasks end at the next start", len(self.runs))
        await self._job_subscriptions.close()
        await self._registrations.aclose()
        return len(self.runs)
