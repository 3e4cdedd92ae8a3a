"""A history: the servers, callers and faults of one plan, played on simulated time and judged."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from tests.chaos.actions import Action
from tests.chaos.history import Entry, Fault, Sampled, line_of
from tests.simulation.agents import Journal
from tests.simulation.bus import Network
from tests.simulation.callers import SimulatedCaller, answer_the_left
from tests.simulation.connection import Disk
from tests.simulation.faults import strike
from tests.simulation.judge import Observed, judge_all, stored_tasks
from tests.simulation.leftovers import kept_in_memory
from tests.simulation.loop import EPOCH_SECONDS, Livelock, World
from tests.simulation.memory.database import MemoryDatabase
from tests.simulation.memory.tables import MemoryTables
from tests.simulation.operated.quotas import note_queue
from tests.simulation.operated.work import MeteredDatabase
from tests.simulation.plan import Plan, Profile
from tests.simulation.receivers import Receivers
from tests.simulation.server import SimulatedServer
from tests.simulation.stage import MemoryRecorder, Stage

from dragoman.core.names import task_id_of
from dragoman.core.push.delivery import PushState
from dragoman.core.task import states
from dragoman.ids import IDS
from dragoman.supervision import is_expected

if TYPE_CHECKING:
    from tests.simulation.called.parts import CalledParts

CALLERS_SECONDS: Final = 90.0
"""Simulated seconds after which callers have to be done."""
QUIET_SECONDS: Final = 35.0
"""Simulated seconds without a fault in which a turn ends, or a webhook is told, if one is left."""
POLL_SECONDS: Final = 0.5
FORGET_SECONDS: Final = 0.1


@dataclass(slots=True)
class Outcome:
    """What a history was, and what was wrong with it."""

    plan: Plan
    entries: Sequence[Entry]
    actions: Sequence[Action]
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Simulated seconds."""

    @property
    def text(self) -> str:
        """The whole history: the same for the same seed."""
        lines = [line_of(entry) for entry in self.entries]
        lines += [f"{action}\n" for action in self.actions]
        lines += [f"{problem}\n" for problem in self.problems]
        return "".join(lines)


