"""How long tasks are kept: by agent and by the state they are in.

For a state in which a task has ended, the age at which it is erased. For one in which it waits for its caller, the age
at which it ends as FAILED (EXPIRED), and is then kept like any other that failed. Zero, and what nobody says, is for
ever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from dragoman.core.clock import format_age, parse_age
from dragoman.core.task import states
from dragoman.core.task.log import TaskRecord

RETENTION_STATES: Final[Mapping[str, int]] = {
    "completed": states.COMPLETED,
    "failed": states.FAILED,
    "canceled": states.CANCELED,
    "rejected": states.REJECTED,
    "input-required": states.INPUT_REQUIRED,
    "auth-required": states.AUTH_REQUIRED,
}
"""The states in which time counts, as people write them."""

AgesByState = Mapping[int, int]
"""Milliseconds by state."""


def parse_retention_ages(value: str | int | Mapping[str, str | int]) -> dict[int, int]:
    """Ages as people write them: `{"completed": "30d", "input-required": "7d"}`, or one for all ended states.

    Raises ValueError, naming the rule.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(states.TERMINAL, parse_age(str(value)))
    found = {}
    for name, age in value.items():
        state = RETENTION_STATES.get(str(name).lower().replace("_", "-"))
        if state is None:
            raise ValueError(f'"{name}" is no state in which time counts; there are {", ".join(RETENTION_STATES)}')
        if type(age) not in (str, int):  # TOML and authors may say anything, and True is an int
            raise ValueError(f"{name}: {age!r} is no age, such as 30d")
        found[state] = parse_age(str(age))
    return found


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What holds for all agents, and what is said of some: for each state the most particular word counts."""

    default: AgesByState = field(default_factory=dict)
    declared: Mapping[str, AgesByState] = field(default_factory=dict)
    """What agents say of themselves, by id."""
    overrides: Mapping[str, AgesByState] = field(default_factory=dict)
    """What the operator says of them."""

    def age(self, agent: str, state: int) -> int:
        """Milliseconds after which something happens to a task of this agent in this state; 0 for never."""
        for said in (self.overrides.get(agent, {}), self.declared.get(agent, {}), self.default):
            if state in said:
                return said[state]
        return 0


PURGE_REASON: Final = "purge"
RETENTION_REASON: Final = "retention"
"""Reasons of a receipt: somebody asked for it, or its time was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSelection:
    """Tasks by what holds for them. What is empty says nothing; one of the first four has to be said."""

    task: str = ""
    """An id as clients see it."""
    context: str = ""
    principal: str = ""
    """Who made them, or began the conversation they are kept with."""
    older_than: int = 0
    """Milliseconds that the status is older than, by the store's clock. Alone it means tasks that have ended."""
    scope: str = ""
    agent: str = ""
    state: int = 0
    without_pending_push: bool = False
    """Only tasks of which no push notification is still to be delivered."""

    def __post_init__(self) -> None:
        if not (self.task or self.context or self.principal or self.older_than):
            raise ValueError("say which tasks: by task, context, principal or age")

    @property
    def states(self) -> frozenset[int]:
        """The states that are meant."""
        if self.state:
            return frozenset({self.state})
        if self.older_than and not (self.task or self.context or self.principal):
            return states.TERMINAL
        return states.STORED_STATES

    @property
    def covers_context(self) -> bool:
        """Nothing of the context stays: what belongs to the conversation itself goes, too."""
        return bool(self.context) and not (self.task or self.agent or self.state or self.older_than)

    @property
    def covers_principal(self) -> bool:
        """Nothing of the principal stays, not even the name."""
        return bool(self.principal) and not (self.task or self.context or self.agent or self.state or self.older_than)

    def matches(self, record: TaskRecord, now: int) -> bool:
        """Whether this task is meant."""
        owner = record.ref.owner
        return (
            self.task in ("", record.id)
            and self.context in ("", record.context)
            and self.principal in ("", owner.principal, record.principal)
            and self.scope in ("", owner.scope)
            and self.agent in ("", record.agent)
            and record.state in self.states
            and (not self.older_than or record.updated <= now - self.older_than)
            and not (self.without_pending_push and record.has_live_push)
        )

    def __str__(self) -> str:
        """What was asked for, without what may be personal."""
        said = [name for name in ("task", "context", "principal", "scope") if getattr(self, name)]
        said += [f"agent {self.agent}"] if self.agent else []
        said += [states.name(self.state).removeprefix("TASK_STATE_")] if self.state else []
        said += [f"older than {format_age(self.older_than)}"] if self.older_than else []
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """How much was, or would be, removed. `events`, `messages` and so on are those of the tasks."""

    tasks: int = 0
    events: int = 0
    messages: int = 0
    artifacts: int = 0
    chunks: int = 0
    bytes: int = 0
    """Bytes of content in all of them."""

    def __add__(self, other: ErasureCounts) -> ErasureCounts:
        return ErasureCounts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """One erasure. It holds no id, no name and no content."""

    number: int
    """Counts the receipts of a store; 0 when nothing was removed, and then no receipt is kept."""
    reason: str
    selection: str
    began: int
    ended: int
    """Milliseconds since the epoch."""
    counts: ErasureCounts
    digest: str
    """See `task_ids_digest`."""


