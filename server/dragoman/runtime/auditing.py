"""Who tells the audit log: entries wait here for a moment and are written together.

What a caller did to a task (`note`) never waits for the disk: it is written within LINGER seconds, and what a process
had not written when it was killed is lost. What operators do, and what takes something away for good, waits (`record`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from dragoman.core.audit import LONGEST, Entry, Level
from dragoman.core.erasing import Receipt
from dragoman.core.errors import PermissionDenied, Unauthenticated
from dragoman.core.identity import Identity
from dragoman.ports import AuditLog

log = logging.getLogger("dragoman.audit")

LINGER: Final = 0.25
"""Seconds for which entries are gathered."""

WAITING: Final = 10_000
"""Entries that may wait; further ones are counted, and an entry says how many."""

LOT: Final = 500
"""Entries that are written at a time."""


class Auditor:
    """The one who tells one store's log. Made on the loop."""

    def __init__(self, log: AuditLog, clock: Callable[[], int], level: Level = "all") -> None:
        """`clock` gives milliseconds since the epoch."""
        self._log = log
        self._clock = clock
        self.tasks = level == "all"
        """Whether what callers do to tasks is told."""
        self.on = level != "off"
        self._waiting: list[Entry] = []
        self._lost = 0
        self._writing: asyncio.Task[None] | None = None
        self._one = asyncio.Lock()

    # What happened --------------------------------------------------------------------------------------------------

    def did(self, action: str, who: Identity, scope: str, agent: str, task: str, **about: str) -> None:
        """A caller did something to a task."""
        if self.tasks:
            particulars = {"principal": who.principal, "task": task}
            if who.key:
                particulars["key"] = who.key
            self.note(Entry(self._clock(), action, "ok", {"scope": scope, "agent": agent, **about}, particulars))

    def refused(self, error: BaseException, peer: str, method: str) -> None:
        """A caller was refused for what it showed, or for what that does not allow."""
        if not isinstance(error, Unauthenticated | PermissionDenied):
            return
        who = {"peer": peer, **{name: _short(value) for name, value in error.about.items()}}
        about = {"method": _short(method), "reason": _short(error.message)}
        self.note(Entry(self._clock(), "access.denied", type(error).__name__, about, who))

    async def operated(self, verb: str, who: Mapping[str, str], asked: Mapping[str, str], **about: str) -> None:
        """An operator did something. Durable when this returns."""
        particulars = {**who, **{name: _short(value) for name, value in asked.items()}}
        await self.record(Entry(self._clock(), f"operator.{verb}", "ok", about, particulars))

    async def erased(self, receipt: Receipt) -> None:
        """Tasks were erased, whoever wanted it; a receipt is kept of it. Durable when this returns."""
        if not receipt.number:
            return
        about = {"receipt": str(receipt.number), "reason": receipt.reason, "selection": receipt.selection}
        counted = {"tasks": str(receipt.counts.tasks), "bytes": str(receipt.counts.bytes), "digest": receipt.digest}
        await self.record(Entry(self._clock(), "tasks.erased", "ok", {**about, **counted}))

    # Telling --------------------------------------------------------------------------------------------------------

    def note(self, entry: Entry) -> None:
        """Has an entry written before long."""
        if not self.on:
            return
        if len(self._waiting) >= WAITING:
            self._lost += 1
            return
        self._waiting.append(entry)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_soon(), name="audit log")

    async def record(self, entry: Entry) -> None:
        """Writes an entry, and those that wait before it. Raises what the store raises."""
        if self.on:
            await self._write(entry)

    async def settle(self) -> None:
        """Writes what waits: before an erasure that is to find it. Raises what the store raises."""
        if self._waiting:
            await self._write()

    async def cut(self, age: int) -> int:
        """Removes what is older than so many milliseconds, by policy, and says so. Gives how many."""
        done = some = await self._log.cut(self._clock() - age)
        while some:
            some = await self._log.cut(self._clock() - age)
            done += some
        if done:
            await self._write(Entry(self._clock(), "audit.cut", "ok", {"entries": str(done), "age_ms": str(age)}))
        return done

    async def close(self) -> None:
        """Writes what waits."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.cancel()
            await asyncio.wait((writing,))
        try:
            await self._write()
        except Exception:
            log.exception("the last entries of the audit log could not be written: %d", len(self._waiting))

    async def _write_soon(self) -> None:
        while self._waiting:
            await asyncio.sleep(LINGER)
            try:
                await self._write()
            except Exception:
                log.exception("the audit log could not be written; %d entries wait", len(self._waiting))
        self._writing = None

    async def _write(self, *last: Entry) -> None:
        async with self._one:
            if self._lost:
                lost, self._lost = self._lost, 0
                self._waiting.append(Entry(self._clock(), "audit.lost", "ok", {"entries": str(lost)}))
            while self._waiting:
                some = self._waiting[:LOT]
                await self._log.add(some)
                del self._waiting[: len(some)]
            if last:
                await self._log.add(last)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
