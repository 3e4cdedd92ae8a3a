"""Blobs: large parts as files beside the database, named by their SHA-256, and their reference counts.

A file is durable on disk before the append that refers to it is committed, and is removed only without references.
Between the two a blob is held, and held files are never removed. Removal happens on the writer's thread inside the
transaction that deletes the blob's row, so no append can come between. If that transaction is rolled back, the blob
has no file and no uses, and the next write of the same bytes creates the file again. What is read gets its large parts
back on the reader threads.
"""

from __future__ import annotations

import asyncio
import fcntl
import hmac
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dragoman.core.errors import lacks_memory
from dragoman.core.names import Owner
from dragoman.core.task import blob_references
from dragoman.core.task.contents import RowData, RowSize, StoredContent, unlimited_budget
from dragoman.core.task.cursors import FoundTasks, TaskPage, TaskQuery, TaskSearch
from dragoman.core.task.log import Append, Appended, Blob, Event, TaskRef
from dragoman.core.task.steps import StepRecord
from dragoman.ports import TaskMessages, TaskSnapshot
from dragoman.stores.shared.blobs import BlobOffloader, BlobRestorer
from dragoman.stores.sqlite import reads
from dragoman.stores.sqlite.cold import search, task_tables
from dragoman.stores.sqlite.errors import failure_of
from dragoman.stores.sqlite.queries import Read, Submit
from dragoman.supervision import RepeatedFailures, describe_fault, log_fault

log = logging.getLogger("dragoman.store")

BLOBS_PER_SWEEP_STEP: Final = 64  # files removed in one commit
BLOB_WRITER_THREADS: Final = 2  # more would only wait for the same disk

_INSERT_BLOB_USE: Final = "INSERT OR IGNORE INTO blob_uses (owner, task, hash) VALUES (?, ?, ?)"
_COUNT_BLOB_USE: Final = (
    "INSERT INTO blobs (hash, size, uses) VALUES (?, ?, 1) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1"
)
_SELECT_UNUSED_BLOBS: Final = "SELECT hash FROM blobs WHERE uses = 0"
_IS_BLOB_KNOWN: Final = "SELECT 1 FROM blobs WHERE hash = ?"


def store_secret(connection: sqlite3.Connection) -> bytes:
    """The secret of this store, for signing. Created once."""
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secrets.token_hex(32),))
    return bytes.fromhex(connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0])


def renew_secret(connection: sqlite3.Connection) -> None:
    """Gives a copy of a store a secret of its own, but keeps the marker of the references in its rows."""
    connection.execute(
        "INSERT OR IGNORE INTO meta (name, value) SELECT 'marker', value FROM meta WHERE name = 'secret'"
    )
    connection.execute("UPDATE meta SET value = ? WHERE name = 'secret'", (secrets.token_hex(32),))


def reference_marker(connection: sqlite3.Connection) -> bytes:
    """Bytes that every reference of this store has, and that no caller can guess; from its first secret."""
    rows = connection.execute("SELECT value FROM meta WHERE name IN ('marker', 'secret') ORDER BY name")
    return hmac.digest(bytes.fromhex(rows.fetchone()[0]), b"reference", "sha256")[: blob_references.MARKER_BYTES]


def use_blobs(connection: sqlite3.Connection, owner: int, task: bytes, blobs: Iterable[Blob]) -> None:
    """Counts a task's references to these blobs, in the transaction that adds them."""
    for blob in blobs:
        if connection.execute(_INSERT_BLOB_USE, (owner, task, blob.digest)).rowcount:
            connection.execute(_COUNT_BLOB_USE, (blob.digest, blob.size))


