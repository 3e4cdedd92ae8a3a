"""The store contract on SQLite, and what only SQLite does."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.core.names import Owner, task_key_of
from dragoman.core.task import states
from dragoman.stores.sqlite import SchemaTooNew, SqliteStore, claims, open_store, reads
from dragoman.stores.sqlite.hot import checkpoint, writer
from dragoman.testing.contracts.store_erasure import StoreErasure
from dragoman.testing.contracts.store_pushes import StorePushes
from dragoman.testing.contracts.store_reads import StoreReads
from dragoman.testing.contracts.store_sessions import StoreSessions, StoreSharing
from dragoman.testing.contracts.store_tables import (
    StoreApiKeys,
    StoreAudit,
    StoreKeyValues,
    StoreUpstreams,
    StoreWorkers,
)
from dragoman.testing.contracts.store_usage import StoreAdmission, StoreUsage
from dragoman.testing.contracts.store_writes import StoreCancels, StoreWrites
from dragoman.testing.fixtures import (
    OWNER,
    Clock,
    artifact,
    by_runner,
    chunk,
    created,
    finished,
    follow_up,
    new_ref,
    running,
)


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = open_store(tmp_path / "tasks.db", clock=clock)
    yield store
    await store.close()


class TestWrites(StoreWrites):
    pass


class TestSessions(StoreSessions):
    """Sessions of the contract."""


class TestReads(StoreReads):
    pass


class TestErasure(StoreErasure):
    pass


class TestSharing(StoreSharing):
    pass


class TestApiKeys(StoreApiKeys):
    pass


class TestKeyValues(StoreKeyValues):
    pass


class TestCancels(StoreCancels):
    pass


class TestAudit(StoreAudit):
    pass


class TestWorkers(StoreWorkers):
    pass


class TestUpstreams(StoreUpstreams):
    pass


class TestPushes(StorePushes):
    pass


class TestAdmission(StoreAdmission):
    pass


class TestUsage(StoreUsage):
    pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rows_of(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return count


# Batches -----------------------------------------------------------------------------------------------------------


async def test_an_item_the_database_refuses_fails_alone(store: SqliteStore, tmp_path: Path) -> None:
    good = [created(new_ref()) for _ in range(49)]
    bad = created(new_ref(), agent=None)  # type: ignore[arg-type]  # NOT NULL: no guard foresees it
    changes = [*good[:20], bad, *good[20:]]
    results = await asyncio.gather(*map(store.append, changes), return_exceptions=True)
    failed = [number for number, result in enumerate(results) if isinstance(result, BaseException)]
    assert failed == [20]
    assert isinstance(results[20], sqlite3.IntegrityError | TypeError | AttributeError)
    assert rows_of(tmp_path / "tasks.db", "tasks") == 49


async def test_what_waits_is_committed_together(store: SqliteStore) -> None:
    commits: list[str] = []
    writer = store._writer
    writer._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    await asyncio.gather(*(store.append(created(new_ref())) for _ in range(200)))
    assert len(commits) < 20


async def test_a_waiter_that_goes_away_stops_no_write(store: SqliteStore) -> None:
    change = created(new_ref())
    store.append(change).cancel()
    await store.append(created(new_ref()))  # committed after it
    assert await store.read(change.task) is not None


async def test_closing_twice_is_fine_and_writing_after_it_is_not(tmp_path: Path) -> None:
    store = open_store(tmp_path / "tasks.db")
    await store.close()
    await store.close()
    with pytest.raises(RuntimeError, match="closed"):
        await store.append(created(new_ref()))


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


async def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    await open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'oldest'")
    connection.close()
    with pytest.raises(SchemaTooNew, match="99"):
        open_store(path)


async def test_the_write_ahead_log_stays_bounded(store: SqliteStore, tmp_path: Path) -> None:
    for _ in range(30):
        await asyncio.gather(*(store.append(created(new_ref(), text="x" * 2000)) for _ in range(50)))
    store._checkpointer.close()
    wal = tmp_path / "tasks.db-wal"
    assert wal.stat().st_size < 64 * 1024 * 1024


async def test_what_was_appended_before_the_store_closes_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_TURN_SECONDS", 0.0)  # a loop that is never idle, and gathers on
    monkeypatch.setattr(writer, "MAX_HOLD_SECONDS", 1000.0)
    store = open_store(tmp_path / "tasks.db")
    changes = [store.append(created(new_ref())) for _ in range(3)]
    await store.close()
    assert len(await asyncio.gather(*changes)) == rows_of(tmp_path / "tasks.db", "tasks") == 3


async def test_the_write_ahead_log_begins_anew_in_the_room_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "INITIAL_COMMIT_INTERVAL", 16)
    monkeypatch.setattr(checkpoint, "TARGET_WAL_PAGES", 200)
    store = open_store(tmp_path / "tasks.db")
    wal = tmp_path / "tasks.db-wal"

    def look() -> tuple[int, int]:
        """How often the log was restarted (from its header), and its size."""
        return int.from_bytes(wal.read_bytes()[12:16], "big"), wal.stat().st_size

    await running(store)
    first = look()
    found = [first]
    while found[-1][0] < first[0] + 3:  # the pytest timeout ends an endless wait
        for _ in range(50):  # a busy writer: the concurrent checkpoint never catches up
            await store.append(created(new_ref()))
        found.append(look())
    assert [size for _, size in found] == sorted(size for _, size in found)
    await store.close()


async def test_the_file_grows_by_the_event_not_by_the_task(store: SqliteStore, tmp_path: Path) -> None:
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
    assert reads.read(connection, head.ref, history, True) is not None
    connection.close()
    return steps


async def test_one_message_of_ten_thousand_costs_what_one_of_ten_does(store: SqliteStore, tmp_path: Path) -> None:
    costs = []
    for size in (10, 10_000):
        claimed = await running(store)
        await asyncio.gather(*(store.append(follow_up(claimed.record.ref, str(n))) for n in range(size - 1)))
        costs.append(await steps_of_reading(tmp_path / "tasks.db", claimed.record.id, history=1))
    assert costs[1] <= costs[0] * 1.1


async def test_an_append_costs_the_same_whatever_the_task_holds(store: SqliteStore) -> None:
    claimed = await running(store)
    connection, costs = store._writer._connection, []
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


async def test_who_is_next_costs_the_same_however_many_wait(store: SqliteStore, tmp_path: Path) -> None:
    costs = []
    for more in (20, 2000):
        owners = [Owner("default", name) for name in ("alice", "alice", "bob", "carol")]
        await asyncio.gather(*(store.append(created(new_ref(owners[n % 4]))) for n in range(more)))
        connection, steps = sqlite3.connect(tmp_path / "tasks.db"), itertools.count()
        connection.set_progress_handler(lambda steps=steps: next(steps) < 0, 1)  # type: ignore[misc]  # it goes on
        heads = claims.waiting_tasks(connection, ["echo"], 2, "alice")
        connection.close()
        assert [head.principal for head in heads] == ["bob", "carol"]
        costs.append(next(steps))
    assert costs[1] <= costs[0] * 1.1


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
            kept = {key.hex(): last for key, last in connection.execute("SELECT task, last FROM tasks")}
            states_kept = {key.hex(): state for key, state in connection.execute("SELECT task, state FROM tasks")}
            ok = connection.execute("PRAGMA integrity_check").fetchone()[0]
        connection.close()
        assert ok == "ok"
        assert {key for key, last in acknowledged.items() if kept.get(key, 0) < last} == set()
        ended = {key for key, last in acknowledged.items() if last == 2}
        assert {states_kept[key] for key in ended} == {states.COMPLETED}
