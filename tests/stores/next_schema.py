"""Simulates the next release: the same schema with additions wherever a migration may add something."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Migrations = list[tuple[int, str]]


def with_next_migration(
    steps: Iterable[tuple[int, str]], tables: Sequence[str], *, since: int | None = None
) -> Migrations:
    """These migrations, and one that adds a column to each table, a table and an index.

    since: the oldest schema whose releases can use the result, as the migration declares it; by default the last of
    `steps`.
    """
    known = list(steps)
    last = max(number for number, _ in known)
    return [*known, (last + 1, next_migration(tables, last if since is None else since))]


def next_migration(tables: Sequence[str], since: int) -> str:
    """The added migration, for either store."""
    added = [f"ALTER TABLE {table} ADD COLUMN to_come INTEGER NOT NULL DEFAULT 7;" for table in tables]
    statements = [
        "CREATE TABLE things_to_come (thing TEXT PRIMARY KEY);",
        "CREATE INDEX tasks_to_come ON tasks (to_come);",
    ]
    return "\n".join([f"-- since {since}", *added, *statements])
