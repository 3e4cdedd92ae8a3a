"""Contract of appends: guards, sequences, claims, and batches whose changes do not affect each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from dragoman.core.limits.quotas import UsageReport
from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    ENDED,
    EXISTS,
    FENCED,
    NOT_READY,
    RUNNING,
    Append,
    Appended,
    AppendRejected,
    ClaimHeld,
    Exists,
    NoOpenTurn,
    Ready,
    StatusChange,
    Version,
)
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    artifact,
    by_runner,
    cancel,
    chunk,
    created,
    finished,
    follow_up,
    new_ref,
    running,
    status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


def metadata(value: dict[str, object]) -> bytes:
    """A serialized Struct."""
    return pb.Task(metadata=value).metadata.SerializeToString()


class StoreWrites:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Creating ---------------------------------------------------------------------------------------------------

    async def test_a_new_task_has_event_one_and_is_ready(self, store: Store) -> None:
        appended = await store.append(created(new_ref()))
        (event,) = appended.events
        task = pb.StreamResponse.FromString(event.data).task
        assert (event.sequence, task.id, task.history[0].parts[0].text) == (1, appended.record.id, "hello")
        assert appended.record.state == states.SUBMITTED
        assert appended.record.ready
        assert not appended.claimed

    async def test_create_and_claim_are_one_append(self, store: Store) -> None:
        appended = await store.append(created(new_ref(), claim=SESSION))
        assert appended.claimed
        assert (appended.record.session, appended.record.token, appended.record.ready) == (SESSION, 1, False)

    async def test_a_key_is_created_once(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        with pytest.raises(AppendRejected, match=EXISTS):
            await store.append(change)

    # Sequences --------------------------------------------------------------------------------------------------

    async def test_sequences_have_no_gaps_over_many_appends(self, store: Store) -> None:
        claimed = await running(store)
        for number in range(5):
            await store.append(by_runner(claimed, *[chunk("out", f"{number}.{part}") for part in range(number + 1)]))
        await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
        events = await store.events(claimed.record.ref, 0, 1000)
        assert [event.sequence for event in events] == list(range(1, 1 + 1 + 15 + 1))
        assert [event.ends for event in events] == [False] * 16 + [True]

    async def test_events_are_read_from_any_sequence(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(by_runner(claimed, *[chunk("out", str(number)) for number in range(10)]))
        for after in range(12):
            events = await store.events(claimed.record.ref, after)
            assert [event.sequence for event in events] == list(range(after + 1, 12))

    async def test_an_append_returns_the_events_in_the_log(self, store: Store) -> None:
        claimed = await running(store)
        done = await store.append(by_runner(claimed, artifact("a", "x"), status(states.COMPLETED, "done"), end=True))
        kept = await store.events(claimed.record.ref, 1)
        assert [(e.sequence, e.data, e.state, e.ends) for e in kept] == [
            (e.sequence, e.data, e.state, e.ends) for e in done.events
        ]

    async def test_status_timestamps_never_decrease(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        seen = [claimed.record.updated]
        for step in (5, -100, 3, -1):
            clock.now += step
            appended = await store.append(by_runner(claimed, status(states.WORKING)))
            seen.append(appended.record.updated)
        assert seen == sorted(seen)

    # Guards -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", sorted(states.TERMINAL))
    async def test_a_finished_task_rejects_every_guard(self, store: Store, state: int) -> None:
        done = await finished(store, state=state)
        ref, record = done.record.ref, done.record
        guards = (
            Exists(),
            NoOpenTurn(),
            Ready(),
            Version(record.last_sequence),
            ClaimHeld(SESSION, record.token),
            ClaimHeld(0, 1),
        )
        for guard in guards:
            for events in ([status(states.WORKING)], [artifact("a", "late")], [status(states.COMPLETED)]):
                with pytest.raises(AppendRejected, match=ENDED):
                    await store.append(Append(task=ref, guard=guard, events=events))
        assert (await store.last_sequences([ref]))[ref.key] == record.last_sequence

    async def test_a_missing_task_rejects_every_guard_but_new(self, store: Store) -> None:
        for guard in (Exists(), NoOpenTurn(), Ready(), Version(1), ClaimHeld(SESSION, 1)):
            with pytest.raises(AppendRejected, match="absent"):
                await store.append(Append(task=new_ref(), guard=guard, events=[status(states.WORKING)]))

    async def test_a_write_with_an_older_token_is_rejected(self, store: Store) -> None:
        first = await running(store)
        await store.append(by_runner(first, status(states.INPUT_REQUIRED, "which?"), end=True))
        second = await store.append(follow_up(first.record.ref, "this one", claim=SESSION))
        assert second.record.token == first.record.token + 1
        with pytest.raises(AppendRejected, match=FENCED):
            await store.append(by_runner(first, artifact("late", "from the first run")))

    async def test_a_version_guard_holds_for_one_writer_only(self, store: Store) -> None:
        record = (await running(store)).record
        change = Append(task=record.ref, guard=Version(record.last_sequence), events=[status(states.WORKING)])
        await store.append(change)
        with pytest.raises(AppendRejected, match="changed"):
            await store.append(change)

    async def test_a_message_can_be_rejected_while_the_task_runs(self, store: Store) -> None:
        record = (await running(store)).record
        with pytest.raises(AppendRejected, match=RUNNING):
            await store.append(replace(follow_up(record.ref, "more"), guard=NoOpenTurn()))

    async def test_of_two_writers_that_end_a_task_one_succeeds(self, store: Store) -> None:
        claimed = await running(store)
        ends = [by_runner(claimed, StatusChange(states.COMPLETED), end=True), cancel(claimed.record.ref)] * 10
        results = await asyncio.gather(*map(store.append, ends), return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert all(isinstance(result, AppendRejected) for result in results[1:])
        events = await store.events(claimed.record.ref, 0)
        assert [event.state in states.TERMINAL for event in events] == [False, True]

    # Batches ----------------------------------------------------------------------------------------------------

    async def test_one_rejected_append_does_not_affect_its_batch_of_fifty(self, store: Store) -> None:
        claims = await asyncio.gather(*(running(store) for _ in range(50)))
        changes = [by_runner(claimed, artifact("a", "x"), status(states.COMPLETED), end=True) for claimed in claims]
        changes[23] = replace(changes[23], guard=ClaimHeld(SESSION, 99))
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert isinstance(results[23], AppendRejected)
        for number, (claimed, result) in enumerate(zip(claims, results, strict=True)):
            if number != 23:
                assert not isinstance(result, BaseException)
                assert (await store.last_sequences([claimed.record.ref]))[claimed.record.ref.key] == 3
        assert (await store.last_sequences([claims[23].record.ref]))[claims[23].record.ref.key] == 1

    async def test_appends_are_applied_in_the_order_of_the_calls(self, store: Store) -> None:
        claimed = await running(store)
        futures = [store.append(by_runner(claimed, chunk("out", f"{number} "))) for number in range(100)]
        assert [(await future).events[0].sequence for future in futures] == list(range(2, 102))

    # Turns ------------------------------------------------------------------------------------------------------

    async def test_appends_are_answered_in_the_order_of_the_calls(self, store: Store) -> None:
        claimed, answered = await running(store), list[int]()
        appends = [store.append(by_runner(claimed, chunk("out", str(number)))) for number in range(20)]
        for number, append in enumerate(appends):
            append.add_done_callback(partial(_note, answered, number))
        await asyncio.gather(*appends)
        assert answered == list(range(20))

    async def test_a_message_to_a_waiting_task_makes_it_ready_and_working(self, store: Store) -> None:
        done = await finished(store, state=states.INPUT_REQUIRED)
        appended = await store.append(follow_up(done.record.ref, "blue"))
        assert appended.record.ready
        assert [event.state for event in appended.events] == [states.WORKING]

    async def test_a_message_to_a_running_task_changes_no_claim(self, store: Store) -> None:
        claimed = await running(store)
        appended = await store.append(follow_up(claimed.record.ref, "more", claim=SESSION + 1))
        assert not appended.claimed
        assert (appended.record.session, appended.record.token, appended.record.ready) == (SESSION, 1, False)
        assert appended.record.last_received == 2

    @pytest.mark.parametrize("state", [states.COMPLETED, states.INPUT_REQUIRED, states.AUTH_REQUIRED])
    async def test_an_unread_message_keeps_the_task_working(self, store: Store, state: int) -> None:
        claimed = await running(store)
        await store.append(follow_up(claimed.record.ref, "wait, one more"))
        ended = await store.append(
            by_runner(claimed, artifact("a", "x"), status(state, "so"), last_delivered=1, end=True)
        )
        assert ended.turn_continues
        assert ended.record.state == states.WORKING
        assert ended.record.session == SESSION
        assert not any(event.ends for event in ended.events)
        ended = await store.append(by_runner(claimed, status(state), last_delivered=2, end=True))
        assert not ended.turn_continues
        assert ended.record.state == state

    @pytest.mark.parametrize("state", [states.FAILED, states.REJECTED, states.CANCELED])
    async def test_a_failed_end_is_final_although_messages_wait(self, store: Store, state: int) -> None:
        claimed = await running(store)
        await store.append(follow_up(claimed.record.ref, "unread"))
        ended = await store.append(by_runner(claimed, status(state), last_delivered=1, end=True))
        assert (ended.turn_continues, ended.record.state, ended.record.session) == (False, state, 0)

    async def test_a_claim_is_taken_by_one_worker(self, store: Store) -> None:
        ref = (await store.append(created(new_ref()))).record.ref
        claims = [Append(task=ref, guard=Ready(), claim_session=session) for session in (1, 2, 3)]
        results = await asyncio.gather(*map(store.append, claims), return_exceptions=True)
        assert [isinstance(result, AppendRejected) and result.reason for result in results] == [
            False,
            NOT_READY,
            NOT_READY,
        ]

    async def test_task_state_is_stored_with_its_event(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed, status(states.WORKING)), task_state=b'{"a":1}'))
        await store.append(by_runner(claimed, status(states.WORKING)))
        kept = await store.messages(claimed.record.ref)
        assert kept is not None
        assert kept.task_state == b'{"a":1}'

    async def test_task_metadata_is_merged_by_key_and_shown_with_the_task(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.record.ref
        updates: list[dict[str, object]] = [{"a": {"x": 1, "y": 1}, "b": "kept"}, {"a": {"x": 2}}, {"c": None}]
        # Two of them in one batch, with a change between them that has none.
        first, second, third = (
            replace(by_runner(claimed, status(states.WORKING)), task_metadata=metadata(update)) for update in updates
        )
        await asyncio.gather(
            store.append(first), store.append(by_runner(claimed, chunk("a", "x"))), store.append(second)
        )
        await store.append(third)
        expected = pb.Task(metadata={"a": {"x": 2}, "b": "kept", "c": None}).metadata
        shown = await store.read(ref)
        assert shown is not None
        assert pb.Task.FromString(shown.task).metadata == expected
        kept = await store.messages(ref)
        assert kept is not None
        assert pb.Task(metadata=expected) == pb.Task.FromString(frames.submessage(6, kept.task_metadata))

    async def test_task_metadata_of_a_new_task_is_stored_in_the_batch_that_creates_it(self, store: Store) -> None:
        ref = new_ref()
        await asyncio.gather(
            store.append(created(ref)),
            store.append(
                Append(
                    task=ref,
                    guard=Exists(),
                    events=[StatusChange(states.WORKING)],
                    task_metadata=metadata({"early": True}),
                )
            ),
        )
        shown = await store.read(ref)
        assert shown is not None
        assert pb.Task.FromString(shown.task).metadata == pb.Task(metadata={"early": True}).metadata

    async def test_a_rejected_append_changes_no_metadata(self, store: Store) -> None:
        claimed = await running(store)
        late = replace(
            by_runner(claimed, status(states.WORKING)), guard=ClaimHeld(99, 99), task_metadata=metadata({"late": 1})
        )
        with pytest.raises(AppendRejected):
            await store.append(late)
        shown = await store.read(claimed.record.ref)
        assert shown is not None
        assert not pb.Task.FromString(shown.task).HasField("metadata")

    async def test_usage_and_task_metadata_keep_each_other(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed, status(states.WORKING)), task_metadata=metadata({"a": 1})))
        await store.append(replace(by_runner(claimed), usage_report=UsageReport(tokens=3)))
        await store.append(replace(by_runner(claimed, status(states.WORKING)), task_metadata=metadata({"b": 2})))
        shown = await store.read(claimed.record.ref)
        assert shown is not None
        expected = pb.Task(metadata={"a": 1, "b": 2, "usage": {"tokens": 3}})
        assert pb.Task.FromString(shown.task).metadata == expected.metadata

    # Hidden tasks -----------------------------------------------------------------------------------------------

    async def test_a_hidden_task_is_not_found_before_its_first_event(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), claim=SESSION, visible=False))
        assert await store.find(OWNER, AGENT, claimed.record.id) is None
        shown = await store.append(by_runner(claimed, status(states.WORKING)))
        assert shown.record.visible
        assert await store.find(OWNER, AGENT, claimed.record.id) is not None

    async def test_discarding_a_task_deletes_all_its_data(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), claim=SESSION, visible=False))
        await store.append(replace(by_runner(claimed), discard=True))
        ref = claimed.record.ref
        assert await store.read(ref) is None
        assert await store.events(ref, 0) == []
        assert await store.messages(ref) is None
        assert await store.last_sequences([ref]) == {}

    async def test_a_task_that_was_shown_is_not_discarded(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), claim=SESSION, visible=False))
        shown = await store.append(by_runner(claimed, status(states.WORKING)))
        with pytest.raises(AppendRejected, match=EXISTS):
            await store.append(replace(by_runner(claimed), discard=True))
        kept = await store.read(shown.record.ref)
        assert kept is not None
        assert kept.record == shown.record


class StoreCancels:
    """Provide a `store` fixture."""

    async def test_a_cancel_request_reaches_the_session_that_runs_the_task(self, store: Store) -> None:
        requested, other = [(await running(store)).record.ref for _ in range(2)]
        await store.cancel_requests.request(requested)
        await store.cancel_requests.request(requested)
        assert await store.cancel_requests.of_session(SESSION) == {requested: b""}
        assert await store.cancel_requests.of_session(SESSION + 1) == {}
        assert await store.cancel_requests.pending([requested, other]) == {requested: b""}
        assert await store.cancel_requests.pending([other]) == {}

    async def test_a_cancel_request_keeps_its_metadata_until_a_later_one_replaces_it(self, store: Store) -> None:
        ref, other = [(await running(store)).record.ref for _ in range(2)]
        await store.cancel_requests.request(ref, b"first")
        await store.cancel_requests.request(other)
        assert await store.cancel_requests.of_session(SESSION) == {ref: b"first", other: b""}
        await store.cancel_requests.request(ref, b"second")
        assert await store.cancel_requests.pending([ref]) == {ref: b"second"}
        await store.cancel_requests.request(ref)
        assert await store.cancel_requests.pending([ref]) == {ref: b""}

    async def test_a_cancel_request_survives_a_restart_of_the_turn(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.record.ref
        await store.cancel_requests.request(ref, b"why")
        await store.append(replace(by_runner(claimed), retry=True))
        assert await store.cancel_requests.of_session(SESSION) == {}
        assert await store.cancel_requests.pending([ref]) == {ref: b"why"}
        await store.append(Append(task=ref, guard=Ready(), claim_session=SESSION + 1))
        assert await store.cancel_requests.of_session(SESSION + 1) == {ref: b"why"}

    async def test_a_cancel_request_ends_with_its_turn(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.record.ref
        await store.cancel_requests.request(ref)
        await store.append(by_runner(claimed, status(states.INPUT_REQUIRED), end=True))
        assert await store.cancel_requests.pending([ref]) == {}
        assert (await store.append(follow_up(ref, "go on", claim=SESSION))).claimed
        assert await store.cancel_requests.of_session(SESSION) == {}

    async def test_a_message_after_a_cancel_request_is_not_canceled(self, store: Store) -> None:
        claimed = await running(store)
        ref = claimed.record.ref
        await store.cancel_requests.request(ref)
        await store.append(follow_up(ref, "and this"))
        assert await store.cancel_requests.of_session(SESSION) == {ref: b""}
        assert (await store.append(by_runner(claimed, status(states.COMPLETED), end=True))).turn_continues
        assert await store.cancel_requests.of_session(SESSION) == {}

    async def test_a_cancel_request_is_overdue_from_its_first_time_on(self, store: Store) -> None:
        ref, other = [(await running(store)).record.ref for _ in range(2)]
        await store.cancel_requests.request(ref, b"first")
        await store.cancel_requests.request(ref, b"second")
        assert list(await store.cancel_requests.overdue(3600.0)) == []
        assert list(await store.cancel_requests.overdue(-3600.0)) == [ref]
        await store.cancel_requests.request(other)
        assert set(await store.cancel_requests.overdue(-3600.0)) == {ref, other}

    async def test_a_cancel_request_that_was_refused_is_withdrawn(self, store: Store) -> None:
        ref, other = [(await running(store)).record.ref for _ in range(2)]
        await store.cancel_requests.request(ref)
        await store.cancel_requests.request(other)
        await store.cancel_requests.withdraw(ref)
        await store.cancel_requests.withdraw(new_ref())
        assert await store.cancel_requests.of_session(SESSION) == {other: b""}

    async def test_no_cancel_request_is_stored_for_an_idle_task(self, store: Store) -> None:
        ref = (await finished(store)).record.ref
        await store.cancel_requests.request(ref)
        await store.cancel_requests.request(new_ref())
        assert await store.cancel_requests.pending([ref]) == {}

    async def test_compaction_keeps_pending_cancel_requests(self, store: Store) -> None:
        over, holds = [await running(store) for _ in range(2)]
        for one in (over, holds):
            await store.cancel_requests.request(one.record.ref)
        await store.append(by_runner(over, status(states.CANCELED), end=True))
        await store.compact()
        assert await store.cancel_requests.of_session(SESSION) == {holds.record.ref: b""}


def _note(answered: list[int], number: int, _: asyncio.Future[Appended]) -> None:
    answered.append(number)
