"""What principals have, as the SQLite store counts it: in memory and from the tables it is the same."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from dragoman.core import states
from dragoman.core.admission import Overrun
from dragoman.core.log import Append
from dragoman.core.quotas import Quota
from dragoman.stores.sqlite import SqliteStore, open_store, standing
from dragoman.testing.changes import OWNER, by_runner, cancel, created, new_ref, status
from dragoman.testing.store_machine import StoreMachine
from dragoman.testing.store_sharing import GUEST, HOST, begun
from dragoman.testing.store_writes import Clock

PLENTY = Quota(live_tasks=10**9, queued_bytes=10**12)


class Counted(StoreMachine):
    """Every message is counted; after every write memory, tables and model agree."""

    def opened(self, folder: Path, clock: Clock) -> SqliteStore:
        return open_store(folder / "tasks.db", clock=clock)

    def _do(self, change: Append) -> None:
        super()._do(replace(change, quota=PLENTY) if change.message is not None else change)

    @invariant()
    def counts(self) -> None:
        if not hasattr(self, "store") or self.pending:
            return
        assert isinstance(self.store, SqliteStore)
        known = self.store._writer.counters._known
        if has := known.get(OWNER.principal):
            with sqlite3.connect(Path(self.folder.name) / "tasks.db") as connection:
                assert standing.read(connection, OWNER.principal) == has
            connection.close()
            live = Counter(task.agent for task in self.model.tasks.values() if task.state not in states.TERMINAL)
            assert has.live == live


TestCounted = Counted.TestCase
TestCounted.settings = settings(
    max_examples=100 if os.environ.get("HYPOTHESIS_PROFILE") else 10,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = open_store(tmp_path / "tasks.db")
    yield store
    await store.close()


async def test_a_store_that_is_opened_again_knows_what_there_was(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    for _ in range(3):
        await store.append(created(new_ref(), text="x" * 500))
    await store.close()
    store = open_store(tmp_path / "tasks.db")
    try:
        with pytest.raises(Overrun, match="over") as caught:
            await store.append(replace(created(new_ref()), quota=Quota(live_tasks=3)))
        assert caught.value.has == 3
        with pytest.raises(Overrun) as caught:
            await store.append(replace(created(new_ref()), quota=Quota(queued_bytes=3000)))
        assert 3 * 1000 < caught.value.has < 3 * 1500
    finally:
        await store.close()


async def test_who_makes_tasks_among_those_of_others_is_counted_apart(store: SqliteStore, tmp_path: Path) -> None:
    mine = [await store.append(begun()) for _ in range(2)]
    theirs = [await store.append(begun(by=GUEST)) for _ in range(3)]
    await store.append(begun(GUEST, by=GUEST, context="third"))
    await store.append(cancel(theirs[0].head.ref))
    with sqlite3.connect(tmp_path / "tasks.db") as connection:
        has = {owner.principal: standing.read(connection, owner.principal) for owner in (HOST, GUEST)}
    connection.close()
    assert (has["alice"].live, has["bob"].live) == ({"echo": 2}, {"echo": 3})
    assert has["alice"].queued == 2 * has["bob"].queued // 3
    assert mine[0].head.ready


async def test_what_a_batch_did_that_was_undone_is_not_counted(store: SqliteStore) -> None:
    quota = Quota(live_tasks=2)
    await store.append(replace(created(new_ref()), quota=quota))
    bad = created(new_ref(), agent=None)  # type: ignore[arg-type]  # NOT NULL: no guard foresees it
    good = replace(created(new_ref()), quota=quota)
    futures = [store.append(good), store.append(bad)]
    await futures[0]
    with pytest.raises(Exception, match=r"NOT NULL|agent"):
        await futures[1]
    with pytest.raises(Overrun):
        await store.append(replace(created(new_ref()), quota=quota))


async def test_nobody_is_counted_who_has_no_limit(store: SqliteStore) -> None:
    claimed = await store.append(created(new_ref(), claim=7))
    await store.append(by_runner(claimed, status(states.WORKING)))
    counters = store._writer.counters
    assert (counters._known, counters._unread) == ({}, {})
