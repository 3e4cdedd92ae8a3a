"""What the runtime needs of a store: tasks on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dragoman.core.counters import CommitCounters, StoreStats
from dragoman.core.limits.quotas import Usage
from dragoman.core.names import Owner
from dragoman.core.task.cursors import TaskPage, TaskQuery
from dragoman.core.task.log import ROLE_USER, Append, Appended, ContextState, Event, TaskRecord, TaskRef
from dragoman.core.task.maintenance import PURGE_REASON, ErasureCounts, ErasureReceipt, TaskSelection
from dragoman.ports.push import PushStore
from dragoman.ports.remote_agents import UpstreamStore, WorkerRegistry
from dragoman.ports.security import ApiKeys, AuditLog


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task at one moment: a serialized `lf.a2a.v1.Task` and the head it was read with."""

    record: TaskRecord
    task: bytes


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of a task: serialized Message, and the SendMessageRequest it came in, less the message."""

    number: int
    role: int
    message: bytes
    envelope: bytes
    sender: str = ""
    """The principal that sent it; empty for the owner's, and for the agent's messages."""


@dataclass(frozen=True, slots=True)
class TaskMessages:
    """What a run needs of a task it did not begin: its messages, and the agent's own JSON."""

    record: TaskRecord
    messages: list[StoredMessage]
    task_state: bytes

    def unread(self, last_delivered: int) -> list[StoredMessage]:
        """What users said after event `taken`."""
        return [one for one in self.messages if one.role == ROLE_USER and one.number > last_delivered]


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What there is less of: rows that were joined to others, events of finished tasks, files nobody refers to."""

    rows: int = 0
    events: int = 0
    files: int = 0

    def __str__(self) -> str:
        counts = (
            (self.rows, "rows joined to others"),
            (self.events, "old events dropped"),
            (self.files, "files removed"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a copy of the store is: bytes done of about so many; `done` once it was found to be good."""

    bytes: int
    total: int
    done: bool = False


class Blobs(Protocol):
    """The large parts of a store's tasks, which answers past a limit give as links to `/blobs/{hash}`."""

    def set_base_url(self, base: Callable[[], str]) -> None:
        """Says what links begin with: the public address of HTTP."""
        ...

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        """The file that a link gives away, None when it is gone. Raises PermissionError for a link that is not good."""
        ...


