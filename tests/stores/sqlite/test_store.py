"""The store contract on SQLite, and tests of the file, of costs and of crashes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from tests.stores.store_suite import *  # noqa: F403
from tests.stores.store_suite import StoreBatches

from dragoman.core.names import task_key_of
from dragoman.core.task import states
from dragoman.core.task.contents import unlimited_budget
from dragoman.stores.shared.errors import StoreFault
from dragoman.stores.sqlite import SchemaTooNew, SqliteStore, open_store, reads
from dragoman.testing.fixtures import (
    OWNER,
    artifact,
    by_runner,
    chunk,
    created,
    finished,
    follow_up,
    new_ref,
    running,
)


def rows_of(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return count


# Batches --------------------------------------------------------------------------------------------------------------


class TestBatches(StoreBatches):
    null_errors = (StoreFault, TypeError, AttributeError)


async def test_waiting_changes_are_committed_together(store: SqliteStore) -> None:
    commits: list[str] = []
    writer = store.writer
    writer.connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    await asyncio.gather(*(store.append(created(new_ref())) for _ in range(200)))
    assert len(commits) < 20


# The file ----------------------------------------------------------------------------------------------------------


async def test_a_reopened_store_has_its_tasks_and_its_epoch(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    epochs = set()
    for _ in range(2):
        store = open_store(path)
        await finished(store)
        await store.close()
        with sqlite3.connect(path) as connection:
            epochs.add(connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0])
        connection.close()
    assert rows_of(path, "tasks") == 2
    assert len(epochs) == 1


async def test_a_store_of_a_newer_version_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'oldest'")
    connection.close()
    with pytest.raises(SchemaTooNew, match="99"):
        open_store(path)


async def test_the_file_grows_per_event_not_per_task(store: SqliteStore, tmp_path: Path) -> None:
    claimed = await running(store)

    async def written(events: int) -> int:
        before = total_bytes(tmp_path / "tasks.db")
        for _ in range(events // 50):
            await store.append(by_runner(claimed, *[chunk("out", "0123456789") for _ in range(50)]))
        return total_bytes(tmp_path / "tasks.db") - before

    await written(500)
    early = await written(2000)
    await written(10_000)
    late = await written(2000)
    assert late < early * 1.5


def total_bytes(path: Path) -> int:
    """Bytes of the rows themselves, without pages and log."""
    with sqlite3.connect(path) as connection:
        sums = [
            connection.execute(f"SELECT coalesce(sum(length(data)), 0) FROM {table}").fetchone()[0]
            for table in ("log", "chunks", "messages")
        ]
    connection.close()
    return sum(sums)


async def steps_of_reading(path: Path, task_id: str, history: int) -> int:
    """Steps of SQLite's virtual machine for one GetTask."""
    key = task_key_of(task_id)
    assert key is not None
    connection = sqlite3.connect(path)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    head = reads.find(connection, OWNER, "echo", task_id)
    assert head is not None
    assert reads.read(connection, head.ref, history, True, unlimited_budget()) is not None
    connection.close()
    return steps


async def test_reading_one_message_costs_the_same_in_a_long_history(store: SqliteStore, tmp_path: Path) -> None:
    costs = []
    for size in (10, 10_000):
        claimed = await running(store)
        await asyncio.gather(*(store.append(follow_up(claimed.record.ref, str(n))) for n in range(size - 1)))
        costs.append(await steps_of_reading(tmp_path / "tasks.db", claimed.record.id, history=1))
    assert costs[1] <= costs[0] * 1.1


async def test_an_append_costs_the_same_for_a_task_of_any_size(store: SqliteStore) -> None:
    claimed = await running(store)
    connection, costs = store.writer.connection, []
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await store.append(by_runner(claimed, artifact("out", "first")))  # which marks the message as delivered
    connection.set_progress_handler(count, 1)
    for _ in range(3):
        begin = steps
        await store.append(by_runner(claimed, artifact("out", "more", append=True)))
        costs.append(steps - begin)
        await store.append(by_runner(claimed, *[artifact("out", "filling", append=True) for _ in range(3000)]))
    assert max(costs) <= min(costs) * 1.1


# Crashes -----------------------------------------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from pathlib import Path
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import by_runner, new_ref, created, status
from dragoman.core import names
from dragoman.core.task import states

async def write(store):
    while True:
        claimed = await store.append(created(names_ref(), claim=1))
        print(claimed.record.ref.key.hex(), 1, flush=True)
        done = await store.append(by_runner(claimed, status(states.COMPLETED, "done"), end=True))
        print(done.record.ref.key.hex(), 2, flush=True)

def names_ref():
    import os
    from dragoman.core.task.log import TaskRef
    return TaskRef(names.Owner("default", "anonymous"), names.make_task_key(1, os.urandom(8)))

async def main():
    store = open_store(Path(sys.argv[1]))
    await asyncio.gather(*(write(store) for _ in range(8)))

asyncio.run(main())
"""


async def test_every_acknowledged_append_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    for round_ in range(3):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        assert process.stdout is not None
        acknowledged: dict[str, int] = {}
        for _ in range(100 + 150 * round_):
            key, last = (await process.stdout.readline()).split()
            acknowledged[key.decode()] = int(last)
        process.send_signal(signal.SIGKILL)
        for line in (await process.communicate())[0].splitlines():
            if len(words := line.split()) == 2:
                acknowledged[words[0].decode()] = int(words[1])
        with sqlite3.connect(path) as connection:
            kept = {key.hex(): last for key, last in connection.execute("SELECT task, last_sequence FROM tasks")}
            states_kept = {key.hex(): state for key, state in connection.execute("SELECT task, state FROM tasks")}
            ok = connection.execute("PRAGMA integrity_check").fetchone()[0]
        connection.close()
        assert ok == "ok"
        assert {key for key, last in acknowledged.items() if kept.get(key, 0) < last} == set()
        ended = {key for key, last in acknowledged.items() if last == 2}
        assert {states_kept[key] for key in ended} == {states.COMPLETED}