class History:
    """One history."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = world = World(plan.seed)
        self.epoch = EPOCH_SECONDS + world.random.uniform(-plan.profile.skew, plan.profile.skew)
        """The time of the store's clock at the beginning."""
        make_database = MeteredDatabase if plan.operated else MemoryDatabase
        database = make_database(lambda: int((self.epoch + world.now) * 1000))
        self.disk = Disk(world, database, MemoryTables(), plan.profile)
        self.network = Network(world, plan.profile)
        self.record = MemoryRecorder()
        self.receivers = Receivers(world, self.record)
        self.journal = Journal(lambda: world.now)
        self.servers = [
            SimulatedServer(world, self.disk, self.network, self.receivers, self.journal, number, plan.slots)
            for number in range(plan.servers)
        ]
        self.called: CalledParts | None = None
        if plan.called:
            from tests.simulation.called.parts import CalledParts

            self.called = CalledParts(self)
            for server in self.servers:
                server.called = self.called
        if plan.operated:
            note_queue(database, self.record.add, lambda: self.stage.now)
            for server in self.servers:
                server.is_operated = True
        self.stage = Stage(world, plan, self.servers, self.receivers, self.record)
        self.entries: Sequence[Entry] = ()
        self.actions: Sequence[Action] = ()
        """The history, once it has ended."""
        self.problems: list[str] = []
        self.recovered = 0.0
        """When the last fault was over, and every server that was to live was up."""
        self.disk.on_lapse = lambda began, seconds: self.record.add(
            Fault(at=round(began, 6), how="pause", seconds=round(seconds, 6))
        )
        self.disk.on_failure = lambda ref: self.record.add(
            Fault(at=self.stage.now, how="commit", part="store", task=task_id_of(ref.key))
        )

    async def play(self) -> None:
        """Everything that happens, to its end."""
        world, stage = self.world, self.stage
        if self.called is not None:
            self.called.start()
        for server in self.servers:
            server.start()
        await stage.server()
        if self.called is not None:
            await self.called.until_connected()
        begins = world.now
        loop = asyncio.get_running_loop()
        sampling = loop.create_task(self._sample())
        make_caller: Callable[[Stage], SimulatedCaller] = SimulatedCaller
        if self.plan.operated:
            from tests.simulation.operated.callers import OperatedCaller

            make_caller = OperatedCaller
        callers = [loop.create_task(make_caller(stage).perform(operations)) for operations in self.plan.callers]
        faults = [loop.create_task(strike(self, fault, begins)) for fault in self.plan.faults]
        if faults:
            await asyncio.wait(faults)
        if callers:
            _, late = await asyncio.wait(callers, timeout=self.plan.tail_seconds)
            if late and not faults:
                await asyncio.wait(late, timeout=CALLERS_SECONDS)
        self._recover()
        if callers:
            _, late = await asyncio.wait(callers, timeout=CALLERS_SECONDS)
            if late:
                self.problems.append(f"{len(late)} callers are not done {CALLERS_SECONDS:g} s after the last fault")
            for caller in callers:
                if caller.done() and (error := caller.exception()):
                    self.problems.append(f"a caller failed: {error!r}")
        await self._quiet("after the last fault")
        if stage.left:
            await answer_the_left(stage)
            await self._quiet("after they were answered")
        await self._followers_end()
        while self._busy() and not self.problems:  # a follower has repeated its send
            await self._quiet("after its followers")
            await self._followers_end()
        sampling.cancel()
        if not self.problems:
            await self._forget()

    def _recover(self) -> None:
        """Ends all faults."""
        self.stage.over = self.receivers.over = True
        self.disk.profile = self.network.profile = Profile()
        self.disk.away = False
        self.disk.unreachable.clear()
        self.network.separated.clear()
        if self.called is not None:
            self.called.recover()
        for server in self.servers:
            if server.recover():
                self.record.add(Fault(at=self.stage.now, how="kill"))
        self.recovered = self.world.now

    def _slots_of_erased_tasks(self) -> int:
        """How many slots are taken, if operators erase tasks: an agent that ignores its cancel keeps its slot."""
        if not self.plan.operated:
            return 0
        return sum(len(server.runtime.scheduler.runs) for server in self.servers if server.runtime is not None)

    def close(self) -> None:
        """Takes no more entries: what ends now would only clean up."""
        self.entries, self.actions = list(self.record.entries), list(self.journal.actions)

    async def _quiet(self, since: str) -> None:
        """Waits until no task runs or waits, every write has arrived, and every webhook was told everything.

        Each one that ends gives time to the others, because they may wait for its slot.
        """
        fewest, deadline = math.inf, 0.0
        while busy := self._busy():
            if len(busy) < fewest:
                fewest, deadline = len(busy), self.world.now + QUIET_SECONDS
            elif self.world.now > deadline:
                self.problems.append(f"nothing ended for {QUIET_SECONDS:g} s {since}: {', '.join(busy[:3])}")
                return
            await asyncio.sleep(POLL_SECONDS)

    def _busy(self) -> list[str]:
        database = self.disk.database
        refs = [*database.running, *database.ready, *database.asleep]
        busy = [f"task {task_id_of(ref.key)} has not ended its turn" for ref in refs]
        if self.disk.under_way:
            busy.append(f"{self.disk.under_way} writes have not arrived")
        for ref in database.live_pushes:
            rows = database.tasks[ref]
            busy += [
                f"webhook {push.config.url} was told up to {push.last_delivered} of {rows.record.last_sequence}"
                for push in rows.pushes.values()
                if push.state is PushState.LIVE and push.last_delivered < rows.record.last_sequence
            ]
        return busy

    async def _followers_end(self) -> None:
        """Waits for the followers of tasks that have ended."""
        deadline = self.world.now + QUIET_SECONDS
        while self.world.now < deadline:
            states_by_id = {rows.record.id: rows.record.state for rows in self.disk.database.tasks.values()}
            due = [
                follower
                for follower, task in self.stage.following.items()
                if states_by_id.get(task(), states.COMPLETED) in states.TERMINAL
            ]
            if not due:
                return
            await asyncio.wait(due, timeout=POLL_SECONDS)

    async def _forget(self) -> None:
        """Ends all streams, and waits until no server has anything in memory of what has ended (G9)."""
        for follower in list(self.stage.following):
            follower.cancel()
        self.stage.storm()
        deadline = self.world.now + QUIET_SECONDS
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            kept = [
                f"{server.name}: {count} {what} in memory"
                for server in self.servers
                if server.runtime is not None and server.up
                for what, count in kept_in_memory(server.runtime)
            ]
            if not kept:
                return
            if self.world.now > deadline:
                self.problems += [f"{line}, {QUIET_SECONDS:g} s after everything had ended" for line in kept]
                return

    async def _sample(self) -> None:
        database, stage = self.disk.database, self.stage
        while True:
            await asyncio.sleep(1.0)
            if not stage.over:
                continue
            if not all(server.up or server.stays_dead for server in self.servers):
                self.recovered = self.world.now
            sessions = {server.runtime.scheduler.session for server in self.servers if server.runtime is not None}
            records = [database.tasks[ref].record for ref in database.running]
            stuck = [
                rows.record.id
                for rows in database.tasks.values()
                if rows.record.state in (states.SUBMITTED, states.WORKING) and not rows.record.has_open_turn
            ]
            self.record.add(
                Sampled(
                    at=stage.now,
                    up=round(self.world.now - self.recovered, 3),
                    orphans=[record.id for record in records if record.session not in sessions],
                    stuck=stuck,
                    # Tasks wait for called agents that do not respond, however many slots are free.
                    waiting=0 if self.called is not None else len(database.ready),
                    running=max(len(records), self._slots_of_erased_tasks()),
                    slots=self.plan.slots * sum(server.up for server in self.servers),
                )
            )


