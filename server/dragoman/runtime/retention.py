"""The end of what nobody needs any more: a job of its own, in small steps, in the writer's spare time.

A task that has waited too long for its caller ends by the one door, so whoever follows it sees that; what has ended
long enough ago is erased. Nothing depends on when a round comes, only on the store's clock.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core import states
from dragoman.core.ages import write_age
from dragoman.core.erasing import RETENTION, Selection
from dragoman.core.log import Append, Head, Refused, Version
from dragoman.core.retention import Rules
from dragoman.ports import Store
from dragoman.runtime.auditing import Auditor
from dragoman.runtime.log import Log
from dragoman.runtime.notices import EXPIRED, notice
from dragoman.runtime.upkeep import Upkeep

log = logging.getLogger("dragoman.retention")

EVERY: Final = 60.0
"""Seconds between two rounds."""

LOT: Final = 512
"""Tasks that are erased before others may have the store's spare time."""


@dataclass(slots=True)
class Kept:
    """What this process has done so far. Counters only grow; read them whenever you like."""

    rounds: int = 0
    failed: int = 0
    """Rounds that could not be completed."""
    expired: int = 0
    """Tasks that ended because nobody answered them."""
    erased: int = 0
    """Tasks erased because their time was over."""
    bytes: int = 0
    """Bytes of content erased with them."""


class Retention:
    """Sees to one store. `counts` is for whoever shows them."""

    def __init__(
        self,
        store: Store,
        appends: Log,
        upkeep: Upkeep,
        rules: Rules,
        *,
        auditor: Auditor | None = None,
        audit: int = 0,
    ) -> None:
        """`audit`: milliseconds after which entries of the audit log go; 0: never."""
        self._auditor = auditor
        self._audit = audit
        self._store = store
        self._appends = appends
        self._upkeep = upkeep
        self._rules = rules
        self.counts = Kept()

    async def keep_on(self) -> None:
        """Round after round. Runs until cancelled."""
        while True:
            try:
                await self.round()
            except Exception:
                self.counts.failed += 1
                log.exception("tasks whose time is over could not be removed; the next round tries again")
            await asyncio.sleep(EVERY)

    async def round(self) -> None:
        """Ends what has waited too long, and erases what has ended too long ago."""
        await self._store.resume_erasures()
        for agent, state in await self._store.resting():
            age = self._rules.age(agent, state)
            if not age:
                continue
            meant = Selection(older=age, agent=agent, state=state)
            if state in states.INTERRUPTED:
                await self._expire(meant)
            else:
                await self._erase(meant)
        if self._auditor is not None and self._audit and (cut := await self._auditor.cut(self._audit)):
            log.info("entries of the audit log whose time was over are gone: %d", cut)
        self.counts.rounds += 1

    async def _expire(self, meant: Selection) -> None:
        before = self.counts.expired
        async with aclosing(self._store.select(meant)) as lots:
            async for heads in lots:
                results = await asyncio.gather(*(self._end(head, meant) for head in heads))
                self.counts.expired += sum(results)
        self._report("nobody answered these tasks in time; they end as FAILED", meant, self.counts.expired - before)

    async def _end(self, head: Head, meant: Selection) -> bool:
        """Ends a task that waits. False when something happened to it meanwhile, or when it is running after all."""
        if head.running or head.ready:
            return False
        events = [notice(EXPIRED, f"({write_age(meant.older)})")]
        try:
            await self._appends.append(Append(task=head.ref, guard=Version(head.last), events=events, release=True))
        except Refused:
            return False
        return True

    async def _erase(self, meant: Selection) -> None:
        before = self.counts.erased
        while True:
            # Whoever is to be told of a task gets the time for it; what nobody takes is given up before long.
            receipt = await self._upkeep.purge(replace(meant, unpushed=True), reason=RETENTION, limit=LOT)
            self.counts.erased += receipt.counts.tasks
            self.counts.bytes += receipt.counts.bytes
            if receipt.counts.tasks < LOT:
                break
        self._report("the time of these tasks was over; they are erased", meant, self.counts.erased - before)

    def _report(self, what: str, meant: Selection, tasks: int) -> None:
        if tasks:
            state = states.name(meant.state).removeprefix("TASK_STATE_")
            log.info(
                "%s: %d of %s in %s",
                what,
                tasks,
                meant.agent,
                state,
                extra={"tasks": tasks, "agent": meant.agent, "state": state, "after": write_age(meant.older)},
            )
