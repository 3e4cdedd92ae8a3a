"""A release to come: the same schema with more in it, everywhere where a migration may add something unasked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Migrations = list[tuple[int, str]]


def with_next_migration(
    steps: Iterable[tuple[int, str]], tables: Sequence[str], *, since: int | None = None
) -> Migrations:
    """These migrations and one that adds a column to each table, a table and an index, and says so.

    `since`: the oldest schema whose programs run on it, by its own word; that of the last of
    `steps` by default.
    """
    known = list(steps)
    last = max(number for number, _ in known)
    return [*known, (last + 1, next_migration(tables, last if since is None else since))]


def next_migration(tables: Sequence[str], since: int) -> str:
    """That migration, for either store."""
    added = [f"ALTER TABLE {table} ADD COLUMN to_come INTEGER NOT NULL DEFAULT 7;" for table in tables]
    made = ["CREATE TABLE things_to_come (thing TEXT PRIMARY KEY);", "CREATE INDEX tasks_to_come ON tasks (to_come);"]
    return "\n".join([f"-- since {since}", *added, *made])