class BlobFiles:
    """A folder of blob files. Every method blocks; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = time.time()
        self._lock = threading.Lock()
        self._held: Counter[bytes] = Counter()

    def path(self, digest: bytes) -> Path:
        """The path of a blob, whether it exists or not."""
        name = digest.hex()
        return self._folder / name[:2] / name[2:]

    def hold(self, digests: Collection[bytes]) -> None:
        """Protects these files from removal until `release` was called as often."""
        with self._lock:
            self._held.update(digests)

    def release(self, digests: Collection[bytes]) -> None:
        with self._lock:
            self._held.subtract(digests)
            self._held = +self._held

    def write(self, digest: bytes, content: bytes) -> None:
        """Writes a blob unless it exists. Hold it first. Raises OSError."""
        path = self.path(digest)
        if path.exists():
            return
        new = [folder for folder in (path.parent, self._folder) if not folder.exists()]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with draft.open("xb") as file:
                file.write(content)
            fsync(draft)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        fsync(path.parent)
        for folder in new:
            fsync(folder.parent)

    def remove(self, digest: bytes) -> bool:
        """Removes a blob unless it is held. True when it no longer exists."""
        with self._lock:
            if digest in self._held:
                return False
            self.path(digest).unlink(missing_ok=True)
            return True

    def files_before_start(self) -> list[bytes]:
        """The blobs older than this process's use of the folder. Removes drafts of that age."""
        digests = []
        for path in self._folder.glob("??/*"):
            if path.stat().st_mtime >= self._opened:
                continue
            try:
                digests.append(bytes.fromhex(path.parent.name + path.name))
            except ValueError:  # a draft: its writer died before it could rename it
                path.unlink(missing_ok=True)
        return digests


def fsync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:  # as `schema.connect`; other systems than macOS reject the command
        fcntl.fcntl(handle, getattr(fcntl, "F_FULLFSYNC", -1))
    except OSError:
        os.fsync(handle)
    finally:
        os.close(handle)


class SqliteBlobRestorer(BlobRestorer):
    """Implements `dragoman.ports.Blobs` on files beside the database."""

    def __init__(
        self, blob_files: BlobFiles, read: Read, secret: bytes, marker: bytes, limit: int, clock: Callable[[], int]
    ) -> None:
        super().__init__(secret, marker, limit, clock)
        self._blob_files = blob_files
        self._read = read

    def find(self, digest: str, query: Mapping[str, str]) -> Path | None:
        self.check_link(digest, query)
        path = self._blob_files.path(bytes.fromhex(digest))
        return path if path.exists() else None

    def content_of(self, digest: bytes) -> bytes | None:
        try:
            return self._blob_files.path(digest).read_bytes()
        except OSError as error:
            log_fault(log, "the file of a large part cannot be read; a link is given instead", error)
            return None

    async def read_rows(self, content: StoredContent, first: int, limit: int) -> Sequence[RowData]:
        return await self._read(reads.content_rows, content, first, limit)

    async def read_sizes(self, content: StoredContent) -> Sequence[RowSize]:
        return await self._read(reads.content_sizes, content)

    def read(
        self, connection: sqlite3.Connection, ref: TaskRef, history: int | None, artifacts: bool
    ) -> TaskSnapshot | None:
        budget = self.budget()
        snapshot = reads.read(connection, ref, history, artifacts, budget)
        if snapshot is None or self._marker not in snapshot.task:
            return snapshot
        return replace(snapshot, task=self.restore(snapshot.task, blob_references.TASK_TREE, budget))

    def get(
        self, connection: sqlite3.Connection, owner: Owner, agent: str, task_id: str, history: int | None
    ) -> TaskSnapshot | None:
        record = reads.find(connection, owner, agent, task_id)
        return self.read(connection, record.ref, history, True) if record else None

    def events(self, connection: sqlite3.Connection, ref: TaskRef, after: int, limit: int) -> list[Event]:
        """At most `limit` events; fewer when their blobs alone fill one response."""
        events = reads.events(connection, ref, after, limit)
        for event, budget in self._events_to_restore(events):
            event.data = self.restore(event.data, blob_references.EVENT_TREE, budget)
        return events

    def messages(self, connection: sqlite3.Connection, ref: TaskRef, after: int) -> TaskMessages | None:
        found = reads.read_messages(connection, ref, after)
        for stored in found.messages if found else ():
            stored.message = self.restore(stored.message, blob_references.MESSAGE_TREE, unlimited_budget())
        return found

    def steps(
        self, connection: sqlite3.Connection, ref: TaskRef, results: bool, only: Sequence[StepRecord]
    ) -> list[StepRecord]:
        found = task_tables.read_steps(connection, ref, results, only)
        for step in found:
            if self._marker in step.result:
                step.result = self.restore(step.result, blob_references.PART_TREE, unlimited_budget())
        return found

    def page(self, connection: sqlite3.Connection, query: TaskQuery) -> TaskPage:
        budget = self.budget()
        page = reads.page(connection, query, budget)
        return replace(page, tasks=[self.restore(task, blob_references.TASK_TREE, budget) for task in page.tasks])

    def search(self, connection: sqlite3.Connection, query: TaskSearch) -> FoundTasks:
        budget = self.budget()
        found = search.search(connection, query, budget)
        tasks = [replace(one, task=self.restore(one.task, blob_references.TASK_TREE, budget)) for one in found.tasks]
        return replace(found, tasks=tasks)


