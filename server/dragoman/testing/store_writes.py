"""What every store does when it is written to: guards, sequences, claims, and neighbours that never suffer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core import states
from dragoman.core.log import (
    ENDED,
    EXISTS,
    FENCED,
    RUNNING,
    TAKEN,
    Append,
    NotRunning,
    NotTerminal,
    Ready,
    Refused,
    Runner,
    StatusChange,
    Version,
)
from dragoman.ports import Store
from dragoman.testing.changes import (
    AGENT,
    OWNER,
    SESSION,
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
from dragoman.testing.clock import Clock as Clock
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class StoreWrites:
    """Give a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Creating ---------------------------------------------------------------------------------------------------

    async def test_a_new_task_is_event_one_and_waits_for_a_worker(self, store: Store) -> None:
        appended = await store.append(created(new_ref()))
        (event,) = appended.events
        task = pb.StreamResponse.FromString(event.data).task
        assert (event.sequence, task.id, task.history[0].parts[0].text) == (1, appended.head.id, "hello")
        assert appended.head.state == states.SUBMITTED
        assert appended.head.ready
        assert not appended.claimed

    async def test_create_and_claim_are_one_append(self, store: Store) -> None:
        appended = await store.append(created(new_ref(), claim=SESSION))
        assert appended.claimed
        assert (appended.head.session, appended.head.token, appended.head.ready) == (SESSION, 1, False)

    async def test_a_key_is_created_once(self, store: Store) -> None:
        change = created(new_ref())
        await store.append(change)
        with pytest.raises(Refused, match=EXISTS):
            await store.append(change)

    # Sequences --------------------------------------------------------------------------------------------------

    async def test_sequences_have_no_gaps_over_many_appends(self, store: Store) -> None:
        claimed = await running(store)
        for number in range(5):
            await store.append(by_runner(claimed, *[chunk("out", f"{number}.{part}") for part in range(number + 1)]))
        await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
        events = await store.events(claimed.head.ref, 0, 1000)
        assert [event.sequence for event in events] == list(range(1, 1 + 1 + 15 + 1))
        assert [event.ends for event in events] == [False] * 16 + [True]

    async def test_events_are_read_from_any_number_on(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(by_runner(claimed, *[chunk("out", str(number)) for number in range(10)]))
        for after in range(12):
            events = await store.events(claimed.head.ref, after)
            assert [event.sequence for event in events] == list(range(after + 1, 12))

    async def test_what_an_append_returns_is_what_the_log_holds(self, store: Store) -> None:
        claimed = await running(store)
        done = await store.append(by_runner(claimed, artifact("a", "x"), status(states.COMPLETED, "done"), end=True))
        kept = await store.events(claimed.head.ref, 1)
        assert [(e.sequence, e.data, e.state, e.ends) for e in kept] == [
            (e.sequence, e.data, e.state, e.ends) for e in done.events
        ]

    async def test_status_times_never_go_back(self, store: Store, clock: Clock) -> None:
        claimed = await running(store)
        seen = [claimed.head.updated]
        for step in (5, -100, 3, -1):
            clock.now += step
            appended = await store.append(by_runner(claimed, status(states.WORKING)))
            seen.append(appended.head.updated)
        assert seen == sorted(seen)

    # Guards -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("state", sorted(states.TERMINAL))
    async def test_a_finished_task_refuses_every_guard(self, store: Store, state: int) -> None:
        done = await finished(store, state=state)
        ref, head = done.head.ref, done.head
        guards = (NotTerminal(), NotRunning(), Ready(), Version(head.last), Runner(SESSION, head.token), Runner(0, 1))
        for guard in guards:
            for events in ([status(states.WORKING)], [artifact("a", "late")], [status(states.COMPLETED)]):
                with pytest.raises(Refused, match=ENDED):
                    await store.append(Append(task=ref, guard=guard, events=events))
        assert (await store.versions([ref]))[ref.key] == head.last

    async def test_a_task_that_is_not_there_refuses_every_guard_but_new(self, store: Store) -> None:
        for guard in (NotTerminal(), NotRunning(), Ready(), Version(1), Runner(SESSION, 1)):
            with pytest.raises(Refused, match="absent"):
                await store.append(Append(task=new_ref(), guard=guard, events=[status(states.WORKING)]))

    async def test_a_write_under_an_older_token_is_refused(self, store: Store) -> None:
        first = await running(store)
        await store.append(by_runner(first, status(states.INPUT_REQUIRED, "which?"), end=True))
        second = await store.append(follow_up(first.head.ref, "this one", claim=SESSION))
        assert second.head.token == first.head.token + 1
        with pytest.raises(Refused, match=FENCED):
            await store.append(by_runner(first, artifact("late", "from the first run")))

    async def test_a_version_guard_holds_for_one_writer_only(self, store: Store) -> None:
        head = (await running(store)).head
        change = Append(task=head.ref, guard=Version(head.last), events=[status(states.WORKING)])
        await store.append(change)
        with pytest.raises(Refused, match="changed"):
            await store.append(change)

    async def test_a_message_may_be_refused_while_the_task_runs(self, store: Store) -> None:
        head = (await running(store)).head
        with pytest.raises(Refused, match=RUNNING):
            await store.append(replace(follow_up(head.ref, "more"), guard=NotRunning()))

    async def test_two_writers_racing_to_end_a_task_make_one_end(self, store: Store) -> None:
        claimed = await running(store)
        ends = [by_runner(claimed, StatusChange(states.COMPLETED), end=True), cancel(claimed.head.ref)] * 10
        results = await asyncio.gather(*map(store.append, ends), return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in results) == 1
        assert all(isinstance(result, Refused) for result in results[1:])
        events = await store.events(claimed.head.ref, 0)
        assert [event.state in states.TERMINAL for event in events] == [False, True]

    # Batches ----------------------------------------------------------------------------------------------------

    async def test_one_bad_item_in_a_batch_of_fifty_leaves_its_neighbours_alone(self, store: Store) -> None:
        claims = await asyncio.gather(*(running(store) for _ in range(50)))
        changes = [by_runner(claimed, artifact("a", "x"), status(states.COMPLETED), end=True) for claimed in claims]
        changes[23] = replace(changes[23], guard=Runner(SESSION, 99))
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert isinstance(results[23], Refused)
        for number, (claimed, result) in enumerate(zip(claims, results, strict=True)):
            if number != 23:
                assert not isinstance(result, BaseException)
                assert (await store.versions([claimed.head.ref]))[claimed.head.ref.key] == 3
        assert (await store.versions([claims[23].head.ref]))[claims[23].head.ref.key] == 1

    async def test_appends_are_applied_in_the_order_of_the_calls(self, store: Store) -> None:
        claimed = await running(store)
        futures = [store.append(by_runner(claimed, chunk("out", f"{number} "))) for number in range(100)]
        assert [(await future).events[0].sequence for future in futures] == list(range(2, 102))

    # Turns ------------------------------------------------------------------------------------------------------

    async def test_a_message_to_a_waiting_task_makes_it_ready_and_working(self, store: Store) -> None:
        done = await finished(store, state=states.INPUT_REQUIRED)
        appended = await store.append(follow_up(done.head.ref, "blue"))
        assert appended.head.ready
        assert [event.state for event in appended.events] == [states.WORKING]

    async def test_a_message_to_a_running_task_changes_no_claim(self, store: Store) -> None:
        claimed = await running(store)
        appended = await store.append(follow_up(claimed.head.ref, "more", claim=SESSION + 1))
        assert not appended.claimed
        assert (appended.head.session, appended.head.token, appended.head.ready) == (SESSION, 1, False)
        assert appended.head.inbox == 2

    @pytest.mark.parametrize("state", [states.COMPLETED, states.INPUT_REQUIRED, states.AUTH_REQUIRED])
    async def test_an_unread_message_keeps_the_task_working(self, store: Store, state: int) -> None:
        claimed = await running(store)
        await store.append(follow_up(claimed.head.ref, "wait, one more"))
        ended = await store.append(by_runner(claimed, artifact("a", "x"), status(state, "so"), taken=1, end=True))
        assert ended.again
        assert ended.head.state == states.WORKING
        assert ended.head.session == SESSION
        assert not any(event.ends for event in ended.events)
        ended = await store.append(by_runner(claimed, status(state), taken=2, end=True))
        assert not ended.again
        assert ended.head.state == state

    @pytest.mark.parametrize("state", [states.FAILED, states.REJECTED, states.CANCELED])
    async def test_a_bad_end_holds_although_messages_wait(self, store: Store, state: int) -> None:
        claimed = await running(store)
        await store.append(follow_up(claimed.head.ref, "unread"))
        ended = await store.append(by_runner(claimed, status(state), taken=1, end=True))
        assert (ended.again, ended.head.state, ended.head.session) == (False, state, 0)

    async def test_a_claim_is_taken_by_one_worker(self, store: Store) -> None:
        ref = (await store.append(created(new_ref()))).head.ref
        claims = [Append(task=ref, guard=Ready(), claim=session) for session in (1, 2, 3)]
        results = await asyncio.gather(*map(store.append, claims), return_exceptions=True)
        assert [isinstance(result, Refused) and result.reason for result in results] == [False, TAKEN, TAKEN]

    async def test_memory_is_kept_with_the_event_it_came_with(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(replace(by_runner(claimed, status(states.WORKING)), memory=b'{"a":1}'))
        await store.append(by_runner(claimed, status(states.WORKING)))
        kept = await store.conversation(claimed.head.ref)
        assert kept is not None
        assert kept.memory == b'{"a":1}'

    # Tasks that nobody has seen ---------------------------------------------------------------------------------

    async def test_a_hidden_task_is_found_by_nobody_until_it_says_something(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), claim=SESSION, visible=False))
        assert await store.find(OWNER, AGENT, claimed.head.id) is None
        shown = await store.append(by_runner(claimed, status(states.WORKING)))
        assert shown.head.visible
        assert await store.find(OWNER, AGENT, claimed.head.id) is not None

    async def test_a_discarded_task_leaves_no_trace(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), claim=SESSION, visible=False))
        await store.append(replace(by_runner(claimed), discard=True))
        ref = claimed.head.ref
        assert await store.read(ref) is None
        assert await store.events(ref, 0) == []
        assert await store.conversation(ref) is None
        assert await store.versions([ref]) == {}
