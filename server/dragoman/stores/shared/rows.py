"""Columns and rows that both stores have in common, without any SQL dialect, and their migrations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, TypeVar

from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.audit import AuditEntry, AuditRecord, audited_principal, canonical_json
from dragoman.core.names import Owner
from dragoman.core.push.configuration import PushConfig
from dragoman.core.push.delivery import PushRecord, PushState
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord, TaskRef
from dragoman.core.task.steps import StepRecord, StepState

T = TypeVar("T")

TASK_COLUMNS: Final = {field.name: str(field.type) for field in fields(TaskRecord)[1:]}
"""The columns of `tasks` that a `TaskRecord` has, with the types of its fields after `ref`. Rows, statements and
conversions of both stores come from it; their first migrations declare the same columns."""

_FIXED_COLUMNS: Final = frozenset(("agent", "id", "context", "dialect", "alias", "principal", "summary"))
"""Those that no append changes."""


def qualified(columns: str, table: str) -> str:
    """A list of columns, each with the name of a table before it."""
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))


RECORD_COLUMNS: Final = ", ".join(TASK_COLUMNS)
TABLE_RECORD_COLUMNS: Final = qualified(RECORD_COLUMNS, "t")  # of `tasks t`
MUTABLE_COLUMNS: Final = ", ".join(name for name in TASK_COLUMNS if name not in _FIXED_COLUMNS)
RECORD_WIDTH: Final = len(TASK_COLUMNS)

# Each returns the values of its columns.
Values = Callable[[T], tuple[Any, ...]]
record_values: Final[Values[TaskRecord]] = attrgetter(*TASK_COLUMNS)
mutable_values: Final[Values[TaskRecord]] = attrgetter(*MUTABLE_COLUMNS.split(", "))


def record_from_row(ref: TaskRef, row: Sequence[Any]) -> TaskRecord:
    """The record in a row that begins with RECORD_COLUMNS. A principal that is not stored is the owner's."""
    # The booleans of TASK_COLUMNS one by one: in a loop, a row takes half as long again.
    record = TaskRecord(ref, *row[:RECORD_WIDTH])
    record.principal = record.principal or ref.owner.principal
    record.ready, record.visible = bool(record.ready), bool(record.visible)
    record.has_live_push, record.alias = bool(record.has_live_push), bool(record.alias)
    return record


def records_with_owners(rows: Iterable[Sequence[Any]]) -> list[TaskRecord]:
    """The records in rows of scope, principal, key and RECORD_COLUMNS."""
    return [record_from_row(TaskRef(Owner(scope, name), key), columns) for scope, name, key, *columns in rows]


# Steps ------------------------------------------------------------------------------------------------------------

STEP_COLUMNS: Final = (
    "turn, name, number, position, state, attempt, started, ended, wake_at, size, result, error, details"
)

step_values: Final[Values[StepRecord]] = attrgetter(*STEP_COLUMNS.split(", "))


def step_from_row(row: Sequence[Any]) -> StepRecord:
    """The step in a row of STEP_COLUMNS."""
    step = StepRecord(**dict(zip(STEP_COLUMNS.split(", "), row, strict=True)))
    step.state = StepState(step.state)
    return step


# API keys ---------------------------------------------------------------------------------------------------------

API_KEY_FIELDS: Final = tuple(field.name for field in fields(ApiKey))
API_KEY_COLUMNS: Final = ", ".join(API_KEY_FIELDS)


def api_key_values(key: ApiKey) -> list[Any]:
    """The values of API_KEY_COLUMNS; the id comes first."""
    row = [getattr(key, name) for name in API_KEY_FIELDS]
    row[API_KEY_FIELDS.index("grants")] = json.dumps(sorted(key.grants))
    return row


def api_key_from_row(row: Sequence[Any]) -> ApiKey:
    """The key in a row of API_KEY_COLUMNS."""
    values = dict(zip(API_KEY_FIELDS, row, strict=True))
    return ApiKey(**{**values, "grants": frozenset(json.loads(values["grants"]))})


