"""The lease of a process: agents stop by its clock before others may act, and first of all after a freeze."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, status_text, texts
from tests.runtime.unavailable_store import UnavailableStore

import dragoman
from dragoman import Turn, retry
from dragoman.core.errors import Unavailable
from dragoman.core.task.log import Append, Exists
from dragoman.ids import elapsed_clock
from dragoman.ports import LeaseLost
from dragoman.runtime.lease import GuardedSteps, Lease, LoopCheck, watch_lease
from dragoman.runtime.log import UnsettledClaims
from dragoman.runtime.sessions import RETRY_INTERVAL, ClaimRecovery, Heartbeat
from dragoman.stores.sqlite import open_store


class ManualClock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_ends_a_margin_before_the_session_counted_from_the_start_of_its_renewal() -> None:
    clock = ManualClock()
    lease = Lease(10.0, margin=2.0, clock=clock)
    assert lease.remaining == 8.0
    began, clock.now = clock.now + 1, clock.now + 4
    lease.extend(began, 10.0)
    assert lease.remaining == 5.0


def test_a_hold_stays_lost_after_a_lapse_although_the_lease_is_renewed() -> None:
    clock = ManualClock()
    lease = Lease(10.0, clock=clock)
    before = lease.hold()
    seen = []
    for seconds in (7.9, 0.1):
        clock.now += seconds
        seen.append(before.lost)
    lease.extend(clock.now, 10.0)
    seen += [before.lost, lease.hold().lost]
    assert seen == [False, True, True, False]


def test_an_answer_that_was_read_too_late_extends_nothing() -> None:
    clock = ManualClock()
    lease = Lease(10.0, clock=clock)
    began = clock.now
    clock.now += 60.0
    lease.extend(began, 10.0)
    assert lease.remaining < 0


def test_the_clock_of_a_lease_runs_forward() -> None:
    before = elapsed_clock()
    assert elapsed_clock() >= before


async def test_a_guarded_coroutine_gets_its_cancellation_before_its_next_step() -> None:
    went_on, place = False, asyncio.Event()
    clock = ManualClock()
    hold = Lease(10.0, clock=clock).hold()

    async def agent() -> None:
        nonlocal went_on
        await place.wait()
        went_on = True

    async def guarded() -> None:
        await GuardedSteps(agent(), hold, lambda: True)

    run = asyncio.create_task(guarded())
    await asyncio.sleep(0)
    clock.now += 9.0
    place.set()  # the step of the agent is due before anything else
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not went_on


async def test_a_guarded_coroutine_returns_and_raises_as_before() -> None:
    async def returns() -> int:
        await asyncio.sleep(0)
        return 7

    async def raises() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    async def cleans_up() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "stopped"
        return "never"

    async def run(work: GuardedSteps[str]) -> str:
        return await work

    guarded = partial(GuardedSteps, hold=Lease(10.0).hold(), must_stop=lambda: False)
    assert await guarded(returns()) == 7
    with pytest.raises(ValueError, match="its own"):
        await guarded(raises())
    task = asyncio.create_task(run(guarded(cleans_up())))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "stopped"


async def stops_late(steps: list[str], place: asyncio.Event) -> None:
    try:
        while True:
            with suppress(asyncio.CancelledError):
                await place.wait()
            steps.append("went on")
    finally:
        steps.append("closed")


class OnLoop:
    """Stands for an agent without threads and processes."""

    is_on_loop = True


@pytest.mark.parametrize("agent", [OnLoop(), None])
async def test_an_agent_that_ignores_its_cancel_is_never_driven_past_the_end_of_its_lease(agent: object) -> None:
    steps: list[str] = []
    clock, place = ManualClock(), asyncio.Event()
    guarded = GuardedSteps(stops_late(steps, place), Lease(10.0, clock=clock).hold(), lambda: False, agent)

    async def run() -> None:
        await guarded

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    clock.now += 8.5
    task.cancel()
    await asyncio.sleep(0)
    assert steps == ["went on"] * 2, "it gets some time"
    clock.now += 1.0
    task.cancel()
    await asyncio.wait([task], timeout=0.01)
    assert (steps[2:], task.done()) == ((["closed"], True) if agent else (["went on"], False))
    place.set()
    if agent is None:
        guarded._coroutine.close()


async def test_an_agent_that_waits_is_abandoned_soon_after_the_end_of_its_lease() -> None:
    steps: list[str] = []
    clock = ManualClock()
    lease = Lease(10.0, clock=clock)

    async def run() -> None:
        await GuardedSteps(stops_late(steps, asyncio.Event()), lease.hold(), lambda: False, OnLoop())

    clock.now += 8.9
    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    clock.now += 0.2
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["went on", "closed"]


LEASE: Final = 600.0
"""Seconds of the leases below."""


class OwnLease(Lease):
    """A lease that only the test extends. Renewals of the process, the first at its start, take effect at any time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(LEASE, clock=clock)

    def extend(self, began: float, seconds: float) -> None:
        """Ignores a renewal of the process."""

    def renew(self) -> None:
        """Extends it from now on."""
        super().extend(self.now(), LEASE)