def task_ids_digest(ids: Iterable[str]) -> str:
    """SHA-256, in hex, of sorted ids with a newline after each: `sort ids | sha256sum`, in the locale C."""
    hashed = hashlib.sha256()
    for one in ids:
        hashed.update(one.encode() + b"\n")
    return hashed.hexdigest()


MAX_MERGED_ROW_BYTES: Final = 64 * 1024
"""Bytes of a row that grows no more. Rows that are larger from the start stay as they are."""


@dataclass(slots=True)
class RowGroup:
    """Neighbouring rows of one kind that may be one row: the sequences of the first and the last."""

    first: int
    last: int
    kind: int
    bytes: int
    rows: int = 1


def group_rows(rows: Sequence[tuple[int, int, int]]) -> list[RowGroup]:
    """Rows (sequence, kind, bytes) as runs of at most `JOINED` bytes; what is larger is a run of its own."""
    runs: list[RowGroup] = []
    for sequence, kind, size in rows:
        if runs and runs[-1].kind == kind and runs[-1].bytes + size <= MAX_MERGED_ROW_BYTES:
            runs[-1].last = sequence
            runs[-1].bytes += size
            runs[-1].rows += 1
        else:
            runs.append(RowGroup(sequence, sequence, kind, size))
    return runs


def rows_within_limit(rows: Sequence[tuple[int, int, int]], limit: int) -> Sequence[tuple[int, int, int]]:
    """The first of these rows: so many that the small ones, which alone are ever read, stay within the limit."""
    for number, (_, _, size) in enumerate(rows):
        limit -= size if size < MAX_MERGED_ROW_BYTES else 0
        if limit < 0:
            return rows[:number]
    return rows


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """When rows are joined, when logs are cut (0 is never), and how large answers become."""

    fold_rows: int = 256
    """Rows that made the artifacts of a running task grow, from which on they are joined."""
    cut_after: float = 86400.0
    """Seconds from the end of a task until only the last events of its log are kept."""
    inline_bytes: int = 16 * 1024 * 1024
    """Bytes of large parts in one answer; what is past it is given as links."""


DEFAULT_STORAGE_OPTIONS: Final = StorageOptions()


MIN_SCHEMA_COMMENT: Final = re.compile(r"-- since ([0-9]+)\n", re.ASCII)


def min_schema_of_migration(number: int, script: str) -> int:
    """The oldest schema whose programs run on what migration `number` makes: its own number if it does not say."""
    found = MIN_SCHEMA_COMMENT.match(script)
    return int(found[1]) if found else number


def min_schema(migrations: Iterable[tuple[int, str]]) -> int:
    """The oldest schema whose programs run on what all these migrations make; 0 for none."""
    return max((min_schema_of_migration(number, script) for number, script in migrations), default=0)


def schema_problem(version: int, known: int, minimum: str | int | None) -> str:
    """Why a program that knows schemas up to `known` may not serve a store of schema `version`; empty when it may.

    `kept`: the oldest schema whose programs may, as the store says; None from before it said so.
    """
    needed = version if minimum is None else int(minimum)
    if version <= known or needed <= known:
        return ""
    return (
        f"the store has schema {version}; this version of Dragoman knows up to {known}: start one that knows {needed}"
    )
