"""Which releases can use which schema, and what migrations have to declare about it."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from tests.stores import next_schema

from dragoman.core.task import maintenance
from dragoman.stores.sqlite import SchemaTooNew, open_store, schema

PACKAGE = Path(__file__).parents[3] / "server" / "dragoman"
ROOT = PACKAGE / "stores"
FOLDERS = {"sqlite": ROOT / "sqlite", "postgres": PACKAGE / "extensions" / "postgres"}

KNOWN = max(number for number, _ in schema.migrations())

ONLY_ADDS = re.compile(
    r"CREATE TABLE \w+ \(.*\)( WITHOUT ROWID)?"
    r"|CREATE INDEX \w+ ON .*"
    r"|ALTER TABLE \w+ ADD COLUMN \w+ [A-Za-z]++(?! NOT NULL(?! DEFAULT)).*",
    re.DOTALL | re.ASCII,
)
"""What a migration may do while an older release uses the store."""


def migrate_to_next(path: Path, *, since: int = KNOWN) -> None:
    """Migrates as the first start of the next release does."""
    connection = schema.connect(path)
    schema.migrate(connection)
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    steps = next_schema.with_next_migration(schema.migrations(), [name for (name,) in found], since=since)
    schema.migrate(connection, steps)
    connection.close()


async def test_a_compatible_newer_schema_is_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    migrate_to_next(path)
    for _ in range(2):
        await open_store(path).close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (KNOWN + 1,)
        assert connection.execute("SELECT value FROM meta WHERE name = 'oldest'").fetchone() == (str(KNOWN),)
    connection.close()


async def test_an_incompatible_newer_schema_is_rejected_with_the_needed_release(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    migrate_to_next(path, since=KNOWN + 1)
    with pytest.raises(
        SchemaTooNew, match=f"has schema {KNOWN + 1}; .* up to {KNOWN}: start one that knows {KNOWN + 1}"
    ):
        open_store(path)


def test_a_store_without_a_minimum_schema_gets_one(tmp_path: Path) -> None:
    connection = schema.connect(tmp_path / "tasks.db")
    schema.migrate(connection)
    connection.execute("DELETE FROM meta WHERE name = 'oldest'")
    schema.migrate(connection)
    found = connection.execute("SELECT value FROM meta WHERE name = 'oldest'").fetchone()
    connection.close()
    assert found == (str(maintenance.min_schema(schema.migrations())),)


# Durability settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("synchronous", "number"), [("full", 2), ("normal", 1)])
def test_a_commit_syncs_as_configured(tmp_path: Path, synchronous: schema.Synchronous, number: int) -> None:
    connection = schema.connect(tmp_path / "tasks.db", synchronous)
    found = connection.execute("PRAGMA synchronous").fetchone(), connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    assert found == ((number,), ("wal",))


@pytest.mark.parametrize("synchronous", ["full", "normal"])
async def test_a_store_opens_with_the_configured_synchronous_setting(
    tmp_path: Path, synchronous: schema.Synchronous
) -> None:
    opened = open_store(tmp_path / "tasks.db", synchronous=synchronous)
    found = await opened.writer.submit(lambda connection: connection.execute("PRAGMA synchronous").fetchone())
    await opened.close()
    assert found == (2 if synchronous == "full" else 1,)


# Declarations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "oldest"),
    [
        ([], 0),
        ([(1, "CREATE"), (2, "DROP")], 2),
        ([(1, "CREATE"), (2, "-- since 1\nALTER")], 1),
        ([(1, "x"), (2, "-- since 1\n"), (3, "x"), (4, "-- since 3\n"), (5, "-- since 4\n")], 4),
    ],
)
def test_the_minimum_schema_is_that_of_the_most_demanding_migration(steps: list[tuple[int, str]], oldest: int) -> None:
    assert maintenance.min_schema(steps) == oldest


@pytest.mark.parametrize(
    ("version", "known", "kept", "may"),
    [(5, 5, "5", True), (6, 5, "5", True), (7, 5, "5", True), (7, 5, "6", False), (6, 5, None, False)],
)
def test_a_release_accepts_known_and_compatible_schemas(version: int, known: int, kept: str | None, may: bool) -> None:
    assert bool(maintenance.schema_problem(version, known, kept)) is not may


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_migration_declares_its_minimum_schema_and_only_adds_if_compatible(kind: str) -> None:
    for path in sorted((FOLDERS[kind] / "migrations").glob("*.sql")):
        number, script = int(path.name.split("_")[0]), path.read_text()
        if number == 1:  # the baseline: no schema is older
            continue
        assert maintenance.MIN_SCHEMA_COMMENT.match(script), (
            f"{path.name} does not begin with `-- since N`; see core/task/maintenance.py"
        )
        if maintenance.min_schema([(number, script)]) == number:
            continue
        for statement in statements(script):
            assert ONLY_ADDS.fullmatch(statement), f"{path.name} does more than add, so it needs `-- since {number}`"


@pytest.mark.parametrize("path", sorted((ROOT / "sqlite").rglob("*.py")), ids=lambda path: path.stem)
def test_every_insert_names_its_columns(path: Path) -> None:
    bare = re.findall(r'INTO (?!temp\.)(\w+)(?: (?:VALUES|SELECT)\b|")', path.read_text())
    assert bare == [], f"{path.name}: one column more in {bare}, and SQLite refuses"


@pytest.mark.parametrize(
    ("statement", "adds"),
    [
        ("CREATE TABLE a (b INTEGER)", True),
        ("CREATE TABLE a (b BLOB PRIMARY KEY) WITHOUT ROWID", True),
        ("CREATE INDEX a ON b (c) WHERE d", True),
        ("ALTER TABLE a ADD COLUMN b TEXT", True),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT ''", True),
        ("ALTER TABLE a ADD COLUMN b TEXT NOT NULL", False),
        ("CREATE UNIQUE INDEX a ON b (c)", False),
        ("DROP INDEX a", False),
        ("UPDATE a SET b = 1", False),
        ("ALTER TABLE a RENAME TO b", False),
    ],
)
def test_additive_statements_are_recognized(statement: str, adds: bool) -> None:
    assert bool(ONLY_ADDS.fullmatch(statement)) is adds


def statements(script: str) -> list[str]:
    bare = re.sub(r"--[^\n]*", "", script)
    return [" ".join(one.split()) for one in bare.split(";") if one.strip()]
