"""The store's contract, third part: sessions, idempotency keys, and the state of conversations.

A third-party store subclasses `StoreSessions` in its own tests, as it does `StoreWrites` and `StoreReads`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dragoman.core import states
from dragoman.core.log import (
    CHANGED,
    EXISTS,
    FENCED,
    Append,
    ContextState,
    Key,
    NewTask,
    NotTerminal,
    Refused,
    Repeated,
    Runner,
    TaskRef,
)
from dragoman.core.names import Owner
from dragoman.ports import Store
from dragoman.testing.changes import AGENT, OWNER, created, new_ref, status
from dragoman.testing.store_writes import Clock


class StoreSessions:
    """Give a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # Sessions ---------------------------------------------------------------------------------------------------

    async def test_a_session_is_never_opened_twice(self, store: Store) -> None:
        sessions = await asyncio.gather(*(store.open_session(10) for _ in range(5)))
        assert len(set(sessions)) == 5

    async def test_orphans_are_the_claims_of_sessions_that_expired(self, store: Store, clock: Clock) -> None:
        dead, mine = await store.open_session(10), await store.open_session(10)
        theirs = [(await store.append(created(new_ref(), claim=dead))).head.ref for _ in range(3)]
        await store.append(created(new_ref(), claim=mine))
        assert await store.orphans(mine, 10) == []
        clock.now += 10_001
        assert await store.orphans(mine, 10, expired=False) == [], "nobody knows for certain"
        assert sorted(head.ref.key for head in await store.orphans(mine, 10)) == sorted(ref.key for ref in theirs)
        assert len(await store.orphans(mine, 2)) == 2
        assert mine not in await store.sessions()

    async def test_a_session_that_is_renewed_keeps_its_claims(self, store: Store, clock: Clock) -> None:
        renewed, other = await store.open_session(10), await store.open_session(10)
        await store.append(created(new_ref(), claim=renewed))
        clock.now += 8_000
        assert await asyncio.to_thread(store.renew, renewed, 10) == 2_000
        clock.now += 8_000
        assert await store.orphans(other, 10) == []
        assert await store.sessions() == {renewed: clock.now + 2_000}

    async def test_a_session_that_had_expired_lives_again_and_is_told_for_how_long(
        self, store: Store, clock: Clock
    ) -> None:
        renewed = await store.open_session(10)
        clock.now += 13_000
        assert await asyncio.to_thread(store.renew, renewed, 10) == -3_000
        assert await store.sessions() == {renewed: clock.now + 10_000}

    async def test_whoever_is_alone_ends_every_other_session(self, store: Store) -> None:
        earlier = await store.open_session(10)
        orphan = (await store.append(created(new_ref(), claim=earlier))).head.ref
        alone = await store.open_session(10, alone=True)
        assert [head.ref for head in await store.orphans(alone, 10)] == [orphan]
        assert [head.ref for head in await store.orphans(alone, 10, expired=False)] == [orphan]
        assert list(await store.sessions()) == [alone]

    async def test_a_turn_that_is_begun_again_refuses_who_ran_it_before(self, store: Store) -> None:
        first = (await store.append(created(new_ref(), claim=1))).head
        again = Append(task=first.ref, guard=Runner(1, first.token), events=[status(states.WORKING)], retry=True)
        waiting = (await store.append(again)).head
        assert (waiting.ready, waiting.session, waiting.attempt) == (True, 0, 2)
        with pytest.raises(Refused, match=FENCED):
            await store.append(Append(task=first.ref, guard=Runner(1, first.token), events=[status(states.COMPLETED)]))
        claimed = (await store.append(Append(task=first.ref, guard=NotTerminal(), claim=2))).head
        assert (claimed.session, claimed.token, claimed.attempt, claimed.taken) == (2, first.token + 1, 2, 0)

    async def test_a_turn_that_ended_counts_from_one_again(self, store: Store) -> None:
        head = (await store.append(created(new_ref(), claim=1))).head
        again = (await store.append(Append(task=head.ref, guard=Runner(1, head.token), retry=True, claim=1))).head
        asked = Append(
            task=head.ref,
            guard=Runner(1, again.token),
            events=[status(states.INPUT_REQUIRED, "which?")],
            taken=1,
            release=True,
        )
        ended = (await store.append(asked)).head
        assert (ended.attempt, ended.answered) == (1, 1)

    # Aliases ----------------------------------------------------------------------------------------------------

    async def test_an_alias_is_its_owner_s_agent_s_own(self, store: Store) -> None:
        def named(ref: TaskRef, agent: str = AGENT) -> Append:
            return replace(created(ref, agent=agent), create=NewTask(agent, "mine", "context", alias=True))

        stranger = Owner("default", "stranger")
        await store.append(named(new_ref()))
        with pytest.raises(Refused, match=EXISTS):
            await store.append(named(new_ref()))
        await store.append(named(new_ref(), "other"))
        await store.append(named(new_ref(stranger)))
        found = await store.find(OWNER, AGENT, "mine")
        assert found is not None
        assert found.alias
        assert await store.find(OWNER, "third", "mine") is None

    # Keys -------------------------------------------------------------------------------------------------------

    async def test_a_key_is_used_once_and_tells_for_what(self, store: Store) -> None:
        first = (await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"one")))).head.ref
        unused = new_ref()
        with pytest.raises(Repeated) as caught:
            await store.append(replace(created(unused), key=Key(AGENT, "k", b"two")))
        assert (caught.value.earlier.digest, caught.value.earlier.task) == (b"one", first)
        assert await store.read(unused) is None
        await store.append(replace(created(new_ref(), agent="other"), key=Key("other", "k", b"two")))
        await store.append(replace(created(new_ref(Owner("default", "stranger"))), key=Key(AGENT, "k", b"two")))

    async def test_of_many_appends_with_one_key_one_is_written(self, store: Store) -> None:
        changes = [replace(created(new_ref()), key=Key(AGENT, "k", b"same")) for _ in range(20)]
        results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
        assert sum(isinstance(result, Repeated) for result in results) == 19

    async def test_what_was_refused_uses_no_key(self, store: Store) -> None:
        ref = new_ref()
        await store.append(created(ref))
        with pytest.raises(Refused, match=EXISTS):
            await store.append(replace(created(ref), key=Key(AGENT, "k", b"one")))
        await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"two")))

    async def test_a_key_keeps_the_message_that_came_instead_of_a_task(self, store: Store) -> None:
        head = (await store.append(replace(created(new_ref(), visible=False, claim=1), key=Key(AGENT, "k", b"d")))).head
        guard = Runner(1, head.token)
        await store.append(Append(task=head.ref, guard=guard, discard=True, reply=b"hello"))
        with pytest.raises(Repeated) as caught:
            await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"d")))
        assert caught.value.earlier.reply == b"hello"

    async def test_a_key_of_a_task_that_nothing_came_of_is_free_again(self, store: Store) -> None:
        head = (await store.append(replace(created(new_ref(), visible=False, claim=1), key=Key(AGENT, "k", b"d")))).head
        await store.append(Append(task=head.ref, guard=Runner(1, head.token), discard=True))
        await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"d")))

    async def test_a_key_expires(self, store: Store, clock: Clock) -> None:
        await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"one")))
        clock.now += 8 * 24 * 3600 * 1000
        await store.append(replace(created(new_ref()), key=Key(AGENT, "k", b"two")))

    # Conversations ----------------------------------------------------------------------------------------------

    async def test_the_state_of_a_conversation_is_written_with_its_next_version_only(self, store: Store) -> None:
        async def write(data: bytes, version: int) -> None:
            ref = (await store.append(created(new_ref(), context="c"))).head.ref
            await store.append(Append(task=ref, guard=NotTerminal(), context=ContextState(data, version)))

        assert await store.context(OWNER, AGENT, "c") == ContextState()
        await write(b"one", 1)
        with pytest.raises(Refused, match=CHANGED):
            await write(b"lost", 1)
        await write(b"two", 2)
        assert await store.context(OWNER, AGENT, "c") == ContextState(b"two", 2)
        assert await store.context(OWNER, "other", "c") == ContextState()
        assert await store.context(Owner("default", "stranger"), AGENT, "c") == ContextState()

    async def test_a_store_has_secrets_of_its_own_one_for_each_purpose(self, store: Store) -> None:
        assert len(store.secret("one")) == 32
        assert store.secret("one") == store.secret("one")
        assert store.secret("one") != store.secret("two")

    async def test_the_epoch_names_the_store(self, store: Store) -> None:
        assert len(store.epoch) == 8
        assert int(store.epoch, 16) >= 0
