"""What keeping the audit log needs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragoman.core.audit import Entry, Kept


class AuditLog(Protocol):
    """The audit log on disk: entries are added at its end and leave at its beginning, and nothing else is done to them
    but to take away who a principal was. All servers of the store write one chain."""

    async def add(self, entries: Sequence[Entry]) -> None:
        """Adds entries, in this order, durably when this returns."""
        ...

    async def read(self, after: int, limit: int = 256) -> list[Kept]:
        """Up to `limit` entries with numbers after `after`, in order."""
        ...

    async def cut(self, before: int, limit: int = 1024) -> int:
        """Removes the oldest entries (`limit`: so many at most) up to the first that is not older than `before`
        (milliseconds since the epoch), never the last one. Gives how many."""
        ...
