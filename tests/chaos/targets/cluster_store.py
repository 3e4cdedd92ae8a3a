"""Reads the PostgreSQL store of a cluster under chaos: samples while it runs, and everything at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg
from tests.chaos.history import EventKeys, Sampled
from tests.chaos.targets.readback import read_store
from tests.chaos.targets.server import SLOTS
from tests.chaos_checker.checker import GRACE, StoredTask

from dragoman.core.names import task_id_of
from dragoman.core.task import states
from dragoman.extensions.postgres.store import open_store
from dragoman.runtime.sessions import LEASE_SECONDS

NEAR: Final = ("once", "again")
FAR: Final = ("far", "far-again")
"""Agents of the servers, and of the workers."""

_COUNTS: Final = """
SELECT count(*) FILTER (WHERE ready AND agent = ANY ($1::text[])), count(*) FILTER (WHERE session > 0),
    count(*) FILTER (WHERE ready AND agent <> ALL ($1::text[])) FROM tasks
"""
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_ORPHANS: Final = f"""
SELECT t.task, coalesce(s.expires, 0) = 0 AS is_early FROM tasks t LEFT JOIN sessions s USING (session)
WHERE t.session > 0 AND coalesce(s.expires, 0) <= {_NOW} - $1
"""
"""`is_early`: a server of this machine has ended the session of a dead one before it expired."""
_STUCK: Final = "SELECT task FROM tasks WHERE state = $1 AND session = 0 AND NOT ready"
_EXAMPLES: Final = "SELECT task FROM tasks WHERE session > 0 OR ready LIMIT 3"
_UNPUSHED: Final = (
    "SELECT count(*) FROM pushes p JOIN tasks t USING (owner, task)"
    " WHERE p.state = 0 AND p.last_delivered < t.last_sequence"
)


class ClusterStore:
    """The store at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._orphans: dict[str, float] = {}
        """When tasks were first seen whose session was ended early."""

    async def sample(self, *, at: float, up: float, now: float) -> Sampled | None:
        """Samples the store; None if it is unavailable. now: `time.monotonic`."""
        try:
            connection = await asyncpg.connect(self._url, timeout=5, command_timeout=5)
            try:
                waiting, running, elsewhere = await connection.fetchrow(_COUNTS, NEAR)
                orphans = await connection.fetch(_ORPHANS, round((GRACE - LEASE_SECONDS) * 1000))
                such = await connection.fetch(_EXAMPLES)
                stuck = await connection.fetch(_STUCK, states.SUBMITTED)
            finally:
                connection.terminate()  # a close would wait for a frozen database
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            return None
        return Sampled(
            at=at, up=round(up, 1), orphans=self._overdue(orphans, now),
            stuck=[task_id_of(row[0]) for row in stuck], waiting=waiting, running=running,
            slots=SLOTS, elsewhere=elsewhere, such=[task_id_of(row[0]) for row in such],
        )  # fmt: skip

    def _overdue(self, rows: Sequence[Any], now: float) -> list[str]:
        """The tasks of dead sessions without those whose server died so recently that their workers may run them."""
        early = {task_id_of(task): now for task, is_early in rows if is_early}
        self._orphans = early | {task: at for task, at in self._orphans.items() if task in early}
        return [id for id in (task_id_of(row[0]) for row in rows) if now - self._orphans.get(id, 0.0) > GRACE]

    async def unpushed(self) -> int:
        """Counts the webhooks with undelivered events."""
        connection = await asyncpg.connect(self._url, timeout=5)
        try:
            count: int = await connection.fetchval(_UNPUSHED)
            return count
        finally:
            await connection.close()

    async def read_all(self, turns: Path, began: float, shown: EventKeys | None = None) -> Mapping[str, StoredTask]:
        """Reads every visible task with its log (`read_store`)."""
        store = await open_store(self._url)
        try:
            return await read_store(store, (*NEAR, *FAR), turns, began, shown)
        finally:
            await store.close()
