"""Selection of tasks: ranges and pages, and the indexes that SQLite uses."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.core.task.maintenance import TaskSelection
from dragoman.stores.shared import task_selection
from dragoman.stores.shared.task_selection import SELECTION_PAGE_TASKS, TaskRange
from dragoman.stores.sqlite import SqliteStore, open_store
from dragoman.stores.sqlite.cold.erasure import SELECTION
from dragoman.stores.sqlite.queries import run_query
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
        place = run_query(connection, task_selection.task_ranges(SELECTION, selection, clock.now))[-1]
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        cursor = (clock.now, 1, b"") if place.by_time else (1, b"")
        run_query(connection, task_selection.read_page(SELECTION, place, cursor))
        connection.set_trace_callback(None)
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))
        assert f"SEARCH t USING {'PRIMARY KEY' if index == 'PRIMARY KEY' else f'INDEX {index}'}" in plan.replace(
            "COVERING ", ""
        )
        assert "TEMP B-TREE" not in plan or index == "tasks_by_context"
    connection.close()


def rows(count: int) -> list[tuple[object, ...]]:
    return [(100 + n, 200 + n, "scope", "principal", b"%d" % n) for n in range(count)]


def test_only_a_full_page_has_a_next_one() -> None:
    task_range = TaskRange("t.owner = 1", ())
    assert task_range.next_cursor(rows(SELECTION_PAGE_TASKS - 1)) is None
    assert task_range.next_cursor([]) is None
    last = SELECTION_PAGE_TASKS - 1
    assert task_range.next_cursor(rows(SELECTION_PAGE_TASKS)) == (200 + last, b"%d" % last)


def test_a_cursor_has_the_columns_of_its_order() -> None:
    by_time, by_key = TaskRange("true", (), by_time=True), TaskRange("true", ())
    page, last = rows(SELECTION_PAGE_TASKS), SELECTION_PAGE_TASKS - 1
    assert (by_time.order, by_time.next_cursor(page)) == (
        "t.updated, t.owner, t.task",
        (100 + last, 200 + last, b"%d" % last),
    )
    assert by_key.order == "t.owner, t.task"