@asynccontextmanager
async def leased(
    tmp_path: Path, agent: Callable[[Turn], object], **options: Any
) -> AsyncIterator[tuple[Harness, ManualClock, OwnLease]]:
    """A runtime on a lease by a manual clock."""
    clock = ManualClock()
    lease = OwnLease(clock)
    async with open_harness(tmp_path, agent, exclusive=False, run_lease=lease, **options) as here:
        yield here, clock, lease


async def works(turn: Turn) -> str:
    turn.status(f"attempt {turn.attempt}")
    if turn.attempt == 1:
        await asyncio.Event().wait()
    return f"attempt {turn.attempt}"


@pytest.mark.parametrize("retries", [0, 1])
async def test_turns_stop_and_are_given_back_when_the_lease_lapses(tmp_path: Path, retries: int) -> None:
    on_crash = retry(retries) if retries else "fail"
    async with leased(tmp_path, works, on_crash=on_crash) as (here, clock, lease):
        task = await here.start()
        await eventually(lambda: here.runtime.scheduler.running)
        clock.now += LEASE
        here.runtime.scheduler.check_lease()
        lease.renew()
        ended = await here.ended(task.id)
        if retries:
            assert (state(ended), texts(ended)) == ("COMPLETED", ["attempt 2"])
        else:
            assert (state(ended), status_text(ended).partition(":")[0]) == ("FAILED", "INTERRUPTED")


async def test_a_turn_whose_agent_has_not_begun_goes_back_to_the_queue_when_the_lease_lapses(tmp_path: Path) -> None:
    begun: list[int] = []

    async def counts(turn: Turn) -> str:
        begun.append(turn.attempt)
        return "done"

    async with leased(tmp_path, counts) as (here, clock, lease):
        starting = asyncio.ensure_future(here.start())
        while not here.runtime.scheduler.running:  # noqa: ASYNC110  # every step counts here
            await asyncio.sleep(0)
        clock.now += LEASE
        task = await starting
        await eventually(lambda: not here.runtime.scheduler.running)
        waiting = await here.get(task.id)
        assert (state(waiting), begun) == ("SUBMITTED", [])
        lease.renew()
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended), begun) == ("COMPLETED", ["done"], [1])


async def test_waiting_tasks_are_taken_as_soon_as_the_lease_is_renewed(tmp_path: Path) -> None:
    async with leased(tmp_path, works) as (here, clock, lease):
        clock.now += LEASE
        waiting = await here.start("later")
        await asyncio.sleep(0)
        assert not here.runtime.scheduler.running
        lease.renew()
        here.runtime.scheduler.check_lease()
        await eventually(lambda: here.runtime.scheduler.running == 1)
        assert state(await here.get(waiting.id)) in ("SUBMITTED", "WORKING")


