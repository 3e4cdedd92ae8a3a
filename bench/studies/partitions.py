"""Appends and retention in a PostgreSQL database that is larger than memory's caches.

`python -m bench.studies.partitions`. One server of PostgreSQL has two databases: a small one, and one that is filled
with copies of a task, some days of them with a partition each. Rounds of appends alternate between both; then retention
erases the oldest day, by its partition, and a part of the next one, task by task. `--data` keeps the filled databases.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import asyncpg
from tests.postgres import Server

from dragoman.core.names import make_task_key
from dragoman.core.task import states
from dragoman.core.task.log import TaskRef
from dragoman.core.task.maintenance import RETENTION_REASON, TaskSelection
from dragoman.extensions.postgres.maintenance import partitions
from dragoman.extensions.postgres.store import PostgresStore, open_store
from dragoman.testing import fixtures

SMALL_TASKS: Final = 10_000
FILLERS: Final = 2  # connections that fill the large database at once
ROUND_TASKS: Final = 60
RUN_SETTINGS: Final = ("shared_buffers=1GB", "max_wal_size=4GB", "autovacuum=off")
FILL_SETTINGS: Final = (*RUN_SETTINGS, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
KEYS: Final = """
CREATE TEMP TABLE keys AS SELECT ms, decode(hex, 'hex') AS task, regexp_replace(
    hex, '(.{8})(.{4})(.{4})(.{4})(.{12})', '\\1-\\2-\\3-\\4-\\5') AS id
FROM (SELECT ms, lpad(to_hex(ms), 12, '0') || '7' || left(digest, 3) || '8' || right(digest, 15) AS hex
    FROM (SELECT $1::bigint + n * 86400000::bigint / $2::bigint AS ms, md5(n::text) AS digest
        FROM generate_series(0, $2::bigint - 1) n) numbers) keys
