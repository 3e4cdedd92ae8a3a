"""Contract of daily usage: figures by day, scope, principal and agent, which change with what they count."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
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
    summarize,
)
from dragoman.core.limits.quotas import MAX_USAGE, UsageReport
from dragoman.core.names import Owner
from dragoman.core.task import states
from dragoman.core.task.log import (
    Append,
    Appended,
    AppendRejected,
    Asleep,
    ClaimHeld,
    DuplicateKey,
    IdempotencyKey,
    Ready,
    TaskRef,
)
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


@dataclass
class History:
    """Random turns of some tasks, with what they should count: by agent, the times of turns and in the queue."""

    store: Store
    clock: Clock
    random: random.Random
    tasks: list[Appended] = field(default_factory=list)
    turns: dict[str, list[int]] = field(default_factory=dict)
    queue: dict[str, list[int]] = field(default_factory=dict)
    since: dict[TaskRef, int] = field(default_factory=dict)
    """When each task became ready."""

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock.forward(self.random.choice((0, 0.004, 1.7, 90, HOUR)))
            await self.step()

    async def step(self) -> None:
        draw, waits = self.random, [at for at, task in enumerate(self.tasks) if task.record.ready]
        runs = [at for at, task in enumerate(self.tasks) if task.record.session]
        idle = [at for at, task in enumerate(self.tasks) if task.record.state == states.INPUT_REQUIRED]
        kind = draw.choice(("create", "start", *["claim"] * bool(waits), *["end", "pause"] * bool(runs), "message"))
        if kind in ("create", "start"):
            owner = Owner(draw.choice(("default", "projects/p")), draw.choice(("anna", "bert")))
            change = created(new_ref(owner), agent=draw.choice(("a", "b")), claim=SESSION * (kind == "start"))
            self.tasks.append(await self.store.append(change))
            self.since[change.task] = self.clock()
            if kind == "start":
                self.queue.setdefault(self.tasks[-1].record.agent, []).append(0)
            return
        if kind == "message":
            for at in draw.sample(some := waits + runs + idle, min(len(some), 1)):
                if not self.tasks[at].record.has_open_turn:
                    self.since[self.tasks[at].record.ref] = self.clock()
                self.tasks[at] = await self.store.append(follow_up(self.tasks[at].record.ref, "more"))
            return
        at = draw.choice(waits if kind == "claim" else runs)
        record, turn_us = self.tasks[at].record, round(10 ** draw.uniform(0, 11))
        held = Append(task=record.ref, guard=ClaimHeld(SESSION, record.token))
        if kind == "claim":
            self.tasks[at] = await self.store.append(replace(held, guard=Ready(), claim_session=SESSION))
            self.queue.setdefault(record.agent, []).append((self.clock() - self.since[record.ref]) * 1000)
            return
        self.turns.setdefault(record.agent, []).append(turn_us)
        if kind == "end":
            state = draw.choice((states.COMPLETED, states.FAILED, states.INPUT_REQUIRED))
            end = replace(by_runner(self.tasks[at], status(state), end=True), last_delivered=draw.randrange(1, 4))
            self.tasks[at] = await self.store.append(replace(end, turn_us=turn_us))
        else:
            retry, wake_at = draw.random() < 0.5, draw.choice((0, self.clock() + 5))
            pause = replace(held, retry=retry, suspend=not retry, wake_at=wake_at, turn_us=turn_us)
            self.tasks[at] = await self.store.append(pause)
            if wake_at:
                self.clock.forward(60)
                self.tasks[at] = await self.store.append(Append(task=record.ref, guard=Asleep(), wake=True))
        self.since[record.ref] = self.clock()


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
            assert (await store.hourly_usage(query)).hours == expected, query

    @pytest.mark.parametrize("seed", range(5))
    async def test_figures_and_times_equal_a_recount_of_the_log(self, store: Store, clock: Clock, seed: int) -> None:
        history = History(store, clock, random.Random(seed))
        first = hour_of(clock())
        await history.run(120)
        usage = await store.hourly_usage(HourlyUsageQuery(first))
        for agent in ("a", "b"):
            outcomes: Counter[int] = Counter()
            own = [task.record.ref for task in history.tasks if task.record.agent == agent]
            for ref in own:
                events = await store.events(ref, 0)
                outcomes[events[-1].state] += 1
            hours = [row.figures for row in usage.hours if row.agent == agent]
            found = DailyFigures(*map(sum, zip(*hours, strict=True)))
            assert (found.begun, found.completed, found.failed) == (
                len(own), outcomes[states.COMPLETED], outcomes[states.FAILED],
            )  # fmt: skip
            assert found.turn_us == sum(history.turns[agent])
            for sign, times in ((1, history.turns[agent]), (-1, history.queue[agent])):
                buckets = [row for row in usage.times if row.agent == agent and row.bucket * sign > 0]
                assert (sum(row.times for row in buckets), sum(row.time_us for row in buckets)) == (
                    len(times), sum(times),
                )  # fmt: skip
                summary, ordered = summarize(buckets), sorted(times)
                for share, quantile in ((50, summary.p50), (95, summary.p95)):
                    expected = ordered[math.ceil(share * len(times) / 100) - 1]
                    assert abs(quantile - expected) <= 0.05 * expected
                    assert quantile <= ordered[-1]

    async def test_times_are_kept_by_scope_and_agent_for_some_hours(self, store: Store, clock: Clock) -> None:
        first = hour_of(clock())
        for owner, us in ((OWNER, 11_000_000), (OTHER_PRINCIPAL, 500), (OTHER_SCOPE, 7)):
            task = await store.append(created(new_ref(owner), claim=SESSION))
            await store.append(ended(task, states.COMPLETED, turn_us=us))
        erased = TaskSelection(principal=OWNER.principal)
        await store.erasures.erase(erased)

        async def turns(**fields: Any) -> list[tuple[int, int]]:
            rows = (await store.hourly_usage(HourlyUsageQuery(first, **fields))).times
            return [(row.times, row.time_us) for row in rows if row.bucket > 0]

        assert await turns() == [(1, 7), (1, 500), (1, 11_000_000)]
        assert await turns(scopes=frozenset({"default"})) == [(1, 500), (1, 11_000_000)]
        assert await turns(agents=frozenset({"other"})) == []
        assert [row.group for row in await rows_by(store, "principal")] == [("",), ("other",)]
        clock.forward(KEPT_HOURS * HOUR)
        await store.compact()
        assert await turns() == []
        assert (await total(store)).completed == 3

    async def test_hours_are_merged_into_their_days(self, store: Store, clock: Clock) -> None:
        first = hour_of(clock())
        for _ in range(KEPT_HOURS + 10):
            await store.append(created(new_ref()))
            clock.forward(HOUR)
        by_day = await rows_by(store, *ALL)
        assert sum(row.figures.begun for row in by_day) == KEPT_HOURS + 10
        await store.compact()
        hours = [row.hour for row in (await store.hourly_usage(HourlyUsageQuery(0))).hours]
        assert hours == list(range(first + 11, first + KEPT_HOURS + 10))
        assert await rows_by(store, *ALL) == by_day
        clock.forward(20 * HOUR)
        await store.compact()  # adds hours to days that have figures
        assert len((await store.hourly_usage(HourlyUsageQuery(0))).hours) == len(hours) - 20
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
