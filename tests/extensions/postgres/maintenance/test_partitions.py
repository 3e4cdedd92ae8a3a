"""Partitions: when they are added, which ones a statement reads, and how retention drops them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import asyncpg
import pytest
from tests.extensions.postgres.two_stores import Stores
from tests.postgres import execute

from dragoman.core.names import make_task_key
from dragoman.core.push.configuration import PushConfig
from dragoman.core.task import states
from dragoman.core.task.cursors import TaskQuery, TaskSearch
from dragoman.core.task.log import ContextState, IdempotencyKey, TaskRecord, TaskRef
from dragoman.core.task.maintenance import RETENTION_REASON, TaskSelection, task_ids_digest
from dragoman.extensions.postgres import reads, task_tables
from dragoman.extensions.postgres.database import BEGIN_WRITE, WRITE_LOCK
from dragoman.extensions.postgres.hot import transaction
from dragoman.extensions.postgres.maintenance import partitions
from dragoman.extensions.postgres.maintenance.partitions import DAY_MS, TABLES, Partition
from dragoman.extensions.postgres.rows import PostgresBulkStatement
from dragoman.extensions.postgres.store import PostgresStore
from dragoman.testing.fixtures import AGENT, OWNER, SESSION, Clock, by_runner, chunk, created, status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

TODAY: Final = 20_000
"""A day since the epoch."""
WEEK: Final = 7 * DAY_MS
AGE: Final = 8 * DAY_MS
"""The retention age, of which a day is a small part."""


@pytest.fixture
def clock() -> Clock:
    return Clock(TODAY * DAY_MS + DAY_MS // 2)


def ref_of(day: float) -> TaskRef:
    """A new task created on a day."""
    return TaskRef(OWNER, make_task_key(round(day * DAY_MS) * 1_000_000, os.urandom(16)))


async def ended(
    store: PostgresStore, clock: Clock, day: float, state: int = states.COMPLETED, **changes: Any
) -> TaskRecord:
    """A task that was created and ended on a day. changes: of its creation."""
    before, clock.now = clock.now, round(day * DAY_MS)
    try:
        claimed = await store.append(replace(created(ref_of(day), claim=SESSION), **changes))
        return (await store.append(by_runner(claimed, chunk("a", "text"), status(state), end=True))).record
    finally:
        clock.now = before


async def split(store: PostgresStore, *days: int) -> list[Partition]:
    """Lets partitions begin at these days."""
    for day in days:
        await partitions.split(store._database, (await known(store))[-1], day)
    return await known(store)


async def known(store: PostgresStore) -> list[Partition]:
    return await store._database.read(partitions.partitions)


async def drop(store: PostgresStore, age: int = AGE) -> int:
    """How many tasks are erased together with their partitions."""
    return sum(one.counts.tasks for one in await store.erasures.resume(lambda agent, state: age))


async def is_stored(store: PostgresStore, record: TaskRecord) -> bool:
    return await store.find(OWNER, AGENT, record.id) is not None


# Adding partitions ----------------------------------------------------------------------------------------------------


async def test_a_new_store_has_one_partition_and_a_small_one_gets_no_other(store: PostgresStore, clock: Clock) -> None:
    await ended(store, clock, TODAY)
    await store.compact()
    assert await known(store) == [Partition(0, None)]


async def test_a_store_with_many_tasks_begins_a_partition_at_the_midnight_after_the_next(
    store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MIN_TASKS", 2)
    await ended(store, clock, TODAY)
    await store.compact()
    assert len(await known(store)) == 1
    await ended(store, clock, TODAY)
    for _ in range(2):
        await store.compact()
        assert await known(store) == [Partition(0, TODAY + 2), Partition(TODAY + 2, None)]
    clock.forward(86_400)  # the last one has no tasks yet
    await store.compact()
    assert len(await known(store)) == 2


async def test_a_partition_is_as_wide_as_its_part_of_the_time_that_the_store_keeps(
    store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MIN_TASKS", 1)
    await ended(store, clock, TODAY - 100)
    await split(store, TODAY - 3)
    await ended(store, clock, TODAY)
    await store.compact()
    assert (await known(store))[-1] == Partition(TODAY - 3, None), "five days, of which six are a sixteenth"
    clock.forward(86_400)
    await store.compact()
    assert (await known(store))[-1] == Partition(TODAY + 3, None)


async def test_after_a_pause_of_maintenance_tasks_are_in_the_last_partition_and_the_next_one_begins_later(
    store: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MIN_TASKS", 1)
    await split(store, TODAY - 5)
    late = [await ended(store, clock, TODAY - days) for days in (4, 1)]
    await store.compact()
    assert (await known(store))[-2:] == [Partition(TODAY - 5, TODAY + 2), Partition(TODAY + 2, None)]
    assert [await is_stored(store, record) for record in late] == [True, True]


async def test_a_dump_that_delays_a_split_past_midnight_blocks_no_new_task(
    store: PostgresStore, postgres_url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MIN_TASKS", 1)
    await ended(store, clock, TODAY)
    validate, dump = partitions._validate, await asyncpg.connect(postgres_url)

    async def begin_dump(connection: asyncpg.Connection[Any], last: Partition) -> None:
        await validate(connection, last)
        await dump.execute("BEGIN; LOCK TABLE tasks IN ACCESS SHARE MODE")

    monkeypatch.setattr(partitions, "_validate", begin_dump)
    await store.compact()
    clock.forward(86_400)
    await ended(store, clock, TODAY + 1)
    await dump.execute("COMMIT")
    await dump.close()
    monkeypatch.undo()
    await store.compact()
    assert await known(store) == [Partition(0, None)]
    await ended(store, clock, TODAY + 2)


async def test_a_key_of_the_future_delays_the_next_partition_and_leaves_no_constraint(
    store: PostgresStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await ended(store, clock, TODAY + 3)
    assert await split(store, TODAY + 1) == [Partition(0, None)]
    assert "check the clocks" in caplog.text
    await ended(store, clock, TODAY + 2)


async def test_servers_that_add_a_partition_at_the_same_time_add_one(stores: Stores, clock: Clock) -> None:
    await ended(stores[0], clock, TODAY)
    last = (await known(stores[0]))[-1]
    writes = [stores[0].append(created(ref_of(TODAY + number / 100))) for number in range(20)]
    await asyncio.gather(*(partitions.split(store._database, last, TODAY + 1) for store in stores), *writes)
    assert await known(stores[1]) == [Partition(0, TODAY + 1), Partition(TODAY + 1, None)]
    await ended(stores[0], clock, TODAY + 2)


async def test_a_partition_is_not_ended_by_a_constraint_that_another_server_has_just_replaced(
    store: PostgresStore, clock: Clock
) -> None:
    """Its rows would be checked while no other server can read."""
    last, database = (await known(store))[-1], store._database
    await database.write_exclusively(partitions._constrain, last, TODAY + 1)
    await database.write_exclusively(partitions._split, last, TODAY + 1)
    assert await known(store) == [last]


async def test_the_constraint_of_a_server_that_was_killed_goes_if_no_partition_is_due(
    store: PostgresStore, clock: Clock
) -> None:
    last = (await known(store))[-1]
    await store._database.write_exclusively(partitions._constrain, last, TODAY + 1)
    await store.compact()
    await ended(store, clock, TODAY + 2)


async def test_a_dump_delays_the_next_partition_but_no_other_maintenance(
    store: PostgresStore,
    clock: Clock,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '50ms'")
    monkeypatch.setattr(partitions, "MIN_TASKS", 1)
    await ended(store, clock, TODAY)
    dump = await asyncpg.connect(postgres_url)
    try:
        await dump.execute("BEGIN; LOCK TABLE log_19700101 IN ACCESS SHARE MODE")
        await store.compact()
        assert "the next partition begins later" in caplog.text
    finally:
        await dump.close()
    await store.compact()
    assert len(await known(store)) == 2


async def test_every_table_with_a_task_in_its_key_has_the_same_partitions(
    store: PostgresStore, postgres_url: str
) -> None:
    await split(store, TODAY)
    rows = await execute(postgres_url, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relispartition")
    assert {row[0] for row in rows} == {
        one.table(name) for name in TABLES for one in (Partition(0, TODAY), Partition(TODAY, None))
    }


# Reading --------------------------------------------------------------------------------------------------------------


async def scanned(url: str, sql: str, *values: Any, prepared: bool = True) -> set[str]:
    """The partitions whose scans a statement, prepared for any arguments, begins; otherwise those that it reads."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("; ".join(BEGIN_WRITE.split("; ")[:-1]))
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}", *values))
    finally:
        await connection.close()
    nodes = [node for node in re.split(r"\n *->", plan) if prepared or "never executed" not in node]
    return {found[1] for node in nodes for found in re.finditer(r"Scan .*?on (\w+_\d{8})", node)}


