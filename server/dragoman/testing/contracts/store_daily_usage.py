"""Contract of daily usage: figures by day, scope, principal and agent, which change with what they count."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import pytest

from dragoman.core.daily_usage import (
    KEPT_DAYS,
    KEPT_HOURS,
    DailyFigures,
    DailyUsageQuery,
    DailyUsageRow,
    HourlyUsageQuery,
    HourlyUsageRow,
    UsageGroup,
    day_of,
    hour_of,
)
from dragoman.core.limits.quotas import MAX_USAGE, UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import Append, Appended, AppendRejected, ClaimHeld, DuplicateKey, IdempotencyKey, Ready
from dragoman.core.task.maintenance import TaskSelection
from dragoman.ports import Store
from dragoman.testing.fixtures import (
    AGENT,
    OWNER,
    SESSION,
    Clock,
    by_runner,
    cancel,
    created,
    follow_up,
    new_ref,
    running,
    status,
)

DAY: Final = 86_400
HOUR: Final = 3600
OTHER_PRINCIPAL: Final = Owner("default", "other")
OTHER_SCOPE: Final = Owner("projects/p", "anonymous")
ALL: Final[tuple[UsageGroup, ...]] = ("day", "scope", "principal", "agent")


def ended(task: Appended, state: int, *, turn_us: int = 0) -> Append:
    """Returns the end of a turn."""
    return replace(by_runner(task, status(state), end=True), turn_us=turn_us)


async def rows_by(store: Store, *groups: UsageGroup, **filters: Any) -> list[DailyUsageRow]:
    """The sums over all days."""
    return await store.daily_usage(DailyUsageQuery(0, 10**6, groups, **filters))


async def total(store: Store, **filters: Any) -> DailyFigures:
    """The sum over everything."""
    (row,) = await rows_by(store, **filters)
    assert row.group == ()
    return row.figures


class StoreDailyUsage:
    """Provide a `store` fixture, opened with the `clock` fixture of this class."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    async def test_an_empty_store_has_no_rows_and_a_sum_of_zeros(self, store: Store) -> None:
        assert await rows_by(store, *ALL) == []
        assert await total(store) == DailyFigures()

    async def test_tasks_are_counted_when_they_begin_and_when_they_end(self, store: Store) -> None:
        for state in (states.COMPLETED, states.COMPLETED, states.FAILED, states.REJECTED):
            await store.append(ended(await running(store), state, turn_us=1500))
        waiting = await store.append(created(new_ref()))
        await store.append(cancel(waiting.record.ref))
        await running(store)
        assert await total(store) == DailyFigures(6, 2, 1, 1, 1, turns=5, turn_us=6000)

    async def test_a_rejected_append_counts_nothing(self, store: Store) -> None:
        key = IdempotencyKey(AGENT, "key", b"digest")
        first = replace(created(new_ref(), claim=SESSION), idempotency_key=key)
        claimed = await store.append(first)
        with pytest.raises(DuplicateKey):
            await store.append(replace(created(new_ref(), claim=SESSION), idempotency_key=key))
        await store.append(ended(claimed, states.COMPLETED, turn_us=10))
        with pytest.raises(AppendRejected):
            await store.append(ended(claimed, states.FAILED, turn_us=10))
        assert await total(store) == DailyFigures(begun=1, completed=1, turns=1, turn_us=10)

    async def test_every_call_of_the_agent_is_a_turn(self, store: Store) -> None:
        claimed = await running(store)
        again = Append(task=claimed.record.ref, guard=ClaimHeld(SESSION, 1), retry=True, turn_us=5)
        await store.append(again)
        claimed = await store.append(Append(task=claimed.record.ref, guard=Ready(), claim_session=SESSION))
        await store.append(follow_up(claimed.record.ref, "more"))
        went_on = await store.append(ended(claimed, states.COMPLETED, turn_us=7))
        assert went_on.turn_continues
        await store.append(replace(by_runner(went_on, status(states.COMPLETED), end=True), last_delivered=2, turn_us=9))
        assert await total(store) == DailyFigures(begun=1, completed=1, turns=3, turn_us=21)

    async def test_a_message_in_place_of_a_task_counts_as_completed(self, store: Store) -> None:
        for reply in (b"hello", b""):
            hidden = await store.append(created(new_ref(), visible=False, claim=SESSION))
            guard = ClaimHeld(SESSION, hidden.record.token)
            await store.append(Append(task=hidden.record.ref, guard=guard, discard=True, reply=reply, turn_us=3))
        assert await total(store) == DailyFigures(begun=2, completed=1, failed=1, turns=2, turn_us=6)

    async def test_usage_reports_count_once(self, store: Store) -> None:
        claimed = await running(store)
        for report in (UsageReport(10, 5), UsageReport(1, 2, "call"), UsageReport(1, 2, "call"), UsageReport()):
            await store.append(replace(by_runner(claimed), usage_report=report))
        assert await total(store) == DailyFigures(begun=1, turns=1, tokens=11, cost=7)
        for _ in range(3):  # the sums saturate
            await store.append(replace(by_runner(claimed), usage_report=UsageReport(MAX_USAGE, MAX_USAGE)))
        assert await total(store) == DailyFigures(begun=1, turns=1, tokens=MAX_USAGE, cost=MAX_USAGE)

    async def test_figures_are_kept_by_day_scope_principal_and_agent(self, store: Store, clock: Clock) -> None:
        first = day_of(clock())
        for owner in (OWNER, OTHER_PRINCIPAL, OTHER_SCOPE):
            await store.append(created(new_ref(owner)))
        await store.append(created(new_ref(), agent="other"))
        clock.forward(DAY)
        await store.append(created(new_ref()))
        one = DailyFigures(begun=1)
        assert await rows_by(store, *ALL) == [
            DailyUsageRow((first, "default", "anonymous", AGENT), one),
            DailyUsageRow((first, "default", "anonymous", "other"), one),
            DailyUsageRow((first, "default", "other", AGENT), one),
            DailyUsageRow((first, "projects/p", "anonymous", AGENT), one),
            DailyUsageRow((first + 1, "default", "anonymous", AGENT), one),
        ]
        assert [(row.group, row.figures.begun) for row in await rows_by(store, "day")] == [
            ((first,), 4),
            ((first + 1,), 1),
        ]
        assert [(row.group, row.figures.begun) for row in await rows_by(store, "agent", "day")] == [
            ((AGENT, first), 3), ((AGENT, first + 1), 1), (("other", first), 1),
        ]  # fmt: skip
        assert (await total(store, agents=frozenset({AGENT, "unknown"}))).begun == 4
        assert (await total(store, principal="other")).begun == 1
        assert (await total(store, scopes=frozenset({"projects/p", "unknown"}))).begun == 1
        (row,) = await store.daily_usage(DailyUsageQuery(first + 1, first + 1))
        assert row.figures == one

    async def test_a_task_in_a_shared_conversation_counts_for_its_creator(self, store: Store) -> None:
        change = created(new_ref(Owner("default", "shared:scope")))
        assert change.message is not None
        await store.append(replace(change, message=replace(change.message, sender="carol")))
        assert await rows_by(store, "principal") == [DailyUsageRow(("carol",), DailyFigures(begun=1))]

    async def test_pages_follow_each_other(self, store: Store) -> None:
        await asyncio.gather(*(store.append(created(new_ref(), agent=f"agent-{n}")) for n in range(5)))
        found: list[DailyUsageRow] = []
        while len(found) < 5:
            after = found[-1].group if found else ()
            page = await rows_by(store, "day", "agent", after=after, limit=2)
            assert 0 < len(page) <= 2
            found += page
        assert [row.group[1] for row in found] == [f"agent-{n}" for n in range(5)]
        assert await rows_by(store, "day", "agent", after=found[-1].group) == []

    async def test_many_keys_in_one_batch_are_all_counted(self, store: Store) -> None:
        owners = [Owner("default", f"p{n}") for n in range(100)]
        tasks = await asyncio.gather(
            *(store.append(created(new_ref(owner), claim=SESSION)) for owner in owners for _ in range(2))
        )
        await asyncio.gather(*(store.append(ended(task, states.COMPLETED)) for task in tasks))
        rows = await rows_by(store, "principal", limit=1000)
        assert {row.group[0] for row in rows} == {owner.principal for owner in owners}
        assert {row.figures for row in rows} == {DailyFigures(begun=2, completed=2, turns=2)}

    async def test_erased_tasks_stay_counted(self, store: Store) -> None:
        task = await running(store)
        await store.append(ended(task, states.COMPLETED))
        before = await rows_by(store, *ALL)
        await store.erasures.erase(TaskSelection(task=task.record.id))
        assert await rows_by(store, *ALL) == before

    async def test_erasing_a_principal_removes_only_its_name(self, store: Store) -> None:
        for name in ("anna", "bert", "carl"):
            for scope in ("default", "projects/p"):
                claimed = await store.append(created(new_ref(Owner(scope, name)), claim=SESSION))
                await store.append(ended(claimed, states.COMPLETED))
        await store.erasures.erase(TaskSelection(principal="anna", scope="default"))
        await store.erasures.erase(TaskSelection(principal="bert"))
        rows = await rows_by(store, "scope", "principal")
        assert [(*row.group, row.figures.completed) for row in rows] == [
            ("default", "", 2),
            ("default", "carl", 1),
            ("projects/p", "", 1),
            ("projects/p", "anna", 1),
            ("projects/p", "carl", 1),
        ]
        await store.append(created(new_ref(Owner("default", "bert"))))  # a new task of the same name
        assert await total(store, principal="bert") == DailyFigures(begun=1)

    async def test_the_last_hours_are_summed_by_agent(self, store: Store, clock: Clock) -> None:
        first = hour_of(clock())
        for owner in (OWNER, OTHER_PRINCIPAL, OTHER_SCOPE):
            await store.append(created(new_ref(owner)))
        clock.forward(HOUR)
        await store.append(ended(await running(store), states.FAILED, turn_us=1500))
        await store.append(created(new_ref(), agent="other"))
        last = HourlyUsageRow(AGENT, first + 1, DailyFigures(begun=1, failed=1, turns=1, turn_us=1500))
        other = HourlyUsageRow("other", first + 1, DailyFigures(begun=1))
        for query, expected in (
            (HourlyUsageQuery(first), [HourlyUsageRow(AGENT, first, DailyFigures(begun=3)), last, other]),
            (HourlyUsageQuery(first + 1), [last, other]),
            (HourlyUsageQuery(first + 2), []),
            (HourlyUsageQuery(first + 1, agents=frozenset({"other", "unknown"})), [other]),
            (
                HourlyUsageQuery(first, scopes=frozenset({"projects/p"})),
                [HourlyUsageRow(AGENT, first, DailyFigures(begun=1))],
            ),
        ):
            assert await store.hourly_usage(query) == expected, query

    async def test_hours_are_merged_into_their_days(self, store: Store, clock: Clock) -> None:
        first = hour_of(clock())
        for _ in range(KEPT_HOURS + 10):
            await store.append(created(new_ref()))
            clock.forward(HOUR)
        by_day = await rows_by(store, *ALL)
        assert sum(row.figures.begun for row in by_day) == KEPT_HOURS + 10
        await store.compact()
        hours = [row.hour for row in await store.hourly_usage(HourlyUsageQuery(0))]
        assert hours == list(range(first + 11, first + KEPT_HOURS + 10))
        assert await rows_by(store, *ALL) == by_day
        clock.forward(20 * HOUR)
        await store.compact()  # adds hours to days that have figures
        assert len(await store.hourly_usage(HourlyUsageQuery(0))) == len(hours) - 20
        assert await rows_by(store, *ALL) == by_day
        await store.erasures.erase(TaskSelection(principal=OWNER.principal))
        assert [(row.group[0], row.figures) for row in await rows_by(store, "day")] == [
            (row.group[0], row.figures) for row in by_day
        ]
        assert [row.group for row in await rows_by(store, "principal")] == [("",)]

    async def test_figures_are_deleted_after_their_time(self, store: Store, clock: Clock) -> None:
        await store.append(created(new_ref()))
        clock.forward(KEPT_DAYS * DAY)
        await store.append(created(new_ref()))
        await store.compact()
        assert await total(store) == DailyFigures(begun=2)
        clock.forward(DAY)
        assert (await store.compact()).usage_rows == 1
        assert await total(store) == DailyFigures(begun=1)
