"""Rules for retention, erasure, row compaction and schema versions.

Retention is set by agent and task state. For a terminal state it is the age at which the task is erased. For an
interrupted state it is the age at which the task ends as FAILED (EXPIRED); it is then kept like other failed tasks.
Zero, the default, means forever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from dragoman.core.durations import format_age, parse_age
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord

RETENTION_STATES: Final[Mapping[str, int]] = {
    states.word(state): state for state in (*sorted(states.TERMINAL), *sorted(states.INTERRUPTED))
}
"""The states that retention applies to, by their names in settings."""

AgesByState = Mapping[int, int]  # milliseconds by state


def parse_retention_ages(value: str | int | Mapping[str, str | int]) -> dict[int, int]:
    """Parses `{"completed": "30d", "input-required": "7d"}`, or one age for all terminal states.

    Raises ValueError, naming the rule.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(states.TERMINAL, parse_age(str(value)))
    ages = {}
    for name, age in value.items():
        state = RETENTION_STATES.get(str(name).lower().replace("_", "-"))
        if state is None:
            raise ValueError(f'"{name}" is not a state that retention applies to; use {", ".join(RETENTION_STATES)}')
        if type(age) not in (str, int):  # values come from TOML or agent code, and True is an int
            raise ValueError(f"{name}: {age!r} is not an age, such as 30d")
        ages[state] = parse_age(str(age))
    return ages


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Retention ages: for each state the override counts first, then the agent's declaration, then the default."""

    default: AgesByState = field(default_factory=dict)
    declared: Mapping[str, AgesByState] = field(default_factory=dict)  # declared in agent code, by agent id
    overrides: Mapping[str, AgesByState] = field(default_factory=dict)  # set by the operator, by agent id

    def age(self, agent: str, state: int) -> int:
        """Milliseconds after which a task of this agent in this state is erased or expires; 0 for never."""
        for ages in (self.overrides.get(agent, {}), self.declared.get(agent, {}), self.default):
            if state in ages:
                return ages[state]
        return 0


PURGE_REASON: Final = "purge"
RETENTION_REASON: Final = "retention"
"""Reasons on a receipt: requested by an operator, or expired by retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSelection:
    """Filters for tasks; empty fields match all. One of task, context, principal and older_than is required."""

    task: str = ""  # a task id as clients see it
    context: str = ""
    principal: str = ""  # who created the task, or the conversation that it is stored under
    older_than: int = 0
    """Minimum age of the status in milliseconds, by the store's clock. Alone it selects terminal tasks only."""
    scope: str = ""
    agent: str = ""
    state: int = 0
    by_retention: bool = False  # only tasks without undelivered push notifications

    def __post_init__(self) -> None:
        if not (self.task or self.context or self.principal or self.older_than):
            raise ValueError("select the tasks by task, context, principal or age")

    @property
    def states(self) -> frozenset[int]:
        if self.state:
            return frozenset({self.state})
        if self.older_than and not (self.task or self.context or self.principal):
            return states.TERMINAL
        return states.STORED_STATES

    @property
    def covers_context(self) -> bool:
        """Whether all of the context is erased, including the state of the conversation."""
        return bool(self.context) and not (self.task or self.agent or self.state or self.older_than)

    @property
    def covers_owners(self) -> bool:
        """Whether all tasks of the principal are erased, in one scope or in all: with what is stored beside them."""
        return bool(self.principal) and not (self.task or self.context or self.agent or self.state or self.older_than)

    @property
    def covers_principal(self) -> bool:
        """Whether everything of the principal is erased in all scopes, including what has no scope: keys, its name."""
        return self.covers_owners and not self.scope

    def matches(self, record: TaskRecord, now: int) -> bool:
        owner = record.ref.owner
        return (
            self.task in ("", record.id)
            and self.context in ("", record.context)
            and self.principal in ("", owner.principal, record.principal)
            and self.scope in ("", owner.scope)
            and self.agent in ("", record.agent)
            and record.state in self.states
            and (not self.older_than or record.updated <= now - self.older_than)
            and not (self.by_retention and record.has_live_push)
        )

    def __str__(self) -> str:
        """The filters, without values that may be personal data."""
        filters = [name for name in ("task", "context", "principal", "scope") if getattr(self, name)]
        filters += [f"agent {self.agent}"] if self.agent else []
        filters += [states.short_name(self.state)] if self.state else []
        filters += [f"older than {format_age(self.older_than)}"] if self.older_than else []
        return ", ".join(filters)


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """How much was, or would be, removed. All counts but `tasks` are of the content of those tasks."""

    tasks: int = 0
    events: int = 0
    messages: int = 0
    artifacts: int = 0
    chunks: int = 0
    bytes: int = 0  # bytes of content

    def __add__(self, other: ErasureCounts) -> ErasureCounts:
        return ErasureCounts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """The receipt of one erasure. It holds no id, no name and no content."""

    number: int  # the number of the receipt in its store; 0 when nothing was removed, and then no receipt is stored
    reason: str
    selection: str
    began: int
    ended: int  # milliseconds since the epoch
    counts: ErasureCounts
    digest: str  # see `task_ids_digest`


