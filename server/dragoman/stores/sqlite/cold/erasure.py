"""Erases tasks from SQLite, in the order of `stores.shared.erasure`.

What is deleted is overwritten with zeros, not only unlinked.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from dragoman.core.task.log import TaskRecord
from dragoman.core.task.maintenance import ErasureCounts, TaskSelection
from dragoman.stores.shared.erasure import (
    Eraser,
    SelectionSql,
    add_to_receipt,
    delete_context_or_principal,
    delete_empty_contexts,
    measure_blobs,
)
from dragoman.stores.shared.queries import select
from dragoman.stores.shared.rows import record_from_row
from dragoman.stores.sqlite.cold import daily_usage, task_tables
from dragoman.stores.sqlite.hot.figures import ADD_TO_TOTALS, list_tasks
from dragoman.stores.sqlite.hot.transaction import SELECT_RECORD
from dragoman.stores.sqlite.hot.writer import SqliteWriter
from dragoman.stores.sqlite.queries import Read, SqliteQueryRunner, overwriting_deleted_rows, run_query
from dragoman.stores.sqlite.reads import owner_number

# SQLite would rather save the sorting than the search, so indexes are named.
SELECTION: Final = SelectionSql(
    by_id="SELECT t.owner, t.task FROM owners o CROSS JOIN tasks t ON t.owner = o.owner AND t.task = ?2"
    " UNION SELECT owner, task FROM tasks WHERE alias AND id = ?1",
    of_context=(("t.listed = 0", "tasks_unlisted"), ("t.listed", "tasks_by_context")),
    blob_size="b.size",
    inactive="state > 2 AND listed",
    in_context="listed",
    inactive_index="tasks_inactive",
    join="CROSS JOIN",
)

_INSERT_RECEIPT: Final = "INSERT INTO receipts (reason, selection, began) VALUES (?, ?, ?)"
_INSERT_QUEUED_TASK: Final = "INSERT INTO erasure_queue (receipt, id, owner, task) VALUES (?, ?, ?, ?)"
_SELECT_UNFINISHED: Final = (
    "SELECT receipt FROM receipts WHERE digest = '' UNION SELECT receipt FROM erasure_queue ORDER BY 1"
)


class SqliteEraser(Eraser):
    """Reads on the readers, writes as low-priority work of the writer."""

    def __init__(
        self,
        read: Read,
        writer: SqliteWriter,
        clock: Callable[[], int],
        clear_caches: Callable[[], None],
        after_erasure: Callable[[], Awaitable[None]],
    ) -> None:
        """clear_caches: called when tasks have disappeared."""
        runner = SqliteQueryRunner(read, writer.submit, clock)
        runner.secure_delete = True
        super().__init__(runner, SELECTION, after_erasure)
        self._writer = writer
        self._clear_caches = clear_caches

    async def _delete_task_records(
        self, number: int, selection: TaskSelection, records: list[TaskRecord], now: int, reason: str
    ) -> tuple[int, list[TaskRecord]]:
        def delete(connection: sqlite3.Connection) -> tuple[int, list[TaskRecord]]:
            with overwriting_deleted_rows(connection):
                return self._delete(connection, number, selection, records, now, reason)

        result: tuple[int, list[TaskRecord]] = await self._writer.submit(delete, low_priority=True)
        if result[1]:
            self._clear_caches()
        return result

    def _delete(
        self,
        connection: sqlite3.Connection,
        number: int,
        selection: TaskSelection,
        records: Iterable[TaskRecord],
        now: int,
        reason: str,
    ) -> tuple[int, list[TaskRecord]]:
        list_tasks(connection)
        erased: list[TaskRecord] = []
        totals: Counter[tuple[int, str, int]] = Counter()
        contexts: set[tuple[int, str]] = set()
        counts = ErasureCounts()
        for selected in records:
            owner, key = owner_number(connection, selected.ref.owner), selected.ref.key
            row = connection.execute(SELECT_RECORD, (owner, key)).fetchone()
            record = record_from_row(selected.ref, row) if row else None
            if owner is None or record is None or not selection.matches(record, now):
                continue
            if not number:
                number = connection.execute(_INSERT_RECEIPT, (reason, str(selection), now)).lastrowid or 0
            counts += run_query(connection, measure_blobs(SELECTION, [record])) + ErasureCounts(tasks=1)
            connection.execute("DELETE FROM tasks WHERE owner = ? AND task = ?", (owner, key))
            connection.execute(_INSERT_QUEUED_TASK, (number, record.id, owner, key))
            task_tables.clear_task_keys(connection, owner, key)
            task_tables.delete_rows_beside_task(connection, owner, key)
            self._writer.committer.quota_counters.record_erasure(connection, owner, record)
            totals[owner, record.agent, record.state] -= record.visible
            contexts.add((owner, record.context))
            erased.append(record)
        ADD_TO_TOTALS.run(connection, [(*key, count) for key, count in totals.items() if count])
        run_query(connection, delete_empty_contexts(SELECTION, contexts))
        if erased:
            run_query(connection, add_to_receipt(number, counts))
        return number, erased

    async def _delete_context_or_principal(self, selection: TaskSelection) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            with overwriting_deleted_rows(connection):
                if selection.covers_owners:
                    daily_usage.erase_principal(connection, selection.principal, selection.scope)
                if run_query(connection, delete_context_or_principal(selection)):
                    self._writer.committer.clear_owners()

        await self._writer.submit(delete, low_priority=True)

    async def _unfinished_receipts(self) -> list[int]:
        return [row[0] for row in await self._runner.read(select, _SELECT_UNFINISHED)]
