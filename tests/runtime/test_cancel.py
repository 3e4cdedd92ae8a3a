"""G5: an acknowledged cancel happens, whichever process dies and whatever the bus loses.

Two runtimes share a store here, without a bus between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import set_timings, timings
from tests.eventually import eventually
from tests.runtime.harness import Harness, open_harness, state, status_text
from tests.runtime.remote_agent import DONE, Far, served
from tests.runtime.test_sessions import Shifted, reaper, trusted, two

from dragoman import Turn, retry
from dragoman.bus.local import LocalBus
from dragoman.core.errors import InvalidParams, TaskNotCancelable, Unavailable
from dragoman.core.limits.message_limits import MAX_CANCEL_METADATA_BYTES
from dragoman.core.task import states
from dragoman.core.task.log import Append, ClaimHeld, Ready, StatusChange, TaskRef
from dragoman.ids import now_ms
from dragoman.ports import Store, TaskSignal, TaskSnapshot, TurnContext, TurnResult, WorkerLost
from dragoman.runtime import sessions
from dragoman.runtime.log import EventLog
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import OWNER, created, new_ref
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CancelTask does not wait for the agent, and only tests poll for cancels."""
    set_timings(monkeypatch, cancel_timeout=0.0, cancel_poll_interval=3600.0)


async def waits(turn: Turn) -> None:
    turn.status(f"attempt {turn.attempt}")
    await turn.flush()
    await asyncio.Event().wait()


async def look(here: Harness) -> None:
    """A poll, which every server does every two seconds."""
    await here.runtime.operations.cancel.poll()


async def test_a_cancel_lost_by_the_bus_is_found_in_the_store(tmp_path: Path) -> None:
    async with two(tmp_path, Shifted(), waits) as (one, other):
        task = await one.start()
        assert state(await other.cancel(task.id)) in ("SUBMITTED", "WORKING")
        await look(other)
        assert other.runtime.scheduler.running == 0
        await look(one)
        assert state(await one.ended(task.id)) == "CANCELED"


async def test_a_task_that_is_claimed_during_its_cancel_is_not_reported_as_canceled(tmp_path: Path) -> None:
    """It waits when the cancel reads it, and another server claims it before the cancel is written."""

    class Claims:
        """Lets another server claim the task after the next read."""

        def __init__(self, store: Store) -> None:
            self._store = store
            self.claim: Append | None = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def read(self, ref: TaskRef, **options: Any) -> TaskSnapshot | None:
            found = await self._store.read(ref, **options)
            if self.claim is not None:
                claim, self.claim = self.claim, None
                await self._store.append(claim)
            return found

    store: Any = Claims(open_store(tmp_path / "tasks.db"))
    async with open_harness(tmp_path, waits, store=store, exclusive=False, slots=0) as here:
        task = await here.start()
        (record,) = await store.ready_tasks(["waits"], 1, "")
        other = await store.open_session(600)
        store.claim = Append(task=record.ref, guard=Ready(), claim_session=other)
        assert state(await here.cancel(task.id)) == "SUBMITTED"
        assert record.ref in await store.cancel_requests.of_session(other)


async def test_a_turn_that_is_repeated_elsewhere_during_its_cancel_is_canceled_there(tmp_path: Path) -> None:
    """Its process gives the turn back after the signal, and another claims it before the cancel is written."""

    class Repeats:
        """Lets another server repeat the turn: released before the read, claimed after it."""

        def __init__(self, store: Store) -> None:
            self._store = store
            self.release: Append | None = None
            self.claim: Append | None = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def read(self, ref: TaskRef, **options: Any) -> TaskSnapshot | None:
            if self.release is None or self.claim is None or options.get("history") == 0:
                return await self._store.read(ref, **options)
            release, claim, self.release = self.release, self.claim, None
            await self._store.append(release)
            found = await self._store.read(ref, **options)
            await self._store.append(claim)
            return found

    async def ignores(turn: Turn) -> None:
        here.at("begun").set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await here.at("go").wait()

    store: Any = Repeats(open_store(tmp_path / "tasks.db"))
    async with open_harness(tmp_path, ignores, store=store, exclusive=False) as here:
        task = await here.start()
        await here.at("begun").wait()
        (runner,) = here.runtime.scheduler.runs
        ref, guard = runner.context.record.ref, ClaimHeld(runner.context.record.session, runner.context.record.token)
        other = await store.open_session(600)
        store.release = Append(task=ref, guard=guard, retry=True)
        store.claim = Append(task=ref, guard=Ready(), claim_session=other)
        await here.cancel(task.id)
        assert ref in await store.cancel_requests.of_session(other)
        here.at("go").set()