def task_ids_digest(ids: Iterable[str]) -> str:
    """SHA-256 (hex) of sorted ids with a newline after each, as `sort ids | sha256sum` in the C locale."""
    hashed = hashlib.sha256()
    for id in ids:
        hashed.update(id.encode() + b"\n")
    return hashed.hexdigest()


MAX_MERGED_ROW_BYTES: Final = 64 * 1024
"""Bytes at which a merged row grows no further. Rows that are larger stay as they are."""


@dataclass(slots=True)
class RowGroup:
    """Adjacent rows of one kind that can be merged. `first` and `last` are sequences."""

    first: int
    last: int
    kind: int
    bytes: int
    rows: int = 1


def group_rows(rows: Sequence[tuple[int, int, int]]) -> list[RowGroup]:
    """Groups rows (sequence, kind, bytes) up to MAX_MERGED_ROW_BYTES; a larger row is a group of its own."""
    groups: list[RowGroup] = []
    for sequence, kind, size in rows:
        if groups and groups[-1].kind == kind and groups[-1].bytes + size <= MAX_MERGED_ROW_BYTES:
            groups[-1].last = sequence
            groups[-1].bytes += size
            groups[-1].rows += 1
        else:
            groups.append(RowGroup(sequence, sequence, kind, size))
    return groups


def rows_within_limit(rows: Sequence[tuple[int, int, int]], limit: int) -> Sequence[tuple[int, int, int]]:
    """The first rows whose small ones, the only ones ever read, have at most `limit` bytes together."""
    for number, (_, _, size) in enumerate(rows):
        limit -= size if size < MAX_MERGED_ROW_BYTES else 0
        if limit < 0:
            return rows[:number]
    return rows


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """When rows are merged, when logs are truncated (0 is never), and how large responses become."""

    compact_after_rows: int = 256  # number of rows added to a running task's artifacts after which they are merged
    truncate_log_after: float = 86400.0
    """Seconds after the end of a task at which all but the last events of its log are dropped."""
    inline_bytes: int = 16 * 1024 * 1024  # bytes of large contents in one response; the rest is returned as links


DEFAULT_STORAGE_OPTIONS: Final = StorageOptions()

MIN_SCHEMA_COMMENT: Final = re.compile(r"-- since ([0-9]+)\n", re.ASCII)


def min_schema(migrations: Iterable[tuple[int, str]]) -> int:
    """The oldest schema whose programs can use the result of these migrations: by default the last; 0 for none."""
    since = ((number, MIN_SCHEMA_COMMENT.match(script)) for number, script in migrations)
    return max((int(match[1]) if match else number for number, match in since), default=0)


def schema_problem(version: int, known: int, minimum: str | int | None) -> str:
    """Why a program that knows schemas up to `known` cannot serve a store of schema `version`; empty when it can.

    `minimum`: the oldest compatible schema according to the store; None in stores written before it was recorded.
    """
    needed = version if minimum is None else int(minimum)
    if version <= known or needed <= known:
        return ""
    return (
        f"the store has schema {version}; this version of Dragoman knows up to {known}: start one that knows {needed}"
    )
