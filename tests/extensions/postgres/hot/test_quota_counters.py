"""Quota counters of several processes: exact, and the last free capacity is given once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.extensions.postgres.two_stores import Stores, all_of
from tests.postgres import execute

from dragoman.core.limits.admission import QuotaExceeded
from dragoman.core.limits.quotas import Quota
from dragoman.core.task import states
from dragoman.core.task.log import (
    Append,
    Appended,
    IncomingMessage,
)
from dragoman.core.task.maintenance import TaskSelection
from dragoman.testing.fixtures import (
    by_runner,
    cancel,
    created,
    file_message,
    follow_up,
    new_ref,
    status,
)

pytestmark = pytest.mark.long


async def test_the_last_free_capacity_is_given_once(stores: Stores) -> None:
    quota = Quota(live_tasks=20)
    results = await all_of(stores, [replace(created(new_ref()), quota=quota) for _ in range(60)])
    assert sum(isinstance(result, Appended) for result in results) == 20
    assert sum(isinstance(result, QuotaExceeded) for result in results) == 40


async def test_bytes_delivered_in_one_process_make_room_in_another(stores: Stores) -> None:
    quota = Quota(queued_bytes=15_000)
    big = created(new_ref(), text="x" * 10_000)
    first = await stores[0].append(replace(big, quota=quota, claim_session=7))
    with pytest.raises(QuotaExceeded):
        await stores[1].append(replace(created(new_ref()), quota=quota))
    await stores[1].append(by_runner(first, status(states.WORKING)))
    await stores[0].append(replace(created(new_ref()), quota=quota))


async def test_counters_are_exact_across_processes(stores: Stores, postgres_url: str) -> None:
    """After all that can happen to tasks, the counters agree with the tables."""
    created_tasks = await all_of(stores, [created(new_ref(), claim=7) for _ in range(40)])
    heads = [result for result in created_tasks if isinstance(result, Appended)]
    changes: list[Append] = []
    for number, task in enumerate(heads):
        ref = task.record.ref
        changes += [
            [follow_up(ref, "more")],
            [by_runner(task, status(states.COMPLETED), end=True)],
            [by_runner(task, status(states.WORKING)), follow_up(ref, "again")],
            [cancel(ref)],
            [Append(task=ref, guard=by_runner(task).guard, retry=True)],
            [follow_up(ref, "x"), by_runner(task, status(states.INPUT_REQUIRED), last_delivered=2, end=True)],
        ][number % 6]
    await all_of(stores, changes)
    await stores[1].erasures.erase(TaskSelection(task=heads[0].record.id))
    hidden = await stores[0].append(created(new_ref(), claim=7, visible=False))
    await stores[1].append(replace(by_runner(hidden), discard=True))
    large = IncomingMessage(file_message("f", b"x" * 300_000), sender="guest")
    await stores[0].append(replace(created(new_ref()), message=large))
    live = "SELECT principal, agent, count(*) FROM tasks WHERE state NOT IN (3, 4, 5, 7) GROUP BY 1, 2"
    queued = """
        SELECT coalesce(nullif(m.sender, ''), o.principal), t.agent, sum(m.size)
        FROM tasks t JOIN owners o USING (owner) JOIN messages m USING (owner, task)
        WHERE m.number > t.last_delivered AND m.size > 0 AND t.state NOT IN (3, 4, 5, 7) GROUP BY 1, 2"""
    seen = "SELECT owner, agent, state, count(*) FROM tasks WHERE visible GROUP BY 1, 2, 3"
    for counted, real in (
        ("SELECT principal, agent, sum(live) FROM quota_counters GROUP BY 1, 2 HAVING sum(live) <> 0", live),
        ("SELECT principal, agent, sum(queued) FROM quota_counters GROUP BY 1, 2 HAVING sum(queued) <> 0", queued),
        ("SELECT owner, agent, state, sum(tasks) FROM totals GROUP BY 1, 2, 3 HAVING sum(tasks) <> 0", seen),
    ):
        found = [sorted(map(tuple, await execute(postgres_url, sql))) for sql in (counted, real)]
        assert found[0] == found[1]
        assert found[0]
    (slots,) = await execute(postgres_url, "SELECT count(DISTINCT slot) FROM totals")
    assert slots[0] == len({store._writer.counter_slot for store in stores})
