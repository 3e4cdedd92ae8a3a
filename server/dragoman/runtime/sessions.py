"""Sessions: who may hold a claim.

Each start of a process opens a session, and every claim carries its number. On a store that one process holds
by its lock, every other session is dead, and so is what it was running.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from dragoman.core.log import Append, Head, Refused, Runner
from dragoman.ports import Store
from dragoman.runtime.log import Log
from dragoman.runtime.notices import INTERRUPTED, notice

log = logging.getLogger("dragoman.runtime")

BATCH: Final = 256


async def end_interrupted(store: Store, appends: Log, session: int) -> int:
    """Ends every task claimed by another session than `session` as FAILED, INTERRUPTED. Gives how many there were.

    Only for the holder of the store's lock. A task that nobody had seen yet is taken away instead.
    """
    ended = 0
    while heads := await store.orphans(session, BATCH):
        results = await asyncio.gather(*(appends.append(_end(head)) for head in heads), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Refused):
                raise result
        ended += len(heads)
    if ended:
        log.warning("tasks that were running when the server stopped, and end as FAILED: %d", ended)
    return ended


def _end(head: Head) -> Append:
    guard = Runner(head.session, head.token)
    if not head.visible:
        return Append(task=head.ref, guard=guard, discard=True)
    return Append(task=head.ref, guard=guard, events=[notice(INTERRUPTED)], release=True)
