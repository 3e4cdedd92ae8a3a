"""In which dialect tasks were made, for calls that do not say which one their caller speaks."""

from __future__ import annotations

from typing import Final

from dragoman.core.identity import Caller
from dragoman.core.names import Owner
from dragoman.ports import Store

KEPT: Final = 4096
"""Tasks of which that is remembered."""


class Origins:
    """Asks the store once for each caller and task: it never changes, and who polls asks again.

    Not for ids that clients chose: another task may have such a one later.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[Owner, str, str], str] = {}

    async def of(self, caller: Caller, task_id: str) -> str:
        """The dialect of a task; empty when there is none that the caller may see."""
        asked = caller.owner, caller.agent, task_id
        dialect = self._known.get(asked, "")
        if not dialect and task_id:
            head = await self._store.find(caller.owner, caller.agent, task_id, joined=caller.joined)
            dialect = head.dialect if head else ""
            if dialect and head and not head.alias:
                if len(self._known) >= KEPT:
                    del self._known[next(iter(self._known))]
                self._known[asked] = dialect
        return dialect
