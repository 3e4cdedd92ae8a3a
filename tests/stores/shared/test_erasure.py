"""Selection of tasks by the indexes of SQLite, limits of one step of an erasure, and receipts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.stores.shared import erasure
from dragoman.stores.shared.erasure import count_fitting_rows, receipt_from_row
from dragoman.stores.sqlite import SqliteStore
from dragoman.stores.sqlite.cold.erasure import SELECTION
from dragoman.stores.sqlite.hot import figures
from dragoman.stores.sqlite.queries import run_query
from dragoman.testing.fixtures import OWNER, Clock, finished


async def test_selection_by_age_uses_an_index(store: SqliteStore, path: Path, clock: Clock) -> None:
    await finished(store)
    await store.writer.submit(figures.list_tasks)
    connection = sqlite3.connect(path)
    for selection, index in (
        (TaskSelection(older_than=1), "tasks_inactive"),
        (TaskSelection(context="context"), "tasks_by_context"),
        (TaskSelection(principal=OWNER.principal), "PRIMARY KEY"),
    ):
        place = run_query(connection, erasure.task_ranges(SELECTION, selection, clock.now))[-1]
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        cursor = (clock.now, 1, b"") if place.order == erasure.BY_TIME else (1, b"")
        run_query(connection, erasure.read_page(SELECTION, place, cursor))
        connection.set_trace_callback(None)
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statements[-1]}"))
        assert f"SEARCH t USING {'PRIMARY KEY' if index == 'PRIMARY KEY' else f'INDEX {index}'}" in plan.replace(
            "COVERING ", ""
        )
        assert "TEMP B-TREE" not in plan or index == "tasks_by_context"
    connection.close()


@pytest.mark.parametrize(
    ("sizes", "limit", "result"),
    [
        ([], 10, (0, 0, 0)),
        ([50], 10, (1, 2, 50)),  # a row larger than the limit is deleted alone
        ([4, 4, 4, 4], 10, (3, 6, 12)),
        ([5, 5, 5], 10, (2, 4, 10)),
        ([1, 1], 10, (2, 4, 2)),
    ],
)
def test_a_step_ends_with_the_row_that_reaches_its_limit(
    sizes: list[int], limit: int, result: tuple[int, int, int]
) -> None:
    assert count_fitting_rows([(2, size) for size in sizes], limit) == result


def test_a_receipt_is_read_with_its_six_counts() -> None:
    receipt = receipt_from_row((3, "purge", "context", 10, 20, 1, 2, 3, 4, 5, 6, "digest"))
    assert receipt.counts == ErasureCounts(1, 2, 3, 4, 5, 6)
    assert (receipt.number, receipt.began, receipt.ended, receipt.digest) == (3, 10, 20, "digest")
