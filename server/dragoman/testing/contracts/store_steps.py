"""Contract of steps and of turns that sleep: stored under the claim, and found by the next run of the turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import (
    FENCED,
    NOT_READY,
    RUNNING,
    Append,
    Appended,
    AppendRejected,
    Asleep,
    ClaimHeld,
    NoOpenTurn,
    NotClaimed,
    Ready,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.core.task.steps import NO_POSITION, StepRecord, StepState
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    OWNER,
    SESSION,
    Clock,
    by_runner,
    created,
    follow_up,
    new_ref,
    running,
    status,
)
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def finished_step(name: str, number: int = 1, position: int = 0, result: bytes = b"{}") -> StepRecord:
    """Returns a step whose result is stored."""
    part = pb.Part(raw=result, media_type="application/json").SerializeToString()
    failure = wk.Failure(attempt=1, type="ValueError", text="once")
    details = wk.StepDetails(input='{"page":3}', failures=[failure]).SerializeToString()
    return StepRecord(
        name, number, position, StepState.DONE, 2, 1_000, 2_000, 0, part, len(result), "ValueError: once", details
    )


def with_steps(claimed: Appended, *steps: StepRecord) -> Append:
    """Returns an append of the holder of the claim that stores only steps."""
    return replace(by_runner(claimed), steps=steps)


def suspended(claimed: Appended, wake_at: int, *steps: StepRecord) -> Append:
    """Returns an append with which the turn goes to sleep."""
    return replace(by_runner(claimed, status(states.WORKING)), steps=steps, suspend=True, wake_at=wake_at)


def waking(appended: Appended, *, claim: int = 0) -> Append:
    """Returns an append that wakes a sleeping turn."""
    return Append(task=appended.record.ref, guard=Asleep(), wake=True, claim_session=claim)


class StoreSteps:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Steps ------------------------------------------------------------------------------------------------------

    async def test_a_new_task_may_begin_with_steps(self, store: Store) -> None:
        ref, steps = new_ref(), [finished_step("search"), finished_step("search", 2, 1, bytes(300_000))]
        await store.append(replace(created(ref), steps=steps))
        found = await store.steps(ref, results=True)
        assert [(step.name, step.number, step.turn, step.result) for step in found] == [
            (step.name, step.number, 0, step.result) for step in steps
        ]

    async def test_a_step_is_read_as_it_was_stored(self, store: Store) -> None:
        claimed = await running(store)
        step = finished_step("search")
        appended = await store.append(with_steps(claimed, step))
        assert await store.steps(claimed.record.ref, results=True) == [step]
        assert await store.steps(claimed.record.ref) == [replace(step, result=b"", details=b"")]
        assert (appended.events, appended.record.last_sequence) == ([], 1)

    async def test_a_step_replaces_the_same_one_stored_before(self, store: Store) -> None:
        claimed = await running(store)
        begun = StepRecord("search", 1, 0, StepState.RUNNING, started=1_000)
        await asyncio.gather(
            store.append(with_steps(claimed, begun)), store.append(with_steps(claimed, finished_step("search")))
        )
        await store.append(with_steps(claimed, begun, finished_step("search")))
        assert await store.steps(claimed.record.ref, results=True) == [finished_step("search")]

    async def test_steps_are_listed_in_the_order_of_their_start(self, store: Store) -> None:
        claimed = await running(store)
        steps = [
            replace(finished_step("b", position=0), started=10),
            replace(finished_step("a", position=NO_POSITION), started=11),
            replace(finished_step("b", 2, position=1), started=12),
        ]
        await store.append(with_steps(claimed, *reversed(steps)))
        assert [(step.name, step.number) for step in await store.steps(claimed.record.ref)] == [
            ("b", 1), ("a", 1), ("b", 2),
        ]  # fmt: skip

    async def test_a_large_result_is_read_as_it_was_stored(self, store: Store) -> None:
        claimed = await running(store)
        step = finished_step("download", result=bytes(300_000) + b"end")
        await store.append(with_steps(claimed, step, finished_step("small", position=1)))
        found = {one.name: one for one in await store.steps(claimed.record.ref, results=True)}
        assert found["download"] == step
        assert found["small"] == finished_step("small", position=1)

    async def test_a_step_of_a_lost_claim_is_rejected(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed), retry=True))
        with pytest.raises(AppendRejected, match=FENCED):
            await store.append(with_steps(claimed, finished_step("search")))
        assert await store.steps(claimed.record.ref) == []

    async def test_steps_remain_for_the_next_attempt(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("search")))
        await store.append(replace(by_runner(claimed), retry=True))
        assert await store.steps(claimed.record.ref, results=True) == [finished_step("search")]

    async def test_steps_remain_after_a_question(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("search")))
        await store.append(by_runner(claimed, status(states.INPUT_REQUIRED, "which?"), end=True))
        await store.append(follow_up(claimed.record.ref, "this", claim=SESSION))
        assert [step.turn for step in await store.steps(claimed.record.ref)] == [0]

    async def test_steps_remain_when_the_answer_arrived_before_the_question(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("search")))
        await store.append(follow_up(claimed.record.ref, "this"))
        question = await store.append(by_runner(claimed, status(states.INPUT_REQUIRED, "which?"), end=True))
        assert question.turn_continues
        assert [step.turn for step in await store.steps(claimed.record.ref)] == [0]

    async def test_the_next_turn_of_a_task_finds_no_steps_of_the_last_one(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("search")))
        await store.append(follow_up(claimed.record.ref, "and that"))
        done = await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
        assert done.turn_continues
        await store.append(replace(with_steps(claimed, finished_step("search", result=b"2")), last_delivered=2))
        past, current = await store.steps(claimed.record.ref, results=True)
        assert (past.turn, past.result, past.size) == (1, b"", 2)
        assert current == finished_step("search", result=b"2")

    async def test_steps_are_read_with_their_contents_also_of_an_earlier_turn(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("search"), finished_step("search", 2, 1, bytes(300_000))))
        await store.append(follow_up(claimed.record.ref, "and that"))
        await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
        await store.append(replace(with_steps(claimed, finished_step("search", result=b"2")), last_delivered=2))
        listed = await store.steps(claimed.record.ref)
        whole = [
            replace(finished_step("search", step.number, step.position, result), turn=step.turn)
            for step, result in zip(listed, (b"{}", bytes(300_000), b"2"), strict=True)
        ]
        assert await store.steps(claimed.record.ref, only=listed) == whole
        for one, step in zip(listed, whole, strict=True):
            assert await store.steps(claimed.record.ref, only=[one]) == [step]
        assert await store.steps(claimed.record.ref, only=[listed[0], listed[2]]) == [whole[0], whole[2]]
        assert await store.steps(claimed.record.ref, only=[finished_step("other")]) == []
        assert await store.steps(new_ref(), only=[finished_step("search")]) == []

    async def test_steps_are_erased_with_their_task(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(with_steps(claimed, finished_step("download", result=bytes(300_000))))
        await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
        await store.erasures.erase(TaskSelection(task=claimed.record.id))
        assert await store.steps(claimed.record.ref) == []

    # Sleeping turns ---------------------------------------------------------------------------------------------

    async def test_a_sleeping_turn_is_not_ready_until_it_wakes(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        asleep = await store.append(suspended(claimed, clock.now + 5_000, finished_step("search")))
        record = asleep.record
        assert (record.session, record.ready, record.wake_at, record.attempt) == (0, False, clock.now + 5_000, 1)
        assert record.has_open_turn
        assert await store.ready_tasks([record.agent], 10) == []
        with pytest.raises(AppendRejected, match=NOT_READY):
            await store.append(Append(task=record.ref, guard=Ready(), claim_session=SESSION))
        woken = await store.append(waking(asleep))
        assert (woken.record.ready, woken.record.wake_at, woken.record.last_delivered) == (True, 0, 0)
        assert [found.ref for found in await store.ready_tasks([record.agent], 10)] == [record.ref]

    async def test_a_turn_wakes_once(self, store: Store, clock: Clock) -> None:
        asleep = await store.append(suspended(await running(store), clock.now + 5_000))
        woken = await store.append(waking(asleep, claim=SESSION))
        assert woken.claimed
        with pytest.raises(AppendRejected, match=NOT_READY):
            await store.append(waking(asleep))

    async def test_sleeping_tasks_are_found_by_their_time(self, store: Store, clock: Clock) -> None:
        late = await store.append(suspended(await running(store), clock.now + 3_000))
        early = await store.append(suspended(await running(store), clock.now + 1_000))
        await store.append(suspended(await running(store), clock.now + 9_000))
        found = await store.sleeping_tasks(clock.now + 3_000, 10)
        assert found == [early.record, late.record]
        assert await store.sleeping_tasks(clock.now + 3_000, 1) == [early.record]
        assert await store.sleeping_tasks(clock.now, 10) == []

    async def test_an_attempt_may_begin_later(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        failed = await store.append(replace(by_runner(claimed), retry=True, wake_at=clock.now + 1_000))
        assert (failed.record.attempt, failed.record.ready, failed.record.wake_at) == (2, False, clock.now + 1_000)
        assert (await store.append(waking(failed, claim=SESSION))).record.attempt == 2

    async def test_a_message_does_not_wake_a_turn(self, store: Store, clock: Clock) -> None:
        asleep = await store.append(suspended(await running(store), clock.now + 5_000))
        appended = await store.append(follow_up(asleep.record.ref, "more", claim=SESSION))
        assert (appended.claimed, appended.record.ready, appended.record.wake_at) == (False, False, clock.now + 5_000)
        with pytest.raises(AppendRejected, match=RUNNING):
            await store.append(replace(follow_up(asleep.record.ref, "more"), guard=NoOpenTurn()))

    async def test_a_cancel_ends_a_sleeping_turn(self, store: Store, clock: Clock) -> None:
        asleep = await store.append(suspended(await running(store), clock.now + 5_000))
        end = Append(task=asleep.record.ref, guard=NotClaimed(), events=[status(states.CANCELED)], release=True)
        canceled = await store.append(end)
        assert (canceled.record.state, canceled.record.wake_at) == (states.CANCELED, 0)
        assert await store.sleeping_tasks(clock.now + 9_000, 10) == []

    async def test_a_sleeping_turn_belongs_to_no_session(self, store: Store, clock: Clock) -> None:
        session = await store.open_session(10)
        claimed = await store.append(created(new_ref(OWNER), claim=session))
        guard = ClaimHeld(session, claimed.record.token)
        change = Append(
            task=claimed.record.ref,
            guard=guard,
            events=[status(states.WORKING)],
            suspend=True,
            wake_at=clock.now + 60_000,
        )
        await store.append(change)
        clock.now += 30_000
        assert await store.orphaned_tasks(await store.open_session(10), 10) == []
