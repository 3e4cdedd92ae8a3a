"""Figures of commits: quota counters agree with the tables, and growth is counted for a limited number of tasks."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from dragoman.core.limits.admission import QuotaExceeded
from dragoman.core.limits.quotas import Quota
from dragoman.core.task import states
from dragoman.core.task.log import Append
from dragoman.stores.shared.errors import StoreFault
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.hot import figures
from dragoman.testing.contracts.store_machine import StoreMachine
from dragoman.testing.contracts.store_sessions import ALICE, BOB, shared_task
from dragoman.testing.fixtures import OWNER, Clock, by_runner, cancel, created, new_ref, status

PLENTY = Quota(live_tasks=10**9, queued_bytes=10**12)


class Counted(StoreMachine):
    """Counts every message; after every write memory, tables and model agree."""

    def open_store(self, folder: Path, clock: Clock) -> SqliteStore:
        return open_store(folder / "tasks.db", clock=clock)

    def _append(self, change: Append) -> None:
        super()._append(replace(change, quota=PLENTY) if change.message is not None else change)

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "store") or self.pending:
            return
        assert isinstance(self.store, SqliteStore)
        known = self.store.writer.committer.quota_counters.loads
        if has := known.get(OWNER.principal):
            with sqlite3.connect(Path(self.folder.name) / "tasks.db") as connection:
                assert figures.read_load(connection, OWNER.principal) == has
            connection.close()
            live = Counter(task.agent for task in self.model.tasks.values() if task.state not in states.TERMINAL)
            assert has.live_tasks == live


TestCounted = Counted.TestCase
TestCounted.settings = settings(
    max_examples=100 if os.environ.get("HYPOTHESIS_PROFILE") else 10,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


async def test_a_reopened_store_has_its_quota_counters(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    for _ in range(3):
        await store.append(created(new_ref(), text="x" * 500))
    await store.close()
    store = open_store(tmp_path / "tasks.db")
    try:
        with pytest.raises(QuotaExceeded, match="over") as caught:
            await store.append(replace(created(new_ref()), quota=Quota(live_tasks=3)))
        assert caught.value.current == 3
        with pytest.raises(QuotaExceeded) as caught:
            await store.append(replace(created(new_ref()), quota=Quota(queued_bytes=3000)))
        assert 3 * 1000 < caught.value.current < 3 * 1500
    finally:
        await store.close()


async def test_tasks_among_those_of_others_count_against_their_creator(store: SqliteStore, tmp_path: Path) -> None:
    mine = [await store.append(shared_task(ALICE)) for _ in range(2)]
    theirs = [await store.append(shared_task(BOB)) for _ in range(3)]
    await store.append(created(new_ref(BOB)))
    await store.append(cancel(theirs[0].record.ref))
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        has = {owner.principal: figures.read_load(connection, owner.principal) for owner in (ALICE, BOB)}
    connection.close()
    assert (has["alice"].live_tasks, has["bob"].live_tasks) == ({"echo": 2}, {"echo": 3})
    assert has["alice"].queued_bytes == 2 * has["bob"].queued_bytes // 3
    assert mine[0].record.ready


async def test_a_rolled_back_batch_is_not_counted(store: SqliteStore) -> None:
    quota = Quota(live_tasks=2)
    await store.append(replace(created(new_ref()), quota=quota))
    bad = created(new_ref(), agent=None)  # type: ignore[arg-type]  # NOT NULL: no guard foresees it
    good = replace(created(new_ref()), quota=quota)
    futures = [store.append(good), store.append(bad)]
    await futures[0]
    with pytest.raises(StoreFault):
        await futures[1]
    with pytest.raises(QuotaExceeded):
        await store.append(replace(created(new_ref()), quota=quota))


async def test_principals_without_a_quota_are_not_counted(store: SqliteStore) -> None:
    claimed = await store.append(created(new_ref(), claim=7))
    await store.append(by_runner(claimed, status(states.WORKING)))
    counters = store.writer.committer.quota_counters
    assert (counters.loads, counters.unread) == ({}, {})
