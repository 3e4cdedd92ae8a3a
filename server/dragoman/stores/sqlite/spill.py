"""The way of an append that holds large parts: they become files first, then the append goes to the writer.

Writing files takes its time on threads of its own. Changes of the same task wait for one that is on this way, so
that they are applied in the order of the calls; changes of other tasks do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dragoman.core import references
from dragoman.core.log import Append, Appended, TaskRef
from dragoman.core.references import EVENT, Spilled
from dragoman.stores.sqlite.blobs import Files
from dragoman.stores.sqlite.inline import Inline

WRITERS: Final = 2
"""Threads that write files: more would only wait for the same disk."""


class Spill:
    """Takes large parts out of changes. `submit` hands a change to the writer."""

    def __init__(
        self, files: Files, inline: Inline, marker: bytes, submit: Callable[[Append], asyncio.Future[Appended]]
    ) -> None:
        self._files = files
        self._inline = inline
        self._marker = marker
        self._submit = submit
        self._threads = ThreadPoolExecutor(WRITERS, "dragoman-blobs")
        self._ahead: dict[TaskRef, asyncio.Future[None]] = {}
        self._work: set[asyncio.Task[None]] = set()

    def append(self, change: Append) -> asyncio.Future[Appended]:
        """As `ports.Store.append`. A small change of a task that has nothing on the way goes straight on."""
        ahead = self._ahead.get(change.task)
        if ahead is None and not references.is_large(change):
            return self._submit(change)
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
        self._threads.shutdown(wait=False)

    async def _append(
        self,
        change: Append,
        ahead: asyncio.Future[None] | None,
        passed: asyncio.Future[None],
        answer: asyncio.Future[Appended],
    ) -> None:
        contents: dict[bytes, bytes] = {}
        try:
            try:
                if references.is_large(change):
                    loop = asyncio.get_running_loop()
                    spilled = await loop.run_in_executor(self._threads, self._take_out, change)
                    change, contents = spilled.change, spilled.contents
            finally:
                if ahead is not None:
                    await ahead
            future = self._submit(change)
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
            self._files.let_go(contents.keys())
            self._pass(change.task, passed)

    def _take_out(self, change: Append) -> Spilled:
        """Puts the large parts on disk, and holds them."""
        spilled = references.spill(change, self._marker)
        self._files.hold(spilled.contents.keys())
        try:
            for digest, content in spilled.contents.items():
                self._files.write(digest, content)
        except BaseException:
            self._files.let_go(spilled.contents.keys())
            raise
        return spilled

    def _pass(self, ref: TaskRef, passed: asyncio.Future[None]) -> None:
        """Lets the next change of the task go on."""
        if not passed.done():
            passed.set_result(None)
        if self._ahead.get(ref) is passed:
            del self._ahead[ref]