"""


async def one_task(store: PostgresStore, payload: str) -> list[float]:
    """A task with an artifact and a text, as a turn writes it. Returns the seconds of each append."""
    ref = TaskRef(fixtures.OWNER, make_task_key(time.time_ns(), os.urandom(16)))
    times = []

    async def timed(change: Any) -> Any:
        began = time.perf_counter()
        appended = await store.append(change)
        times.append(time.perf_counter() - began)
        return appended

    claimed = await timed(fixtures.created(ref, text=payload, claim=fixtures.SESSION))
    await timed(fixtures.by_runner(claimed, fixtures.chunk("answer", payload)))
    await timed(fixtures.by_runner(claimed, fixtures.status(states.COMPLETED, payload), end=True))
    return times


async def fill_day(url: str, partition: partitions.Partition, template: bytes, tasks: int) -> None:
    """Copies the template to `tasks` tasks of a partition."""
    connection = await asyncpg.connect(url)
    try:
        first = partition.first or (partition.end or 1) - 1
        await connection.execute(KEYS.replace("$1", str(first * partitions.DAY_MS)).replace("$2", str(tasks)))
        new = {"task": "k.task", "id": "k.id", "context": "k.id", "created": "k.ms", "updated": "k.ms + 1000"}
        for table in ("tasks", "log", "messages", "artifacts", "chunks"):
            sql = "SELECT column_name FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position"
            columns = [row[0] for row in await connection.fetch(sql, table)]
            own = new if table == "tasks" else {"task": "k.task"}
            values = ", ".join(own.get(name, f"m.{name}") for name in columns)
            await connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM keys k"
                f" CROSS JOIN (SELECT * FROM {table} WHERE task = '\\x{template.hex()}') m"
            )
            await connection.execute(f"VACUUM (ANALYZE) {partition.table(table)}")
        await connection.execute(f"UPDATE totals SET tasks = tasks + {tasks} WHERE tasks > 0")
    finally:
        await connection.close()


async def fill(server: Server, days: int, tasks: int, payload: str) -> None:
    """Creates both databases and fills them, the large one with `tasks` tasks in `days` partitions."""
    server.start(*RUN_SETTINGS)
    today = time.time_ns() // 1_000_000 // partitions.DAY_MS
    templates, known = dict[str, bytes](), dict[str, list[partitions.Partition]]()
    for name, first in ("small", today), ("large", today - days):
        await server._execute(f"CREATE DATABASE {name}")
        store = await open_store(server.url(name))
        for day in range(first, today + 1):
            await partitions.split(store._database, (await store._database.read(partitions.partitions))[-1], day)
        await one_task(store, payload)
        known[name] = (await store._database.read(partitions.partitions))[-1 - max(today - first, 1) : -1]
        await store.close()
        templates[name] = await _only_key(server.url(name))
    server.stop()
    server.start(*FILL_SETTINGS)
    waiting = [("large", one, tasks // days) for one in known["large"]] + [("small", known["small"][0], SMALL_TASKS)]

    async def filler() -> None:
        while waiting:
            name, partition, number = waiting.pop()
            began = time.perf_counter()
            await fill_day(server.url(name), partition, templates[name], number)
            seconds = time.perf_counter() - began
            print(f"{name}: {number} tasks in {partition.table('tasks')}, {seconds:.0f} s", flush=True)

    await asyncio.gather(*(filler() for _ in range(FILLERS)))
    connection = await asyncpg.connect(server.url())
    await connection.execute("CHECKPOINT")
    await connection.close()
    server.stop()


async def _only_key(url: str) -> bytes:
    connection = await asyncpg.connect(url)
    try:
        return bytes(await connection.fetchval("SELECT task FROM tasks"))
    finally:
        await connection.close()


async def _value(url: str, sql: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def measure_appends(stores: dict[str, PostgresStore], rounds: int, payload: str) -> None:
    """Prints the appends of both databases, in rounds that alternate."""
    times: dict[str, list[float]] = {name: [] for name in stores}
    ratios = []
    for number in range(rounds + 1):
        medians = {}
        for name, store in sorted(stores.items(), reverse=bool(number % 2)):
            found = [seconds for _ in range(ROUND_TASKS) for seconds in await one_task(store, payload)]
            medians[name] = median(found)
            if number:  # the first one warms up
                times[name] += found
        if number:
            ratios.append(medians["large"] / medians["small"])
    for name, found in times.items():
        p99 = quantiles(found, n=100)[98]
        print(f"{name}: {len(found)} appends, p50 {median(found) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
    print(f"large/small, p50 of a round: median {median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


async def measure_retention(store: PostgresStore, url: str) -> None:
    """Prints how long the oldest day takes by its partition, and some of the next one task by task."""
    parts = [one for one in await store._database.read(partitions.partitions) if one.first]
    size = "SELECT pg_database_size(current_database())"
    dead = "SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables"
    for how in ("partition", "task by task"):
        before, dead_before = await _value(url, size), await _value(url, dead)
        end = parts.pop(0).end
        assert end is not None
        age = time.time_ns() // 1_000_000 - end * partitions.DAY_MS - 10_000
        began = time.perf_counter()
        if how == "partition":
            tasks = sum(receipt.counts.tasks for receipt in await store.erasures.resume(lambda *_, age=age: age))
        else:
            selection = TaskSelection(older_than=age, agent=fixtures.AGENT, state=states.COMPLETED)
            tasks = (await store.erasures.erase(selection, reason=RETENTION_REASON, limit=2000)).counts.tasks
        seconds = time.perf_counter() - began
        await asyncio.sleep(2)  # until PostgreSQL has counted its rows
        freed, left = before - await _value(url, size), await _value(url, dead) - dead_before
        print(f"{how}: {tasks} tasks in {seconds:.2f} s, {freed / 1e6:.0f} MB given back, {left} dead rows for vacuum")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=5_000_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--bytes", type=int, default=500, help="of each message, text and answer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--data", type=Path, help="a folder of an earlier run, or one to be created")
    options = parser.parse_args()
    payload = os.urandom(options.bytes // 2).hex()
    is_filled = options.data is not None and options.data.exists()
    server = Server(data=options.data if is_filled else None)
    if options.data is not None and not is_filled:
        server.data = server.data.rename(options.data)
    try:
        if not is_filled:
            await fill(server, options.days, options.tasks, payload)
        server.start(*RUN_SETTINGS)
        for name in ("small", "large"):
            url = server.url(name)
            print(name, await _value(url, "SELECT sum(tasks)::bigint FROM totals"), "tasks,",
                  await _value(url, "SELECT pg_database_size(current_database()) / 1000000"), "MB")  # fmt: skip
        stores = {name: await open_store(server.url(name)) for name in ("small", "large")}
        await measure_appends(stores, options.rounds, payload)
        await measure_retention(stores["large"], server.url("large"))
        for store in stores.values():
            await store.close()
    finally:
        server.remove()


if __name__ == "__main__":
    asyncio.run(main())