class SqliteBlobOffloader(BlobOffloader):
    """Writes large parts to blob files, and holds these files until their append is committed."""

    def __init__(
        self,
        blob_files: BlobFiles,
        blob_restorer: SqliteBlobRestorer,
        marker: bytes,
        submit: Callable[[Append], asyncio.Future[Appended]],
    ) -> None:
        super().__init__(blob_restorer, submit)
        self._blob_files = blob_files
        self._marker = marker
        self._failures = RepeatedFailures(log)
        self._threads = ThreadPoolExecutor(BLOB_WRITER_THREADS, "dragoman-blobs")

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown(wait=False)

    async def _offload(self, change: Append) -> blob_references.OffloadedChange:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._write, change)
        except (OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not lacks_memory(error):  # else no thread could be started
                raise
            self._failures.log(describe_fault(error), "the file of a large part cannot be written: %s")
            failure = failure_of(error)
            raise failure from error

    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        self._blob_files.release(contents.keys())

    def _write(self, change: Append) -> blob_references.OffloadedChange:
        offloaded = blob_references.offload_parts(change, self._marker)
        self._blob_files.hold(offloaded.contents.keys())
        try:
            for digest, content in offloaded.contents.items():
                self._blob_files.write(digest, content)
        except BaseException:
            self._blob_files.release(offloaded.contents.keys())
            raise
        return offloaded


class SqliteBlobSweeper:
    """Removes files without references, in steps on the writer's thread."""

    def __init__(self, files: BlobFiles, read: Read, submit: Submit) -> None:
        self._files = files
        self._read = read
        self._submit = submit
        self._startup_sweep_done = False

    async def remove_unused(self) -> int:
        """Returns how many files were removed: the first time also those whose append was never committed."""
        removed_files = 0
        if not self._startup_sweep_done:
            earlier = await asyncio.to_thread(self._files.files_before_start)
            for at in range(0, len(earlier), BLOBS_PER_SWEEP_STEP):
                digests = earlier[at : at + BLOBS_PER_SWEEP_STEP]
                removed_files += await self._submit(partial(self._remove_unknown, digests=digests), low_priority=True)
            self._startup_sweep_done = True
        while await self._read(lambda connection: connection.execute(_SELECT_UNUSED_BLOBS).fetchone()):
            removed: int = await self._submit(self._remove_unused, low_priority=True)
            removed_files += removed
            if not removed:
                break
        return removed_files

    def _remove_unused(self, connection: sqlite3.Connection) -> int:
        """One step. Returns how many files were removed."""
        removed = 0
        for (digest,) in connection.execute(_SELECT_UNUSED_BLOBS).fetchmany(BLOBS_PER_SWEEP_STEP):
            if self._files.remove(digest):
                connection.execute("DELETE FROM blobs WHERE hash = ?", (digest,))
                removed += 1
        return removed

    def _remove_unknown(self, connection: sqlite3.Connection, digests: Collection[bytes]) -> int:
        """Removes those of these files that have no row. Returns how many."""
        unknown = [digest for digest in digests if not connection.execute(_IS_BLOB_KNOWN, (digest,)).fetchone()]
        return sum(map(self._files.remove, unknown))
