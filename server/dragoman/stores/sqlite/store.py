"""The SQLite store: one writer thread, readers apart, everything in one file but large parts, which lie beside it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from dragoman.core.census import Census
from dragoman.core.erasing import PURGE, Counts, Receipt, Selection
from dragoman.core.log import Append, Appended, ContextState, Event, Head, TaskRef
from dragoman.core.names import Owner
from dragoman.core.pages import Page, Query
from dragoman.core.sizes import DEFAULT, Sizes
from dragoman.core.usage import Usage
from dragoman.ports import Conversation, Copied, Snapshot, Tidied
from dragoman.stores.sqlite import backup, blobs, census, joining, reads, sessions, usage, waiting
from dragoman.stores.sqlite.apikeys import SqliteApiKeys
from dragoman.stores.sqlite.audit import SqliteAuditLog
from dragoman.stores.sqlite.blobs import Files
from dragoman.stores.sqlite.cancels import SqliteCancels
from dragoman.stores.sqlite.checkpoint import Checkpointer
from dragoman.stores.sqlite.erasures import Erasures
from dragoman.stores.sqlite.folding import Folder
from dragoman.stores.sqlite.inline import Inline
from dragoman.stores.sqlite.near import Away, Near
from dragoman.stores.sqlite.outbox import Outbox
from dragoman.stores.sqlite.papers import SqlitePapers
from dragoman.stores.sqlite.roster import SqliteRoster
from dragoman.stores.sqlite.schema import Synchronous, connect, migrate
from dragoman.stores.sqlite.spill import Spill
from dragoman.stores.sqlite.trouble import outage
from dragoman.stores.sqlite.upstreams import SqliteUpstreams
from dragoman.stores.sqlite.writer import Writer

log = logging.getLogger("dragoman.store")

READERS: Final = 2
"""Threads that read. SQLite reads hold the interpreter for most of their time, so more would only take turns."""

P = ParamSpec("P")
T = TypeVar("T")


def milliseconds() -> int:
    """Now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def open_store(
    path: Path,
    *,
    clock: Callable[[], int] = milliseconds,
    synchronous: Synchronous = "full",
    sizes: Sizes = DEFAULT,
) -> SqliteStore:
    """Opens the database, making or migrating it first.

    `synchronous="normal"` makes commits cheaper; a loss of power may then undo the last ones, a crash of the
    process never does. Raises sqlite3.Error, and schema.SchemaTooNew for a file of a newer version.
    """
    connection = connect(path, synchronous)
    try:
        migrate(connection)
        return SqliteStore(path, connection, clock, sizes)
    except BaseException:
        connection.close()
        raise


