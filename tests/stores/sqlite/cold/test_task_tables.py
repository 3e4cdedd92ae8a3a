"""Tables beside a task in SQLite: keys that expire, contexts that others joined, ancestors that count usage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from dragoman.core.limits.quotas import MAX_DELEGATION_DEPTH, MAX_USAGE
from dragoman.core.names import Owner
from dragoman.core.task.log import IDEMPOTENCY_KEY_TTL_MS, DuplicateKey, IdempotencyKey
from dragoman.stores.sqlite import schema
from dragoman.stores.sqlite.cold import task_tables

ALICE, BOB = Owner("default", "alice"), Owner("default", "bob")
KEY = IdempotencyKey("echo", "k", b"digest")
NOW = 1_700_000_000_000


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection)
    connection.executemany("INSERT INTO owners (owner, scope, principal) VALUES (?, ?, ?)", [(1, *ALICE), (2, *BOB)])
    yield connection
    connection.close()


def used(connection: sqlite3.Connection, number: int, owner: Owner, now: int = NOW) -> DuplicateKey:
    with pytest.raises(DuplicateKey) as caught:
        task_tables.check_key(connection, number, owner, KEY, now)
    return caught.value


def test_a_key_is_free_again_after_its_last_millisecond(connection: sqlite3.Connection) -> None:
    task_tables.record_key(connection, 1, 1, KEY, b"task", 4, NOW)
    record = used(connection, 1, ALICE, NOW + IDEMPOTENCY_KEY_TTL_MS).key_record
    assert record.task is not None
    assert (record.task.owner, record.task.key, record.sequence_before) == (ALICE, b"task", 4)
    task_tables.check_key(connection, 1, ALICE, KEY, NOW + IDEMPOTENCY_KEY_TTL_MS + 1)
    task_tables.check_key(connection, 2, BOB, KEY, NOW)  # another owner's key


def test_a_key_of_another_principal_names_the_owner_until_the_task_is_erased(connection: sqlite3.Connection) -> None:
    task_tables.record_key(connection, 2, 1, KEY, b"task", 0, NOW)
    record = used(connection, 2, BOB).key_record
    assert record.task is not None
    assert record.task.owner == ALICE
    task_tables.clear_task_keys(connection, 1, b"task")
    assert used(connection, 2, BOB).key_record.task is None


def test_a_discarded_task_frees_its_keys_unless_it_left_a_reply(connection: sqlite3.Connection) -> None:
    for number in (1, 2):
        task_tables.record_key(connection, number, 1, KEY, b"task", 0, NOW)
    task_tables.record_reply(connection, 1, b"task", b"a message")
    assert [used(connection, number, owner).key_record.reply for number, owner in ((1, ALICE), (2, BOB))] == [
        b"a message"
    ] * 2
    task_tables.record_reply(connection, 1, b"task", b"")
    task_tables.check_key(connection, 1, ALICE, KEY, NOW)
    task_tables.check_key(connection, 2, BOB, KEY, NOW)


def test_ancestors_end_at_the_deepest_that_counts(connection: sqlite3.Connection) -> None:
    for number in range(MAX_DELEGATION_DEPTH + 5):
        connection.execute(task_tables.INSERT_PARENT, (1, b"%d" % number, b"%d" % (number + 1)))
    found = list(task_tables.ancestors(connection, 1, b"0"))
    assert found == [b"%d" % number for number in range(1, MAX_DELEGATION_DEPTH + 1)]
    assert list(task_tables.ancestors(connection, 2, b"0")) == []


def test_sums_of_usage_stay_below_the_limit(connection: sqlite3.Connection) -> None:
    for _ in range(3):
        connection.execute(task_tables.ADD_USAGE, (1, b"task", "", MAX_USAGE - 1, 1))
        connection.execute(task_tables.ADD_DELEGATED_USAGE, (1, b"task", MAX_USAGE - 1, 1))
    usage = task_tables.usage_of(connection, 1, b"task")
    assert (usage.tokens, usage.delegated_tokens) == (MAX_USAGE, MAX_USAGE)
    assert (usage.cost, usage.delegated_cost) == (6, 3)
