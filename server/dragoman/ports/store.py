"""The port of the store: durable tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dragoman.core.counters import CommitCounters, StoreStats
from dragoman.core.daily_usage import DailyUsageQuery, DailyUsageRow, HourlyUsage, HourlyUsageQuery
from dragoman.core.limits.quotas import NO_USAGE, Usage
from dragoman.core.names import Owner
from dragoman.core.task.contents import ContentReader
from dragoman.core.task.cursors import FoundTasks, OpenTasks, StateCount, TaskPage, TaskQuery, TaskSearch
from dragoman.core.task.log import ROLE_USER, Append, Appended, ContextState, Event, TaskRecord, TaskRef
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection
from dragoman.core.task.steps import StepRecord
from dragoman.ports.push import PushStore
from dragoman.ports.remote_agents import UpstreamStore, WorkerRegistry
from dragoman.ports.security import ApiKeys, AuditLog


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A consistent read of a task: its record, and a serialized `lf.a2a.v1.Task`."""

    record: TaskRecord
    task: bytes


@dataclass(frozen=True, slots=True)
class AgentTasks:
    """The tasks of a principal with one agent in one scope."""

    scope: str
    agent: str
    tasks: int  # number of its visible tasks
    changed: int
    """None of them changed after this time, in milliseconds since the epoch."""


@dataclass(slots=True)
class StoredMessage:
    """A message of a task: serialized Message, and its SendMessageRequest without the message.

    Never changed. Not frozen, because each send makes one (see `core.task.log.Append`).
    """

    number: int
    role: int
    message: bytes
    envelope: bytes
    sender: str = ""
    """The principal that sent it; empty for the owner, and for messages of the agent."""


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """The stored input of a turn: messages, the agent's JSON for the task, and the task's metadata and usage."""

    record: TaskRecord
    messages: list[StoredMessage]
    task_state: bytes
    task_metadata: bytes = b""  # the task's metadata, a serialized Struct
    usage: Usage = NO_USAGE  # with that of delegated tasks; the metadata has it as of the last report of its own agent
    context: ContextState = field(default_factory=ContextState)  # the agent's JSON for the conversation, or version 0

    def unread(self, last_delivered: int) -> list[StoredMessage]:
        """The users' messages with numbers above `last_delivered`."""
        return [message for message in self.messages if message.role == ROLE_USER and message.number > last_delivered]


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction: merged rows, dropped events of finished tasks, removed unreferenced files, and
    deleted rows of old daily usage."""

    rows: int = 0
    events: int = 0
    files: int = 0
    usage_rows: int = 0

    def __str__(self) -> str:
        counts = (
            (self.rows, "rows merged"),
            (self.events, "old events dropped"),
            (self.files, "files removed"),
            (self.usage_rows, "rows of old daily usage deleted"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Progress of a backup in bytes; `total` is approximate. `done` once the copy was verified."""

    bytes: int
    total: int
    done: bool = False


class Blobs(Protocol):
    """The large contents of tasks, which large responses contain as links to `/blobs/{name}`."""

    def set_base_url(self, base: Callable[[], str]) -> None:
        """Sets the base of links: the public HTTP URL."""

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """The file of a link; None when it was deleted. Raises PermissionError for an invalid or expired link."""

    def content(self, name: str, query: Mapping[str, str]) -> ContentReader | None:
        """The content of a link to rows; None for a name that names none. Raises as `find`."""