async def test_a_cancel_repeated_late_by_the_bus_stops_no_other_turn(tmp_path: Path) -> None:
    """A bus repeats a cancel after an outage; meanwhile the agent has asked, and has its answer."""

    async def asks(turn: Turn) -> str:
        if turn.question is None:
            try:
                await waits(turn)
            except asyncio.CancelledError:
                turn.ask("are you sure?")
        here.at("second").set()
        await here.at("go").wait()
        return "no"

    async with asyncio.timeout(60), open_harness(tmp_path, asks) as here:
        task = await here.start()
        (run,) = here.runtime.scheduler.runs
        await eventually(lambda: run.context.record.last_sequence > 1)
        bus, ref = here.bus, run.context.record.ref
        await here.store.cancel_requests.request(ref)
        bus.publish_signal(ref, TaskSignal.CANCEL)  # as another server does
        await here.idle()
        assert state(await here.get(task.id)) == "INPUT_REQUIRED"
        await here.start("no", task_id=task.id)
        await here.at("second").wait()
        looked, among = asyncio.Event(), here.store.cancel_requests.pending

        async def looks(*given: Any) -> Any:
            try:
                return await among(*given)
            finally:
                looked.set()

        here.store.cancel_requests.pending = looks  # type: ignore[assignment]
        bus.publish_signal(ref, TaskSignal.CANCEL)
        await looked.wait()
        here.at("go").set()
        assert state(await here.ended(task.id)) == "COMPLETED"


async def test_the_metadata_of_a_cancel_request_reaches_the_agent_at_another_server(tmp_path: Path) -> None:
    seen = list[dict[str, Any]]()

    async def notes(turn: Turn) -> None:
        try:
            await waits(turn)
        finally:
            seen.append(turn.cancel_metadata)

    async with two(tmp_path, Shifted(), notes) as (one, other):
        task = await one.start()
        await other.cancel(task.id, why="too late")
        await look(one)
        assert state(await one.ended(task.id)) == "CANCELED"
        again = await one.start()
        await eventually(lambda: one.runtime.scheduler.running)
        await one.cancel(again.id)
        assert state(await one.ended(again.id)) == "CANCELED"
    assert seen == [{"why": "too late"}, {}]


async def test_too_much_metadata_cancels_nothing(tmp_path: Path) -> None:
    async with open_harness(tmp_path, waits) as here:
        task = await here.start()
        with pytest.raises(InvalidParams, match=r"^metadata: has \d+ bytes; at most 65536 are accepted"):
            await here.cancel(task.id, why="x" * MAX_CANCEL_METADATA_BYTES)
        assert state(await here.get(task.id)) in ("SUBMITTED", "WORKING")
        await here.cancel(task.id, why="x" * (MAX_CANCEL_METADATA_BYTES - 100))
        assert state(await here.ended(task.id)) == "CANCELED"


@pytest.mark.parametrize("retries", [0, 2])
async def test_a_pending_cancel_is_executed_after_the_death_of_the_process(tmp_path: Path, retries: int) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, waits, on_crash=retry(retries) if retries else "fail") as (one, other):
        task = await one.start()
        await other.cancel(task.id)
        clock.ahead += 15_000
        assert await reaper(other).reap() == 1
        assert state(await other.get(task.id)) == "CANCELED"


async def test_an_attempt_that_was_begun_before_the_cancel_was_found_is_canceled(tmp_path: Path) -> None:
    clock = Shifted()
    async with two(tmp_path, clock, waits, on_crash=retry(2)) as (one, other):
        task = await one.start()
        clock.ahead += 15_000
        assert await reaper(other).reap() == 1
        await eventually(lambda: other.runtime.scheduler.running)
        await one.cancel(task.id)
        await look(other)
        assert state(await other.ended(task.id)) == "CANCELED"


async def orphaned(tmp_path: Path, far: Far, clock: Callable[[], int] = now_ms) -> tuple[Any, Any]:
    """A store in which a process died during the turn of a canceled task of a remote agent."""
    store: Any = open_store(tmp_path / "tasks.db", clock=clock)
    dead = await store.open_session(600)
    record = (await store.append(created(new_ref(), agent="far", claim=dead))).record
    await store.cancel_requests.request(record.ref)
    return store, record


