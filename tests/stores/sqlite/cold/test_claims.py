"""Cost of selecting the next waiting tasks."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from pathlib import Path

from dragoman.core.names import Owner
from dragoman.stores.sqlite import SqliteStore
from dragoman.stores.sqlite.cold import claims
from dragoman.testing.fixtures import (
    created,
    new_ref,
)


async def test_selecting_the_next_tasks_costs_the_same_for_any_backlog(store: SqliteStore, tmp_path: Path) -> None:
    costs = []
    for more in (20, 2000):
        owners = [Owner("default", name) for name in ("alice", "alice", "bob", "carol")]
        await asyncio.gather(*(store.append(created(new_ref(owners[n % 4]))) for n in range(more)))
        connection, steps = sqlite3.connect(tmp_path / "tasks.db"), itertools.count()
        connection.set_progress_handler(lambda steps=steps: next(steps) < 0, 1)  # type: ignore[misc]
        heads = claims.ready_tasks(connection, ["echo"], 2, "alice")
        connection.close()
        assert [head.principal for head in heads] == ["bob", "carol"]
        costs.append(next(steps))
    assert costs[1] <= costs[0] * 1.1
