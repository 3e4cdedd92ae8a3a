"""Contract of searches: every filter, both orders, pages without gaps, and bounded totals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.quotas import Usage, UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.cursors import (
    MAX_TOTAL,
    FoundTasks,
    OpenTasks,
    SearchOrder,
    TaskQuery,
    TaskSearch,
    page_token,
    parse_page_token,
)
from dragoman.core.task.log import Append, Appended, TaskRef
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    SESSION,
    Clock,
    artifact,
    by_runner,
    created,
    follow_up,
    new_ref,
    status,
)
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ANN = Owner("default", "ann")
BOB = Owner("default", "bob")
TENANT = Owner("projects/p", "ann")


def claimed(ref: TaskRef, text: str = "hello", agent: str = "echo", context: str = "context") -> Append:
    """Returns a change that creates a task and claims it."""
    return created(ref, text=text, agent=agent, context=context, claim=SESSION)


def metadata_of(**entries: str | float | dict[str, str]) -> bytes:
    """Returns a serialized Struct."""
    task = pb.Task()
    for key, value in entries.items():
        task.metadata[key] = value
    return task.metadata.SerializeToString()


class StoreSearches:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def create(self, store: Store, clock: Clock, owner: Owner, *, state: int = 0, **details: str) -> Appended:
        """Creates a task one second after the last one, and ends it in `state`."""
        clock.forward(1)
        task = await store.append(claimed(new_ref(owner), **details))
        if state:
            task = await store.append(by_runner(task, status(state, "because of the quota"), end=True))
        return task

    async def keys(self, store: Store, query: TaskSearch) -> list[bytes]:
        """Returns the keys of the tasks that a search finds."""
        return [one.record.ref.key for one in (await store.search(query)).tasks]

    async def pages(self, store: Store, query: TaskSearch) -> list[FoundTasks]:
        """Returns all pages of a search."""
        pages = [await store.search(query)]
        while pages[-1].next is not None:
            token = page_token(query, pages[-1].next)
            pages.append(await store.search(replace(query, after=parse_page_token(query, token))))
        return pages

    async def test_tasks_of_all_owners_are_found_last_changed_first(self, store: Store, clock: Clock) -> None:
        refs = [(await self.create(store, clock, owner)).record.ref for owner in (ANN, BOB, TENANT)]
        clock.forward(1)
        first = await store.find(ANN, "echo", (await store.search(TaskSearch())).tasks[-1].record.id)
        assert first is not None
        await store.append(by_runner(Appended(first, []), status(states.WORKING)))
        found = await store.search(TaskSearch())
        assert [one.record.ref for one in found.tasks] == [refs[0], refs[2], refs[1]]
        assert (found.total, found.is_total_exact, found.next) == (3, True, None)

    async def test_the_order_of_creation_is_not_changed_by_later_events(self, store: Store, clock: Clock) -> None:
        tasks = [await self.create(store, clock, owner) for owner in (ANN, BOB, ANN)]
        clock.forward(1)
        await store.append(by_runner(tasks[0], status(states.COMPLETED), end=True))
        expected = [task.record.ref.key for task in reversed(tasks)]
        assert await self.keys(store, TaskSearch(order="created")) == expected
        assert await self.keys(store, TaskSearch(order="created", principal="ann")) == [expected[0], expected[2]]
        assert await self.keys(store, TaskSearch(order="created", states=frozenset({states.COMPLETED}))) == expected[2:]

    @pytest.mark.parametrize("order", ["changed", "created"])
    async def test_each_filter_selects_its_tasks(self, store: Store, clock: Clock, order: SearchOrder) -> None:
        failed = await self.create(store, clock, ANN, state=states.FAILED, agent="desk", text="Count the sheep")
        question = await self.create(store, clock, BOB, state=states.INPUT_REQUIRED, context="other")
        working = await self.create(store, clock, TENANT, text="100% wool_")
        plain = TaskSearch(order=order)
        for query, expected in (
            (replace(plain, scopes=frozenset({"projects/p"})), [working]),
            (replace(plain, scopes=frozenset({""})), []),
            (replace(plain, agents=frozenset({""})), []),
            (replace(plain, scopes=frozenset({"default", "projects/p"})), [working, question, failed]),
            (replace(plain, principal="ann"), [working, failed]),
            (replace(plain, principal="ann", scopes=frozenset({"default"})), [failed]),
            (replace(plain, principal="nobody"), []),
            (replace(plain, agents=frozenset({"desk"})), [failed]),
            (replace(plain, agents=frozenset({"desk", "echo"}), principal="bob"), [question]),
            (replace(plain, states=frozenset({states.FAILED})), [failed]),
            (replace(plain, states=frozenset({states.FAILED, states.SUBMITTED})), [working, failed]),
            (replace(plain, states=frozenset({states.FAILED}), principal="bob"), []),
            (replace(plain, context="other"), [question]),
            (replace(plain, context="context", agents=frozenset({"desk"})), [failed]),
            (replace(plain, changed_since=question.record.updated), [working, question]),
            (replace(plain, changed_before=question.record.updated), [failed]),
            (replace(plain, principal="ann", changed_before=question.record.updated), [failed]),
            (replace(plain, text="SHEEP"), [failed]),
            (replace(plain, text="quota"), [question, failed]),
            (replace(plain, text="quota", states=frozenset({states.FAILED}), principal="ann"), [failed]),
            (replace(plain, text="0% wool_"), [working]),
            (replace(plain, text="0_ wool"), []),
            (replace(plain, text=working.record.id[:13].upper()), [working]),
            (replace(plain, text=f" {question.record.id[4:18]}"), [question]),
            (replace(plain, text=failed.record.id[-7:]), []),
        ):
            assert await self.keys(store, query) == [task.record.ref.key for task in expected], query

    async def test_metadata_is_found_by_key_and_value(self, store: Store, clock: Clock) -> None:
        task = await self.create(store, clock, ANN)
        metadata = metadata_of(ticket="A-7", priority=3, urgent=True, place={"city": "Bern"})
        await store.append(replace(by_runner(task), task_metadata=metadata))
        await self.create(store, clock, ANN)
        for entry in (("ticket", "A-7"), ("priority", "3"), ("urgent", "true"), ("city", "Bern")):
            assert await self.keys(store, TaskSearch(metadata=(entry,))) == [task.record.ref.key]
        for entry in (("ticket", "A"), ("priority", "4"), ("urgent", "false"), ("Bern", "city")):
            assert await self.keys(store, TaskSearch(metadata=(entry,))) == []
        assert await self.keys(store, TaskSearch(metadata=(("ticket", "A-7"), ("priority", "4")))) == []

    async def test_a_found_task_has_its_names_times_texts_and_usage(self, store: Store, clock: Clock) -> None:
        task = await self.create(store, clock, TENANT, text="two words", agent="desk")
        await store.append(replace(by_runner(task), usage_report=UsageReport(7, 2_000)))
        clock.forward(5)
        change = by_runner(task, artifact("a", "x"), status(states.FAILED, "no luck"), end=True)
        failed = await store.append(change)
        (found,) = (await store.search(TaskSearch())).tasks
        assert found.record == failed.record
        assert (found.record.summary, found.record.status_text) == ("two words", "no luck")
        assert (found.record.ref.owner, found.record.agent, found.usage) == (TENANT, "desk", Usage(7, 2_000))
        assert (found.created, found.record.updated) == (task.record.updated, task.record.updated + 5_000)
        assert (await store.page(TaskQuery(TENANT, "desk"))).summaries == ["two words"]
        shown = pb.Task.FromString(found.task)
        assert (shown.id, len(shown.artifacts), len(shown.history)) == (failed.record.id, 0, 0)
        assert shown.status.message.parts[0].text == "no luck"
        (found,) = (await store.search(TaskSearch(artifacts=True))).tasks
        assert len(pb.Task.FromString(found.task).artifacts) == 1

    async def test_the_text_of_a_status_ends_with_it(self, store: Store, clock: Clock) -> None:
        task = await self.create(store, clock, ANN, state=states.INPUT_REQUIRED)
        (found,) = (await store.search(TaskSearch())).tasks
        assert found.record.status_text == "because of the quota"
        await store.append(follow_up(task.record.ref, "go on"))
        assert await self.keys(store, TaskSearch(text="quota")) == []

    async def test_hidden_tasks_are_not_found(self, store: Store) -> None:
        await store.append(created(new_ref(ANN), visible=False))
        for query in (TaskSearch(), TaskSearch(order="created"), TaskSearch(principal="ann")):
            found = await store.search(query)
            assert (found.tasks, found.total) == ([], 0)

    @pytest.mark.parametrize(
        "query",
        [
            TaskSearch(),
            TaskSearch(order="created"),
            TaskSearch(principal="ann"),
            TaskSearch(scopes=frozenset({"default"})),
            TaskSearch(states=frozenset({states.FAILED, states.SUBMITTED}), text="number"),
            TaskSearch(context="context"),
        ],
    )
    async def test_pages_are_the_whole_list_in_order(self, store: Store, clock: Clock, query: TaskSearch) -> None:
        for number in range(23):
            owner = (ANN, BOB, TENANT)[number % 3]
            task = await store.append(claimed(new_ref(owner), f"number {number}", "ab"[number % 2]))
            if number % 4:
                await store.append(by_runner(task, status(states.FAILED), end=True))
            clock.forward(number % 5)  # some change at the same time
        everything = await self.keys(store, replace(query, page_size=1000))
        assert len(everything) > 5
        pages = await self.pages(store, replace(query, page_size=4))
        assert [one.record.ref.key for page in pages for one in page.tasks] == everything
        assert [len(page.tasks) for page in pages[:-1]] == [4] * (len(pages) - 1)
        assert pages[0].total == len(everything)

    async def test_a_token_belongs_to_its_search(self) -> None:
        query = TaskSearch(principal="ann")
        token = page_token(query, (1, 2, bytes(16)))
        assert parse_page_token(replace(query, page_size=7), token) == (1, 2, bytes(16))
        for other in (replace(query, text="x"), replace(query, agents=frozenset({"a"})), replace(query, principal="")):
            with pytest.raises(InvalidParams, match="other filters"):
                parse_page_token(other, token)

    async def test_many_tasks_are_counted_up_to_a_limit(self, store: Store) -> None:
        changes = [store.append(created(new_ref(ANN))) for _ in range(MAX_TOTAL + 1)]
        for change in changes:
            await change
        found = await store.search(TaskSearch(page_size=1))
        assert (found.total, found.is_total_exact) == (MAX_TOTAL, False)
        more = await store.search(TaskSearch(page_size=1, max_total=MAX_TOTAL + 1))
        assert (more.total, more.is_total_exact) == (MAX_TOTAL + 1, True)
        assert found.next is not None
        later = await store.search(TaskSearch(page_size=1, after=found.next))
        assert (later.total, later.is_total_exact) == (0, False)

    @pytest.mark.parametrize("order", ["changed", "created"])
    async def test_states_are_counted_within_the_other_filters(
        self, store: Store, clock: Clock, order: SearchOrder
    ) -> None:
        for text in ("a sheep", "a cow"):
            failed = await self.create(store, clock, ANN, state=states.FAILED, agent="desk", text=text)
        await self.create(store, clock, BOB, state=states.INPUT_REQUIRED, context="other", text="a sheep")
        await self.create(store, clock, TENANT, text="a sheep")
        await store.append(created(new_ref(ANN), visible=False))
        plain = TaskSearch(order=order, page_size=1)
        submitted, waiting = states.SUBMITTED, states.INPUT_REQUIRED
        for query, expected in (
            (plain, {states.FAILED: 2, waiting: 1, submitted: 1}),
            (replace(plain, states=frozenset({states.FAILED})), {states.FAILED: 2, waiting: 1, submitted: 1}),
            (replace(plain, scopes=frozenset({"default"})), {states.FAILED: 2, waiting: 1}),
            (replace(plain, agents=frozenset({"desk"})), {states.FAILED: 2}),
            (replace(plain, agents=frozenset({"echo"})), {waiting: 1, submitted: 1}),
            (replace(plain, principal="ann"), {states.FAILED: 2, submitted: 1}),
            (replace(plain, principal="nobody"), {}),
            (replace(plain, context="other"), {waiting: 1}),
            (replace(plain, task_id=failed.record.id), {states.FAILED: 1}),
            (replace(plain, changed_since=failed.record.updated), {states.FAILED: 1, waiting: 1, submitted: 1}),
            (replace(plain, changed_before=failed.record.updated), {states.FAILED: 1}),
            (replace(plain, text="sheep"), {states.FAILED: 1, waiting: 1, submitted: 1}),
            (replace(plain, text="sheep", principal="ann"), {states.FAILED: 1, submitted: 1}),
            (replace(plain, metadata=(("ticket", "A-7"),)), {}),
        ):
            counts = await store.count_states(query)
            assert {one.state: one.count for one in counts if one.count} == expected, query
            assert {one.state for one in counts if one.is_exact} == states.STORED_STATES, query

    async def test_many_tasks_of_a_state_are_counted_up_to_a_limit(self, store: Store, clock: Clock) -> None:
        await self.create(store, clock, ANN, state=states.FAILED, text="needle")
        changes = [store.append(created(new_ref(owner))) for owner in (ANN, BOB) for _ in range(MAX_TOTAL // 2 + 1)]
        for change in changes:
            await change
        for query, at_limit in ((TaskSearch(), True), (TaskSearch(principal="ann"), False)):
            counts = {one.state: (one.count, one.is_exact) for one in await store.count_states(query)}
            expected = (MAX_TOTAL, False) if at_limit else (MAX_TOTAL // 2 + 1, True)
            assert (counts[states.SUBMITTED], counts[states.FAILED]) == (expected, (1, True))
        unread = await store.count_states(TaskSearch(text="needle", searched_rows=300))
        assert {(one.count, one.is_exact) for one in unread} == {(0, False)}
        in_context = await store.count_states(TaskSearch(context="context", searched_rows=300))
        assert 0 < sum(one.count for one in in_context) < MAX_TOTAL
        assert not any(one.is_exact for one in in_context)

    async def test_unfinished_tasks_are_counted_by_agent_and_state(self, store: Store, clock: Clock) -> None:
        first = await self.create(store, clock, ANN)
        await self.create(store, clock, TENANT)
        question = await self.create(store, clock, BOB, state=states.INPUT_REQUIRED, agent="desk")
        await self.create(store, clock, BOB, state=states.FAILED, agent="desk")
        await store.append(created(new_ref(ANN), visible=False))
        submitted = OpenTasks("echo", states.SUBMITTED, 2, True, first.record.updated)
        waiting = OpenTasks("desk", states.INPUT_REQUIRED, 1, True, question.record.updated)
        for query, expected in (
            (TaskSearch(), [waiting, submitted]),
            (TaskSearch(agents=frozenset({"desk"})), [waiting]),
            (TaskSearch(agents=frozenset({"none"})), []),
            (TaskSearch(scopes=frozenset({"default"})), [waiting, replace(submitted, count=1)]),
            (TaskSearch(scopes=frozenset({"none"})), []),
        ):
            assert await store.open_tasks(query) == expected, query

    async def test_unfinished_tasks_are_counted_up_to_a_limit(self, store: Store, clock: Clock) -> None:
        oldest = await self.create(store, clock, ANN)
        clock.forward(1)
        for change in [store.append(created(new_ref(ANN))) for _ in range(MAX_TOTAL)]:
            await change
        (found,) = await store.open_tasks(TaskSearch())
        assert (found.count, found.is_exact, found.oldest) == (MAX_TOTAL, False, oldest.record.updated)

    async def test_a_scope_of_many_owners_is_counted_within_bounds(self, store: Store, clock: Clock) -> None:
        for number in range(70):
            await self.create(store, clock, Owner("many", f"p{number}"))
        for change in [store.append(created(new_ref(TENANT))) for _ in range(300)]:
            await change
        for bound, expected in ((10_000, (70, True)), (300, (0, False))):
            query = TaskSearch(scopes=frozenset({"many"}), searched_rows=bound)
            (found,) = await store.open_tasks(query)
            assert (found.count, found.is_exact) == expected

    async def test_a_rare_text_is_found_across_bounded_pages(self, store: Store, clock: Clock) -> None:
        rare = await self.create(store, clock, ANN, text="needle")
        changes = [store.append(created(new_ref(ANN), text="hay")) for _ in range(900)]
        for change in changes:
            await change
        for query in (TaskSearch(), TaskSearch(principal="ann"), TaskSearch(order="created")):
            pages = await self.pages(store, replace(query, text="needle", page_size=3, searched_rows=300))
            assert [one.record.ref for page in pages for one in page.tasks] == [rare.record.ref]
            assert [len(page.tasks) for page in pages[:-1]] == [0] * (len(pages) - 1)
            assert 2 <= len(pages) < 100
            assert (pages[0].total, pages[0].is_total_exact) == (0, False)

    async def test_scopes_are_listed_in_order(self, store: Store, clock: Clock) -> None:
        assert await store.scopes(10) == []
        for owner in (TENANT, BOB, ANN):
            await self.create(store, clock, owner)
        assert await store.scopes(10) == ["default", "projects/p"]
        assert await store.scopes(1) == ["default"]

    # Failures

    async def fail(
        self, store: Store, clock: Clock, owner: Owner, text: str, agent: str = "echo", function: str = ""
    ) -> Appended:
        """Creates a task that fails with a ValueError of this text, raised in this function."""
        frames = [{"file": "/app/shop.py", "line": 7, "function": function, "code": "raise"}] if function else []
        failure = wk.Failure(type="ValueError", text=text, frames=frames).SerializeToString()
        clock.forward(1)
        task = await store.append(claimed(new_ref(owner), agent=agent))
        failed = replace(status(states.FAILED, "The agent failed."), failure=failure)
        return await store.append(by_runner(task, failed, end=True))

    async def test_a_failed_task_has_its_failure_and_no_reader_of_the_task_shows_it(
        self, store: Store, clock: Clock
    ) -> None:
        failed = (await self.fail(store, clock, ANN, "no sheep left", function="count")).record
        (found,) = (await store.search(TaskSearch(states=frozenset({states.FAILED})))).tasks
        failure = wk.Failure.FromString(found.failure)
        assert (failure.type, failure.text, failure.attempt) == ("ValueError", "no sheep left", 1)
        assert [(frame.function, frame.line) for frame in failure.frames] == [("count", 7)]
        assert found.failure_text == "ValueError: no sheep left"
        snapshot = await store.read(failed.ref)
        assert snapshot is not None
        page = await store.page(TaskQuery(ANN, "echo"))
        events = [event.data for event in await store.events(failed.ref, 0)]
        for shown in (snapshot.task, repr(snapshot.record).encode(), *page.tasks, *events):
            assert b"sheep" not in shown

    async def test_a_task_that_fails_without_an_exception_has_its_status_as_failure(
        self, store: Store, clock: Clock
    ) -> None:
        await self.create(store, clock, ANN, state=states.FAILED)
        await self.create(store, clock, ANN, state=states.CANCELED)
        canceled, failed = (await store.search(TaskSearch())).tasks
        assert (failed.failure_text, wk.Failure.FromString(failed.failure).type) == ("because of the quota", "")
        assert (canceled.failure_text, canceled.failure, canceled.cause) == ("", b"", "")

    @pytest.mark.parametrize("order", ["changed", "created"])
    async def test_the_text_of_a_failure_is_found_for_operators_only(
        self, store: Store, clock: Clock, order: SearchOrder
    ) -> None:
        failed = (await self.fail(store, clock, ANN, "no SHEEP left")).record
        query = TaskSearch(order=order, text="sheep")
        assert await self.keys(store, query) == []
        for principal in ("", "ann"):
            wanted = replace(query, finds_failures=True, principal=principal)
            assert await self.keys(store, wanted) == [failed.ref.key]

    async def test_equal_failures_are_groups_and_each_is_a_filter(self, store: Store, clock: Clock) -> None:
        for number in range(3):
            last = await self.fail(store, clock, (ANN, BOB, TENANT)[number], f"order {number}", function="pay")
        other = await self.fail(store, clock, ANN, "order 9", function="ship")
        await self.fail(store, clock, BOB, "order 9", agent="desk", function="ship")
        texts = [await self.fail(store, clock, BOB, f"no {what}") for what in ("7", "81", "tea")]
        await self.create(store, clock, ANN)
        groups = (await store.search(TaskSearch(groups_failures=True))).groups
        counted = sorted((group.count, group.last.record.agent, group.is_exact) for group in groups)
        assert counted == [
            (1, "desk", True),
            (1, "echo", True),
            (1, "echo", True),
            (2, "echo", True),
            (3, "echo", True),
        ]
        (most,) = (group for group in groups if group.count == 3)
        assert (most.last.record.updated - most.first, most.last.record.id) == (2000, last.record.id)
        assert wk.Failure.FromString(most.last.failure).text == "order 2"
        (numbers,) = (group for group in groups if group.count == 2)
        for query in (TaskSearch(), TaskSearch(order="created")):
            query = replace(query, cause=numbers.last.cause)
            expected = [texts[1].record.ref.key, texts[0].record.ref.key]
            assert await self.keys(store, query) == expected
            assert await self.keys(store, replace(query, agents=frozenset({"echo"}))) == expected
            assert await self.keys(store, replace(query, states=frozenset({states.FAILED}))) == expected
            assert await self.keys(store, replace(query, scopes=frozenset({"default"}))) == expected
            for nothing in (
                {"agents": frozenset({"desk"})}, {"states": frozenset({states.COMPLETED})}, {"principal": "ann"},
                {"scopes": frozenset({"projects/p"})}, {"context": "other"}, {"task_id": other.record.id},
            ):  # fmt: skip
                assert await self.keys(store, replace(query, **nothing)) == [], nothing
        for selected, expected_counts in (
            ({"scopes": frozenset({"projects/p"})}, [1]),
            ({"agents": frozenset({"desk"})}, [1]),
            ({"principal": "bob"}, [1, 1, 1, 2]),
            ({"cause": most.last.cause}, [3]),
            ({"cause": "none"}, []),
            ({"text": "order", "finds_failures": True}, [1, 1, 3]),
            ({"changed_since": last.record.updated}, [1, 1, 1, 1, 2]),
            ({"changed_before": last.record.updated}, [2]),
            ({"context": "context", "agents": frozenset({"desk"})}, [1]),
            ({"task_id": other.record.id}, [1]),
        ):
            query = replace(TaskSearch(groups_failures=True), **selected)
            assert sorted(one.count for one in (await store.search(query)).groups) == expected_counts, selected

    async def test_pages_by_cause_are_the_whole_list_in_order(self, store: Store, clock: Clock) -> None:
        for number in range(11):
            await self.fail(store, clock, (ANN, BOB, TENANT)[number % 3], f"order {number}")
        (group,) = (await store.search(TaskSearch(groups_failures=True))).groups
        query = TaskSearch(cause=group.last.cause, page_size=4)
        pages = await self.pages(store, query)
        everything = await self.keys(store, replace(query, page_size=50))
        assert [one.record.ref.key for page in pages for one in page.tasks] == everything
        assert (len(everything), pages[0].total) == (11, 11)
        few = (await store.search(TaskSearch(groups_failures=True, max_total=5))).groups
        assert [(one.count, one.is_exact) for one in few] == [(5, False)]

    async def test_an_erased_task_leaves_nothing_of_its_failure(self, store: Store, clock: Clock) -> None:
        failed = (await self.fail(store, clock, ANN, "no sheep left")).record
        await store.erasures.erase(TaskSelection(task=failed.id))
        found = await store.search(TaskSearch(text="sheep", finds_failures=True))
        assert (found.tasks, (await store.search(TaskSearch(groups_failures=True))).groups) == ([], [])
