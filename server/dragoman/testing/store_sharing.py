"""The store's contract: who made what, and conversations that others may join.

A third-party store subclasses `StoreSharing` in its own tests, as it does `StoreWrites` and `StoreReads`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core import states
from dragoman.core.erasing import Selection
from dragoman.core.log import Append, Inbound, Key, NewTask, NotTerminal, Refused, Repeated, TaskRef
from dragoman.core.names import Owner, id_of
from dragoman.core.pages import Page, Query
from dragoman.ports import Store
from dragoman.testing.changes import AGENT, by_runner, created, message, new_ref, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOST = Owner("default", "alice")
GUEST = Owner("default", "bob")
STRANGER = Owner("default", "carol")
ELSEWHERE = Owner("projects/p", "bob")
TALK = "0b1cf2bb-0f0d-4a86-9f4c-7d7b9d9b6c55"


def begun(owner: Owner = HOST, *, by: Owner = HOST, context: str = TALK, is_open: bool = True) -> Append:
    """A task of a conversation of `owner`, made by somebody."""
    ref = new_ref(owner)
    joins = by if by != owner else None
    new = NewTask(AGENT, id_of(ref.key), context, open=is_open)
    return replace(created(ref), create=new, message=Inbound(message("hello"), sender=by.principal), joins=joins)


async def ids(store: Store, owner: Owner, *, joined: bool = True, context: str = "", state: int = 0) -> set[str]:
    """The ids that an owner lists; the total agrees."""
    page = await store.page(Query(owner, AGENT, joined=joined, context=context, state=state))
    found = {pb_id(task) for task in page.tasks}
    assert page.total == len(found)
    return found


def pb_id(task: bytes) -> str:
    """The id of a serialized Task."""
    return pb.Task.FromString(task).id


class StoreSharing:
    """Give a `store` fixture."""

    async def test_it_is_known_who_made_a_task_and_who_sent_a_message(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        made = (await store.append(begun(everyone, by=HOST))).head
        assert (made.principal, made.ref.owner) == ("alice", everyone)
        more = Append(task=made.ref, guard=NotTerminal(), message=Inbound(message("more"), sender="bob"))
        assert (await store.append(more)).head.principal == "alice"
        kept = await store.conversation(made.ref)
        assert kept is not None
        assert [one.sender for one in kept.messages] == ["alice", "bob"]
        plain = (await store.append(created(new_ref(HOST)))).head
        assert plain.principal == "alice"

    async def test_only_an_open_conversation_of_the_same_scope_has_a_host(self, store: Store) -> None:
        await store.append(begun())
        await store.append(begun(context="chosen by a client", is_open=False))
        assert await store.host(GUEST, TALK) == HOST
        assert await store.host(HOST, TALK) == HOST
        assert await store.host(ELSEWHERE, TALK) is None
        assert await store.host(GUEST, "chosen by a client") is None
        assert await store.host(GUEST, "never heard of") is None

    async def test_who_joined_sees_the_tasks_of_that_conversation_and_no_others(self, store: Store) -> None:
        mine = (await store.append(begun())).head
        private = (await store.append(begun(context="other"))).head
        theirs = (await store.append(begun(by=GUEST))).head
        for task in (mine, theirs):
            for owner in (HOST, GUEST):
                found = await store.find(owner, AGENT, task.id, joined=True)
                assert found is not None
                assert found.ref == task.ref
            assert await store.find(STRANGER, AGENT, task.id, joined=True) is None
            assert await store.find(GUEST, "another", task.id, joined=True) is None
        assert await store.find(GUEST, AGENT, private.id, joined=True) is None
        assert await store.find(GUEST, AGENT, mine.id) is None

    async def test_lists_hold_what_is_one_s_own_and_what_was_joined(self, store: Store) -> None:
        mine = (await store.append(begun())).head.id
        private = (await store.append(begun(context="other"))).head.id
        theirs = (await store.append(begun(by=GUEST))).head.id
        own = (await store.append(begun(GUEST, by=GUEST, context="third"))).head.id
        assert await ids(store, GUEST) == {mine, theirs, own}
        assert await ids(store, GUEST, context=TALK) == {mine, theirs}
        assert await ids(store, GUEST, context="other") == set()
        assert await ids(store, GUEST, joined=False) == {own}
        assert await ids(store, HOST) == {mine, private, theirs}
        assert await store.page(Query(STRANGER, AGENT, joined=True)) == Page()
        claimed = await store.append(replace(begun(by=GUEST), claim=7))
        done = (await store.append(by_runner(claimed, status(states.COMPLETED), end=True))).head.id
        assert await ids(store, GUEST, state=states.COMPLETED) == {done}

    async def test_pages_of_joined_conversations_show_every_task_once(self, store: Store) -> None:
        made = {(await store.append(begun(by=GUEST))).head.id for _ in range(5)}
        made |= {(await store.append(begun(GUEST, by=GUEST, context="third"))).head.id for _ in range(4)}
        shown: list[str] = []
        query = Query(GUEST, AGENT, joined=True, size=2)
        while True:
            page = await store.page(query)
            shown += [pb_id(task) for task in page.tasks]
            if page.last is None:
                break
            query = replace(query, after=page.last)
        assert len(shown) == 9
        assert set(shown) == made

    async def test_a_message_to_a_task_of_the_conversation_joins_it_too(self, store: Store) -> None:
        task = (await store.append(begun())).head
        said = Inbound(message("may I?"), sender="bob")
        await store.append(Append(task=task.ref, guard=NotTerminal(), message=said, joins=GUEST))
        assert await ids(store, GUEST) == {task.id}

    async def test_what_is_refused_joins_nothing(self, store: Store) -> None:
        task = (await store.append(begun())).head
        with pytest.raises(Refused):
            await store.append(Append(task=TaskRef(HOST, b"?" * 16), guard=NotTerminal(), joins=GUEST))
        assert await store.find(GUEST, AGENT, task.id, joined=True) is None

    async def test_a_chosen_name_is_one_s_own_first(self, store: Store) -> None:
        def named(owner: Owner) -> Append:
            change = begun(owner, by=owner)
            assert change.create is not None
            return replace(change, create=replace(change.create, id="mine", alias=True, open=owner == HOST))

        hers = (await store.append(named(HOST))).head
        await store.append(begun(by=GUEST))
        found = await store.find(GUEST, AGENT, "mine", joined=True)
        assert found is not None
        assert found.ref == hers.ref
        his = (await store.append(named(GUEST))).head
        found = await store.find(GUEST, AGENT, "mine", joined=True)
        assert found is not None
        assert found.ref == his.ref

    async def test_a_key_is_its_sender_s_wherever_the_task_is_kept(self, store: Store) -> None:
        hers = replace(begun(), key=Key(AGENT, "k", b"1", HOST))
        his = replace(begun(by=GUEST), key=Key(AGENT, "k", b"2", GUEST))
        await store.append(hers)
        task = (await store.append(his)).head.ref
        for change in (replace(begun(by=GUEST), key=his.key), replace(begun(GUEST, by=GUEST), key=his.key)):
            with pytest.raises(Repeated) as caught:
                await store.append(change)
            assert (caught.value.earlier.digest, caught.value.earlier.task) == (b"2", task)

    async def test_a_conversation_that_was_erased_is_nobody_s(self, store: Store) -> None:
        task = (await store.append(replace(begun(by=GUEST), key=Key(AGENT, "k", b"2", GUEST)))).head
        await store.erase(Selection(context=TALK))
        assert await store.host(GUEST, TALK) is None
        assert await store.find(GUEST, AGENT, task.id, joined=True) is None
        with pytest.raises(Repeated) as caught:
            await store.append(replace(begun(by=GUEST), key=Key(AGENT, "k", b"2", GUEST)))
        assert caught.value.earlier.task is None
        await store.append(begun())
        assert await store.find(GUEST, AGENT, task.id, joined=True) is None
        assert await ids(store, GUEST) == set()

    async def test_erasing_a_principal_takes_what_it_made_and_what_is_kept_with_it(self, store: Store) -> None:
        everyone = Owner("default", "shared:scope")
        kept = (await store.append(begun(everyone, by=HOST))).head
        shared = (await store.append(begun(everyone, by=GUEST))).head
        joined = (await store.append(begun(by=GUEST))).head
        own = (await store.append(begun(GUEST, by=GUEST, context="third"))).head
        guests = (await store.append(begun(GUEST, by=HOST, context="third"))).head
        hers = (await store.append(begun())).head
        await store.erase(Selection(principal="bob"))
        left = [head.ref for head in (kept, shared, joined, own, guests, hers) if await store.read(head.ref)]
        assert left == [kept.ref, hers.ref]
