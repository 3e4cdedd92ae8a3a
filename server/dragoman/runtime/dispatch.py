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

from dragoman.core.counting import Runs
from dragoman.core.errors import Unavailable
from dragoman.core.log import Append, Appended, Event, Head, Ready, Refused, TaskRef
from dragoman.core.usage import ANY
from dragoman.ports import Agent, Bus, Elsewhere, Job, Signal, Store, StoredMessage
from dragoman.runtime.coalesce import OFF, Coalesce
from dragoman.runtime.hearing import Hearing
from dragoman.runtime.log import Log
from dragoman.runtime.places import Places
from dragoman.runtime.referring import Referring
from dragoman.runtime.run import Run

log = logging.getLogger("dragoman.runtime")

SLOTS: Final = 1000
"""Runs at a time in one process, unless the settings say otherwise."""

WORKER_WAIT: Final = 300.0
"""Seconds for which tasks wait for an agent elsewhere that is not there, unless the settings say otherwise."""

LOOK: Final = 2.0
"""Seconds between two looks for tasks that another process left waiting, where there may be others."""

STOPPING: Final = 30.0
"""Seconds before the end of the drain at which runs are told (`turn.stopping`)."""

STOP_WAIT: Final = 5.0
"""Seconds for agents to stop at the very end, after the drain."""


