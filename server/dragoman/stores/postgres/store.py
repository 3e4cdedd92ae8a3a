"""The PostgreSQL store: one writer for each process, readers apart, everything in one database.

Several processes may open the same database at the same time. Who runs a task, which message was first and whether
there is room for one more is decided by row locks and advisory locks that go with their transaction; the time that
counts is the server's.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from asyncpg import Connection

from dragoman.core.census import Census
from dragoman.core.erasing import PURGE, Counts, Receipt, Selection
from dragoman.core.errors import UnsupportedOperation
from dragoman.core.log import Append, Appended, ContextState, Event, Head, TaskRef
from dragoman.core.names import Owner
from dragoman.core.pages import Page, Query
from dragoman.core.references import MARKER
from dragoman.core.sizes import Sizes
from dragoman.core.usage import Usage
from dragoman.ports import Conversation, Copied, Snapshot, Tidied
from dragoman.stores.postgres import blobs, census, joining, listing, processes, reads, sessions, usage, waiting
from dragoman.stores.postgres.apikeys import PostgresApiKeys
from dragoman.stores.postgres.aside import Aside
from dragoman.stores.postgres.audit import PostgresAuditLog
from dragoman.stores.postgres.cancels import PostgresCancels
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.erasures import Erasures
from dragoman.stores.postgres.folding import Folder
from dragoman.stores.postgres.inline import Inline
from dragoman.stores.postgres.outbox import Outbox
from dragoman.stores.postgres.papers import PostgresPapers
from dragoman.stores.postgres.roster import PostgresRoster
from dragoman.stores.postgres.spill import Spill
from dragoman.stores.postgres.upstreams import PostgresUpstreams
from dragoman.stores.postgres.writer import Writer

log = logging.getLogger("dragoman.store")


NO_BACKUP: Final = (
    "a store on PostgreSQL is copied with PostgreSQL's own tools: pg_dump, or pg_basebackup with an archive of its "
    "log; large parts are in the database, too"
)


FAILED_OVER: Final = (
    "the database was failed over (timeline %s, now %s): unless the standby was synchronous, commits are gone, "
    "and every server has to be restarted"
)


class PostgresStore:
    """Implements `dragoman.ports.Store` on a database, for the event loop on which it is opened."""

    def __init__(
        self,
        url: str,
        database: Database,
        epoch: str,
        secret: bytes,
        sizes: Sizes,
        clock: Callable[[], int] | None,
    ) -> None:
        self._database = database
        self._epoch = epoch
        self._secret = secret
        self._writer = Writer(database)
        self.commits = self._writer.commits
        self._heart = Aside(url, "dragoman-session-rows")
        self._links = Aside(url, "dragoman-links")
        marker = hmac.digest(secret, b"reference", "sha256")[:MARKER]
        self.blobs = Inline(self._contents, self._links, secret, marker, sizes.inline_bytes, clock or _milliseconds)
        self._spill = Spill(database, self._writer, self.blobs, marker)
        self._folder = Folder(database, sizes)
        self._erasures = Erasures(database, self._writer.slot)
        self.api_keys = PostgresApiKeys(database)
        self.pushes = Outbox(database)
        self.roster = PostgresRoster(database)
        self.cancels = PostgresCancels(database)
        self.papers = PostgresPapers(database)
        self.upstreams = PostgresUpstreams(database)
        self.audit = PostgresAuditLog(database)
        self._timeline = ""
        self._closed = False

    def secret(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, f"purpose {purpose}".encode(), "sha256")

    def append(self, change: Append) -> asyncio.Future[Appended]:
        return self._spill.append(change)

    async def find(self, owner: Owner, agent: str, task_id: str, *, joined: bool = False) -> Head | None:
        return await self._database.look(reads.find, owner, agent, task_id, joined)

    async def host(self, owner: Owner, context: str) -> Owner | None:
        return await self._database.look(joining.host, owner, context)

    async def locate(self, task_id: str) -> list[Head]:
        return await self._database.look(reads.locate, task_id)

    async def read(self, task: TaskRef, *, history: int | None = None, artifacts: bool = True) -> Snapshot | None:
        return await self.blobs.snapshot(await self._database.look(reads.read, task, history, artifacts))

    async def get(
        self, owner: Owner, agent: str, task_id: str, *, joined: bool = False, history: int | None = None
    ) -> Snapshot | None:
        # One's own task is one statement, and so one moment; one of a conversation that was joined is looked for.
        look = self._database.snapshot if joined else self._database.look
        return await self.blobs.snapshot(await look(reads.get, owner, agent, task_id, joined, history))

    async def events(self, task: TaskRef, after: int, limit: int = 256) -> list[Event]:
        return await self.blobs.events(await self._database.look(reads.events, task, after, limit))

    async def oldest(self, task: TaskRef) -> int:
        return await self._database.look(reads.oldest, task)

    async def conversation(self, task: TaskRef, after: int = 0) -> Conversation | None:
        return await self.blobs.conversation(await self._database.snapshot(reads.conversation, task, after))

    async def envelope(self, task: TaskRef, number: int) -> bytes:
        return await self._database.look(reads.envelope, task, number)

    async def page(self, query: Query) -> Page:
        return await self.blobs.page(await self._database.snapshot(listing.page, query))

    async def versions(self, tasks: Collection[TaskRef]) -> dict[bytes, int]:
        return await self._database.look(reads.versions, tasks)

    async def waiting(self, agents: Collection[str], limit: int, after: str = "") -> list[Head]:
        return await self._database.look(waiting.waiting, agents, limit, after)

    async def orphans(self, session: int, limit: int, *, expired: bool = True) -> list[Head]:
        await self._bury()
        return await self._database.look(reads.orphans, session, self._database.at, limit, expired)

    async def _bury(self) -> None:
        """Ends the sessions of processes that this machine had, and has no more: nobody has to wait for their end."""
        if not (place := processes.here()):
            return
        held = await self._database.look(sessions.held, place)
        if gone := sorted(number for number, process in held.items() if processes.is_gone(process)):
            await self._database.change(sessions.end, gone)
            log.info("sessions ended whose processes are gone: %s", ", ".join(map(str, gone)))

    @property
    def epoch(self) -> str:
        return self._epoch

    async def context(self, owner: Owner, agent: str, context: str) -> ContextState:
        return await self._database.look(reads.context, owner, agent, context)

    async def open_session(self, lease: float, *, alone: bool = False) -> int:
        return await self._database.change(sessions.begin, self._database.at, lease, alone, processes.myself())

    def renew(self, session: int, lease: float) -> int:
        async def renew(connection: Connection) -> tuple[int, str]:
            return await sessions.renew(connection, session, self._database.at, lease)

        left, timeline = self._heart.run(renew)
        if self._timeline not in ("", timeline):
            log.error(FAILED_OVER, self._timeline, timeline)
        self._timeline = timeline
        return left

    async def sessions(self) -> dict[int, int]:
        return await self._database.look(sessions.alive, self._database.at)

    async def tidy(self) -> Tidied:
        await self._database.forget_marks()
        await self.cancels.tidy()
        done = Tidied(await self._folder.join(), await self._folder.cut(), await blobs.sweep(self._database))
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
        return await self._erasures.erase(selection, reason=reason, limit=limit, gone=gone)

    async def resume_erasures(self) -> list[Receipt]:
        return await self._erasures.resume()

    async def usage(self, task: TaskRef) -> Usage:
        return await self._database.snapshot(usage.read, task)

    async def census(self) -> Census:
        return await self._database.snapshot(census.census, self._database.at)

    async def receipts(self, limit: int = 100) -> list[Receipt]:
        return await self._erasures.receipts(limit)

    async def resting(self) -> list[tuple[str, int]]:
        return await self._erasures.resting()

    def backup(self, destination: Path) -> AsyncGenerator[Copied, None]:
        raise UnsupportedOperation(NO_BACKUP)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._spill.close()
        await self._writer.close()
        await self._database.close()
        await asyncio.to_thread(self._heart.close)
        await asyncio.to_thread(self._links.close)
        await asyncio.to_thread(self.blobs.close)

    async def _contents(self, digests: Collection[bytes]) -> Mapping[bytes, bytes]:
        return await self._database.look(blobs.contents_of, digests)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