def simulate(plan: Plan) -> Outcome:
    """Plays one history, and judges it."""
    source = Random(f"ids {plan.seed}")
    before = IDS.use(source.randbytes)
    history = History(plan)
    world = history.world
    try:
        with _errors_logged_to(world):
            world.run(history.play(), history.close)
    except Livelock as stuck:
        history.problems.append(str(stuck))
    finally:
        IDS.use(before)
    outcome = Outcome(plan, history.entries, history.actions, seconds=world.now)
    kept = stored_tasks(history.disk.database, history.journal, outcome.entries, history.epoch)
    outcome.problems = [*history.problems, *world.faults]
    observed = Observed(outcome.entries, outcome.actions, kept)
    if plan.operated:
        from tests.simulation.operated.judge import judge_operated, without_operators
        from tests.simulation.operated.work_judge import judge_work

        outcome.problems += judge_operated(plan, observed, history.disk.tables)
        assert isinstance(history.disk.database, MeteredDatabase)
        outcome.problems += judge_work(outcome.entries, kept, history.disk.database.work)
        observed = without_operators(observed)
    outcome.problems += judge_all(*observed)
    if history.called is not None:
        from tests.simulation.called.judge import judge_called

        outcome.problems += judge_called(plan, outcome.entries, kept, history.called.works, history.recovered)
    return outcome


class _ErrorHandler(logging.Handler):
    """Notes the errors that come from inside of the code: those with a traceback."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.is_over:
            return
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not is_expected(error) and "failing, as asked" not in text:
            self._world.faults.append(f"logged: {text}: {error!r}")


@contextmanager
def _errors_logged_to(world: World) -> Iterator[None]:
    logger, handler = logging.getLogger("dragoman"), _ErrorHandler(world)
    with errors_only(logger):
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


@contextmanager
def errors_only(logger: logging.Logger) -> Iterator[None]:
    """Keeps its errors to its own handlers, and nothing else. Costs little where an outer block does the same."""
    level, propagates = logger.level, logger.propagate
    if level != logging.ERROR:
        logger.setLevel(logging.ERROR)  # clears what every logger of the process knows of its level
    logger.propagate = False
    try:
        yield
    finally:
        if level != logging.ERROR:
            logger.setLevel(level)
        logger.propagate = propagates
