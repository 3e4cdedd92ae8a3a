"""Blobs: large parts as rows of their own, named by their SHA-256, and the tasks that refer to them.

A blob is committed before the append that refers to it, and deleted only when nothing refers to it. A recently written
blob stays in any case (UNUSED_BLOB_GRACE_MS), because its append may be in progress. A sweep examines only blobs marked
`maybe_unused`, because a reference was removed: it costs what there is to delete, not what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from asyncpg import Connection

from dragoman.extensions.postgres.database import SQL_NOW, Database
from dragoman.extensions.postgres.hot.quota_counters import TaskRowKey
from dragoman.extensions.postgres.rows import PostgresBulkStatement, insert_statement

UNUSED_BLOB_GRACE_MS: Final = 600_000
"""Milliseconds for which an unreferenced blob stays: its append may be in progress."""
BLOBS_PER_SWEEP_STEP: Final = 16
"""Blobs removed in one commit."""

INSERT_BLOB_USES: Final = insert_statement("blob_uses", "iyy", "owner, task, hash", "ON CONFLICT DO NOTHING")
_INSERT_BLOB: Final = f"""
INSERT INTO blobs (hash, content, touched, maybe_unused) VALUES ($1, $2, {SQL_NOW.format("$3")}, true)
ON CONFLICT (hash) DO UPDATE SET touched = greatest(blobs.touched, excluded.touched), maybe_unused = true
"""
_TOUCH_BLOB: Final = (
    f"UPDATE blobs SET touched = greatest(touched, {SQL_NOW.format('$2')}), maybe_unused = true WHERE hash = $1"
)
_MARK_MAYBE_UNUSED: Final = PostgresBulkStatement(
    "UPDATE blobs SET maybe_unused = true WHERE hash IN (SELECT u.hash FROM {rows}"
    " JOIN blob_uses u ON u.owner = r.owner AND u.task = r.task) AND NOT maybe_unused",
    "iy",
    "owner, task",
)
_RELEASE_BLOB_USES: Final = PostgresBulkStatement(
    "DELETE FROM blob_uses u USING {rows} WHERE u.owner = r.owner AND u.task = r.task", "iy", "owner, task"
)
_SELECT_UNUSED_BLOBS: Final = f"""
SELECT hash FROM blobs WHERE maybe_unused AND touched < {SQL_NOW.format("$1")} - {UNUSED_BLOB_GRACE_MS}
ORDER BY touched LIMIT {BLOBS_PER_SWEEP_STEP} FOR UPDATE SKIP LOCKED
"""
_ANY_UNUSED_BLOBS: Final = f"""
SELECT EXISTS (SELECT 1 FROM blobs WHERE maybe_unused AND touched < {SQL_NOW.format("$1")} - {UNUSED_BLOB_GRACE_MS})
"""
_UNMARK_USED: Final = """
UPDATE blobs b SET maybe_unused = false WHERE hash = ANY ($1::bytea[])
AND EXISTS (SELECT 1 FROM blob_uses u WHERE u.hash = b.hash)
"""
_DELETE_BLOBS: Final = "DELETE FROM blobs WHERE hash = ANY ($1::bytea[]) AND maybe_unused"


async def mark_blobs_maybe_unused(connection: Connection, row_keys: Sequence[TaskRowKey]) -> None:
    """Marks the blobs of deleted tasks: these tasks may have been the last to refer to them."""
    await _MARK_MAYBE_UNUSED.run(connection, row_keys)


async def release_blobs(connection: Connection, row_key: TaskRowKey) -> None:
    """Removes a task's references, in the transaction that erases it. Idempotent."""
    await _MARK_MAYBE_UNUSED.run(connection, [row_key])
    await _RELEASE_BLOB_USES.run(connection, [row_key])


async def remove_unused_blobs(database: Database) -> int:
    """Removes blobs without references. Returns how many."""
    removed = 0
    while await database.read(_has_unused_blobs, database.fixed_now):
        examined, deleted = await database.write(_remove_unused_step, database.fixed_now)
        removed += deleted
        if not examined:  # another process has locked them
            break
    return removed


async def _has_unused_blobs(connection: Connection, fixed_now: int | None) -> bool:
    return bool(await connection.fetchval(_ANY_UNUSED_BLOBS, fixed_now))


async def _remove_unused_step(connection: Connection, fixed_now: int | None) -> tuple[int, int]:
    maybe_unused = [row[0] for row in await connection.fetch(_SELECT_UNUSED_BLOBS, fixed_now)]
    await connection.execute(_UNMARK_USED, maybe_unused)
    removed = await connection.execute(_DELETE_BLOBS, maybe_unused)
    return len(maybe_unused), int(removed.rpartition(" ")[2])


async def write_blob(connection: Connection, digest: bytes, content: bytes, fixed_now: int | None) -> None:
    """Stores the bytes of a blob, which need no reference for a while."""
    if await connection.execute(_TOUCH_BLOB, digest, fixed_now) == "UPDATE 0":  # the bytes need not be sent again
        await connection.execute(_INSERT_BLOB, digest, content, fixed_now)


async def read_blobs(connection: Connection, digests: Collection[bytes]) -> dict[bytes, bytes]:
    """The bytes of those of these blobs that exist, by digest."""
    rows = await connection.fetch("SELECT hash, content FROM blobs WHERE hash = ANY ($1::bytea[])", list(digests))
    return {row[0]: row[1] for row in rows}
