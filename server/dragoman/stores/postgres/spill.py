"""The way of an append that holds large parts: they are committed first, then the append goes to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dragoman.core import references
from dragoman.core.log import Append, Appended, TaskRef
from dragoman.core.references import EVENT, Spilled
from dragoman.stores.postgres import blobs
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.inline import Inline
from dragoman.stores.postgres.writer import Writer


class Spill:
    """Takes large parts out of changes. Changes of the same task wait for one that is on this way, so that they
    are applied in the order of the calls; changes of other tasks do not."""

    def __init__(self, database: Database, writer: Writer, inline: Inline, marker: bytes) -> None:
        self._database = database
        self._writer = writer
        self._inline = inline
        self._marker = marker
        self._ahead: dict[TaskRef, asyncio.Future[None]] = {}
        self._work: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task that has nothing on the way goes straight on."""
        ahead = self._ahead.get(change.task)
        if ahead is None and not references.is_large(change):
            return self._writer.submit(change)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Appended] = loop.create_future()
        passed = self._ahead[change.task] = loop.create_future()
        work = loop.create_task(self._append(change, ahead, passed, answer))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        return answer

    async def close(self) -> None:
        """Waits for what is on the way."""
        while self._work:
            await asyncio.wait(self._work)

    async def _append(
        self,
        change: Append,
        ahead: asyncio.Future[None] | None,
        passed: asyncio.Future[None],
        answer: asyncio.Future[Appended],
    ) -> None:
        contents: Mapping[bytes, bytes] = {}
        try:
            try:
                if references.is_large(change):
                    spilled = await self._take_out(change)
                    change, contents = spilled.change, spilled.contents
            finally:
                if ahead is not None:
                    await ahead
            future = self._writer.submit(change)
            self._pass(change.task, passed)
            appended = await future
            for event in appended.events:
                event.data = self._inline.restore(event.data, EVENT, contents)
            if not answer.done():
                answer.set_result(appended)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        finally:
            self._pass(change.task, passed)

    async def _take_out(self, change: Append) -> Spilled:
        """Commits the large parts."""
        spilled = await asyncio.to_thread(references.spill, change, self._marker)
        for digest, content in sorted(spilled.contents.items()):
            await self._database.change(blobs.keep, digest, content, self._database.at)
        return spilled

    def _pass(self, ref: TaskRef, passed: asyncio.Future[None]) -> None:
        """Lets the next change of the task go on."""
        if not passed.done():
            passed.set_result(None)
        if self._ahead.get(ref) is passed:
            del self._ahead[ref]