class Store(Protocol):
    """Durable tasks. Acknowledged writes survive a crash; rejected writes leave no trace.

    The cost of operators' reads (`search` to `agents_of`, and `stats`) does not grow with the number of tasks.
    """

    @property
    def blobs(self) -> Blobs: ...

    @property
    def api_keys(self) -> ApiKeys: ...

    @property
    def pushes(self) -> PushStore: ...

    @property
    def worker_registry(self) -> WorkerRegistry: ...

    @property
    def cancel_requests(self) -> CancelRequests: ...

    @property
    def key_values(self) -> KeyValues: ...

    @property
    def upstreams(self) -> UpstreamStore: ...

    @property
    def audit(self) -> AuditLog: ...

    @property
    def erasures(self) -> Erasures: ...

    @property
    def commit_counters(self) -> CommitCounters:
        """The commits of this process."""

    def now(self) -> int:
        """The store's time: milliseconds since the epoch. It follows elapsed time, whatever this machine's clock says.

        All that is due at some time is compared with it. Reads no file, and asks no server.
        """

    def secret(self, purpose: str) -> bytes:
        """A secret of 32 bytes for one purpose, which stays the same as long as the store exists."""

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """Writes one change, in one commit with other pending changes (group commit).

        Returns at once; the future completes after the commit. Changes are applied in the order of the calls, and
        their futures complete in that order. The future raises core.task.log.AppendRejected when the guard does not
        hold; other changes are not affected.
        """

    async def find(self, owner: Owner, agent: str, task_id: str) -> TaskRecord | None:
        """The task with this client-visible id, or None when the owner's agent has no visible task with it."""

    async def locate(self, task_id: str) -> list[TaskRecord]:
        """All tasks with this client-visible id, of any owner. For operators."""

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot | None:
        """The current task with the last `history` messages (None: all). Reads only what it returns."""

    async def get(self, owner: Owner, agent: str, task_id: str, *, history: int | None = None) -> TaskSnapshot | None:
        """`find` and `read` in one consistent read."""

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        """About `limit` events after sequence `after`, as whole appends; fewer when they are large, but at least one.

        Raises core.task.log.LogTruncated when events after `after` were dropped, rather than return a gap.
        """

    async def oldest_sequence(self, task: TaskRef) -> int:
        """The first sequence in a task's log: 1 unless it was truncated; 0 when there is no such task."""

    async def messages(self, task: TaskRef, after: int = 0) -> TaskMessages | None:
        """The input of a turn, with the messages numbered above `after`; None for a task that does not exist."""

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        """The request of a message, without the message; empty when there is no such message."""

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of visible tasks, newest status first, with the exact total for the filters."""

    async def search(self, query: TaskSearch) -> FoundTasks:
        """One page of visible tasks of all owners; a search for what no index has ends a page early."""

    async def count_states(self, query: TaskSearch) -> list[StateCount]:
        """The number of tasks in each state that match a search; its states and its page do not count."""

    async def open_tasks(self, query: TaskSearch) -> list[OpenTasks]:
        """The unfinished tasks in the scopes and of the agents of a search, by agent and state."""

    async def scopes(self, limit: int) -> list[str]:
        """The scopes of the store in alphabetical order, at most `limit`."""

    async def agents_of(self, principal: str) -> list[AgentTasks]:
        """The scopes and agents with tasks of a principal, the last changed first."""

    async def last_sequences(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        """The last sequences of the existing ones of these tasks, by key."""

    async def ready_tasks(self, agents: Collection[str], limit: int, after: str = "") -> list[TaskRecord]:
        """Tasks that are ready to be claimed, in scheduling order: one of each principal in turn, starting behind the
        principal `after`; of each principal the oldest first."""

    @property
    def epoch(self) -> str:
        """8 hex digits that identify the history of the store. A restore changes them."""

    async def open_session(self, lease: float, *, exclusive: bool = False) -> int:
        """Opens a session for `lease` seconds, with a new number. `exclusive`: all earlier sessions are over."""

    def renew_session(self, session: int, lease: float) -> int:
        """Extends a session, before other pending writes. Blocks: call it from a thread of its own.

        Returns the milliseconds that were left by the store's clock, negative when it had expired. Raises the cause.
        """

    async def sessions(self) -> dict[int, int]:
        """The open sessions: number and expiry in milliseconds since the epoch."""

    async def orphaned_tasks(self, session: int, limit: int, *, expired: bool = True) -> list[TaskRecord]:
        """Tasks claimed by sessions that are over; never those of `session` itself.

        A session is over when its process has certainly ended (the caller is the only user, or the store can tell), and
        when it has expired, unless `expired` is False.
        """

    async def compact(self) -> CompactionResult:
        """Merges rows and drops what is no longer kept, only while no append waits.

        Reads of a task are byte-identical before and after. Events of unfinished tasks stay.
        """

    async def delegated_tasks(self, task: TaskRef, limit: int) -> list[TaskRecord]:
        """The first `limit` tasks that a task delegated (`NewTask.parent`), in the order of their creation."""

    async def daily_usage(self, query: DailyUsageQuery) -> list[DailyUsageRow]:
        """Sums of what tasks did and used by day, in the order of the groups; without groups exactly one row.

        Figures of ended turns change in the commit that they count, those of begun ones at the latest with the next.
        They stay when tasks are erased; erasing a principal removes its name from them.
        """

    async def hourly_usage(self, query: HourlyUsageQuery) -> HourlyUsage:
        """Sums of the same figures by agent and hour, for the last core.daily_usage.KEPT_HOURS; and times of turns."""

    async def steps(self, task: TaskRef, *, results: bool = False, only: Sequence[StepRecord] = ()) -> list[StepRecord]:
        """The steps by turn, the current one last, in the order of their start; `results`: only of the current one.

        `only`: the stored steps of the same turn, name and number, with their results.
        """

    async def sleeping_tasks(self, until: int, limit: int) -> list[TaskRecord]:
        """The tasks whose `wake_at` is at most `until` (milliseconds since the epoch), the first one first."""

    async def stats(self) -> StoreStats:
        """Current statistics. The cost grows with owners, waiting tasks and due pushes."""

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        """Copies a snapshot to a new folder without blocking calls, and verifies it. A failed copy is removed.

        destination: an absolute path, or the name of a folder, which is created beside the store.

        Raises core.errors.InvalidParams for an unusable destination, and OSError.
        """

    async def close(self) -> None:
        """Commits pending writes and closes the files. May be called twice."""


class Erasures(Protocol):
    """Selects, counts and erases tasks. Never delays an append. Times are the store's own."""

    def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        """Yields the tasks of a selection in batches, each of which is a separate read."""

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        """Counts what an erasure of the selection would remove now."""

    async def erase(
        self,
        selection: TaskSelection,
        *,
        reason: str = PURGE_REASON,
        limit: int | None = None,
        on_erased: Callable[[list[TaskRecord]], None] | None = None,
    ) -> ErasureReceipt:
        """Removes the tasks of a selection, at most `limit`, with everything that belongs to them.

        A task first disappears, and appends of its turn are rejected as ABSENT; `on_erased` is then called on the loop
        with the last records. Then its content is removed in steps. Returns when everything is removed. An interrupted
        erasure is completed by `resume`.
        """

    async def resume(self, age: Callable[[str, int], int] | None = None) -> list[ErasureReceipt]:
        """Completes interrupted erasures. May erase tasks beyond an age: milliseconds by agent and state, 0 for never.
        Returns the receipts of both."""

    async def receipts(self, limit: int = 100) -> list[ErasureReceipt]:
        """The last erasure receipts, newest first."""

    async def inactive_states(self) -> list[tuple[str, int]]:
        """The pairs of agent and state of terminal and interrupted tasks."""


class CancelRequests(Protocol):
    """Stored cancel requests for running tasks, with the metadata of each: a serialized Struct, or empty.

    A cancel request applies to the current turn, including its later attempts, and to no message that arrives later.
    """

    async def request(self, task: TaskRef, metadata: bytes = b"") -> None:
        """Stores a cancel request, if the task is running or waits to run. It replaces an earlier one."""

    async def of_session(self, session: int) -> Mapping[TaskRef, bytes]:
        """The tasks of a session that have cancel requests, with the metadata."""

    async def pending(self, tasks: Collection[TaskRef]) -> Mapping[TaskRef, bytes]:
        """Those of these tasks that have cancel requests, with the metadata."""

    async def overdue(self, seconds: float) -> Collection[TaskRef]:
        """The tasks whose cancel was first requested so many seconds ago, or earlier."""

    async def withdraw(self, task: TaskRef) -> None:
        """Deletes the request of a task whose agent has refused it."""


class KeyValues(Protocol):
    """Durable texts by name, shared by all servers of the store."""

    async def get(self, name: str) -> str:
        """The text with this name; empty when there is none."""

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        """Replaces the text `expected` (empty: none exists) by `value`. False, without a change, for any other text."""
