"""Scheduler: slots, claims, jobs and signals of one process.

A task is claimed by the append that makes it ready when a slot is free; otherwise it waits in the store, which is the
queue. A free slot takes the next task from there, round robin over principals. The bus tells idle processes of new
tasks. New tasks never overtake waiting ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from dragoman.core.counters import TurnCounters
from dragoman.core.errors import Unavailable
from dragoman.core.limits.quotas import NO_BUDGETS
from dragoman.core.task.log import Append, Appended, AppendRejected, Event, Ready, TaskRecord, TaskRef
from dragoman.ports import Agent, Bus, Job, RemoteAgent, Store, StoredMessage, TaskSignal
from dragoman.runtime.capacity import JobSubscriptions, RemoteCapacity, notify_canceled
from dragoman.runtime.lease import Lease
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.events import NO_COALESCING, Coalesce
from dragoman.runtime.turn.input import ReferenceResolver
from dragoman.runtime.turn.runner import TurnRunner
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.runtime")

DEFAULT_SLOTS: Final = 1000
"""Concurrent turns in one process, unless the settings say otherwise."""

WORKER_WAIT_SECONDS: Final = 300.0
"""Seconds that tasks wait for an absent remote agent, unless the settings say otherwise."""

BACKLOG_POLL_INTERVAL: Final = 2.0
"""Seconds between polls for tasks that were left waiting."""

STOP_NOTICE_SECONDS: Final = 30.0
"""Seconds before the end of the drain at which turns are notified (`turn.stopping`)."""

STOP_TIMEOUT: Final = 5.0
"""Seconds for agents to stop after the drain."""


class Scheduler:
    """Runs the turns of this process. `session` is the number under which it claims tasks."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        event_log: EventLog,
        agents: Mapping[str, Agent],
        session: int,
        reference_resolver: ReferenceResolver,
        *,
        slots: int = DEFAULT_SLOTS,
        strict: bool = False,
        coalesce: Coalesce = NO_COALESCING,
        worker_wait: float = WORKER_WAIT_SECONDS,
        runs_agents: bool = True,
        lease: Lease | None = None,
    ) -> None:
        """`lease`: of this process; None if no other uses the store. `worker_wait`: seconds that tasks wait for an
        absent remote agent. With `runs_agents=False` the app's own agents are left to other processes on the store."""
        self._store = store
        self._bus = bus
        self._log = event_log
        self._agents = agents
        self._session = session
        self._reference_resolver = reference_resolver
        self._slots = slots
        self._lease = lease
        self._strict = strict
        self._coalesce = coalesce
        self.runs_agents = runs_agents
        self.remote_capacity = RemoteCapacity(agents, worker_wait)
        self.run_turns: Callable[[TurnRunner], Coroutine[Any, Any, None]] = TurnRunner.run
        """Runs a runner; replaced when turns are traced."""
        self.budgets = NO_BUDGETS
        self._runners: dict[TaskRef, TurnRunner] = {}
        # By agent.
        self.counts = defaultdict[str, TurnCounters](TurnCounters, {name: TurnCounters() for name in agents})
        self.on_unserved: Callable[[TaskRecord], None] = lambda _: None  # for tasks whose agent was removed
        # Not a TaskGroup: an agent that never stops must not keep the server from stopping.
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self._has_backlog = False
        """Whether tasks may wait in the store."""
        self._backlog_exceeds_slots = True
        """Whether, as far as known, more tasks wait than there are slots; new ones must not overtake them."""
        self._fetching = False
        self._last_principal = ""
        """The principal whose task was taken last."""
        self._draining = self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._registrations = AsyncExitStack()
        self._job_subscriptions = JobSubscriptions(bus, self._on_job)
        """Subscriptions for jobs, which are ended when the drain begins."""

    async def start(self) -> None:
        """Subscribes to jobs and signals, and takes tasks that wait in the store."""
        await self._job_subscriptions.update(self._runnable_agents())
        self._registrations.push_async_callback(await self._bus.subscribe_signals(self._on_signal))
        if self.runs_agents:
            self._has_backlog = self._fetching = True
            await self._fetch_local()
        self._fill_slots()

    def capacity_changed(self) -> None:
        """A remote agent was added or removed, or its capacity grew."""
        if self._job_subscriptions.differs(runnable := self._runnable_agents()):
            self._start_task(self._job_subscriptions.update(runnable), "update job subscriptions")
        self._fill_slots()

    def _runnable_agents(self) -> list[str]:
        """The agents that may have turns in this process."""
        local = [name for name in self._agents if name not in self.remote_capacity] if self.runs_agents else []
        return [*local, *self.remote_capacity.runnable_agents]

    @property
    def slots(self) -> int:
        """The maximum of concurrent turns."""
        return self._slots

    @property
    def running(self) -> int:
        """Turns under way."""
        return len(self._runners)

    @property
    def busiest(self) -> tuple[str, int]:
        """The agent with the most running turns, and their number."""
        return next(iter(Counter(runner.record.agent for runner in self._runners.values()).most_common(1)), ("", 0))

    def leaked_threads(self, agent: str) -> int:
        """Threads of an agent that still run although their turn has ended."""
        return self._agents[agent].leaked_threads if agent in self._agents else 0

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def session(self) -> int:
        """The session under which this process claims tasks."""
        return self._session

    def find_runner(self, ref: TaskRef) -> TurnRunner | None:
        """The runner of this task, if it runs here."""
        return self._runners.get(ref)

    # Claims -----------------------------------------------------------------------------------------------------

    def reserve_slot(self, agent: str) -> int:
        """Reserves a slot for a task about to be written: the session to claim it for, or 0 if it has to wait.

        Ended by `complete_reservation`. Raises Unavailable while draining, and for a remote agent absent for too long.
        """
        if self._draining:
            raise Unavailable("the server is shutting down and accepts no new messages; retry later")
        # New tasks do not overtake waiting ones.
        if agent in self.remote_capacity:
            self.remote_capacity.check_available(agent)
            return self._take_slot(agent) if self.remote_capacity.accepts_message(agent) else 0
        return 0 if self._backlog_exceeds_slots or not self.runs_agents else self._take_slot(agent)

    def _take_slot(self, agent: str) -> int:
        lapsed = self._lease is not None and self._lease.remaining <= 0
        if lapsed or self.free_slots <= 0 or not self.remote_capacity.try_acquire(agent):
            return 0
        self._reserved += 1
        self._idle.clear()
        return self._session

    def complete_reservation(
        self,
        session: int,
        agent: str,
        appended: Appended | None,
        message: StoredMessage | None,
        *,
        fresh_context: bool = False,
    ) -> TurnRunner | None:
        """Ends a reservation: begins the claimed turn, or announces the waiting task.

        `message` is the first message of a new task; with None the runner reads its input. `appended` is None when
        nothing was written.
        """
        if session:
            self._reserved -= 1
            self._update_idle()
            self.remote_capacity.release(agent)
        if appended is None:
            return None
        record = appended.record
        if appended.claimed and record.agent not in self._agents:
            self.on_unserved(record)
        elif appended.claimed:
            return self._begin(record, message, appended.events if message else (), fresh_context)
        elif record.ready:
            self._announce_waiting(record)
        elif record.running:
            self._bus.publish_signal(record.ref, TaskSignal.MESSAGE)
        return None

    def _announce_waiting(self, record: TaskRecord) -> None:
        """Handles a task that waits in the store: takes it here if there is room, else publishes a job.

        None is published when there is room here: a job makes idle processes queue their own new tasks meanwhile."""
        if record.agent not in self._agents:
            self.on_unserved(record)
            return
        if record.agent in self.remote_capacity:
            self.remote_capacity.note_backlog(record.agent)
            has_room = self.remote_capacity.room(record.agent) > 0
        else:
            self._has_backlog = True
            self._backlog_exceeds_slots = self._backlog_exceeds_slots or self.free_slots <= 0
            has_room = self.runs_agents
        if has_room and self.free_slots > 0 and not self._draining:
            self._fill_slots()
        else:
            self._bus.publish_job(Job(record.agent, record.ref))

    def _begin(
        self, record: TaskRecord, message: StoredMessage | None, first: Sequence[Event], fresh_context: bool
    ) -> TurnRunner:
        existing = self._runners.get(record.ref)
        if existing is not None and existing.record.token == record.token:  # ClaimRecovery was faster than the answer
            return existing
        agent = self._agents[record.agent]
        runner = TurnRunner(
            self._log,
            self._store,
            agent,
            record,
            self._reference_resolver,
            first=first,
            strict=self._strict,
            coalesce=self._coalesce,
            hold=self._lease.hold() if self._lease is not None else None,
        )
        if self.budgets:
            runner.budget = self.budgets.budget_of(record.agent)
        self._runners[record.ref] = runner
        self.counts[record.agent].started += 1
        self.remote_capacity.acquire(record.agent)
        self._last_principal = record.principal
        self._idle.clear()
        try:
            if message is None:
                runner.resume(self._spawn)
            else:
                runner.begin(message, self._spawn, fresh_context=fresh_context)
        except Exception:  # out of memory: ClaimRecovery begins it again
            del self._runners[record.ref]
            self.remote_capacity.release(record.agent)
            self._update_idle()
            raise
        if self._stopping:  # claimed before the stop: it has to begin in order to end
            asyncio.get_running_loop().call_soon(runner.drain)
        return runner

    def _spawn(self, runner: TurnRunner) -> asyncio.Task[None]:
        task, began = self._start_task(self.run_turns(runner), f"run {runner.task_id}"), time.perf_counter()
        task.add_done_callback(lambda done: self._on_runner_ended(runner, done, time.perf_counter() - began))
        return task

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_runner_ended(self, runner: TurnRunner, done: asyncio.Task[None], seconds: float) -> None:
        if not done.cancelled() and (error := done.exception()) is not None and runner.record.running:
            log_fault(log, "a turn failed outside of its agent", error, task=runner.record.id)
            self._start_task(runner.abort(), f"end {runner.task_id}").add_done_callback(
                lambda aborted: self._on_runner_ended(runner, aborted, seconds)
            )
            return
        counts = self.counts[runner.record.agent]
        counts.ended_by_state[runner.record.state] += 1
        counts.seconds.add(seconds)
        if runner.usage_tracker is not None:
            counts.tokens += runner.usage_tracker.total.own.tokens - runner.usage_tracker.initial.own.tokens
            counts.cost += runner.usage_tracker.total.own.cost - runner.usage_tracker.initial.own.cost
        if self._runners.get(runner.record.ref) is runner:
            del self._runners[runner.record.ref]
        self._update_idle()
        self.remote_capacity.release(runner.record.agent)
        if runner.record.ready:  # released, to be repeated
            self._announce_waiting(runner.record)
        self._fill_slots()

    def _update_idle(self) -> None:
        if not self._runners and not self._reserved:
            self._idle.set()

    # Jobs -------------------------------------------------------------------------------------------------------

    def _on_job(self, job: Job) -> None:
        if job.agent in self.remote_capacity:
            self.remote_capacity.note_backlog(job.agent)
        else:
            self._has_backlog = True
        self._fill_slots()

    def _fill_slots(self) -> None:
        if not self._draining and self.free_slots > 0:
            for agent in self.remote_capacity.agents_with_backlog():
                self._start_task(self._fetch_remote(agent), f"take waiting tasks of {agent}")
        if self._has_backlog and self.runs_agents and not self._fetching and not self._draining and self.free_slots > 0:
            self._fetching = True
            self._start_task(self._fetch_local(), "take waiting tasks")

    async def poll_forever(self) -> None:
        """Polls the store every BACKLOG_POLL_INTERVAL seconds: what was to take a task may have failed, or died."""
        while True:
            await asyncio.sleep(BACKLOG_POLL_INTERVAL)
            self._has_backlog = True
            self.remote_capacity.assume_backlog()
            self._fill_slots()

    @property
    def free_slots(self) -> int:
        """Turns that may still begin here."""
        return self._slots - len(self._runners) - self._reserved

    async def _fetch_local(self) -> None:
        try:
            while self._has_backlog and self.free_slots > 0 and not self._draining:
                self._has_backlog = False
                local_agents = [agent for agent in self._agents if agent not in self.remote_capacity]
                room = self.free_slots
                records = await self._store.ready_tasks(local_agents, room, self._last_principal)
                self._backlog_exceeds_slots = len(records) >= room
                if records:
                    self._has_backlog = True
                    await asyncio.gather(*map(self._claim, records))
        except Exception as error:
            self._has_backlog = True
            log_fault(log, "could not take waiting tasks; retrying", error)
        finally:
            self._fetching = False

    async def _fetch_remote(self, agent: str) -> None:
        """Takes the waiting tasks of one remote agent, as far as it has capacity."""
        try:
            while not self._draining and self.free_slots > 0 and (room := self.remote_capacity.next_fetch_size(agent)):
                room = min(room, self.free_slots)
                records = await self._store.ready_tasks((agent,), room, self._last_principal)
                self.remote_capacity.note_fetched(agent, enough=len(records) < room)
                if records:
                    self.remote_capacity.note_backlog(agent)
                    await asyncio.gather(*map(self._claim, records))
        except Exception as error:
            self.remote_capacity.note_backlog(agent)
            log_fault(log, f"could not take waiting tasks of agent {agent}; retrying", error)
        finally:
            self.remote_capacity.end_fetch(agent)

    async def _claim(self, record: TaskRecord) -> None:
        session = 0 if self._draining else self._take_slot(record.agent)
        if not session:
            return
        change = Append(task=record.ref, guard=Ready(), claim_session=session)
        with suppress(AppendRejected):  # another process claimed it, or it was canceled
            await self._log.append(change, lambda appended: self._on_claimed(session, record.agent, appended))

    def _on_claimed(self, session: int, agent: str, appended: Appended | None) -> None:
        self.complete_reservation(session, agent, appended, None)

    def end_lapsed_turns(self) -> None:
        """Stops the turns that began before a lapse of the lease."""
        for runner in tuple(self._runners.values()):
            runner.end_lapsed_lease()

    # Signals ----------------------------------------------------------------------------------------------------

    def _on_signal(self, ref: TaskRef, signal: TaskSignal) -> None:
        runner = self._runners.get(ref)
        if runner is None:
            return
        if signal is TaskSignal.CANCEL:
            self._start_task(self._cancel(runner), f"cancel {runner.task_id}")
        elif signal is TaskSignal.MESSAGE:
            runner.notify_message()

    async def _cancel(self, runner: TurnRunner) -> None:
        """Cancels a runner, if the store confirms it (a late signal may belong to an earlier turn) or has erased it."""
        ref = runner.record.ref
        with suppress(Unavailable):  # the poll for cancel requests finds it
            requests = await self._store.cancel_requests.pending([ref])
            if requests or await self._store.read(ref, history=0) is None:
                runner.cancel(metadata=requests.get(ref, b""))

    def notify_canceled(self, record: TaskRecord, metadata: bytes) -> None:
        """Tells an upstream agent that a task which waited for its caller was canceled."""
        agent = self._agents.get(record.agent)
        if isinstance(agent, RemoteAgent) and not agent.is_worker_backed:
            notification = notify_canceled(agent, self._store, record.ref, metadata)
            self._start_task(notification, f"notify agent of canceled {record.id}")

    # Shutdown ---------------------------------------------------------------------------------------------------

    async def drain(self, grace: float, report: Callable[[int], None] | None = None) -> None:
        """Accepts no new tasks and waits up to `grace` seconds for turns and claims; then ends the rest as FAILED.

        `report` is called once a second with the number of running turns."""
        self._draining = True
        await self._job_subscriptions.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        warned = False
        while (self._runners or self._reserved) and loop.time() < deadline:
            if not warned and loop.time() >= deadline - STOP_NOTICE_SECONDS:
                warned = True
                for runner in self._runners.values():
                    runner.announce_stop()
            if report is not None:
                report(len(self._runners))
            try:
                async with asyncio.timeout(min(1.0, max(0.0, deadline - loop.time()))):
                    await self._idle.wait()
            except TimeoutError:
                continue
        for runner in tuple(self._runners.values()):
            runner.drain()

    async def stop(self) -> int:
        """Ends running turns as FAILED and unsubscribes. Returns the number of agents that did not stop."""
        self._draining = self._stopping = True
        for runner in tuple(self._runners.values()):
            runner.drain()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d agents did not stop; their tasks end at the next start", len(self._runners))
        await self._job_subscriptions.close()
        await self._registrations.aclose()
        return len(self._runners)
