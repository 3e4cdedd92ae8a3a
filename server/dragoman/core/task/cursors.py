"""Cursors, which are resume positions in a task's events; queries for many tasks, and the tokens of their pages.

A cursor is `EPOCH.TASK.N`: 8 hex digits of the store's epoch, 8 of a hash of the task's key, and the decimal sequence
of the last event received. The first two reject a cursor of another store or task, where N would mean something else.
A bare N is accepted too, for people.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal

from dragoman.core.errors import InvalidParams
from dragoman.core.limits.quotas import NO_USAGE, Usage
from dragoman.core.names import Owner
from dragoman.core.task import frames, states
from dragoman.core.task.log import TaskRecord
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_CURSOR: Final = re.compile(r"(?:([0-9a-f]{8})\.([0-9a-f]{8})\.)?(0|[1-9][0-9]{0,15})")


def cursor_prefix(epoch: str, key: bytes) -> str:
    """The prefix of every cursor of a task, up to and including the dot before the sequence."""
    return f"{epoch}.{sha256(key).hexdigest()[:8]}."


def parse_cursor(cursor: str, task_prefix: str, last_sequence: int) -> int:
    """The sequence in a cursor of the task with this prefix and last event.

    Raises InvalidParams for an invalid cursor, one of another store or task, and one beyond the last event: waiting
    there would be waiting for another task's events.
    """
    match = _CURSOR.fullmatch(cursor.strip())
    if match is None:
        raise InvalidParams.field("after", "must be a cursor EPOCH.TASK.N from an event, or a sequence N")
    if match[1] is not None:
        epoch, task = task_prefix.split(".")[:2]
        if match[1] != epoch:
            raise InvalidParams.field("after", "is a cursor of another store; leave it out to start with the task")
        if match[2] != task:
            raise InvalidParams.field("after", "is a cursor of another task; leave it out to start with the task")
    number = int(match[3])
    if number > last_sequence:
        raise InvalidParams.field("after", f"is beyond the task's last event, {last_sequence}")
    return number


DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 100


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A ListTasks request to a store (A2A 1.0 §3.1.4).

    `updated_since` is in milliseconds and inclusive. `after` is the sort key of the previous page's last row.
    """

    owner: Owner
    agent: str
    context: str = ""
    state: int = 0
    updated_since: int = 0
    page_size: int = DEFAULT_PAGE_SIZE
    after: tuple[int, bytes] | None = None
    history: int | None = None
    artifacts: bool = False

    @property
    def _fingerprint(self) -> int:
        filters = (self.owner.scope, self.owner.principal, self.agent, self.context, self.state, self.updated_since)
        return zlib.crc32(repr(filters).encode())


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Serialized tasks, newest status first. `last_key` is the sort key to continue after, None on the last page."""

    tasks: list[bytes] = field(default_factory=list)
    total: int = 0
    last_key: tuple[int, bytes] | None = None
    summaries: list[str] = field(default_factory=list)  # `TaskRecord.summary` of each


def sort_key(record: TaskRecord) -> tuple[int, bytes]:
    return record.updated, record.ref.key


SearchOrder = Literal["changed", "created"]
SearchPosition = tuple[int, int, bytes]
"""A place in a search: time, number of the owner and task key; by creation only the last counts."""

SEARCHED_ROWS: Final = 10_000
MAX_TOTAL: Final = 1000
"""Matching tasks that are counted."""
MAX_CAUSES: Final = 500  # causes whose failed tasks are looked at, to group them


@dataclass(frozen=True, slots=True)
class TaskSearch:
    """A search for visible tasks of all owners. Empty fields match every task, sets match any of theirs.

    Times are milliseconds since the epoch: `changed_since` is inclusive, `changed_before` is not. `text` is looked for
    in `TaskRecord.summary` and `status_text`, without regard to the case of ASCII letters, and in the id if it may be a
    part of one (`id_digits`). `metadata`: a key of the task's metadata, or of an object in it, with its value as text.
    """

    task_id: str = ""  # the id that clients see
    scopes: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    principal: str = ""
    context: str = ""
    states: frozenset[int] = frozenset()
    changed_since: int = 0
    changed_before: int = 0
    text: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    order: SearchOrder = "changed"  # newest first, by the last change of the status or by creation
    page_size: int = DEFAULT_PAGE_SIZE
    after: SearchPosition | None = None
    artifacts: bool = False
    searched_rows: int = SEARCHED_ROWS
    """About how many rows are read for one page, where no index has the tasks that match."""
    max_total: int = MAX_TOTAL  # matching tasks that are counted
    cause: str = ""  # of failed tasks: `TaskFailure.cause`
    finds_failures: bool = False  # `text` is looked for in `TaskFailure.text` too: for operators
    groups_failures: bool = False  # the answer has groups of the failed tasks that match, and no tasks

    @property
    def for_counts(self) -> TaskSearch:
        """The search to count by state: whatever its states are, and by ranges of one state where an index has them."""
        order: SearchOrder = "created" if self.text and not (self.principal or self.cause) else "changed"
        has_ranges = order == "changed" and not self.task_id and not self.context
        return replace(self, order=order, states=states.STORED_STATES if has_ranges else frozenset())

    @property
    def _fingerprint(self) -> int:
        filters = replace(self, page_size=0, after=None, artifacts=False, searched_rows=0, max_total=0)
        ordered = (sorted(filters.scopes), sorted(filters.agents), sorted(filters.states))
        rest = replace(filters, scopes=frozenset(), agents=frozenset(), states=frozenset())
        return zlib.crc32(repr((ordered, rest)).encode())


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task of a search. `task` is a serialized Task without history, `created` in milliseconds since the epoch."""

    record: TaskRecord
    created: int
    task: bytes
    usage: Usage = NO_USAGE
    cause: str = ""  # of a failed task, as the next two: `TaskFailure`
    failure_text: str = ""
    failure: bytes = b""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed tasks with one cause. `first`: when the first one failed, in milliseconds since the epoch, or 0."""

    last: FoundTask
    first: int
    count: int
    is_exact: bool  # False: at least so many


@dataclass(frozen=True, slots=True)
class FoundTasks:
    """A page of a search. A page may have fewer tasks than asked for, even none, and yet not be the last."""

    tasks: list[FoundTask] = field(default_factory=list)
    next: SearchPosition | None = None  # where the next page continues; None on the last one
    total: int = 0  # number of all tasks that match, counted for the first page only
    is_total_exact: bool = True  # False: at least so many
    groups: list[FailureGroup] = field(default_factory=list)  # those of `TaskSearch.groups_failures`


@dataclass(frozen=True, slots=True)
class StateCount:
    """The number of tasks in one state, at most MAX_TOTAL. Not exact: at least so many."""

    state: int
    count: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class OpenTasks:
    """The number of tasks of an agent in one state, as in StateCount. `oldest`: their first change, in milliseconds."""

    agent: str
    state: int
    count: int
    is_exact: bool
    oldest: int


def state_counts(counts: Mapping[int, int], unread: Collection[int]) -> list[StateCount]:
    """The counts of all states, from those above 0. `unread`: states of which not all tasks were counted."""
    return [
        StateCount(state, min(count, MAX_TOTAL), count <= MAX_TOTAL and state not in unread)
        for state in sorted(states.STORED_STATES)
        for count in (counts.get(state, 0),)
    ]


def open_task_counts(parts: Iterable[OpenTasks]) -> list[OpenTasks]:
    """One entry for each agent and state, in this order, from the counts of parts of their tasks."""
    by_key: dict[tuple[str, int], OpenTasks] = {}
    for part in parts:
        key = part.agent, part.state
        known = by_key.get(key)
        if known is not None:
            times = [one.oldest for one in (known, part) if one.count]
            is_exact = known.is_exact and part.is_exact
            part = OpenTasks(*key, known.count + part.count, is_exact, min(times, default=0))
        by_key[key] = part
    return [
        replace(one, count=min(one.count, MAX_TOTAL), is_exact=one.is_exact and one.count <= MAX_TOTAL)
        for _, one in sorted(by_key.items())
    ]


def metadata_entries(key: str, value: str) -> list[bytes]:
    """Bytes of a serialized Struct with this key and this value as a string, number or boolean."""
    values: list[str | float | bool] = [value]
    if value in ("true", "false"):
        values.append(value == "true")
    try:
        values.append(float(value))
    except ValueError:
        pass
    entries = []
    for typed in values:
        task = pb.Task()
        task.metadata[key] = typed
        data = task.metadata.SerializeToString()
        entries += [data[begin:end] for _, _, begin, end in frames.fields(data)]
    return entries


_MIN_ID_DIGITS: Final = 8  # shorter numbers and words would be found in the ids of many tasks


def id_digits(text: str) -> str:
    """The hexadecimal digits of a text that may be a part of a task id; empty for other texts."""
    digits = text.strip().replace("-", "").lower()
    return digits if len(digits) >= _MIN_ID_DIGITS and not digits.strip("0123456789abcdef") else ""


def like_pattern(text: str) -> str:
    """The pattern of LIKE, with backslash as escape character, for texts that contain this one."""
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


_TOKEN_LAYOUTS: Final = {TaskQuery: struct.Struct(">Iq16s"), TaskSearch: struct.Struct(">Iqq16s")}


def page_token(query: TaskQuery | TaskSearch, position: tuple[int, bytes] | SearchPosition) -> str:
    """The token of the page after a position."""
    packed = _TOKEN_LAYOUTS[type(query)].pack(query._fingerprint, *position)
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def parse_page_token(query: TaskQuery | TaskSearch, token: str) -> Any:
    """The position in a page token, for `query.after`. Raises InvalidParams for a token of another query."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        fingerprint, *position = _TOKEN_LAYOUTS[type(query)].unpack(raw)
    except (binascii.Error, struct.error, ValueError) as error:
        rule = "is not a token of this server; use nextPageToken unchanged"
        raise InvalidParams.field("pageToken", rule) from error
    if fingerprint != query._fingerprint:
        raise InvalidParams.field("pageToken", "belongs to a query with other filters; repeat that query")
    return tuple(position)