class Dispatch:
    """The runs of this process. `session` is the number under which it claims tasks."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        log: Log,
        agents: Mapping[str, Agent],
        session: int,
        referring: Referring,
        *,
        slots: int = SLOTS,
        strict: bool = False,
        coalesce: Coalesce = OFF,
        patience: float = WORKER_WAIT,
        runs: bool = True,
    ) -> None:
        """`patience`: seconds for which tasks wait for an agent elsewhere that is not there. Without `runs` the app's
        own agents are left to other processes on the same store."""
        self._store = store
        self._bus = bus
        self._log = log
        self._agents = agents
        self._session = session
        self._referring = referring
        self._slots = slots
        self._strict = strict
        self._coalesce = coalesce
        self.runs = runs
        self.places = Places(agents, patience)
        self.drive: Callable[[Run], Coroutine[Any, Any, None]] = Run.drive
        """What a run is driven by: itself, or by who traces it."""
        self.budgets = ANY
        self._runs: dict[TaskRef, Run] = {}
        self.counts = defaultdict[str, Runs](Runs, {name: Runs() for name in agents})
        """By agent."""
        self.unserved: Callable[[Head], None] = lambda _: None
        """Is told of tasks whose agent is gone, and that are claimed here, or wait."""
        # Not a TaskGroup: an agent that never stops must not keep the server from stopping.
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserved = 0
        self._starved = False
        """Tasks may wait in the store."""
        self._crowded = True
        """More of them than there are slots, as far as is known: nobody may pass them."""
        self._refilling = False
        self._served = ""
        """The principal whose task was taken last."""
        self._draining = self._stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._registrations = AsyncExitStack()
        self._hearing = Hearing(bus, self._offered)
        """For jobs, which would be wasted on us once we drain."""

    async def start(self) -> None:
        """Listens for jobs and signals, and takes up what waits in the store."""
        await self._hearing.hear(self._runnable())
        self._registrations.push_async_callback(await self._bus.obey(self._signalled))
        if self.runs:
            self._starved = self._refilling = True
            await self._take_waiting()
        self._refill()

    def changed(self) -> None:
        """Some agent elsewhere came or went, or has more room than before."""
        if self._hearing.differs(runnable := self._runnable()):
            self._keep(self._hearing.hear(runnable), "jobs of other agents than before")
        self._refill()

    def _runnable(self) -> list[str]:
        """The agents that may have turns here."""
        own = [name for name in self._agents if name not in self.places] if self.runs else []
        return [*own, *self.places.here]

    @property
    def slots(self) -> int:
        """Runs that there may be at the same time."""
        return self._slots

    @property
    def running(self) -> int:
        """Runs under way."""
        return len(self._runs)

    @property
    def busiest(self) -> tuple[str, int]:
        """The agent that has most of them, and how many."""
        return next(iter(Counter(run.head.agent for run in self._runs.values()).most_common(1)), ("", 0))

    def left_behind(self, agent: str) -> int:
        """Threads of an agent that go on although their turn is over."""
        return self._agents[agent].left_behind if agent in self._agents else 0

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def session(self) -> int:
        """The session under which this process claims tasks."""
        return self._session

    def run_of(self, ref: TaskRef) -> Run | None:
        """The run of this task, if it is here."""
        return self._runs.get(ref)

    # Claims -----------------------------------------------------------------------------------------------------

    def reserve(self, agent: str) -> int:
        """A slot for a task about to be written: the session to claim it for, or 0 when it has to wait its turn.

        Each reservation is ended by `settle`. Raises Unavailable while draining, and for an agent elsewhere that has
        been away for too long.
        """
        if self._draining:
            raise Unavailable("the server is shutting down and takes no new messages")
        # Who comes now does not pass those who wait.
        if agent in self.places:
            self.places.check(agent)
            return self._slot(agent) if self.places.open(agent) else 0
        return 0 if self._crowded or not self.runs else self._slot(agent)

    def _slot(self, agent: str) -> int:
        if self.free <= 0 or not self.places.take(agent):
            return 0
        self._reserved += 1
        self._idle.clear()
        return self._session

    def settle(
        self,
        session: int,
        agent: str,
        appended: Appended | None,
        message: StoredMessage | None,
        *,
        fresh_context: bool = False,
    ) -> Run | None:
        """Ends a reservation: begins the run that was claimed, or tells of the task that waits.

        `message` is the first of a new task; None has the run read what there is. `appended` is None when
        nothing was written.
        """
        if session:
            self._reserved -= 1
            self._rest()
            self.places.give(agent)
        if appended is None:
            return None
        head = appended.head
        if appended.claimed and head.agent not in self._agents:
            self.unserved(head)
        elif appended.claimed:
            return self._begin(head, message, appended.events if message else (), fresh_context)
        elif head.ready:
            self._wait(head)
        elif head.running:
            self._bus.signal(head.ref, Signal.MESSAGE)
        return None

    def _wait(self, head: Head) -> None:
        """A task waits in the store: for us, where there is room and we are only taking others first, else for whoever
        has room. Were others told of it all the same, each would let its own new tasks wait while it looks."""
        if head.agent not in self._agents:
            self.unserved(head)
            return
        if head.agent in self.places:
            self.places.wait(head.agent)
            ours = self.places.room(head.agent) > 0
        else:
            self._starved = True
            self._crowded = self._crowded or self.free <= 0
            ours = self.runs
        if ours and self.free > 0 and not self._draining:
            self._refill()
        else:
            self._bus.offer(Job(head.agent, head.ref))

    def _begin(self, head: Head, message: StoredMessage | None, first: Sequence[Event], fresh_context: bool) -> Run:
        there = self._runs.get(head.ref)
        if there is not None and there.head.token == head.token:  # the claim was asked for, and then answered after all
            return there
        agent = self._agents[head.agent]
        run = Run(
            self._log,
            self._store,
            agent,
            head,
            self._referring,
            first=first,
            strict=self._strict,
            coalesce=self._coalesce,
        )
        if self.budgets:
            run.budget = self.budgets.of(head.agent)
        self._runs[head.ref] = run
        self.counts[head.agent].begun += 1
        self.places.hold(head.agent)
        self._served = head.principal
        self._idle.clear()
        if message is None:
            run.resume(self._spawn)
        else:
            run.begin(message, self._spawn, fresh_context=fresh_context)
        if self._stopping:  # it was claimed before, and is to begin before it ends
            asyncio.get_running_loop().call_soon(run.drain)
        return run

    def _spawn(self, run: Run) -> asyncio.Task[None]:
        task, began = self._keep(self.drive(run), f"run {run.task_id}"), time.perf_counter()
        task.add_done_callback(lambda _: self._ended(run, time.perf_counter() - began))
        return task

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _ended(self, run: Run, seconds: float) -> None:
        counts = self.counts[run.head.agent]
        counts.ended[run.head.state] += 1
        counts.seconds.add(seconds)
        if run.spending is not None:
            counts.tokens += run.spending.total.own.tokens - run.spending.before.own.tokens
            counts.cost += run.spending.total.own.cost - run.spending.before.own.cost
        if self._runs.get(run.head.ref) is run:
            del self._runs[run.head.ref]
        self._rest()
        self.places.give(run.head.agent)
        if run.head.ready:  # given back by an agent elsewhere, or to another process
            self._wait(run.head)
        self._refill()

    def _rest(self) -> None:
        if not self._runs and not self._reserved:
            self._idle.set()

    # Jobs -------------------------------------------------------------------------------------------------------

    def _offered(self, job: Job) -> None:
        if job.agent in self.places:
            self.places.wait(job.agent)
        else:
            self._starved = True
        self._refill()

    def _refill(self) -> None:
        if not self._draining and self.free > 0:
            for agent in self.places.hungry():
                self._keep(self._take_elsewhere(agent), f"take waiting tasks of {agent}")
        if self._starved and self.runs and not self._refilling and not self._draining and self.free > 0:
            self._refilling = True
            self._keep(self._take_waiting(), "take waiting tasks")

    async def keep_looking(self) -> None:
        """Looks for waiting tasks every LOOK seconds: whoever made one ready may be gone, and told nobody here.

        Runs until cancelled.
        """
        while True:
            await asyncio.sleep(LOOK)
            self._starved = True
            self.places.look_again()
            self._refill()

    @property
    def free(self) -> int:
        """Runs that may still be begun here."""
        return self._slots - len(self._runs) - self._reserved

    async def _take_waiting(self) -> None:
        try:
            while self._starved and self.free > 0 and not self._draining:
                self._starved = False
                here = [agent for agent in self._agents if agent not in self.places]
                room = self.free
                heads = await self._store.waiting(here, room, self._served)
                self._crowded = len(heads) >= room
                if heads:
                    self._starved = True
                    await asyncio.gather(*map(self._claim, heads))
        except Exception:
            self._starved = True
            asyncio.get_running_loop().call_later(LOOK, self._refill)
            log.exception("could not take waiting tasks; this is tried again")
        finally:
            self._refilling = False

    async def _take_elsewhere(self, agent: str) -> None:
        """What waits for one agent elsewhere, as far as there is room."""
        try:
            while not self._draining and self.free > 0 and (room := self.places.next(agent)):
                room = min(room, self.free)
                heads = await self._store.waiting((agent,), room, self._served)
                self.places.found(agent, enough=len(heads) < room)
                if heads:
                    self.places.wait(agent)
                    await asyncio.gather(*map(self._claim, heads))
        except Exception:
            self.places.wait(agent)
            asyncio.get_running_loop().call_later(LOOK, self._refill)
            log.exception("could not take waiting tasks of agent %s; this is tried again", agent)
        finally:
            self.places.looked(agent)

    async def _claim(self, head: Head) -> None:
        session = 0 if self._draining else self._slot(head.agent)
        if not session:
            return
        change = Append(task=head.ref, guard=Ready(), claim=session)
        with suppress(Refused):  # another worker was first, or it was canceled
            await self._log.append(change, lambda appended: self._claimed(session, head.agent, appended))

    def _claimed(self, session: int, agent: str, appended: Appended | None) -> None:
        self.settle(session, agent, appended, None)

    # Signals ----------------------------------------------------------------------------------------------------

    def _signalled(self, ref: TaskRef, signal: Signal) -> None:
        run = self._runs.get(ref)
        if run is None:
            return
        if signal is Signal.CANCEL:
            self._keep(self._cancel(run), f"cancel {run.task_id}")
        elif signal is Signal.MESSAGE:
            run.deliver_mail()

    async def _cancel(self, run: Run) -> None:
        """A bus may say late what was meant for an earlier turn: the store knows. What it has no more is over."""
        ref = run.head.ref
        with suppress(Unavailable):  # whoever looks finds it
            if ref in await self._store.cancels.among([ref]) or await self._store.read(ref, history=0) is None:
                run.cancel()

    def let_go(self, head: Head) -> None:
        """Tells an agent that has tasks of its own elsewhere that one which waited for its caller was canceled."""
        agent = self._agents.get(head.agent)
        if isinstance(agent, Elsewhere) and not agent.dials_in:
            self._keep(self._let_go(agent, head.ref), f"let go of {head.id}")

    async def _let_go(self, agent: Elsewhere, ref: TaskRef) -> None:
        try:
            conversation = await self._store.conversation(ref)
            if conversation is not None and conversation.memory:
                await agent.let_go(conversation.memory)
        except Exception:
            log.exception("agent %s could not be told of a cancel", agent.spec.id)

    # The end ----------------------------------------------------------------------------------------------------

    async def drain(self, limit: float, report: Callable[[int], None] | None = None) -> None:
        """Takes nothing new and waits until no run is left, `limit` seconds at most; then ends them as FAILED.

        A task that is being claimed is waited for as well.
        `report` is told once a second how many runs are left.
        """
        self._draining = True
        await self._hearing.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        warned = False
        while (self._runs or self._reserved) and loop.time() < deadline:
            if not warned and loop.time() >= deadline - STOPPING:
                warned = True
                for run in self._runs.values():
                    run.stop_soon()
            if report is not None:
                report(len(self._runs))
            try:
                async with asyncio.timeout(min(1.0, max(0.0, deadline - loop.time()))):
                    await self._idle.wait()
            except TimeoutError:
                continue
        for run in tuple(self._runs.values()):
            run.drain()

    async def stop(self) -> int:
        """Ends what still runs as FAILED and lets go of the bus. Gives the number of agents that did not stop."""
        self._draining = self._stopping = True
        for run in tuple(self._runs.values()):
            run.drain()
        try:
            async with asyncio.timeout(STOP_WAIT):
                await self._idle.wait()
        except TimeoutError:
            log.warning("%d agents did not stop; their tasks end at the next start", len(self._runs))
        await self._hearing.close()
        await self._registrations.aclose()
        return len(self._runs)
