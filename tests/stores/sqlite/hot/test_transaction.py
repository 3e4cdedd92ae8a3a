"""One batch of appends: few statements, and every change sees those before it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.core.task import states
from dragoman.core.task.log import Appended
from dragoman.stores.sqlite.hot.figures import (
    SqliteArtifactGrowth,
    SqliteDailyFigures,
    SqliteQuotaCounters,
    SqliteTotals,
)
from dragoman.stores.sqlite.hot.transaction import SqliteTransaction
from dragoman.stores.sqlite.schema import connect, migrate
from dragoman.testing.fixtures import artifact, by_runner, created, new_ref, status


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = connect(tmp_path / "tasks.db")
    migrate(connection)
    yield connection
    connection.close()


def begin(connection: sqlite3.Connection) -> SqliteTransaction:
    observers = (SqliteArtifactGrowth(), SqliteQuotaCounters(), SqliteTotals(), SqliteDailyFigures())
    return SqliteTransaction(connection, lambda: 1000, {}, observers)


def claimed_tasks(connection: sqlite3.Connection, number: int) -> list[Appended]:
    transaction, changes = begin(connection), [created(new_ref(), claim=1) for _ in range(number)]
    transaction.load_records(changes)
    tasks = [transaction.apply(change) for change in changes]
    transaction.flush()
    return tasks


def test_a_batch_has_one_statement_for_each_table(connection: sqlite3.Connection) -> None:
    tasks = claimed_tasks(connection, 32)
    sent: list[str] = []
    connection.set_trace_callback(sent.append)
    ends = [by_runner(task, artifact("out", "text"), status(states.COMPLETED), end=True) for task in tasks]
    transaction = begin(connection)
    transaction.load_records(ends)
    for end in ends:
        transaction.apply(end)
    transaction.flush()
    # The owner's number, the records; tasks, log, artifacts, chunks; known keys of the day, daily usage.
    assert len(sent) == 8


def test_new_and_changed_tasks_are_written_by_one_statement(connection: sqlite3.Connection) -> None:
    [old] = claimed_tasks(connection, 1)
    columns = "SELECT agent, created, metadata, agent_state, last_sequence, session FROM tasks WHERE task = ?"
    before = connection.execute(columns, (old.record.ref.key,)).fetchone()
    transaction, first = begin(connection), created(new_ref(), claim=1)
    new = transaction.apply(first)
    sent: list[str] = []
    connection.set_trace_callback(lambda sql: sent.append(sql) if "INTO tasks" in sql else None)
    for task in (old, new):
        transaction.apply(by_runner(task, status(states.COMPLETED), end=True))
    transaction.flush()
    assert len(sent) == 1
    for task in (old, new):  # an update changes no column that only the creation writes
        assert connection.execute(columns, (task.record.ref.key,)).fetchone() == (*before[:4], 2, 0)


def test_a_job_in_a_batch_costs_one_more_read_of_the_records(connection: sqlite3.Connection) -> None:
    tasks = claimed_tasks(connection, 32)
    sent: list[str] = []
    changes = [by_runner(task, status(states.WORKING)) for task in tasks]
    transaction = begin(connection)
    transaction.load_records(changes)
    connection.set_trace_callback(lambda sql: sent.append(sql) if "FROM wanted" in sql else None)
    for change in changes[:16]:
        transaction.apply(change)
    transaction.run(lambda connection: connection.execute("UPDATE tasks SET attempt = 7"))
    assert {transaction.apply(by_runner(task, status(states.WORKING))).record.attempt for task in tasks[16:]} == {7}
    assert len(sent) == 1


def test_an_artifact_of_the_first_events_is_replaced_in_the_same_append(connection: sqlite3.Connection) -> None:
    (task,) = claimed_tasks(connection, 1)
    transaction = begin(connection)
    change = by_runner(task, artifact("out", "first"), artifact("out", "second"))
    transaction.load_records([change])
    transaction.apply(change)
    transaction.flush()
    assert [b"second" in data for (data,) in connection.execute("SELECT data FROM chunks")] == [True]


def test_the_first_events_of_a_task_may_replace_an_artifact_of_their_own(connection: sqlite3.Connection) -> None:
    """Also after another replacement, which writes what is pending in the middle of the append."""
    [task] = claimed_tasks(connection, 1)
    transaction = begin(connection)
    first = by_runner(
        task,
        artifact("notes", "old", append=True),
        artifact("out", "old"),
        artifact("out", "new"),
        artifact("notes", "new"),
    )
    transaction.load_records([first])
    transaction.apply(first)
    transaction.flush()
    chunks = connection.execute("SELECT artifact, data FROM chunks ORDER BY artifact, sequence").fetchall()
    assert [name for name, _ in chunks] == ["notes", "out"]
    assert all(b"new" in bytes(data) for _, data in chunks)
