"""Contract of erasure: exact selections, complete deletion, and receipts without names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery
from dragoman.core.task.log import ABSENT, Appended, AppendRejected, IncomingMessage, TaskRecord
from dragoman.core.task.maintenance import RETENTION_REASON, ErasureCounts, TaskSelection, task_ids_digest
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
    file_message,
    finished,
    follow_up,
    new_ref,
    running,
    status,
)

DAY_MS = 86_400_000
OTHER_PRINCIPAL = Owner("default", "somebody else")
SAME_PRINCIPAL_OTHER_SCOPE = Owner("projects/p", "anonymous")


async def selected(store: Store, selection: TaskSelection) -> list[TaskRecord]:
    return [record async for records in store.erasures.select(selection) for record in records]


async def selected_ids(store: Store, selection: TaskSelection) -> list[str]:
    return sorted(record.id for record in await selected(store, selection))


class StoreErasure:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def is_erased(self, store: Store, record: TaskRecord) -> bool:
        """Whether no read returns data of a task."""
        ref = record.ref
        return (
            await store.read(ref) is None
            and await store.find(ref.owner, record.agent, record.id) is None
            and await store.messages(ref) is None
            and await store.events(ref, 0) == []
            and await store.last_sequences([ref]) == {}
        )

    async def task_of(self, store: Store, owner: Owner, **details: str) -> Appended:
        return await store.append(created(new_ref(owner), claim=SESSION, **details))  # type: ignore[arg-type]

    # Selections -------------------------------------------------------------------------------------------------

    async def test_an_empty_selection_is_rejected(self) -> None:
        for nothing in ({}, {"agent": AGENT}, {"state": states.FAILED}, {"scope": "default"}):
            with pytest.raises(ValueError, match="select the tasks"):
                TaskSelection(**nothing)

    async def test_tasks_are_selected_by_all_fields_of_the_selection(self, store: Store) -> None:
        mine = await self.task_of(store, OWNER, context="a")
        theirs = await self.task_of(store, OTHER_PRINCIPAL, context="a", agent="other")
        far = await self.task_of(store, SAME_PRINCIPAL_OTHER_SCOPE, context="b")
        for fields, expected in (
            ({"task": mine.record.id}, [mine]),
            ({"task": mine.record.id, "principal": "somebody else"}, []),
            ({"context": "a"}, [mine, theirs]),
            ({"context": "a", "agent": "other"}, [theirs]),
            ({"principal": "anonymous"}, [mine, far]),
            ({"principal": "anonymous", "scope": "projects/p"}, [far]),
            ({"context": "c"}, []),
            ({"task": "no-such-task"}, []),
        ):
            assert await selected_ids(store, TaskSelection(**fields)) == sorted(one.record.id for one in expected)  # type: ignore[arg-type]

    async def test_a_selection_by_age_alone_selects_ended_tasks(self, store: Store, clock: Clock) -> None:
        done, failed = await finished(store), await finished(store, state=states.FAILED)
        asking, working = await finished(store, state=states.INPUT_REQUIRED), await running(store)
        clock.now += DAY_MS
        young = await finished(store)
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS)) == sorted([done.record.id, failed.record.id])
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS, state=states.FAILED)) == [failed.record.id]
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS, state=states.INPUT_REQUIRED)) == [
            asking.record.id
        ]
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS, state=states.SUBMITTED)) == [
            working.record.id
        ]
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS, agent="other")) == []
        assert young.record.id not in await selected_ids(store, TaskSelection(older_than=1000))

    async def test_a_selection_of_many_tasks_is_complete(self, store: Store, clock: Clock) -> None:
        finished_tasks = await asyncio.gather(*(finished(store) for _ in range(300)))
        clock.now += DAY_MS
        everything = sorted(one.record.id for one in finished_tasks)
        assert await selected_ids(store, TaskSelection(older_than=DAY_MS)) == everything
        assert await selected_ids(store, TaskSelection(principal=OWNER.principal)) == everything
        assert await selected_ids(store, TaskSelection(context="context")) == everything

    async def test_a_task_is_selected_by_its_client_chosen_id(self, store: Store) -> None:
        change = created(new_ref())
        assert change.create is not None
        await store.append(replace(change, create=replace(change.create, id="mine", alias=True)))
        assert [record.ref for record in await selected(store, TaskSelection(task="mine"))] == [change.task]

    async def test_a_selection_by_context_includes_hidden_tasks(self, store: Store) -> None:
        claimed = await store.append(created(new_ref(), context="c", claim=SESSION, visible=False))
        waiting = await store.append(created(new_ref(), context="c", visible=False))
        assert await selected_ids(store, TaskSelection(context="c")) == sorted([claimed.record.id, waiting.record.id])

    async def test_inactive_states_are_listed_by_agent_and_state(self, store: Store) -> None:
        assert await store.erasures.inactive_states() == []
        for state in (states.COMPLETED, states.INPUT_REQUIRED, states.COMPLETED):
            await finished(store, state=state)
        await running(store)
        other = await self.task_of(store, OTHER_PRINCIPAL, agent="aardvark")
        await store.append(by_runner(other, status(states.FAILED), end=True))
        assert await store.erasures.inactive_states() == [
            ("aardvark", states.FAILED),
            (AGENT, states.COMPLETED),
            (AGENT, states.INPUT_REQUIRED),
        ]

    # Erasing ----------------------------------------------------------------------------------------------------

    async def test_erasing_a_task_deletes_all_its_data_and_no_other_task(self, store: Store) -> None:
        erased = await finished(store, artifact("a", "x"), chunk("b", "y"))
        stays = await finished(store, artifact("a", "x"))
        before = await store.read(stays.record.ref)
        receipt = await store.erasures.erase(TaskSelection(task=erased.record.id))
        assert await self.is_erased(store, erased.record)
        assert await store.read(stays.record.ref) == before
        assert receipt.counts == replace(ErasureCounts(1, 4, 1, 2, 2), bytes=receipt.counts.bytes)
        assert (await store.page(TaskQuery(OWNER, AGENT))).total == 1
        assert (await store.page(TaskQuery(OWNER, AGENT, state=states.COMPLETED))).total == 1

    async def test_totals_are_correct_after_an_erasure(self, store: Store) -> None:
        for state in (states.COMPLETED, states.FAILED, states.FAILED, states.INPUT_REQUIRED):
            await finished(store, state=state)
        await store.append(created(new_ref(), claim=SESSION, visible=False))
        await store.erasures.erase(TaskSelection(principal=OWNER.principal, state=states.FAILED))
        assert (await store.page(TaskQuery(OWNER, AGENT))).total == 2
        assert (await store.page(TaskQuery(OWNER, AGENT, state=states.FAILED))).total == 0
        await store.erasures.erase(TaskSelection(principal=OWNER.principal))
        assert (await store.page(TaskQuery(OWNER, AGENT))).total == 0
        assert await store.ready_tasks([AGENT], 10) == []

    async def test_a_dry_run_reports_what_the_erasure_then_deletes(self, store: Store) -> None:
        claimed = await running(store)
        await store.append(by_runner(claimed, chunk("out", "a", append=False), chunk("out", "b"), artifact("x", "y")))
        await store.append(follow_up(claimed.record.ref, "more"))
        measured = await store.erasures.measure(TaskSelection(context="context"))
        assert (await store.erasures.erase(TaskSelection(context="context"))).counts == measured
        assert measured.tasks == 1
        assert measured.bytes > 0
        assert await store.erasures.measure(TaskSelection(context="context")) == ErasureCounts()

    async def test_large_parts_count_for_each_task_that_has_them(self, store: Store) -> None:
        large = 1_000_000
        for owner in (OWNER, OWNER, OTHER_PRINCIPAL):
            change = replace(created(new_ref(owner)), message=IncomingMessage(file_message("large", bytes(large))))
            await store.append(change)
        of_owner = TaskSelection(principal=OWNER.principal)
        measured = await store.erasures.measure(of_owner)
        assert measured.tasks == 2
        assert measured.bytes >= 2 * large
        assert (await store.erasures.erase(of_owner)).counts == measured

    async def test_the_runner_of_an_erased_task_is_rejected_as_absent(self, store: Store) -> None:
        claimed, erased_records = await running(store), list[TaskRecord]()
        await store.erasures.erase(TaskSelection(task=claimed.record.id), on_erased=erased_records.extend)
        assert [(record.ref, record.session) for record in erased_records] == [(claimed.record.ref, SESSION)]
        late: Sequence[object] = await asyncio.gather(
            store.append(by_runner(claimed, artifact("late", "x"))),
            store.append(by_runner(claimed, status(states.COMPLETED), end=True)),
            store.append(follow_up(claimed.record.ref, "more")),
            return_exceptions=True,
        )
        assert [isinstance(one, AppendRejected) and one.reason for one in late] == [ABSENT] * 3
        assert await self.is_erased(store, claimed.record)

    async def test_late_writes_to_tasks_of_an_erased_principal_are_rejected_as_absent(self, store: Store) -> None:
        claimed = await self.task_of(store, OTHER_PRINCIPAL)
        await store.erasures.erase(TaskSelection(principal=OTHER_PRINCIPAL.principal))
        with pytest.raises(AppendRejected, match=ABSENT):
            await store.append(by_runner(claimed, artifact("late", "x")))
        again = await self.task_of(store, OTHER_PRINCIPAL)
        assert (await store.page(TaskQuery(OTHER_PRINCIPAL, AGENT))).total == 1
        assert await store.find(OTHER_PRINCIPAL, AGENT, again.record.id) is not None

    async def test_a_task_that_changed_before_its_erasure_is_reselected(self, store: Store, clock: Clock) -> None:
        asking = await finished(store, state=states.INPUT_REQUIRED)
        clock.now += DAY_MS
        erasing = asyncio.create_task(
            store.erasures.erase(TaskSelection(older_than=DAY_MS, state=states.INPUT_REQUIRED))
        )
        answered = await store.append(follow_up(asking.record.ref, "blue", claim=SESSION))  # written before the erasure
        assert (await erasing).counts.tasks == 0
        assert (await store.last_sequences([answered.record.ref])) != {}

    async def test_the_limit_of_an_erasure_selects_the_oldest_tasks(self, store: Store, clock: Clock) -> None:
        finished_tasks = []
        for _ in range(5):
            finished_tasks.append((await finished(store)).record)
            clock.now += 1000
        clock.now += DAY_MS
        assert (await store.erasures.erase(TaskSelection(older_than=DAY_MS), limit=2)).counts.tasks == 2
        assert [await self.is_erased(store, record) for record in finished_tasks] == [True, True, False, False, False]

    async def test_a_task_of_many_rows_is_erased_completely(self, store: Store) -> None:
        claimed = await running(store)
        for _ in range(20):
            await store.append(by_runner(claimed, *[artifact(f"a{n}", "x", append=True) for n in range(100)]))
        await asyncio.gather(*(store.append(follow_up(claimed.record.ref, str(n))) for n in range(700)))
        receipt = await store.erasures.erase(TaskSelection(task=claimed.record.id))
        assert (receipt.counts.events, receipt.counts.messages, receipt.counts.chunks) == (2701, 701, 2000)
        assert await store.erasures.measure(TaskSelection(principal=OWNER.principal)) == ErasureCounts()

    async def test_appends_continue_during_an_erasure(self, store: Store, clock: Clock) -> None:
        await asyncio.gather(*(finished(store, artifact("a", "x")) for _ in range(300)))
        clock.now += DAY_MS
        erasing = asyncio.create_task(store.erasures.erase(TaskSelection(older_than=DAY_MS)))
        written = 0
        while not erasing.done():
            await store.append(created(new_ref()))
            written += 1
        assert (await erasing).counts.tasks == 300
        assert written > 3
        assert (await store.page(TaskQuery(OWNER, AGENT))).total == written

    # Receipts ---------------------------------------------------------------------------------------------------

    async def test_a_receipt_proves_which_tasks_were_erased_without_naming_them(
        self, store: Store, clock: Clock
    ) -> None:
        owner = Owner("default", "alice@example.com")
        finished_tasks = [(await self.task_of(store, owner, context="about alice")).record for _ in range(3)]
        clock.now += 5000
        receipt = await store.erasures.erase(TaskSelection(context="about alice", principal="alice@example.com"))
        assert receipt.digest == task_ids_digest(sorted(record.id for record in finished_tasks))
        assert (receipt.began, receipt.ended, receipt.reason) == (clock.now, clock.now, "purge")
        assert await store.erasures.receipts() == [receipt]
        kept = json.dumps([asdict(one) for one in await store.erasures.receipts()])
        assert not any(word in kept for word in ("alice", *(record.id for record in finished_tasks)))

    async def test_an_erasure_without_matches_creates_no_receipt(self, store: Store) -> None:
        receipt = await store.erasures.erase(TaskSelection(task="not-there"))
        assert (receipt.number, receipt.counts, receipt.digest) == (0, ErasureCounts(), task_ids_digest([]))
        assert await store.erasures.receipts() == []

    async def test_receipts_are_listed_newest_first(self, store: Store) -> None:
        for reason in ("purge", RETENTION_REASON):
            await store.erasures.erase(TaskSelection(task=(await finished(store)).record.id), reason=reason)
        assert [one.reason for one in await store.erasures.receipts()] == [RETENTION_REASON, "purge"]
        assert len(await store.erasures.receipts(1)) == 1

    async def test_an_interrupted_erasure_is_completed(self, store: Store) -> None:
        finished_tasks = [(await self.task_of(store, OWNER)).record for _ in range(5)]
        seen = asyncio.Event()
        erasing = asyncio.create_task(
            store.erasures.erase(TaskSelection(principal=OWNER.principal), on_erased=lambda records: seen.set())
        )
        await seen.wait()
        erasing.cancel()
        await asyncio.gather(erasing, return_exceptions=True)
        (receipt,) = await store.erasures.resume() or await store.erasures.receipts()
        assert receipt.counts.tasks == 5
        assert receipt.digest == task_ids_digest(sorted(record.id for record in finished_tasks))
        assert await store.erasures.resume() == []