async def test_nothing_is_claimed_and_every_verb_fails_after_a_lapse(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    async def cleans_up(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                turn.chunk("after the lapse")
            except LeaseLost as error:
                failures.append(error)

    async with leased(tmp_path, cleans_up) as (here, clock, _lease):
        task = await here.start()
        clock.now += LEASE
        waiting = await here.start("later")
        here.runtime.scheduler.check_lease()
        ended = await here.ended(task.id)
        assert (state(ended), texts(ended)) == ("FAILED", [])
        assert len(failures) == 1
        assert state(await here.get(waiting.id)) == "SUBMITTED"


async def test_a_claim_whose_answer_comes_after_a_lapse_begins_no_turn(tmp_path: Path) -> None:
    """The process was frozen between the commit and its answer; meanwhile others may have ended the task."""
    begun: list[int] = []

    async def counts(turn: Turn) -> str:
        begun.append(turn.attempt)
        return "done"

    async with leased(tmp_path, counts) as (here, clock, lease):
        sending = asyncio.ensure_future(here.start())
        while not here.runtime.scheduler.runs.reserved:  # noqa: ASYNC110  # every step counts here
            await asyncio.sleep(0)
        clock.now += LEASE
        task = await sending
        assert not begun
        lease.renew()
        ended = await here.ended(task.id)
        assert (state(ended), begun) == ("COMPLETED", [1])


async def test_a_direct_task_that_is_claimed_after_a_lapse_is_no_answer(tmp_path: Path) -> None:
    """The task is not visible yet. Its next run replaces it by a Message, or makes it visible."""

    async def replies(turn: Turn) -> None:
        turn.reply("hi")

    async with leased(tmp_path, replies, direct=True) as (here, clock, _lease):
        sending = asyncio.ensure_future(here.start())
        while not here.runtime.scheduler.runs.reserved:  # noqa: ASYNC110  # every step counts here
            await asyncio.sleep(0)
        clock.now += LEASE
        with pytest.raises(Unavailable, match="check before you repeat it"):
            await sending


async def test_a_claim_of_unknown_outcome_is_given_back_after_a_lapse(tmp_path: Path) -> None:
    begun: list[int] = []

    async def counts(turn: Turn) -> str:
        begun.append(turn.attempt)
        return "done"

    async with leased(tmp_path, counts, slots=0) as (here, clock, lease):
        task = await here.start()
        scheduler = here.runtime.scheduler
        claims = UnsettledClaims()
        recovery = ClaimRecovery(claims, scheduler.services.event_log, scheduler, lease)
        (record,) = await here.store.ready_tasks(["counts"], 1, "")
        await here.store.append(Append(task=record.ref, guard=Exists(), claim_session=scheduler.session))
        claims.add_unknown(record.ref)
        polling = asyncio.ensure_future(recovery.poll())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        clock.now += LEASE
        await polling
        await recovery.give_back_late()
        (waiting,) = await here.store.ready_tasks(["counts"], 1, "")
        assert (waiting.session, waiting.attempt, begun) == (0, 1, [])
        assert waiting.id == task.id


async def test_a_watched_lease_stops_turns_soon_after_its_end() -> None:
    stopped = asyncio.Event()
    watching = asyncio.create_task(watch_lease(Lease(0.02), stopped.set))
    try:
        async with asyncio.timeout(60):
            await stopped.wait()
    finally:
        watching.cancel()


async def test_only_renewals_that_succeed_extend_the_lease(tmp_path: Path) -> None:
    clock, store = ManualClock(), cast(Any, UnavailableStore(tmp_path / "tasks.db"))
    try:
        lease = Lease(10.0, clock=clock)
        heartbeat = Heartbeat(store, await store.open_session(10.0), clock=clock, run_lease=lease)
        clock.now += 2.0
        store.unavailable.add("renew_session")
        await asyncio.to_thread(heartbeat.renew)
        assert lease.remaining == 6.0
        store.unavailable.clear()
        await asyncio.to_thread(heartbeat.renew)
        assert lease.remaining == 8.0
    finally:
        await store.close()


# A process that does not run its loop holds no lease ---------------------------------------------------------------


async def test_a_loop_that_does_not_run_for_too_long_does_not_answer() -> None:
    clock = ManualClock()
    check = LoopCheck(asyncio.get_running_loop(), 20.0, clock)
    seen = [check.answers()]
    for seconds in (19.9, 0.1, 100.0):  # the loop does not run meanwhile
        clock.now += seconds
        seen.append(check.answers())
    assert seen == [True, True, False, False]
    await asyncio.sleep(0)
    assert check.answers()
    clock.now += 60.0  # the process was frozen after the answer: nobody has asked
    await asyncio.sleep(0)
    assert check.answers()
    clock.now += 20.0
    assert not check.answers()


def test_a_loop_is_asked_once_a_second_at_most() -> None:
    questions, clock = [], ManualClock()

    class Loop:
        def call_soon_threadsafe(self, callback: Any, *arguments: Any) -> None:
            questions.append(clock.now)
            callback(*arguments)

    check = LoopCheck(cast(Any, Loop()), 20.0, clock)
    for _ in range(30):
        assert check.answers()
        clock.now += 0.1
    assert len(questions) == 3


def test_a_loop_that_is_closed_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert LoopCheck(loop).answers()


async def test_the_session_is_not_renewed_while_the_loop_is_blocked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path / "tasks.db")
    answers, heard = True, threading.Semaphore(0)

    def loop_answers() -> bool:
        heard.release()
        return answers

    session = await store.open_session(600)
    heartbeat = Heartbeat(store, session, lease=600, interval=0.01, loop_answers=loop_answers)
    heartbeat.start()
    try:
        await asyncio.to_thread(heard.acquire)
        answers = False
        for _ in range(4):
            await asyncio.to_thread(heard.acquire)
        assert caplog.text.count("the session is not renewed, so other processes take over its tasks") == 1
        assert heartbeat.delay == RETRY_INTERVAL
        answers = True
        await eventually(lambda: heartbeat.delay < RETRY_INTERVAL)
    finally:
        await heartbeat.close()
        await store.close()


RENEWS: Final = {
    "runtime/sessions.py": "if self.loop_answers():",  # the session of a process
    "worker/stream.py": "not self._loop_check.answers():",  # the lease of a worker
}
"""Where the lease of a process is renewed, and the condition there."""


def renews_a_lease(tree: ast.AST) -> bool:
    """Whether a module renews a session, or sends a heartbeat for which a server grants a lease."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name == "renew_session" or (
                name == "ConnectRequest" and any(one.arg == "heartbeat" for one in node.keywords)
            ):
                return True
    return False


def test_every_renewal_of_a_lease_asks_the_loop() -> None:
    package = Path(dragoman.__file__).parent
    sources = {
        path.relative_to(package).as_posix(): path.read_text("utf-8")
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in ("stores", "extensions", "testing")  # they implement and test it
    }
    assert {name for name, source in sources.items() if renews_a_lease(ast.parse(source))} == set(RENEWS)
    assert [name for name, condition in RENEWS.items() if condition not in sources[name]] == []
