"""Contract of reads: a Task is the fold of its events, pages are exact, and other owners see nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.core.task.log import Appended, IncomingMessage, TaskRef
from dragoman.core.task.projection import fold
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    finished,
    follow_up,
    message,
    new_ref,
    running,
    status,
    texts,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

STRANGERS = (Owner("default", "somebody else"), Owner("projects/p", "anonymous"))


async def folded(store: Store, appended: Appended) -> pb.Task:
    """The fold of a task's events, with neighboring text parts joined."""
    task = pb.Task()
    for event in await store.events(appended.record.ref, 0, 100_000):
        fold(task, pb.StreamResponse.FromString(event.data))
    return task


def artifact_texts(task: pb.Task) -> dict[str, str]:
    return {one.artifact_id: "".join(texts(one.parts)) for one in task.artifacts}


class StoreReads:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    # One task ---------------------------------------------------------------------------------------------------

    async def task(self, store: Store, appended: Appended, history: int | None = None) -> pb.Task:
        snapshot = await store.read(appended.record.ref, history=history)
        assert snapshot is not None
        return pb.Task.FromString(snapshot.task)

    async def test_a_task_is_the_fold_of_its_events(self, store: Store) -> None:
        claimed = await running(store)
        for change in (
            artifact("b", "one", "two"),
            artifact("a", "first"),
            artifact("a", "second", append=True),
            status(states.WORKING, "half way"),
            artifact("b", "replaced"),
            artifact("new", "by appending", append=True),
            status(states.COMPLETED, "done"),
        ):
            last = await store.append(by_runner(claimed, change, end=change == status(states.COMPLETED, "done")))
            assert await self.task(store, last) == await folded(store, last)

    async def test_text_chunks_are_one_part_at_every_moment(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(by_runner(claimed, chunk("out", "a", append=False), chunk("out", "b")))
        last = await store.append(by_runner(claimed, chunk("out", "c")))
        task = await self.task(store, last)
        assert texts(task.artifacts[0].parts) == ["abc"]
        assert artifact_texts(task) == artifact_texts(await folded(store, last))

    async def test_other_parts_are_never_joined(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(by_runner(claimed, chunk("out", "a", append=False), artifact("out", "b", "c", append=True)))
        last = await store.append(by_runner(claimed, chunk("out", "d"), chunk("out", "e")))
        assert texts((await self.task(store, last)).artifacts[0].parts) == ["a", "b", "c", "de"]

    async def test_a_status_message_becomes_history_with_the_next_status(self, store: Store) -> None:
        claimed = await running(store)
        question = await store.append(by_runner(claimed, status(states.INPUT_REQUIRED, "which?"), end=True))
        task = await self.task(store, question)
        assert [texts(one.parts) for one in task.history] == [["hello"]]
        assert texts(task.status.message.parts) == ["which?"]
        answered = await store.append(follow_up(question.record.ref, "blue", claim=SESSION))
        task = await self.task(store, answered)
        assert [texts(one.parts) for one in task.history] == [["hello"], ["which?"], ["blue"]]
        assert not task.status.HasField("message")

    async def test_the_question_is_stored_for_the_next_turn(self, store: Store) -> None:
        claimed = await running(store)
        question = await store.append(by_runner(claimed, status(states.INPUT_REQUIRED, "which?"), end=True))
        answered = await store.append(follow_up(question.record.ref, "blue", claim=SESSION))
        kept = await store.messages(answered.record.ref)
        assert kept is not None
        numbers = {one.number: pb.Message.FromString(one.message).parts[0].text for one in kept.messages}
        assert numbers[kept.record.question] == "which?"

    @pytest.mark.parametrize(
        ("history", "left"), [(None, ["hello", "1", "2", "3"]), (0, []), (1, ["3"]), (3, ["1", "2", "3"]), (9, None)]
    )
    async def test_history_is_limited_to_its_last_messages(
        self, store: Store, history: int | None, left: list[str] | None
    ) -> None:
        claimed = await running(store)
        for number in (1, 2, 3):
            last = await store.append(follow_up(claimed.record.ref, str(number)))
        task = await self.task(store, last, history)
        assert [one.parts[0].text for one in task.history] == (["hello", "1", "2", "3"] if left is None else left)

    @pytest.mark.parametrize("history", [None, 0, 1])
    async def test_the_response_to_get_equals_find_and_read(self, store: Store, history: int | None) -> None:
        claimed = await running(store)
        last = status(states.COMPLETED, "three")
        for change in (status(states.WORKING, "one"), chunk("out", "two"), last):
            await store.append(by_runner(claimed, change, end=change is last))
            for _ in range(2):  # the second read may come from a cache
                got = await store.get(OWNER, AGENT, claimed.record.id, history=history)
                assert got is not None
                assert got.record == await store.find(OWNER, AGENT, claimed.record.id)
                assert got == await store.read(claimed.record.ref, history=history)
                assert pb.Task.FromString(got.task).status.state == got.record.state

    async def test_artifacts_can_be_omitted(self, store: Store) -> None:
        done = await finished(store, artifact("a", "x"))
        snapshot = await store.read(done.record.ref, artifacts=False)
        assert snapshot is not None
        assert not pb.Task.FromString(snapshot.task).artifacts

    async def test_a_conversation_is_read_from_any_message(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(follow_up(claimed.record.ref, "second"))
        kept = await store.messages(claimed.record.ref, 1)
        assert kept is not None
        assert [pb.Message.FromString(one.message).parts[0].text for one in kept.messages] == ["second"]

    # Owners -----------------------------------------------------------------------------------------------------

    async def test_strangers_find_and_list_nothing(self, store: Store) -> None:
        done = await finished(store)
        for owner in STRANGERS:
            assert await store.find(owner, AGENT, done.record.id) is None
            assert await store.get(owner, AGENT, done.record.id) is None
            assert await store.page(TaskQuery(owner, AGENT)) == TaskPage()
        assert await store.find(OWNER, "another", done.record.id) is None
        assert await store.get(OWNER, "another", done.record.id) is None
        assert (await store.page(TaskQuery(OWNER, "another"))).total == 0

    async def test_a_principal_has_agents_in_every_scope_with_tasks(self, store: Store, clock: Clock) -> None:
        assert await store.agents_of(OWNER.principal) == []
        elsewhere = Owner("projects/p", OWNER.principal)
        begin = clock.now
        for owner, agent in ((elsewhere, AGENT), (OWNER, "other"), (OWNER, AGENT), (OWNER, AGENT), (STRANGERS[0], "x")):
            change = created(new_ref(owner))
            assert change.create is not None
            await store.append(replace(change, create=replace(change.create, agent=agent)))
            clock.now += 1
        await store.append(created(new_ref(Owner("projects/hidden", OWNER.principal)), claim=SESSION, visible=False))
        known = await store.agents_of(OWNER.principal)
        assert [(one.scope, one.agent, one.tasks) for one in known] == [
            (OWNER.scope, AGENT, 2),
            (OWNER.scope, "other", 1),
            (elsewhere.scope, AGENT, 1),
        ]
        assert [one.changed for one in known] == [begin + 3, begin + 1, begin]

    async def test_malformed_task_ids_are_not_found(self, store: Store) -> None:
        record = (await finished(store)).record
        for wrong in ("", "1", record.id + "0", record.id.replace("-", ""), f"{{{record.id}}}"[:36]):
            assert await store.find(OWNER, AGENT, wrong) is None
            assert await store.get(OWNER, AGENT, wrong) is None

    # Pages ------------------------------------------------------------------------------------------------------

    async def test_pages_show_every_task_once_newest_status_first(self, store: Store, clock: Clock) -> None:
        tasks_created = []
        for number in range(25):
            clock.now += number % 3  # some share a millisecond: ties are ordered by key, later first
            tasks_created.append((await finished(store)).record)
        seen: list[str] = []
        query = TaskQuery(OWNER, AGENT, page_size=4)
        while True:
            page = await store.page(query)
            assert page.total == 25
            seen += [pb.Task.FromString(task).id for task in page.tasks]
            if page.last_key is None:
                break
            query = replace(query, after=page.last_key)
        newest_first = sorted(tasks_created, key=lambda record: (record.updated, record.ref.key), reverse=True)
        assert seen == [record.id for record in newest_first]

    async def test_filters_and_their_totals_are_exact(self, store: Store, clock: Clock) -> None:
        begin = clock.now
        for state in (states.COMPLETED, states.FAILED, states.COMPLETED, states.INPUT_REQUIRED):
            clock.now += 10
            await finished(store, state=state)
        clock.now += 10
        await store.append(created(new_ref(), context="other"))
        for filters, expected in (
            ({}, 5),
            ({"state": states.COMPLETED}, 2),
            ({"state": states.CANCELED}, 0),
            ({"context": "other"}, 1),
            ({"context": "other", "state": states.COMPLETED}, 0),
            ({"updated_since": begin + 30}, 3),
            ({"updated_since": begin + 31}, 2),
            ({"updated_since": begin + 30, "state": states.COMPLETED}, 1),
        ):
            page = await store.page(TaskQuery(OWNER, AGENT, **filters))
            assert (len(page.tasks), page.total) == (expected, expected), filters

    async def test_totals_follow_every_change_of_state(self, store: Store) -> None:
        claimed = await running(store)
        hidden = await store.append(created(new_ref(), claim=SESSION, visible=False))

        async def totals() -> dict[int, int]:
            pages = {state: await store.page(TaskQuery(OWNER, AGENT, state=state)) for state in states.STORED_STATES}
            return {state: page.total for state, page in pages.items() if page.total}

        assert await totals() == {states.SUBMITTED: 1}
        await store.append(by_runner(claimed, status(states.WORKING)))
        assert await totals() == {states.WORKING: 1}
        await store.append(by_runner(hidden, status(states.COMPLETED), end=True))
        await store.append(by_runner(claimed, status(states.FAILED), end=True))
        assert await totals() == {states.COMPLETED: 1, states.FAILED: 1}

    async def test_a_page_has_artifacts_only_on_request(self, store: Store) -> None:
        await finished(store, artifact("a", "x"))
        bare = await store.page(TaskQuery(OWNER, AGENT, history=0))
        full = await store.page(TaskQuery(OWNER, AGENT, history=0, artifacts=True))
        assert not pb.Task.FromString(bare.tasks[0]).artifacts
        assert pb.Task.FromString(full.tasks[0]).artifacts

    # Waiting tasks ----------------------------------------------------------------------------------------------

    async def test_waiting_tasks_are_listed_oldest_first_for_the_requested_agents(
        self, store: Store, clock: Clock
    ) -> None:
        refs = []
        for agent in (AGENT, "other", AGENT):
            clock.now += 1
            refs.append((await store.append(created(new_ref(), agent=agent))).record.ref)
        await running(store)
        assert [record.ref for record in await store.ready_tasks([AGENT], 10)] == [refs[0], refs[2]]
        assert [record.ref for record in await store.ready_tasks([AGENT, "other"], 2)] == refs[:2]
        assert await store.ready_tasks([], 10) == []

    async def test_waiting_tasks_alternate_between_principals_each_oldest_first(
        self, store: Store, clock: Clock
    ) -> None:
        async def put(principal: str, agent: str = AGENT, scope: str = "default") -> TaskRef:
            clock.now += 1
            return (await store.append(created(new_ref(Owner(scope, principal)), agent=agent))).record.ref

        a = [await put("a"), await put("a", "other"), await put("a"), await put("a")]
        b = [await put("b"), await put("b", scope="projects/p")]
        c = [await put("c", "other")]

        async def order(limit: int, after: str = "", agents: Sequence[str] = (AGENT, "other")) -> list[TaskRef]:
            return [record.ref for record in await store.ready_tasks(agents, limit, after)]

        assert await order(10) == [a[0], b[0], c[0], a[1], b[1], a[2], a[3]]
        assert await order(2) == [a[0], b[0]]
        assert await order(3, "a") == [b[0], c[0], a[0]]
        assert await order(10, "b") == [c[0], a[0], b[0], a[1], b[1], a[2], a[3]]
        assert await order(2, "c") == [a[0], b[0]]
        assert await order(2, "bb") == [c[0], a[0]]
        assert await order(10, "a", [AGENT]) == [b[0], a[0], b[1], a[2], a[3]]

    async def test_creators_under_a_shared_owner_alternate_too(self, store: Store, clock: Clock) -> None:
        everyone, refs = Owner("default", "shared:scope"), []
        for sender in ("a", "a", "b"):
            clock.now += 1
            change = replace(created(new_ref(everyone)), message=IncomingMessage(message("hello"), sender=sender))
            refs.append((await store.append(change)).record.ref)
        assert [record.ref for record in await store.ready_tasks([AGENT], 2, "a")] == [refs[2], refs[0]]

    async def test_versions_return_the_last_sequence_of_each_task(self, store: Store) -> None:
        done, other = await finished(store), await running(store)
        found = await store.last_sequences([done.record.ref, other.record.ref, new_ref()])
        assert found == {done.record.ref.key: 2, other.record.ref.key: 1}