@pytest.mark.parametrize("early", [True, False])
async def test_a_canceled_turn_of_a_dead_server_ends_when_its_worker_cannot_run_it_any_more(
    tmp_path: Path, early: bool
) -> None:
    """A session that has expired outlasts the leases of its workers; that of a dead process may end before them."""
    now = [100.0]
    store, record = await orphaned(tmp_path, far := Far(), clock := Shifted())
    mine = await store.open_session(600, exclusive=early)
    if not early:
        clock.ahead = 700_000
    bus = LocalBus()
    reaper = sessions.Reaper(store, bus, EventLog(store, bus), mine, {"far": far}, trusted, clock=lambda: now[0])
    try:
        assert await reaper.reap() == (0 if early else 1)
        now[0] += sessions.LEASE_SECONDS
        assert await reaper.reap() == (1 if early else 0)
        assert (await store.read(record.ref)).record.state == states.CANCELED
    finally:
        await store.close()


async def test_a_canceled_turn_upstream_of_a_dead_server_is_asked_again(tmp_path: Path) -> None:
    store, record = await orphaned(tmp_path, far := Far())
    far.is_worker_backed = False
    bus = LocalBus()
    mine = await store.open_session(600, exclusive=True)
    reaper = sessions.Reaper(store, bus, EventLog(store, bus), mine, {"far": far}, trusted)
    try:
        assert await reaper.reap() == 1
        after = (await store.read(record.ref)).record
        assert (after.ready, after.attempt, reaper.left_cancels) == (True, 2, True)
    finally:
        await store.close()


async def test_a_repeated_turn_of_a_canceled_task_never_begins(tmp_path: Path) -> None:
    begun: list[int] = []

    async def counts(turn: Turn) -> None:
        begun.append(turn.attempt)

    store = open_store(tmp_path / "tasks.db")
    async with open_harness(tmp_path, counts, store=store, slots=0, on_crash=retry(1)) as here:
        task = await here.start()
        (record,) = await store.ready_tasks(["counts"], 1, "")
        claimed = (await store.append(Append(task=record.ref, guard=Ready(), claim_session=999))).record
        await store.cancel_requests.request(record.ref)
        await store.append(Append(task=record.ref, guard=ClaimHeld(999, claimed.token), retry=True))
        here.runtime.scheduler.runs.slots = 1
        here.runtime.scheduler.capacity_changed()
        assert state(await here.ended(task.id)) == "CANCELED"
    assert begun == []


class Deaf(Far):
    """Receives the cancel and ignores it."""

    def __init__(self) -> None:
        super().__init__(crash_retries=2)
        self.notified = asyncio.Event()

    async def take_turn(self, context: TurnContext) -> TurnResult:
        turn = asyncio.ensure_future(super().take_turn(context))
        while True:
            try:
                return await asyncio.shield(turn)
            except asyncio.CancelledError:
                self.notified.set()


async def test_a_canceled_turn_of_a_lost_worker_is_not_repeated(tmp_path: Path) -> None:
    async with served(tmp_path, far := Deaf()) as here:
        task = await here.start()
        _, end = await far.turns.get()
        await here.cancel(task.id)
        await far.notified.wait()
        end.set_exception(WorkerLost)
        assert state(await here.ended(task.id)) == "CANCELED"
        assert far.turns.empty()


async def test_a_drain_during_a_cancel_ends_in_canceled(tmp_path: Path) -> None:
    async def slow(turn: Turn) -> None:
        here.at("begun").set()
        try:
            await asyncio.Event().wait()
        finally:
            here.at("told").set()
            await here.at("go").wait()

    async with open_harness(tmp_path, slow, on_crash=retry(2)) as here:
        task = await here.start()
        await here.at("begun").wait()
        await here.cancel(task.id)
        await here.at("told").wait()
        await here.runtime.scheduler.drain(0)
        here.at("go").set()
        ended = await here.ended(task.id)
        assert ended.status.state == states.CANCELED


async def test_an_agent_may_refuse_a_cancel_with_a_reason(tmp_path: Path) -> None:
    async def pays(turn: Turn) -> str:
        turn.refuse_cancel("the money is on its way")
        turn.status("paying")
        await here.at("go").wait()
        return "paid"

    async with open_harness(tmp_path, pays) as here:
        task = await here.start()
        await next(iter(here.runtime.scheduler.runs)).context.flush()
        with pytest.raises(TaskNotCancelable, match="money"):
            await here.cancel(task.id)
        here.at("go").set()
        assert state(await here.ended(task.id)) == "COMPLETED"


