"""Who runs what in this process: slots, claims, jobs, signals.

A task is claimed by the append that makes it ready when a slot is free; otherwise it waits in the store, which
is the queue. A slot that frees itself takes the next one from there, of each principal in turn, and the bus tells
idle processes of new ones. Nobody is served past those who wait.
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
from dragoman.runtime.capacity import JobSubscriptions, RemoteCapacity
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.events import NO_COALESCING, Coalesce
from dragoman.runtime.turn.input import ReferenceResolver
from dragoman.runtime.turn.runner import TurnRunner

log = logging.getLogger("dragoman.runtime")

DEFAULT_SLOTS: Final = 1000
"""Runs at a time in one process, unless the settings say otherwise."""

WORKER_WAIT_SECONDS: Final = 300.0
"""Seconds for which tasks wait for an agent elsewhere that is not there, unless the settings say otherwise."""

BACKLOG_POLL_INTERVAL: Final = 2.0
"""Seconds between two looks for tasks that another process left waiting, where there may be others."""

STOP_NOTICE_SECONDS: Final = 30.0
"""Seconds before the end of the drain at which runs are told (`turn.stopping`)."""

STOP_TIMEOUT: Final = 5.0
"""Seconds for agents to stop at the very end, after the drain."""


class Scheduler:
    """The runs of this process. `session` is the number under which it claims tasks."""

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
    ) -> None:
        """`patience`: seconds for which tasks wait for an agent elsewhere that is not there. Without `runs` the app's
        own agents are left to other processes on the same store."""
        self._store = store
        self._bus = bus
        self._log = event_log
        self._agents = agents
        self._session = session
        self._reference_resolver = reference_resolver
        self._slots = slots
        self._strict = strict
        self._coalesce = coalesce
        self.runs_agents = runs_agents
        self.remote_capacity = RemoteCapacity(agents, worker_wait)
        self.run_turns: Callable[[TurnRunner], Coroutine[Any, Any, None]] = TurnRunner.run
        """What a run is driven by: itself, or by who traces it."""
        self.budgets = NO_BUDGETS
        self._runners: dict[TaskRef, TurnRunner] = {}
        self.counts = defaultdict[str, TurnCounters](TurnCounters, {name: TurnCounters() for name in agents})
        """By agent."""
        self.on_unserved: Callable[[TaskRecord], None] = lambda _: None
        """Is told of tasks whose agent is gone, and that are claimed here, or wait."""
        # Not a TaskGroup: an agent that never stops must not keep the server from stopping.
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self._has_backlog = False
        """Tasks may wait in the store."""
        self._backlog_exceeds_slots = True
        """More of them than there are slots, as far as is known: nobody may pass them."""
        self._fetching = False
        self._last_principal = ""
        """The principal whose task was taken last."""
        self._draining = self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._registrations = AsyncExitStack()
        self._job_subscriptions = JobSubscriptions(bus, self._on_job)
        """For jobs, which would be wasted on us once we drain."""

    async def start(self) -> None:
        """Listens for jobs and signals, and takes up what waits in the store."""
        await self._job_subscriptions.update(self._runnable_agents())
        self._registrations.push_async_callback(await self._bus.subscribe_signals(self._on_signal))
        if self.runs_agents:
            self._has_backlog = self._fetching = True
            await self._fetch_local()
        self._fill_slots()

    def capacity_changed(self) -> None:
        """Some agent elsewhere came or went, or has more room than before."""
        if self._job_subscriptions.differs(runnable := self._runnable_agents()):
            self._start_task(self._job_subscriptions.update(runnable), "jobs of other agents than before")
        self._fill_slots()

    def _runnable_agents(self) -> list[str]:
        """The agents that may have turns here."""
        own = [name for name in self._agents if name not in self.remote_capacity] if self.runs_agents else []
        return [*own, *self.remote_capacity.runnable_agents]

    @property
    def slots(self) -> int:
        """Runs that there may be at the same time."""
        return self._slots

    @property
    def running(self) -> int:
        """Runs under way."""
        return len(self._runners)

    @property
    def busiest(self) -> tuple[str, int]:
        """The agent that has most of them, and how many."""
        return next(iter(Counter(run.record.agent for run in self._runners.values()).most_common(1)), ("", 0))

    def leaked_threads(self, agent: str) -> int:
        """Threads of an agent that go on although their turn is over."""
        return self._agents[agent].leaked_threads if agent in self._agents else 0

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def session(self) -> int:
        """The session under which this process claims tasks."""
        return self._session

    def find_runner(self, ref: TaskRef) -> TurnRunner | None:
        """The run of this task, if it is here."""
        return self._runners.get(ref)

    # Claims -----------------------------------------------------------------------------------------------------

    def reserve_slot(self, agent: str) -> int:
        """A slot for a task about to be written: the session to claim it for, or 0 when it has to wait its turn.

        Each reservation is ended by `settle`. Raises Unavailable while draining, and for an agent elsewhere
        that has
        been away for too long.
        """
        if self._draining:
            raise Unavailable("the server is shutting down and takes no new messages")
        # Who comes now does not pass those who wait.
        if agent in self.remote_capacity:
            self.remote_capacity.check_available(agent)
            return self._take_slot(agent) if self.remote_capacity.accepts_message(agent) else 0
        return 0 if self._backlog_exceeds_slots or not self.runs_agents else self._take_slot(agent)

    def _take_slot(self, agent: str) -> int:
        if self.free_slots <= 0 or not self.remote_capacity.try_acquire(agent):
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
        """Ends a reservation: begins the run that was claimed, or tells of the task that waits.

        `message` is the first of a new task; None has the run read what there is. `appended` is None when
        nothing was written.
        """
        if session:
            self._reserved -= 1
            self._update_idle()
            self.remote_capacity.release(agent)
        if appended is None:
            return None
        head = appended.record
        if appended.claimed and head.agent not in self._agents:
            self.on_unserved(head)
        elif appended.claimed:
            return self._begin(head, message, appended.events if message else (), fresh_context)
        elif head.ready:
            self._announce_waiting(head)
        elif head.running:
            self._bus.publish_signal(head.ref, TaskSignal.MESSAGE)
        return None

    def _announce_waiting(self, record: TaskRecord) -> None:
        """A task waits in the store: for us, where there is room and we are only taking others first, else for whoever
        has room. Were others told of it all the same, each would let its own new tasks wait while it looks."""
        if record.agent not in self._agents:
            self.on_unserved(record)
            return
        if record.agent in self.remote_capacity:
            self.remote_capacity.note_backlog(record.agent)
            ours = self.remote_capacity.room(record.agent) > 0
        else:
            self._has_backlog = True
            self._backlog_exceeds_slots = self._backlog_exceeds_slots or self.free_slots <= 0
            ours = self.runs_agents
        if ours and self.free_slots > 0 and not self._draining:
            self._fill_slots()
        else:
            self._bus.publish_job(Job(record.agent, record.ref))

    def _begin(
        self, record: TaskRecord, message: StoredMessage | None, first: Sequence[Event], fresh_context: bool
    ) -> TurnRunner:
        there = self._runners.get(record.ref)
        if (
            there is not None and there.record.token == record.token
        ):  # the claim was asked for, and then answered after all
            return there
        agent = self._agents[record.agent]
        run = TurnRunner(
            self._log,
            self._store,
            agent,
            record,
            self._reference_resolver,
            first=first,
            strict=self._strict,
            coalesce=self._coalesce,
        )
        if self.budgets:
            run.budget = self.budgets.budget_of(record.agent)
        self._runners[record.ref] = run
        self.counts[record.agent].started += 1
        self.remote_capacity.acquire(record.agent)
        self._last_principal = record.principal
        self._idle.clear()
        if message is None:
            run.resume(self._spawn)
        else:
            run.begin(message, self._spawn, fresh_context=fresh_context)
        if self._stopping:  # it was claimed before, and is to begin before it ends
            asyncio.get_running_loop().call_soon(run.drain)
        return run

    def _spawn(self, runner: TurnRunner) -> asyncio.Task[None]:
        task, began = self._start_task(self.run_turns(runner), f"run {runner.task_id}"), time.perf_counter()
        task.add_done_callback(lambda _: self._on_runner_ended(runner, time.perf_counter() - began))
        return task

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_runner_ended(self, runner: TurnRunner, seconds: float) -> None:
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
        if runner.record.ready:  # given back by an agent elsewhere, or to another process
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
        """Looks for waiting tasks every LOOK seconds: whoever made one ready may be gone, and told nobody here.

        Runs until cancelled.
        """
        while True:
            await asyncio.sleep(BACKLOG_POLL_INTERVAL)
            self._has_backlog = True
            self.remote_capacity.assume_backlog()
            self._fill_slots()

    @property
    def free_slots(self) -> int:
        """Runs that may still be begun here."""
        return self._slots - len(self._runners) - self._reserved

    async def _fetch_local(self) -> None:
        try:
            while self._has_backlog and self.free_slots > 0 and not self._draining:
                self._has_backlog = False
                here = [agent for agent in self._agents if agent not in self.remote_capacity]
                room = self.free_slots
                heads = await self._store.ready_tasks(here, room, self._last_principal)
                self._backlog_exceeds_slots = len(heads) >= room
                if heads:
                    self._has_backlog = True
                    await asyncio.gather(*map(self._claim, heads))
        except Exception:
            self._has_backlog = True
            asyncio.get_running_loop().call_later(BACKLOG_POLL_INTERVAL, self._fill_slots)
            log.exception("could not take waiting tasks; this is tried again")
        finally:
            self._fetching = False

    async def _fetch_remote(self, agent: str) -> None:
        """What waits for one agent elsewhere, as far as there is room."""
        try:
            while not self._draining and self.free_slots > 0 and (room := self.remote_capacity.next_fetch_size(agent)):
                room = min(room, self.free_slots)
                heads = await self._store.ready_tasks((agent,), room, self._last_principal)
                self.remote_capacity.note_fetched(agent, enough=len(heads) < room)
                if heads:
                    self.remote_capacity.note_backlog(agent)
                    await asyncio.gather(*map(self._claim, heads))
        except Exception:
            self.remote_capacity.note_backlog(agent)
            asyncio.get_running_loop().call_later(BACKLOG_POLL_INTERVAL, self._fill_slots)
            log.exception("could not take waiting tasks of agent %s; this is tried again", agent)
        finally:
            self.remote_capacity.end_fetch(agent)

    async def _claim(self, record: TaskRecord) -> None:
        session = 0 if self._draining else self._take_slot(record.agent)
        if not session:
            return
        change = Append(task=record.ref, guard=Ready(), claim_session=session)
        with suppress(AppendRejected):  # another worker was first, or it was canceled
            await self._log.append(change, lambda appended: self._on_claimed(session, record.agent, appended))

    def _on_claimed(self, session: int, agent: str, appended: Appended | None) -> None:
        self.complete_reservation(session, agent, appended, None)

    # Signals ----------------------------------------------------------------------------------------------------

    def _on_signal(self, ref: TaskRef, signal: TaskSignal) -> None:
        run = self._runners.get(ref)
        if run is None:
            return
        if signal is TaskSignal.CANCEL:
            self._start_task(self._cancel(run), f"cancel {run.task_id}")
        elif signal is TaskSignal.MESSAGE:
            run.notify_message()

    async def _cancel(self, runner: TurnRunner) -> None:
        """A bus may say late what was meant for an earlier turn: the store knows. What it has no more is over."""
        ref = runner.record.ref
        with suppress(Unavailable):  # whoever looks finds it
            if (
                ref in await self._store.cancel_requests.pending([ref])
                or await self._store.read(ref, history=0) is None
            ):
                runner.cancel()

    def notify_canceled(self, record: TaskRecord) -> None:
        """Tells an agent that has tasks of its own elsewhere that one which waited for its caller was canceled."""
        agent = self._agents.get(record.agent)
        if isinstance(agent, RemoteAgent) and not agent.is_worker_backed:
            self._start_task(self._notify_canceled(agent, record.ref), f"let go of {record.id}")

    async def _notify_canceled(self, agent: RemoteAgent, ref: TaskRef) -> None:
        try:
            conversation = await self._store.messages(ref)
            if conversation is not None and conversation.task_state:
                await agent.on_canceled(conversation.task_state)
        except Exception:
            log.exception("agent %s could not be told of a cancel", agent.spec.id)

    # The end ----------------------------------------------------------------------------------------------------

    async def drain(self, grace: float, report: Callable[[int], None] | None = None) -> None:
        """Takes nothing new and waits until no run is left, `limit` seconds at most; then ends them as FAILED.

        A task that is being claimed is waited for as well.
        `report` is told once a second how many runs are left.
        """
        self._draining = True
        await self._job_subscriptions.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        warned = False
        while (self._runners or self._reserved) and loop.time() < deadline:
            if not warned and loop.time() >= deadline - STOP_NOTICE_SECONDS:
                warned = True
                for run in self._runners.values():
                    run.announce_stop()
            if report is not None:
                report(len(self._runners))
            try:
                async with asyncio.timeout(min(1.0, max(0.0, deadline - loop.time()))):
                    await self._idle.wait()
            except TimeoutError:
                continue
        for run in tuple(self._runners.values()):
            run.drain()

    async def stop(self) -> int:
        """Ends what still runs as FAILED and lets go of the bus. Gives the number of agents that did not stop."""
        self._draining = self._stopping = True
        for run in tuple(self._runners.values()):
            run.drain()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d agents did not stop; their tasks end at the next start", len(self._runners))
        await self._job_subscriptions.close()
        await self._registrations.aclose()
        return len(self._runners)