class Store(Protocol):
    """Tasks on disk. What it acknowledges is durable; what it refuses leaves no trace."""

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
    def commit_counters(self) -> CommitCounters:
        """What this process has committed so far."""
        ...

    def secret(self, purpose: str) -> bytes:
        """32 bytes that nobody else knows: the same as long as the store lasts, and others for each purpose."""
        ...

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """Writes one change, together with whatever else waits, in one commit (group commit).

        Returns at once; the future is done after the commit. Changes are applied in the order of the calls.
        Raises (in the future) core.log.Refused when the guard does not hold: that item alone is left out.
        """
        ...

    async def find(self, owner: Owner, agent: str, task_id: str, *, joined: bool = False) -> TaskRecord | None:
        """The task a client means by this id, or None when its owner's agent has none to show.

        `joined`: also one of a conversation that the owner has joined.
        """
        ...

    async def context_owner(self, owner: Owner, context: str) -> Owner | None:
        """Under whom the tasks of a conversation are kept that others may join; None when the scope has no such."""
        ...

    async def locate(self, task_id: str) -> list[TaskRecord]:
        """Every task that clients call so, whoever's it is. For operators."""
        ...

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> TaskSnapshot | None:
        """The task as it is, with the last `history` messages (None: all). Reads only what it returns."""
        ...

    async def get(
        self, owner: Owner, agent: str, task_id: str, *, joined: bool = False, history: int | None = None
    ) -> TaskSnapshot | None:
        """`find` and `read` in one consistent look."""
        ...

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        """Up to about `limit` events with sequences after `after`, in order (whole appends, so a few more).

        Raises core.log.Cut when the log was cut after `after`: rather that than a gap.
        """
        ...

    async def oldest_sequence(self, task: TaskRef) -> int:
        """The first sequence that the log of a task still has: 1 unless it was cut; 0 when there is no such task."""
        ...

    async def messages(self, task: TaskRef, after: int = 0) -> TaskMessages | None:
        """The memory of a task and its messages with numbers after `after`."""
        ...

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        """The request in which a message came, less the message; empty when there is no such message."""
        ...

    async def page(self, query: TaskQuery) -> TaskPage:
        """One page of visible tasks, newest status first, with the exact total of the filters."""
        ...

    async def last_sequences(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        """The last sequence of each of these tasks that still exists, by key."""
        ...

    async def ready_tasks(self, agents: Collection[str], limit: int, after: str = "") -> list[TaskRecord]:
        """Tasks that are ready for a worker, in the order in which to take them: one of each principal in turn,
        beginning behind the principal `after`; of each the oldest first."""
        ...

    @property
    def epoch(self) -> str:
        """8 hex digits that name this store's history: another one after a restore."""
        ...

    async def context_state(self, owner: Owner, agent: str, context: str) -> ContextState:
        """The agent's JSON for a conversation as last committed; empty, of version 0, when there is none."""
        ...

    async def open_session(self, lease: float, *, exclusive: bool = False) -> int:
        """Begins a worker session, a number never used before in this store, that expires in `lease` seconds.

        `alone`: the caller holds the store by itself, so every earlier session is over.
        """
        ...

    def renew_session(self, session: int, lease: float) -> int:
        """Puts the end of a session off, before whatever else waits to be written. Blocks; for a thread of its own.

        Gives how many milliseconds it had left by the store's clock, less than 0 when it had expired. Raises what made
        it impossible.
        """
        ...

    async def sessions(self) -> dict[int, int]:
        """The sessions that have not ended: number and time of expiry in milliseconds since the epoch."""
        ...

    async def orphaned_tasks(self, session: int, limit: int, *, expired: bool = True) -> list[TaskRecord]:
        """Tasks claimed by sessions that are over; never this one's own.

        Over is a session whose process is gone for certain, because somebody is alone now or the store can see it; and
        one that has expired, unless `expired` is False.
        """
        ...

    async def compact(self) -> CompactionResult:
        """Takes less room where no answer needs it, and only while no append waits.

        A task that is read is the same before and after, to the byte. Events of tasks that have not ended stay.
        """
        ...

    # Upkeep: never in the way of an append. Times are the store's own.

    def select(self, selection: TaskSelection) -> AsyncGenerator[list[TaskRecord], None]:
        """The tasks of a selection, some at a time; each lot is a look of its own."""
        ...

    async def measure(self, selection: TaskSelection) -> ErasureCounts:
        """What an erasure of the selection would remove now."""
        ...

    async def erase(
        self,
        selection: TaskSelection,
        *,
        reason: str = PURGE_REASON,
        limit: int | None = None,
        on_erased: Callable[[list[TaskRecord]], None] | None = None,
    ) -> ErasureReceipt:
        """Removes the tasks of a selection (`limit`: so many at most) with everything that belongs to them.

        A task is first not there any more, whoever runs it refused as ABSENT (`gone` is told then, on the loop, with
        the last head of each); then its content goes, in steps. Returns when all is gone. An erasure that is cut
        short has removed what it had begun with, once `resume_erasures` was called; so does the next erasure.
        """
        ...

    async def resume_erasures(self) -> list[ErasureReceipt]:
        """Completes erasures that were cut short."""
        ...

    async def receipts(self, limit: int = 100) -> list[ErasureReceipt]:
        """The last receipts, newest first."""
        ...

    async def usage(self, task: TaskRef) -> Usage:
        """All that a task has used, as its agent and those of the tasks that work for it reported (`NewTask.parent`).

        The same stands in its metadata, as `usage`, as it was when its own agent reported last.
        """
        ...

    async def stats(self) -> StoreStats:
        """How much there is now. Costs what there is of owners, waiting tasks and due pushes, and not of tasks."""
        ...

    async def inactive_states(self) -> list[tuple[str, int]]:
        """The pairs of agent and state of tasks that have ended or wait for their caller."""
        ...

    def backup(self, destination: Path) -> AsyncGenerator[BackupProgress, None]:
        """Copies the store as it is at one moment to a folder that is not there yet, and checks the copy.

        Nobody waits for it. What was left of a copy that failed is removed. Raises core.errors.InvalidParams for a
        destination that cannot be used, and OSError.
        """
        ...

    async def close(self) -> None:
        """Commits what waits and lets go of the files. May be called twice."""
        ...


class CancelRequests(Protocol):
    """Cancels that were asked for of tasks that somebody runs, on disk.

    A cancel holds for what the task had been asked to do until then: until its turn has ended, however often it is
    begun again, and for no message that comes later.
    """

    async def request(self, task: TaskRef) -> None:
        """Keeps that the task is to stop, if somebody runs it or it waits for that."""
        ...

    async def of_session(self, session: int) -> list[TaskRef]:
        """The tasks that a session runs and that are to stop."""
        ...

    async def pending(self, tasks: Collection[TaskRef]) -> set[TaskRef]:
        """Those of these tasks that are to stop."""
        ...


class KeyValues(Protocol):
    """Texts by name, for as long as the store lasts. All servers of the store have the same."""

    async def get(self, name: str) -> str:
        """The text of this name; empty when there is none."""
        ...

    async def compare_and_set(self, name: str, value: str, *, expected: str) -> bool:
        """Puts a text in the place of `former`; empty means that there is none. False when another one is there, and
        nothing was changed."""
        ...
