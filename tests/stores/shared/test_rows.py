"""Rows that both stores share: what is written is read again, column by column."""

from __future__ import annotations

from dataclasses import replace

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import GENESIS_HASH, AuditEntry, chain_entries
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushState
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord
from dragoman.stores.shared import rows
from dragoman.testing.fixtures import new_ref

RECORD = TaskRecord(
    new_ref(), "echo", "id", "context", states.WORKING, 11, 12, 13, 14, 15, 16, 17, 18, 19,
    True, False, 20, 21, True, 22, 23, "why", "1.0", True, "alice", "what",
)  # fmt: skip


def names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]


def test_a_record_is_read_as_it_was_written() -> None:
    values = rows.record_values(RECORD)
    assert len(values) == len(names(rows.RECORD_COLUMNS))
    assert TaskRecord(RECORD.ref, *values) == RECORD


def test_a_row_of_integers_is_read_as_a_record_of_its_owner() -> None:
    stored = [+value if isinstance(value, bool) else value for value in rows.record_values(RECORD)]
    record = rows.record_from_row(RECORD.ref, [*stored, "more"])
    booleans = [name for name, kind in rows.TASK_COLUMNS.items() if kind == "bool"]
    assert record == RECORD
    assert all(isinstance(getattr(record, name), bool) for name in booleans)
    stored[names(rows.RECORD_COLUMNS).index("principal")] = ""
    assert rows.record_from_row(RECORD.ref, stored).principal == RECORD.ref.owner.principal


def test_an_append_changes_all_but_what_names_the_task() -> None:
    columns, values = names(rows.RECORD_COLUMNS), rows.record_values(RECORD)
    assert names(rows.MUTABLE_COLUMNS) == columns[3:-4]
    assert rows.mutable_values(RECORD) == values[3:-4]
    fixed = {"agent", "id", "context", "dialect", "alias", "principal", "summary"}
    assert {*columns} - {*names(rows.MUTABLE_COLUMNS)} == fixed


def test_every_column_gets_the_name_of_its_table() -> None:
    assert rows.qualified("a, b,\n c", "t") == "t.a, t.b, t.c"


def test_an_api_key_is_read_as_it_was_written() -> None:
    key = ApiKey(
        id="a", name="laptop", principal="alice", grants=frozenset({"worker", "operator"}), digest=b"d", created=1
    )
    values = rows.api_key_values(key)
    assert values[0] == key.id
    assert '["operator", "worker"]' in values  # sorted: the same grants are the same text
    assert rows.api_key_from_row(values) == key


def test_an_audit_entry_whose_principal_was_erased_names_nobody() -> None:
    entry = AuditEntry(5, "keys.create", "ok", {"key": "a"}, {"principal": "alice"})
    (record,) = chain_entries(GENESIS_HASH, 6, [entry], [b"s" * 16])
    *values, principal = rows.audit_values(record)
    assert principal == "alice"
    assert rows.audit_record_from_row(values) == record
    columns = names(rows.AUDIT_COLUMNS)
    values[columns.index("who")] = values[columns.index("salt")] = None
    anonymous = rows.audit_record_from_row(values)
    assert (anonymous.entry.who, anonymous.entry.about, anonymous.hash) == ({}, {"key": "a"}, record.hash)


def test_a_push_is_read_as_it_was_written() -> None:
    config = PushConfig(id="hook", url="https://one.example/h", token="t", scheme="Bearer", credentials="c")
    task = rows.push_task_values(RECORD)
    push = replace(
        rows.new_push(RECORD.ref, config, 30, 31, states.WORKING, task),
        state=PushState.GIVEN_UP, reason="gone", failures=3, failing_since=32, due_at=33, session=34, token=35,
        attempt_count=36, rejections=37, given_up_events=38, first_given_up=39,
    )  # fmt: skip
    row = (config.id, *rows.config_values(config), push.created, *rows.delivery_values(push), *task)
    assert len(row) == len(names(f"{rows.PUSH_COLUMNS}, {rows.PUSH_TASK_COLUMNS}"))
    assert rows.push_from_row(RECORD.ref, row) == push
    ended = rows.push_from_row(RECORD.ref, (*row[:-3], states.COMPLETED, *row[-2:]))
    assert (push.task_ended, ended.task_ended) == (False, True)


def test_migrations_of_both_stores_are_numbered_from_one_without_a_gap() -> None:
    for package in ("dragoman.stores.sqlite", "dragoman.extensions.postgres"):
        numbers = sorted(number for number, _ in rows.migration_scripts(package))
        assert numbers == list(range(1, len(numbers) + 1))