@pytest.mark.parametrize(("stops", "end"), [(True, "CANCELED"), (False, "COMPLETED")])
async def test_a_refusal_after_the_cancel_withdraws_it_and_the_task_ends_as_its_agent_does(
    tmp_path: Path, stops: bool, end: str
) -> None:
    async def changes_its_mind(turn: Turn) -> str:
        turn.status("paying")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await here.at("refuse").wait()
            turn.refuse_cancel("the money is on its way")
            here.at("refused").set()
            await here.at("go").wait()
            if stops:
                raise
        return "paid"

    async with open_harness(tmp_path, changes_its_mind, timings=timings(cancel_timeout=0.1)) as here:
        task = await here.start()
        run = next(iter(here.runtime.scheduler.runs))
        await run.context.flush()
        assert state(await here.cancel(task.id)) == "WORKING"  # accepted, and on disk
        assert run.context.record.ref in await here.store.cancel_requests.pending([run.context.record.ref])
        here.at("refuse").set()
        await here.at("refused").wait()
        with pytest.raises(TaskNotCancelable, match="money"):
            await here.cancel(task.id)
        await here.runtime.operations.cancel.poll()
        assert await here.store.cancel_requests.pending([run.context.record.ref]) == {}
        here.at("go").set()
        assert state(await here.ended(task.id)) == end


async def test_the_caller_at_another_server_is_told_that_the_agent_refuses(tmp_path: Path) -> None:
    async def pays(turn: Turn) -> str:
        turn.refuse_cancel("the money is on its way")
        turn.status("paying")
        await here.at("go").wait()
        return "paid"

    async with two(tmp_path, Shifted(), pays) as (here, other):
        task = await here.start()
        await next(iter(here.runtime.scheduler.runs)).context.flush()
        request = other.store.cancel_requests.request

        async def requests(*given: Any) -> None:
            await request(*given)
            await look(here)

        other.store.cancel_requests.request = requests  # type: ignore[assignment]
        with pytest.raises(TaskNotCancelable, match="its agent refuses"):
            await other.cancel(task.id)
        here.at("go").set()
        assert state(await here.ended(task.id)) == "COMPLETED"


# Agents that call another server -------------------------------------------------------------------------------------


class Calling(Far):
    """Calls another server, which alone can say that its work has stopped. `refusal`: why it refuses to stop."""

    is_worker_backed = False

    def __init__(self, refusal: str = "") -> None:
        super().__init__(crash_retries=1)
        self.has_work, self.refusal = True, refusal

    async def take_turn(self, context: TurnContext) -> TurnResult:
        turn = asyncio.ensure_future(super().take_turn(context))
        while True:
            try:
                return await asyncio.shield(turn)
            except asyncio.CancelledError:
                if context.cancel_reason != "client":
                    raise WorkerLost from None
                if self.refusal:
                    context.refuse_cancel(self.refusal)


CONFIRMED = TurnResult(StatusChange(states.CANCELED))
ASKS = TurnResult(StatusChange(states.INPUT_REQUIRED))


async def test_a_cancel_that_another_server_has_not_confirmed_is_left_to_the_next_attempt(tmp_path: Path) -> None:
    async with served(tmp_path, far := Calling()) as here:
        task = await here.start()
        for attempt in range(1, 4):  # more often than it is repeated without a cancel
            context, end = await far.turns.get()
            assert (context.attempt, context.cancel_reason) == (attempt, "" if attempt == 1 else "client")
            if attempt == 1:
                await here.cancel(task.id, why="late")
            end.set_exception(WorkerLost)
        context, end = await far.turns.get()
        assert context.cancel_metadata == pb.Task(metadata={"why": "late"}).metadata.SerializeToString()
        assert "cancel waits" in status_text(await here.get(task.id))
        end.set_result(CONFIRMED)
        assert state(await here.ended(task.id)) == "CANCELED"


async def test_a_cancel_of_a_turn_that_waits_for_another_server_is_kept_for_its_next_attempt(tmp_path: Path) -> None:
    async with served(tmp_path, far := Calling()) as here:
        far.room = 0
        task = await here.start()
        canceled = await here.cancel(task.id)
        assert (state(canceled), "cancel waits" in status_text(canceled)) == ("WORKING", True)
        (record,) = await here.store.ready_tasks(["far"], 1, "")
        assert len(await here.store.events(record.ref, 0)) == 2, "the status says it once"
        assert (await here.cancel(task.id)).status == canceled.status
        far.room = 1
        here.runtime.scheduler.capacity_changed()
        context, end = await far.turns.get()
        assert context.cancel_reason == "client"
        end.set_result(CONFIRMED)
        assert state(await here.ended(task.id)) == "CANCELED"


