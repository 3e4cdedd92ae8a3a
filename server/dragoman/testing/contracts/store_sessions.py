"""Contract of sessions, idempotency keys, context state, and contexts shared by several owners."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core.names import Owner, task_id_of
from dragoman.core.push.delivery import DeliveryOutcome
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskPage, TaskQuery
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
from dragoman.testing.fixtures import AGENT, OWNER, Clock, by_runner, created, message, new_ref, status
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
        due, _ = await store.pushes.due(per_host=9, max_hosts=9, longest_delay=401 * DAY)
        assert due == []

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

        assert await store.context_state(OWNER, AGENT, "c") == ContextState()
        await write(b"one", 1)
        with pytest.raises(AppendRejected, match=CHANGED):
            await write(b"lost", 1)
        await write(b"two", 2)
        assert await store.context_state(OWNER, AGENT, "c") == ContextState(b"two", 2)
        assert await store.context_state(OWNER, "other", "c") == ContextState()
        assert await store.context_state(Owner("default", "stranger"), AGENT, "c") == ContextState()

    async def test_a_store_has_one_random_secret_per_purpose(self, store: Store) -> None:
        assert len(store.secret("one")) == 32
        assert store.secret("one") == store.secret("one")
        assert store.secret("one") != store.secret("two")

    async def test_the_epoch_identifies_the_store(self, store: Store) -> None:
        assert len(store.epoch) == 8
        assert int(store.epoch, 16) >= 0


HOST = Owner("default", "alice")
PARTICIPANT = Owner("default", "bob")
STRANGER = Owner("default", "carol")
PARTICIPANT_IN_OTHER_SCOPE = Owner("projects/p", "bob")
CONTEXT_ID = "0b1cf2bb-0f0d-4a86-9f4c-7d7b9d9b6c55"


def shared_task(owner: Owner = HOST, *, by: Owner = HOST, context: str = CONTEXT_ID, is_open: bool = True) -> Append:
    """A change that creates a task in a context of `owner`."""
    ref = new_ref(owner)
    joins = by if by != owner else None
    new = NewTask(AGENT, task_id_of(ref.key), context, joinable=is_open)
    return replace(
        created(ref), create=new, message=IncomingMessage(message("hello"), sender=by.principal), participant=joins
    )


async def listed_ids(store: Store, owner: Owner, *, joined: bool = True, context: str = "", state: int = 0) -> set[str]:
    """The ids that an owner lists; checks the total."""
    page = await store.page(TaskQuery(owner, AGENT, joined=joined, context=context, state=state))
    found = {parsed_task_id(task) for task in page.tasks}
    assert page.total == len(found)
    return found


def parsed_task_id(task: bytes) -> str:
    """The id of a serialized Task."""
    return pb.Task.FromString(task).id


class StoreSharing:
    """Provide a `store` fixture."""

    async def test_the_creator_of_a_task_and_the_sender_of_a_message_are_stored(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        record = (await store.append(shared_task(everyone, by=HOST))).record
        assert (record.principal, record.ref.owner) == ("alice", everyone)
        more = Append(task=record.ref, guard=Exists(), message=IncomingMessage(message("more"), sender="bob"))
        assert (await store.append(more)).record.principal == "alice"
        kept = await store.messages(record.ref)
        assert kept is not None
        assert [one.sender for one in kept.messages] == ["alice", "bob"]
        plain = (await store.append(created(new_ref(HOST)))).record
        assert plain.principal == "alice"

    async def test_only_an_open_context_of_the_same_scope_has_an_owner(self, store: Store) -> None:
        await store.append(shared_task())
        await store.append(shared_task(context="chosen by a client", is_open=False))
        assert await store.context_owner(PARTICIPANT, CONTEXT_ID) == HOST
        assert await store.context_owner(HOST, CONTEXT_ID) == HOST
        assert await store.context_owner(PARTICIPANT_IN_OTHER_SCOPE, CONTEXT_ID) is None
        assert await store.context_owner(PARTICIPANT, "chosen by a client") is None
        assert await store.context_owner(PARTICIPANT, "never heard of") is None

    async def test_a_participant_sees_only_tasks_of_joined_contexts(self, store: Store) -> None:
        mine = (await store.append(shared_task())).record
        private = (await store.append(shared_task(context="other"))).record
        theirs = (await store.append(shared_task(by=PARTICIPANT))).record
        for task in (mine, theirs):
            for owner in (HOST, PARTICIPANT):
                found = await store.find(owner, AGENT, task.id, joined=True)
                assert found is not None
                assert found.ref == task.ref
            assert await store.find(STRANGER, AGENT, task.id, joined=True) is None
            assert await store.find(PARTICIPANT, "another", task.id, joined=True) is None
        assert await store.find(PARTICIPANT, AGENT, private.id, joined=True) is None
        assert await store.find(PARTICIPANT, AGENT, mine.id) is None

    async def test_lists_contain_own_and_joined_tasks(self, store: Store) -> None:
        mine = (await store.append(shared_task())).record.id
        private = (await store.append(shared_task(context="other"))).record.id
        theirs = (await store.append(shared_task(by=PARTICIPANT))).record.id
        own = (await store.append(shared_task(PARTICIPANT, by=PARTICIPANT, context="third"))).record.id
        assert await listed_ids(store, PARTICIPANT) == {mine, theirs, own}
        assert await listed_ids(store, PARTICIPANT, context=CONTEXT_ID) == {mine, theirs}
        assert await listed_ids(store, PARTICIPANT, context="other") == set()
        assert await listed_ids(store, PARTICIPANT, joined=False) == {own}
        assert await listed_ids(store, HOST) == {mine, private, theirs}
        assert await store.page(TaskQuery(STRANGER, AGENT, joined=True)) == TaskPage()
        claimed = await store.append(replace(shared_task(by=PARTICIPANT), claim_session=7))
        done = (await store.append(by_runner(claimed, status(states.COMPLETED), end=True))).record.id
        assert await listed_ids(store, PARTICIPANT, state=states.COMPLETED) == {done}

    async def test_a_participant_has_the_agents_of_joined_contexts(self, store: Store) -> None:
        await store.append(shared_task(by=PARTICIPANT))
        (known,) = await store.agents_of(PARTICIPANT.principal)
        assert (known.scope, known.agent, known.own) == (PARTICIPANT.scope, AGENT, 0)
        assert await store.agents_of(STRANGER.principal) == []

    async def test_pages_of_joined_contexts_contain_every_task_once(self, store: Store) -> None:
        ids = {(await store.append(shared_task(by=PARTICIPANT))).record.id for _ in range(5)}
        ids |= {
            (await store.append(shared_task(PARTICIPANT, by=PARTICIPANT, context="third"))).record.id for _ in range(4)
        }
        shown: list[str] = []
        query = TaskQuery(PARTICIPANT, AGENT, joined=True, page_size=2)
        while True:
            page = await store.page(query)
            shown += [parsed_task_id(task) for task in page.tasks]
            if page.last_key is None:
                break
            query = replace(query, after=page.last_key)
        assert len(shown) == 9
        assert set(shown) == ids

    async def test_a_message_to_a_task_joins_its_context(self, store: Store) -> None:
        task = (await store.append(shared_task())).record
        incoming = IncomingMessage(message("may I?"), sender="bob")
        await store.append(Append(task=task.ref, guard=Exists(), message=incoming, participant=PARTICIPANT))
        assert await listed_ids(store, PARTICIPANT) == {task.id}

    async def test_a_rejected_append_joins_no_context(self, store: Store) -> None:
        task = (await store.append(shared_task())).record
        with pytest.raises(AppendRejected):
            await store.append(Append(task=TaskRef(HOST, b"?" * 16), guard=Exists(), participant=PARTICIPANT))
        assert await store.find(PARTICIPANT, AGENT, task.id, joined=True) is None

    async def test_an_alias_resolves_to_the_callers_own_task_first(self, store: Store) -> None:
        def named(owner: Owner) -> Append:
            change = shared_task(owner, by=owner)
            assert change.create is not None
            return replace(change, create=replace(change.create, id="mine", alias=True, joinable=owner == HOST))

        hers = (await store.append(named(HOST))).record
        await store.append(shared_task(by=PARTICIPANT))
        found = await store.find(PARTICIPANT, AGENT, "mine", joined=True)
        assert found is not None
        assert found.ref == hers.ref
        his = (await store.append(named(PARTICIPANT))).record
        found = await store.find(PARTICIPANT, AGENT, "mine", joined=True)
        assert found is not None
        assert found.ref == his.ref

    async def test_a_key_belongs_to_its_sender_also_in_shared_contexts(self, store: Store) -> None:
        hers = replace(shared_task(), idempotency_key=IdempotencyKey(AGENT, "k", b"1", HOST))
        his = replace(shared_task(by=PARTICIPANT), idempotency_key=IdempotencyKey(AGENT, "k", b"2", PARTICIPANT))
        await store.append(hers)
        task = (await store.append(his)).record.ref
        for change in (
            replace(shared_task(by=PARTICIPANT), idempotency_key=his.idempotency_key),
            replace(shared_task(PARTICIPANT, by=PARTICIPANT), idempotency_key=his.idempotency_key),
        ):
            with pytest.raises(DuplicateKey) as caught:
                await store.append(change)
            assert (caught.value.key_record.digest, caught.value.key_record.task) == (b"2", task)

    async def test_an_erased_context_has_no_owner(self, store: Store) -> None:
        task = (
            await store.append(
                replace(shared_task(by=PARTICIPANT), idempotency_key=IdempotencyKey(AGENT, "k", b"2", PARTICIPANT))
            )
        ).record
        await store.erase(TaskSelection(context=CONTEXT_ID))
        assert await store.context_owner(PARTICIPANT, CONTEXT_ID) is None
        assert await store.find(PARTICIPANT, AGENT, task.id, joined=True) is None
        with pytest.raises(DuplicateKey) as caught:
            await store.append(
                replace(shared_task(by=PARTICIPANT), idempotency_key=IdempotencyKey(AGENT, "k", b"2", PARTICIPANT))
            )
        assert caught.value.key_record.task is None
        await store.append(shared_task())
        assert await store.find(PARTICIPANT, AGENT, task.id, joined=True) is None
        assert await listed_ids(store, PARTICIPANT) == set()

    async def test_erasing_a_principal_deletes_its_tasks_and_what_is_stored_with_them(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        kept = (await store.append(shared_task(everyone, by=HOST))).record
        shared = (await store.append(shared_task(everyone, by=PARTICIPANT))).record
        joined = (await store.append(shared_task(by=PARTICIPANT))).record
        own = (await store.append(shared_task(PARTICIPANT, by=PARTICIPANT, context="third"))).record
        guests = (await store.append(shared_task(PARTICIPANT, by=HOST, context="third"))).record
        hers = (await store.append(shared_task())).record
        await store.erase(TaskSelection(principal="bob"))
        left = [record.ref for record in (kept, shared, joined, own, guests, hers) if await store.read(record.ref)]
        assert left == [kept.ref, hers.ref]
