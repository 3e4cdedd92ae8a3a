"""Rows of `tasks` in SQLite, which has no booleans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dragoman.core.names import Owner
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.stores.shared.rows import RECORD_COLUMNS, qualified

TABLE_RECORD_COLUMNS: Final = qualified(RECORD_COLUMNS, "t")
"""RECORD_COLUMNS of `tasks t`."""


def record_from_row(ref: TaskRef, row: Sequence[Any]) -> TaskRecord:
    """The record in a row that begins with RECORD_COLUMNS."""
    record = TaskRecord(ref, *row[:21])
    record.principal = record.principal or ref.owner.principal
    record.ready, record.visible = bool(record.ready), bool(record.visible)
    record.has_live_push, record.alias = bool(record.has_live_push), bool(record.alias)
    return record


def records_with_owners(rows: Iterable[Sequence[Any]]) -> list[TaskRecord]:
    """The records in rows of scope, principal, key and RECORD_COLUMNS."""
    return [record_from_row(TaskRef(Owner(row[0], row[1]), row[2]), row[3:]) for row in rows]