async def test_a_lookup_reads_the_partition_of_the_key_in_every_table(
    store: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    await split(store, *range(TODAY - 5, TODAY + 1))
    record = await ended(store, clock, TODAY - 3)
    key, own = record.ref.key, Partition(TODAY - 3, TODAY - 2)
    where = OWNER.scope, OWNER.principal
    assert await scanned(postgres_url, reads._FIND, *where, AGENT, record.id, key) == {own.table("tasks")}
    grouped = [
        (reads._READ, (0, *where, key, 10, True)),
        (reads._MESSAGES, (0, *where, key, 0)),
    ]
    for sql, values in (
        (reads._GET, (*where, AGENT, record.id, key, 10, True)),
        *((bulk.sql_text(), bulk.columns([row])) for bulk, row in grouped),
    ):
        found = await scanned(postgres_url, sql, *values)
        assert own.table("messages") in found
        assert found <= {own.table(name) for name in TABLES}
    assert await scanned(postgres_url, reads._EVENTS, 1, key, 1, 10, 1000) == {own.table("log")}


async def test_a_commit_begins_scans_in_the_partitions_of_its_tasks(
    store: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    await split(store, *range(TODAY - 5, TODAY + 1))
    refs = [(await ended(store, clock, TODAY - days)).ref for days in (1, 3)]
    names = [{Partition(TODAY - day, None).table(name) for day in (1, 2, 3)} for name in ("tasks", "messages")]
    lock, rows = task_tables._LOCK_TASKS, [(*OWNER, ref.key) for ref in refs]
    assert await scanned(postgres_url, lock.sql_text(), *lock.columns(rows), None) == names[0] | names[1]
    assert await scanned(postgres_url, lock.sql_text(), *lock.columns(rows[:1]), None) == {*map(max, names)}
    states_of = transaction._UPDATE_TASK_STATES
    changed = [(1, ref.key, b"state") for ref in refs]
    assert await scanned(postgres_url, states_of.sql_text(), *states_of.columns(changed)) == names[0]


@pytest.mark.parametrize("statement", ["_UPDATE_TASKS", "_UPDATE_KNOWN_TASKS"])
async def test_a_commit_looks_up_an_old_and_a_new_task_and_reads_none_between(
    store: PostgresStore, clock: Clock, postgres_url: str, statement: str
) -> None:
    """Whatever the planner guesses of their range."""
    await split(store, TODAY - 1)
    first, last = [(await ended(store, clock, day)).ref.key for day in (TODAY - 3, TODAY)]
    names = (await execute(postgres_url, "SELECT * FROM tasks LIMIT 1"))[0].keys()
    others = ", ".join(set(names) - {"task"})
    await execute(
        postgres_url,
        f"INSERT INTO tasks (task, {others}) SELECT substring(task FOR 6) || decode(md5(n::text), 'hex'), {others}"
        " FROM tasks CROSS JOIN generate_series(1, 10000) n",
    )
    bulk: PostgresBulkStatement = getattr(transaction, statement)
    values = ["NULL"] * (bulk.argument_count() - 2) + [f"'\\x{key.hex()}'" for key in (first, last)]
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("; ".join(["ANALYZE tasks", *BEGIN_WRITE.split("; ")[:-1]]))
    await connection.execute(f"PREPARE one AS {bulk.sql_text()}")
    plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE one ({', '.join(values)})"))
    await connection.close()
    assert plan.count("(task = r.task)") == 2
    assert "Join Filter" not in plan


async def test_a_commit_that_waits_for_a_change_of_partitions_locks_no_table(
    store: PostgresStore, clock: Clock, postgres_url: str
) -> None:
    claimed = await store.append(created(ref_of(TODAY), claim=SESSION))
    other = await asyncpg.connect(postgres_url)
    await other.execute(f"BEGIN; SELECT pg_advisory_xact_lock({WRITE_LOCK})")
    write = asyncio.ensure_future(store.append(by_runner(claimed, chunk("a", "text"))))
    async with asyncio.timeout(60):
        while not await execute(postgres_url, "SELECT 1 FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 - another process's event
            await asyncio.sleep(0.02)
    await other.execute(f"LOCK TABLE {', '.join(TABLES)} IN ACCESS EXCLUSIVE MODE NOWAIT; COMMIT")
    await other.close()
    assert len((await write).events) == 1


async def statements_of(monkeypatch: pytest.MonkeyPatch, call: Any) -> list[tuple[str, Sequence[Any]]]:
    """The statements of a call."""
    sent: list[tuple[str, Sequence[Any]]] = []
    fetch = asyncpg.Connection.fetch

    async def spy(self: Any, sql: str, *values: Any, **options: Any) -> Any:
        sent.append((sql, values))
        return await fetch(self, sql, *values, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", spy)
    await call
    monkeypatch.undo()
    return sent


async def test_a_search_reads_the_partitions_in_which_tasks_may_match(
    store: PostgresStore, clock: Clock, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await split(store, *range(TODAY - 5, TODAY + 1))
    records = [await ended(store, clock, TODAY - days) for days in range(5)]

    async def of(query: TaskSearch) -> set[str]:
        (sql, values), *_ = [
            one
            for one in await statements_of(monkeypatch, store.search(query))
            if "CROSS JOIN LATERAL" in one[0] and "SELECT r.n" in one[0]
        ]
        return {name[-8:] for name in await scanned(postgres_url, sql, *values, prepared=False)}

    day = {number: Partition(TODAY - number, None).table("")[1:] for number in range(-1, 6)}
    assert await of(TaskSearch(task_id=records[2].id)) == {day[2]}
    newest = await of(TaskSearch(order="created", page_size=1))
    assert newest == {day[0], day[1]}, "in the order of creation it stops when the page is full"
    before = await of(TaskSearch(changed_before=(TODAY - 3) * DAY_MS, page_size=5))
    assert before & {day[0], day[1]} == set(), "tasks that were created later cannot match"
    found = await store.search(TaskSearch(changed_before=(TODAY - 3) * DAY_MS + DAY_MS, page_size=9))
    assert [one.record.id for one in found.tasks] == [records[3].id, records[4].id]


async def test_lists_and_counts_are_those_of_all_partitions(store: PostgresStore, clock: Clock) -> None:
    await split(store, *range(TODAY - 5, TODAY + 1))
    records = [await ended(store, clock, TODAY - days) for days in (4, 0, 2)]
    page = await store.page(TaskQuery(OWNER, AGENT, page_size=2))
    assert page.total == 3
    assert [pb.Task.FromString(task).id for task in page.tasks] == [records[1].id, records[2].id]
    rest = await store.page(TaskQuery(OWNER, AGENT, page_size=2, after=page.last_key))
    assert [pb.Task.FromString(task).id for task in rest.tasks] == [records[0].id]
    counts = await store.count_states(TaskSearch())
    assert [(one.state, one.count) for one in counts if one.count] == [(states.COMPLETED, 3)]
    found = await store.search(TaskSearch())
    assert [one.record.id for one in found.tasks] == [records[1].id, records[2].id, records[0].id]


# Retention ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def old_day(store: PostgresStore, clock: Clock) -> Partition:
    """A partition whose tasks have expired since yesterday, between two others."""
    await split(store, TODAY - 10, TODAY - 9, TODAY)
    return Partition(TODAY - 10, TODAY - 9)


async def test_a_partition_whose_tasks_have_all_expired_is_dropped_with_a_receipt(
    store: PostgresStore, clock: Clock, old_day: Partition, postgres_url: str
) -> None:
    old = [await ended(store, clock, old_day.first + part / 10) for part in range(3)]
    kept = await ended(store, clock, TODAY)
    measured = await store.erasures.measure(TaskSelection(older_than=AGE))
    (receipt,) = await store.erasures.resume(lambda agent, state: AGE)
    assert old_day not in await known(store)
    assert (receipt.counts, receipt.reason) == (measured, RETENTION_REASON)
    assert receipt.digest == task_ids_digest(sorted(record.id for record in old))
    assert await store.erasures.receipts() == [receipt]
    assert [await is_stored(store, record) for record in (*old, kept)] == [False, False, False, True]
    assert (await store.page(TaskQuery(OWNER, AGENT))).total == 1
    rows = await execute(postgres_url, "SELECT relname FROM pg_class WHERE relname LIKE $1", f"%{old_day.table('')}")
    assert rows == []
    assert await drop(store) == 0


@pytest.mark.parametrize("hindrance", ["unexpired", "never", "open", "interrupted", "webhook", "erasure", "clocks"])
async def test_a_partition_stays_while_one_of_its_tasks_is_needed(
    store: PostgresStore, clock: Clock, old_day: Partition, postgres_url: str, hindrance: str
) -> None:
    await ended(store, clock, old_day.first)
    ages: dict[int, int] = {states.COMPLETED: AGE, states.FAILED: AGE}
    if hindrance == "unexpired":
        clock.now = (old_day.first + 8) * DAY_MS - 1
    elif hindrance == "never":
        await ended(store, clock, old_day.first, states.FAILED)
        ages[states.FAILED] = 0
    elif hindrance == "open":
        await store.append(created(ref_of(old_day.first)))
    elif hindrance == "interrupted":
        await ended(store, clock, old_day.first, states.INPUT_REQUIRED)
        ages[states.INPUT_REQUIRED] = AGE
    elif hindrance == "webhook":
        await ended(store, clock, old_day.first, push_config=PushConfig(id="hook", url="http://127.0.0.1:9/"))
    elif hindrance == "erasure":
        sql = "INSERT INTO erasure_queue (receipt, id, owner, task) VALUES (1, 'id', 1, '')"
        await execute(postgres_url, sql)
    else:  # later keys may still come, from a server whose clock is behind
        clock.now, ages = old_day.first * DAY_MS + DAY_MS, dict.fromkeys(ages, 1)
    await store.erasures.resume(lambda agent, state: ages[state])
    assert old_day in await known(store)


async def test_nothing_mentions_the_tasks_of_a_dropped_partition(
    store: PostgresStore, clock: Clock, old_day: Partition, postgres_url: str
) -> None:
    """Also what is not partitioned: aliases, idempotency keys, the state of conversations, links to parents."""
    ref = ref_of(old_day.first)
    change = replace(created(ref, claim=SESSION), idempotency_key=IdempotencyKey(AGENT, "key", b"digest"))
    assert change.create is not None
    change = replace(change, create=replace(change.create, id="chosen", alias=True))
    clock.now, now = old_day.first * DAY_MS, clock.now
    claimed = await store.append(replace(change, context_state=ContextState(b"old", 1)))
    await store.append(by_runner(claimed, status(states.COMPLETED), end=True))
    clock.now = now
    child = replace(created(ref_of(TODAY), context="other"), context_state=ContextState(b"new", 1))
    assert child.create is not None
    child = replace(child, create=replace(child.create, parent=ref.key))
    child_record = (await store.append(child)).record
    assert await store.find(OWNER, AGENT, "chosen") is not None
    assert await drop(store) == 1
    assert await store.find(OWNER, AGENT, "chosen") is None
    assert await store.locate("chosen") == []
    for table in ("aliases", "idempotency", "parents"):
        assert await execute(postgres_url, f"SELECT 1 FROM {table}") == []
    assert [row[0] for row in await execute(postgres_url, "SELECT data FROM context_state")] == [b"new"]
    assert await is_stored(store, child_record)


async def test_retention_leaves_expired_tasks_for_the_drop_of_their_partition_and_no_longer(
    store: PostgresStore, clock: Clock, old_day: Partition
) -> None:
    old = await ended(store, clock, old_day.first)
    selection = TaskSelection(older_than=AGE, agent=AGENT, state=states.COMPLETED, by_retention=True)

    async def erased() -> int:
        return (await store.erasures.erase(selection, reason=RETENTION_REASON)).counts.tasks

    clock.now = (old_day.first + 8) * DAY_MS + 1  # it has expired, and others of its day may have not
    assert await erased() == 0
    operators = replace(selection, by_retention=False)
    assert [[record.id for record in page] async for page in store.erasures.select(operators)] == [[old.id]]
    clock.now = (old_day.first + 2 + 8) * DAY_MS
    assert await erased() == 1


async def test_tasks_that_expire_early_are_erased_one_by_one(
    store: PostgresStore, clock: Clock, old_day: Partition
) -> None:
    """A partition that covers a large part of the age would keep them for too long."""
    await ended(store, clock, old_day.first)
    clock.now = old_day.first * DAY_MS + DAY_MS // 2
    selection = TaskSelection(older_than=1000, agent=AGENT, state=states.COMPLETED, by_retention=True)
    assert (await store.erasures.erase(selection, reason=RETENTION_REASON)).counts.tasks == 1


async def test_two_servers_drop_a_partition_once_while_others_write(stores: Stores, clock: Clock) -> None:
    await split(stores[0], TODAY - 10, TODAY - 9, TODAY)
    for part in range(5):
        await ended(stores[0], clock, TODAY - 10 + part / 10)
    writes = [stores[number % 2].append(created(ref_of(TODAY))) for number in range(40)]
    first, second, *_ = await asyncio.gather(*map(drop, stores), *writes)
    assert (first, second) in ((5, 0), (0, 5))
    assert (await stores[1].page(TaskQuery(OWNER, AGENT))).total == 40


async def test_a_partition_that_a_dump_locks_stays_until_the_next_round(
    store: PostgresStore, clock: Clock, old_day: Partition, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "LOCK_TIMEOUT", "SET LOCAL lock_timeout = '50ms'")
    await ended(store, clock, old_day.first)
    dump = await asyncpg.connect(postgres_url)
    try:
        await dump.execute(f"BEGIN; LOCK TABLE {old_day.table('log')} IN ACCESS SHARE MODE")
        assert await drop(store) == 0
        await dump.execute("COMMIT")
    finally:
        await dump.close()
    assert await drop(store) == 1