async def test_a_cancel_that_waits_for_another_server_waits_while_its_agent_is_paused(tmp_path: Path) -> None:
    async with served(tmp_path, far := Calling()) as here:
        task = await here.start()
        _, end = await far.turns.get()
        await here.cancel(task.id)
        await here.runtime.scheduler.pauses.pause("far", "olga", "")
        end.set_exception(WorkerLost)
        await here.idle()
        assert state(await here.cancel(task.id)) == "WORKING"
        await here.runtime.scheduler.poll()
        await asyncio.gather(*(one for one in asyncio.all_tasks() if one.get_name() == "take waiting tasks of far"))
        assert not list(here.runtime.scheduler.runs)
        await here.runtime.scheduler.pauses.resume("far")
        context, end = await far.turns.get()
        assert context.cancel_reason == "client"
        end.set_result(CONFIRMED)
        assert state(await here.ended(task.id)) == "CANCELED"


async def test_a_task_that_another_server_never_had_is_canceled_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, far := Calling()) as here:
        far.room, far.has_work = 0, False
        task = await here.start()
        assert state(await here.cancel(task.id)) == "CANCELED"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(True, "CANCELED"), (False, "FAILED"), (TaskNotCancelable("no"), ""), (Unavailable("away"), "")],
    ids=["confirmed", "cannot confirm", "refused", "out of reach"],
)
async def test_a_task_that_waits_for_its_caller_is_canceled_as_its_server_says(
    tmp_path: Path, answer: bool | Exception, expected: str
) -> None:
    async with served(tmp_path, far := Calling()) as here:
        task = await here.start()
        _, end = await far.turns.get()
        end.set_result(ASKS)
        await here.idle()
        far.confirms = answer
        if isinstance(answer, Exception):
            with pytest.raises(type(answer)):
                await here.cancel(task.id)
            assert state(await here.get(task.id)) == "INPUT_REQUIRED"
        else:
            ended = await here.cancel(task.id)
            assert state(ended) == expected
            assert status_text(ended).startswith("OUTCOME_UNKNOWN") != (answer is True)


async def test_the_caller_of_a_cancel_is_told_that_another_server_refuses_it(tmp_path: Path) -> None:
    far = Calling("it refuses")
    async with served(tmp_path, far, timings=timings(cancel_timeout=0.1)) as here:
        task = await here.start()
        _, end = await far.turns.get()
        with pytest.raises(TaskNotCancelable, match="it refuses"):
            await here.cancel(task.id)
        ref = here.runtime.scheduler.runs.by_task.copy().popitem()[0]
        assert await here.store.cancel_requests.pending([ref]) == {}
        end.set_result(DONE)
        assert state(await here.ended(task.id)) == "COMPLETED"


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "waiting"])
async def test_a_cancel_that_nobody_confirms_for_long_ends_as_unknown(tmp_path: Path, is_running: bool) -> None:
    async with served(tmp_path, far := Calling(), cancel_wait=-3600.0) as here:
        far.room = int(is_running)
        task = await here.start()
        if is_running:
            await far.turns.get()
        await here.cancel(task.id)
        await here.runtime.operations.cancel.end_unconfirmed()
        ended = await here.ended(task.id)
        assert (state(ended), status_text(ended).partition(":")[0]) == ("FAILED", "OUTCOME_UNKNOWN")


async def test_a_cancel_at_a_removed_agent_ends_as_unknown_and_at_an_absent_one_waits_on(tmp_path: Path) -> None:
    async with served(tmp_path, Far("near"), far := Calling(), root="far", worker_wait=60) as here:
        far.room, far.seconds_absent = 0, 59.0
        task = await here.start()
        await here.cancel(task.id)
        far.seconds_absent = 61.0
        assert await here.runtime.absent_agents.end_abandoned_tasks() == 0
        assert state(await here.get(task.id)) == "WORKING"
        assert await here.runtime.registry.unregister("far") == 1
        stored = await here.store.find(OWNER, "far", task.id)
        assert stored is not None
        assert stored.status_text.startswith("OUTCOME_UNKNOWN")
