"""Selection of tasks in SQLite: the indexes it uses."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.maintenance import task_selection
from dragoman.testing.fixtures import (
    OWNER,
    Clock,
    finished,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = open_store(path, clock=clock)
    yield store
    await store.close()


async def test_selection_by_age_uses_an_index(store: SqliteStore, path: Path, clock: Clock) -> None:
    await finished(store)
    connection = sqlite3.connect(path)
    for selection, index in (
        (TaskSelection(older_than=1), "tasks_inactive"),
        (TaskSelection(context="context"), "tasks_by_context"),
        (TaskSelection(principal=OWNER.principal), "PRIMARY KEY"),
    ):
        place = task_selection.task_ranges(connection, selection, clock.now)[-1]
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        task_selection.read_page(connection, place, (clock.now, 1, b"") if place.by_time else (1, b""))
        connection.set_trace_callback(None)
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))
        assert f"SEARCH t USING {'PRIMARY KEY' if index == 'PRIMARY KEY' else f'INDEX {index}'}" in plan.replace(
            "COVERING ", ""
        )
        assert "TEMP B-TREE" not in plan or index == "tasks_by_context"
    connection.close()
