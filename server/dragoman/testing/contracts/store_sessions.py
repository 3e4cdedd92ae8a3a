"""Contract of sessions, idempotency keys, context state, and contexts shared by several owners."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core.names import Owner, task_id_of
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.core.task import states
from dragoman.core.task.log import (
    CHANGED,
    EXISTS,
    FENCED,
    RUNNING,
    Append,
    Appended,
    AppendRejected,
    ClaimHeld,
    ContextState,
    DuplicateKey,
    Exists,
    IdempotencyKey,
    IncomingMessage,
    NewTask,
    NotClaimed,
    Ready,
    TaskRef,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.testing.contracts.store_pushes import DAY, attempt_at, claim_due, report_of, with_push
from dragoman.testing.fixtures import AGENT, OWNER, Clock, created, message, new_ref, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOUR = 3_600_000


class StoreSessions:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Sessions ---------------------------------------------------------------------------------------------------

    async def test_a_session_is_never_opened_twice(self, store: Store) -> None:
        sessions = await asyncio.gather(*(store.open_session(10) for _ in range(5)))
        assert len(set(sessions)) == 5

    async def test_orphans_are_the_claims_of_sessions_that_expired(self, store: Store, clock: Clock) -> None:
        dead, mine = await store.open_session(10), await store.open_session(10)
        theirs = [(await store.append(created(new_ref(), claim=dead))).record.ref for _ in range(3)]
        await store.append(created(new_ref(), claim=mine))
        assert await store.orphaned_tasks(mine, 10) == []
        clock.now += 10_001
        assert await store.orphaned_tasks(mine, 10, expired=False) == []
        assert sorted(record.ref.key for record in await store.orphaned_tasks(mine, 10)) == sorted(
            ref.key for ref in theirs
        )
        assert len(await store.orphaned_tasks(mine, 2)) == 2
        assert mine not in await store.sessions()

    async def test_a_renewed_session_keeps_its_claims(self, store: Store, clock: Clock) -> None:
        renewed, other = await store.open_session(10), await store.open_session(10)
        await store.append(created(new_ref(), claim=renewed))
        clock.now += 8_000
        assert await asyncio.to_thread(store.renew_session, renewed, 10) == 2_000
        clock.now += 8_000
        assert await store.orphaned_tasks(other, 10) == []
        assert await store.sessions() == {renewed: clock.now + 2_000}

    async def test_a_session_far_in_the_future_expires_a_lease_after_the_clock_was_set_back(
        self, store: Store, clock: Clock
    ) -> None:
        dead, alive = await store.open_session(10), await store.open_session(10)
        task = (await store.append(created(new_ref(), claim=dead))).record.ref
        clock.now -= 400 * 86_400_000
        await asyncio.to_thread(store.renew_session, alive, 10)
        assert await store.orphaned_tasks(alive, 10) == []  # a live process has this time to renew
        clock.now += 9_000
        await asyncio.to_thread(store.renew_session, alive, 10)
        clock.now += 1_001
        assert [record.ref for record in await store.orphaned_tasks(alive, 10)] == [task]
        assert list(await store.sessions()) == [alive]

    @pytest.mark.parametrize("step", [HOUR, 400 * DAY])
    async def test_a_first_delivery_does_not_wait_for_a_clock_that_was_set_back(
        self, store: Store, clock: Clock, step: int
    ) -> None:
        await store.append(change := with_push(created(new_ref())))
        clock.now -= step
        (push,) = await store.pushes.claim(await store.open_session(10), [(change.task, "hook")])
        assert push.task == change.task

    @pytest.mark.parametrize("step", [HOUR, 400 * DAY])
    async def test_a_retry_is_due_when_it_is_later_than_any_delay(self, store: Store, clock: Clock, step: int) -> None:
        await store.append(change := with_push(created(new_ref())))
        (push,) = await claim_due(store, await store.open_session(10))
        failed = report_of(push, DeliveryOutcome.FAILED, 0, attempt=attempt_at(1, 500), retry_delay=HOUR)
        await store.pushes.apply_reports([failed])
        assert await claim_due(store, push.session) == []
        clock.now -= step
        assert [found.task for found in await claim_due(store, push.session)] == [change.task]
        due, _ = await store.pushes.due(per_share=9, max_hosts=9, longest_delay=401 * DAY)
        assert due == []

    async def test_the_time_of_the_store_is_that_of_its_clock(self, store: Store, clock: Clock) -> None:
        session = await store.open_session(10)
        for _ in range(2):
            assert store.now() == clock.now
            clock.now += 5_000
            await asyncio.to_thread(store.renew_session, session, 10)
        assert store.now() == clock.now

    async def test_an_expired_session_can_be_renewed_and_returns_the_time_left(
        self, store: Store, clock: Clock
    ) -> None:
        renewed = await store.open_session(10)
        clock.now += 13_000
        assert await asyncio.to_thread(store.renew_session, renewed, 10) == -3_000
        assert await store.sessions() == {renewed: clock.now + 10_000}

    async def test_an_exclusive_session_ends_all_other_sessions(self, store: Store) -> None:
        earlier = await store.open_session(10)
        orphan = (await store.append(created(new_ref(), claim=earlier))).record.ref
        alone = await store.open_session(10, exclusive=True)
        assert [record.ref for record in await store.orphaned_tasks(alone, 10)] == [orphan]
        assert [record.ref for record in await store.orphaned_tasks(alone, 10, expired=False)] == [orphan]
        assert list(await store.sessions()) == [alone]

    async def test_a_restarted_turn_rejects_its_previous_runner(self, store: Store) -> None:
        first = (await store.append(created(new_ref(), claim=1))).record
        again = Append(task=first.ref, guard=ClaimHeld(1, first.token), events=[status(states.WORKING)], retry=True)
        waiting = (await store.append(again)).record
        assert (waiting.ready, waiting.session, waiting.attempt) == (True, 0, 2)
        with pytest.raises(AppendRejected, match=FENCED):
            await store.append(
                Append(task=first.ref, guard=ClaimHeld(1, first.token), events=[status(states.COMPLETED)])
            )
        claimed = (await store.append(Append(task=first.ref, guard=Exists(), claim_session=2))).record
        assert (claimed.session, claimed.token, claimed.attempt, claimed.last_delivered) == (2, first.token + 1, 2, 0)

    async def test_a_claimed_task_is_not_ended_as_if_nobody_ran_it(self, store: Store) -> None:
        end = [status(states.CANCELED)]
        record = (await store.append(created(new_ref()))).record
        claim = Append(task=record.ref, guard=Ready(), claim_session=1)
        cancel = Append(task=record.ref, guard=NotClaimed(), events=end, release=True)
        results = await asyncio.gather(store.append(claim), store.append(cancel), return_exceptions=True)
        assert sum(isinstance(result, Appended) for result in results) == 1
        claimed = (await store.append(created(new_ref(), claim=1))).record
        with pytest.raises(AppendRejected, match=RUNNING) as caught:
            await store.append(Append(task=claimed.ref, guard=NotClaimed(), events=end, release=True))
        assert caught.value.record is not None
        assert caught.value.record.session == 1

    async def test_attempts_restart_at_one_after_a_turn_ended(self, store: Store) -> None:
        record = (await store.append(created(new_ref(), claim=1))).record
        again = (
            await store.append(Append(task=record.ref, guard=ClaimHeld(1, record.token), retry=True, claim_session=1))
        ).record
        change = Append(
            task=record.ref,
            guard=ClaimHeld(1, again.token),
            events=[status(states.INPUT_REQUIRED, "which?")],
            last_delivered=1,
            release=True,
        )
        ended = (await store.append(change)).record
        assert (ended.attempt, ended.last_completed) == (1, 1)

    # Aliases ----------------------------------------------------------------------------------------------------

    async def test_an_alias_is_unique_per_owner_and_agent(self, store: Store) -> None:
        def named(ref: TaskRef, agent: str = AGENT) -> Append:
            return replace(created(ref, agent=agent), create=NewTask(agent, "mine", "context", alias=True))

        stranger = Owner("default", "stranger")
        await store.append(named(new_ref()))
        with pytest.raises(AppendRejected, match=EXISTS):
            await store.append(named(new_ref()))
        await store.append(named(new_ref(), "other"))
        await store.append(named(new_ref(stranger)))
        found = await store.find(OWNER, AGENT, "mine")
        assert found is not None
        assert found.alias
        assert await store.find(OWNER, "third", "mine") is None

    async def test_an_ended_task_gives_its_alias_to_the_next(self, store: Store) -> None:
        def named(ref: TaskRef, *, restarts: bool = True) -> Append:
            return replace(created(ref), create=NewTask(AGENT, "mine", "context", alias=True, restarts=restarts))

        first, second = new_ref(), new_ref()
        await store.append(named(first))
        with pytest.raises(AppendRejected, match=EXISTS):  # it has not ended
            await store.append(named(second))
        await store.append(Append(task=first, guard=Exists(), events=[status(states.CANCELED)], release=True))
        with pytest.raises(AppendRejected, match=EXISTS):
            await store.append(named(second, restarts=False))
        await store.append(named(second))
        found = await store.find(OWNER, AGENT, "mine")
        assert found is not None
        assert (found.ref, found.alias, found.state) == (second, True, states.SUBMITTED)
        snapshot = await store.get(OWNER, AGENT, task_id_of(first.key))
        assert snapshot is not None
        assert (snapshot.record.ref, snapshot.record.alias) == (first, False)
        earlier = pb.Task.FromString(snapshot.task)
        assert (earlier.id, earlier.status.state) == (task_id_of(first.key), states.CANCELED)
        assert [record.ref for record in await store.locate("mine")] == [second]

    # Keys -------------------------------------------------------------------------------------------------------

    async def test_a_key_is_used_once_and_its_record_names_the_task(self, store: Store) -> None:
        first = (
            await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"one")))
        ).record.ref
        unused = new_ref()
        with pytest.raises(DuplicateKey) as caught:
            await store.append(replace(created(unused), idempotency_key=IdempotencyKey(AGENT, "k", b"two")))
        assert (caught.value.key_record.digest, caught.value.key_record.task) == (b"one", first)
        assert await store.read(unused) is None
        await store.append(
            replace(created(new_ref(), agent="other"), idempotency_key=IdempotencyKey("other", "k", b"two"))
        )
        await store.append(
            replace(created(new_ref(Owner("default", "stranger"))), idempotency_key=IdempotencyKey(AGENT, "k", b"two"))
        )

    async def test_of_many_appends_with_one_key_one_is_written(self, store: Store) -> None:
        changes = [replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"same")) for _ in range(20)]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert sum(isinstance(result, DuplicateKey) for result in results) == 19

    async def test_a_rejected_append_uses_no_key(self, store: Store) -> None:
        ref = new_ref()
        await store.append(created(ref))
        with pytest.raises(AppendRejected, match=EXISTS):
            await store.append(replace(created(ref), idempotency_key=IdempotencyKey(AGENT, "k", b"one")))
        await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"two")))

    async def test_a_key_stores_the_message_returned_instead_of_a_task(self, store: Store) -> None:
        record = (
            await store.append(
                replace(created(new_ref(), visible=False, claim=1), idempotency_key=IdempotencyKey(AGENT, "k", b"d"))
            )
        ).record
        guard = ClaimHeld(1, record.token)
        await store.append(Append(task=record.ref, guard=guard, discard=True, reply=b"hello"))
        with pytest.raises(DuplicateKey) as caught:
            await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"d")))
        assert caught.value.key_record.reply == b"hello"

    async def test_the_key_of_a_discarded_task_is_free(self, store: Store) -> None:
        record = (
            await store.append(
                replace(created(new_ref(), visible=False, claim=1), idempotency_key=IdempotencyKey(AGENT, "k", b"d"))
            )
        ).record
        await store.append(Append(task=record.ref, guard=ClaimHeld(1, record.token), discard=True))
        await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"d")))

    async def test_a_key_expires(self, store: Store, clock: Clock) -> None:
        await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"one")))
        clock.now += 8 * 24 * 3600 * 1000
        await store.append(replace(created(new_ref()), idempotency_key=IdempotencyKey(AGENT, "k", b"two")))

    # Conversations ----------------------------------------------------------------------------------------------

    async def test_context_state_is_written_only_with_the_next_version(self, store: Store) -> None:
        async def write(data: bytes, version: int) -> None:
            ref = (await store.append(created(new_ref(), context="c"))).record.ref
            await store.append(Append(task=ref, guard=Exists(), context_state=ContextState(data, version)))

        async def state_of(change: Append) -> ContextState:
            found = await store.messages((await store.append(change)).record.ref)
            assert found is not None
            return found.context

        assert await state_of(created(new_ref(), context="c")) == ContextState()
        await write(b"one", 1)
        with pytest.raises(AppendRejected, match=CHANGED):
            await write(b"lost", 1)
        await write(b"two", 2)
        assert await state_of(created(new_ref(), context="c")) == ContextState(b"two", 2)
        for other in (
            created(new_ref(), context="d"),
            created(new_ref(), context="c", agent="other"),
            created(new_ref(Owner("default", "stranger")), context="c"),
        ):
            assert await state_of(other) == ContextState()

    async def test_a_store_has_one_random_secret_per_purpose(self, store: Store) -> None:
        assert len(store.secret("one")) == 32
        assert store.secret("one") == store.secret("one")
        assert store.secret("one") != store.secret("two")

    async def test_the_epoch_identifies_the_store(self, store: Store) -> None:
        assert len(store.epoch) == 8
        assert int(store.epoch, 16) >= 0


ALICE = Owner("default", "alice")
BOB = Owner("default", "bob")
EVERYONE = Owner("default", "shared:scope")


def shared_task(by: Owner) -> Append:
    """A change that creates a task of a principal under the owner that stands for its scope."""
    return replace(created(new_ref(EVERYONE)), message=IncomingMessage(message("hello"), sender=by.principal))


class StoreSharing:
    """Provide a `store` fixture."""

    async def test_the_creator_of_a_task_and_the_sender_of_a_message_are_stored(self, store: Store) -> None:
        record = (await store.append(shared_task(ALICE))).record
        assert (record.principal, record.ref.owner) == ("alice", EVERYONE)
        more = Append(task=record.ref, guard=Exists(), message=IncomingMessage(message("more"), sender="bob"))
        assert (await store.append(more)).record.principal == "alice"
        kept = await store.messages(record.ref)
        assert kept is not None
        assert [one.sender for one in kept.messages] == ["alice", "bob"]
        plain = (await store.append(created(new_ref(ALICE)))).record
        assert plain.principal == "alice"

    async def test_a_key_belongs_to_its_sender_also_where_tasks_are_shared(self, store: Store) -> None:
        hers = replace(shared_task(ALICE), idempotency_key=IdempotencyKey(AGENT, "k", b"1", ALICE))
        his_key = IdempotencyKey(AGENT, "k", b"2", BOB)
        await store.append(hers)
        task = (await store.append(replace(shared_task(BOB), idempotency_key=his_key))).record.ref
        for change in (shared_task(BOB), created(new_ref(BOB))):
            with pytest.raises(DuplicateKey) as caught:
                await store.append(replace(change, idempotency_key=his_key))
            assert (caught.value.key_record.digest, caught.value.key_record.task) == (b"2", task)

    async def test_the_key_of_an_erased_shared_task_names_no_task(self, store: Store) -> None:
        change = replace(shared_task(BOB), idempotency_key=IdempotencyKey(AGENT, "k", b"2", BOB))
        erased = (await store.append(change)).record
        await store.erasures.erase(TaskSelection(task=erased.id))
        with pytest.raises(DuplicateKey) as caught:
            await store.append(replace(change, task=new_ref(EVERYONE)))
        assert caught.value.key_record.task is None

    async def test_erasing_a_principal_deletes_its_tasks_also_where_tasks_are_shared(self, store: Store) -> None:
        kept = (await store.append(shared_task(ALICE))).record
        shared = (await store.append(shared_task(BOB))).record
        own = (await store.append(created(new_ref(BOB)))).record
        hers = (await store.append(created(new_ref(ALICE)))).record
        await store.erasures.erase(TaskSelection(principal="bob"))
        left = [record.ref for record in (kept, shared, own, hers) if await store.read(record.ref)]
        assert left == [kept.ref, hers.ref]