# The audit log ----------------------------------------------------------------------------------------------------

AUDIT_COLUMNS: Final = "number, at, action, outcome, about, who, salt, seal, hash"


def audit_values(record: AuditRecord) -> tuple[Any, ...]:
    """The values of AUDIT_COLUMNS, and the principal that the entry is about."""
    entry = record.entry
    about, who = canonical_json(entry.about), canonical_json(entry.who)
    head = (record.number, entry.at, entry.action, entry.outcome, about, who)
    return (*head, record.salt, record.seal, record.hash, audited_principal(entry))


def audit_record_from_row(row: Sequence[Any]) -> AuditRecord:
    """The record in a row of AUDIT_COLUMNS. Without `who`: its principal was erased."""
    number, at, action, outcome, about, who, salt, seal, hash = row
    entry = AuditEntry(at, action, outcome, json.loads(about), json.loads(who) if who is not None else {})
    return AuditRecord(number, entry, salt, seal, hash)


# Push configurations ----------------------------------------------------------------------------------------------

PUSH_CONFIG_COLUMNS: Final = "url, token, scheme, credentials, dialect"
_DELIVERY_FIELDS: Final = (
    "last_delivered", "last_state_sent", "state", "reason", "failures", "rejections", "given_up_events",
    "first_given_up", "failing_since", "due_at", "session", "token", "attempt_count",
)  # fmt: skip
DELIVERY_COLUMNS: Final = ", ".join(_DELIVERY_FIELDS).replace("token", "claim_token")
PUSH_COLUMNS: Final = f"id, {PUSH_CONFIG_COLUMNS}, created, {DELIVERY_COLUMNS}"
PUSH_TASK_COLUMNS: Final = "t.last_sequence, t.state, t.id, t.agent"  # of the push's task

push_task_values: Final[Values[TaskRecord]] = attrgetter("last_sequence", "state", "id", "agent")
config_values: Final[Values[PushConfig]] = attrgetter(*PUSH_CONFIG_COLUMNS.split(", "))
delivery_values: Final[Values[PushRecord]] = attrgetter(*_DELIVERY_FIELDS)


def new_push(
    ref: TaskRef, config: PushConfig, now: int, last_delivered: int, last_state_sent: int, task_values: Sequence[Any]
) -> PushRecord:
    """A push that begins after an event, and after a state that its receiver knows."""
    last, state, task_id, agent = task_values
    return PushRecord(
        task=ref, config=config, created=now, last_delivered=last_delivered, last_state_sent=last_state_sent,
        last_sequence=last, task_ended=state in states.TERMINAL, task_id=task_id, agent=agent,
    )  # fmt: skip


def push_from_row(ref: TaskRef, row: Sequence[Any]) -> PushRecord:
    """The push in a row of PUSH_COLUMNS and PUSH_TASK_COLUMNS."""
    id, url, token, scheme, credentials, dialect, created, *delivery = row[:-4]
    config = PushConfig(id=id, url=url, token=token, scheme=scheme, credentials=credentials, dialect=dialect)
    values = dict(zip(_DELIVERY_FIELDS, delivery, strict=True))
    return replace(new_push(ref, config, created, 0, 0, row[-4:]), **{**values, "state": PushState(values["state"])})


def pushes_with_owners(rows: Iterable[Sequence[Any]]) -> list[PushRecord]:
    """The pushes in rows of scope, principal, key, PUSH_COLUMNS and PUSH_TASK_COLUMNS."""
    return [push_from_row(TaskRef(Owner(scope, name), key), columns) for scope, name, key, *columns in rows]


# Migrations -----------------------------------------------------------------------------------------------------------


class SchemaTooNew(Exception):
    """The store was written by a newer Dragoman, and this release cannot use its schema."""


def migration_scripts(package: str) -> Iterator[tuple[int, str]]:
    """Yields number and SQL of each migration in the folder `migrations` of a package, in no order."""
    for file in (files(package) / "migrations").iterdir():
        if file.name.endswith(".sql"):
            yield int(file.name.split("_", 1)[0]), file.read_text("utf-8")