class SqliteStore:
    """Implements `dragoman.ports.Store` on one SQLite file."""

    def __init__(self, path: Path, connection: sqlite3.Connection, clock: Callable[[], int], sizes: Sizes) -> None:
        self._secret = secret = blobs.secret(connection)
        marker = blobs.marker(secret)
        self._path = path
        self._clock = clock
        (self._epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        self._checkpointer = Checkpointer(lambda: connect(path), path)
        self._writer = Writer(connection, clock, self._checkpointer)
        self.commits = self._writer.commits
        self._local = threading.local()
        self._near = Near(connect(path, readonly=True), marker)
        self._reading: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, "dragoman-reader", self._open_reader)
        self._files = Files(backup.blobs_of(path))
        self.blobs = Inline(self._files, secret, marker, sizes.inline_bytes, clock)
        self._spill = Spill(self._files, self.blobs, marker, self._writer.submit)
        self._swept = False
        self._folder = Folder(self._read, partial(self._writer.submit, low=True), clock, sizes)
        self._erasures = Erasures(self._read, self._writer, clock)
        self.api_keys = SqliteApiKeys(self._read, self._writer.submit, partial(self._writer.submit, low=True))
        self.pushes = Outbox(self._read, self._writer, clock)
        self.roster = SqliteRoster(self._read, self._writer.submit)
        self.cancels = SqliteCancels(self._read, self._writer.submit, partial(self._writer.submit, low=True))
        self.papers = SqlitePapers(self._read, self._writer.submit)
        self.upstreams = SqliteUpstreams(self._read, self._writer.submit)
        self.audit = SqliteAuditLog(self._read, self._writer.submit)

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"purpose {purpose}".encode(), "sha256")

    def append(self, change: Append) -> asyncio.Future[Appended]:
        return self._spill.append(change)

    async def find(self, owner: Owner, agent: str, task_id: str, *, joined: bool = False) -> Head | None:
        try:
            return self._near.find(owner, agent, task_id)
        except Away:
            return await self._read(reads.find, owner, agent, task_id, joined)

    async def host(self, owner: Owner, context: str) -> Owner | None:
        return await self._read(joining.host, owner, context)

    async def locate(self, task_id: str) -> list[Head]:
        return await self._read(reads.locate, task_id)

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> Snapshot | None:
        try:
            return self._near.read(task, history, artifacts)
        except Away:
            return await self._read(self.blobs.read, task, history, artifacts)

    async def get(
        self, owner: Owner, agent: str, task_id: str, *, joined: bool = False, history: int | None = None
    ) -> Snapshot | None:
        try:
            return self._near.get(owner, agent, task_id, history)
        except Away:
            return await self._read(self.blobs.get, owner, agent, task_id, joined, history)

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        return await self._read(self.blobs.events, task, after, limit)

    async def oldest(self, task: TaskRef) -> int:
        return await self._read(reads.oldest, task)

    async def conversation(self, task: TaskRef, after: int = 0) -> Conversation | None:
        return await self._read(self.blobs.conversation, task, after)

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        return await self._read(reads.envelope, task, number)

    async def page(self, query: Query) -> Page:
        return await self._read(self.blobs.page, query)

    async def versions(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        return await self._read(reads.versions, tasks)

    async def waiting(self, agents: Collection[str], limit: int, after: str = "") -> list[Head]:
        return await self._read(waiting.waiting, agents, limit, after)

    async def orphans(self, session: int, limit: int, *, expired: bool = True) -> list[Head]:
        return await self._read(reads.orphans, session, self._clock() if expired else 0, limit)

    @property
    def epoch(self) -> str:
        return str(self._epoch)

    async def context(self, owner: Owner, agent: str, context: str) -> ContextState:
        return await self._read(reads.context, owner, agent, context)

    async def open_session(self, lease: float, *, alone: bool = False) -> int:
        begin = partial(sessions.begin, now=self._clock(), lease=lease, alone=alone)
        return int(await self._writer.submit(begin))

    def renew(self, session: int, lease: float) -> int:
        left: list[int] = []  # a job that is begun again adds another
        self._writer.first(lambda connection: left.append(sessions.renew(connection, session, self._clock(), lease)))
        return left[-1]

    async def sessions(self) -> dict[int, int]:
        return await self._read(sessions.alive, self._clock())

    async def tidy(self) -> Tidied:
        await self.cancels.tidy()
        done = Tidied(await self._folder.join(), await self._folder.cut(), await self._sweep())
        if done != Tidied():
            log.info("tidied the store: %s", done)
        return done

    def select(self, selection: Selection) -> AsyncGenerator[list[Head], None]:
        return self._erasures.select(selection)

    async def measure(self, selection: Selection) -> Counts:
        return await self._erasures.measure(selection)

    async def erase(
        self,
        selection: Selection,
        *,
        reason: str = PURGE,
        limit: int | None = None,
        gone: Callable[[list[Head]], None] | None = None,
    ) -> Receipt:
        def left(heads: list[Head]) -> None:
            self._near.forget()
            if gone is not None:
                gone(heads)

        return await self._erasures.erase(selection, reason=reason, limit=limit, gone=left)

    async def resume_erasures(self) -> list[Receipt]:
        return await self._erasures.resume()

    async def usage(self, task: TaskRef) -> Usage:
        return await self._read(usage.read, task)

    async def census(self) -> Census:
        return await self._read(census.census, self._clock())

    async def receipts(self, limit: int = 100) -> list[Receipt]:
        return await self._erasures.receipts(limit)

    async def resting(self) -> list[tuple[str, int]]:
        return await self._erasures.resting()

    def backup(self, destination: Path) -> AsyncGenerator[Copied, None]:
        return backup.backup(self._path, destination, self._clock)

    async def _sweep(self) -> int:
        """Removes files that nothing refers to; the first time also those that no append ever came to speak of."""
        low, gone = partial(self._writer.submit, low=True), 0
        if not self._swept:
            earlier = await asyncio.to_thread(self._files.earlier)
            for at in range(0, len(earlier), blobs.STEP):
                gone += await low(
                    partial(blobs.remove_unknown, files=self._files, digests=earlier[at : at + blobs.STEP])
                )
            self._swept = True
        while await self._read(blobs.any_free) and (
            removed := await low(partial(blobs.remove_free, files=self._files))
        ):
            gone += removed
        return gone

    async def close(self) -> None:
        await self._spill.close()
        self._writer.flush()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._readers.shutdown()
        while self._reading:
            self._reading.pop().close()
        self._near.close()
        self._checkpointer.close()
        self._writer.close()

    def _open_reader(self) -> None:
        self._local.connection = connection = connect(self._path, readonly=True)
        self._reading.append(connection)

    async def _read(
        self, look: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run() -> T:
            connection: sqlite3.Connection = self._local.connection
            try:
                connection.execute("BEGIN")  # one snapshot, however many statements
                try:
                    return look(connection, *args, **kwargs)
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise outage(error, wrote=False) from error

        return await asyncio.get_running_loop().run_in_executor(self._readers, run)
