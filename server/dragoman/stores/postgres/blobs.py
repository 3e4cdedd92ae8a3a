"""Blobs: large parts as rows of their own, named by their SHA-256, and who refers to them.

A blob is committed before the append that refers to it, and goes only after nothing refers to it any more. What was
written lately is kept in any case (`HELD`), because an append may be on its way; what became loose is looked at once,
so a round costs what there is to do and not what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from asyncpg import Connection

from dragoman.stores.postgres.database import NOW, Database
from dragoman.stores.postgres.rows import Statement, insert
from dragoman.stores.postgres.standing import Place

HELD: Final = 600_000
"""Milliseconds for which a blob stays although nothing refers to it: an append may be on its way."""
STEP: Final = 16
"""Blobs removed in one step."""

USE: Final = insert("blob_uses", "iyy", "owner, task, hash", "ON CONFLICT DO NOTHING")
_KEEP: Final = f"""
INSERT INTO blobs (hash, content, touched, loose) VALUES ($1, $2, {NOW.format("$3")}, true)
ON CONFLICT (hash) DO UPDATE SET touched = greatest(blobs.touched, excluded.touched), loose = true
"""
_TOUCH: Final = f"UPDATE blobs SET touched = greatest(touched, {NOW.format('$2')}), loose = true WHERE hash = $1"
_LOOSEN: Final = Statement(
    "UPDATE blobs SET loose = true WHERE hash IN (SELECT u.hash FROM {rows}"
    " JOIN blob_uses u ON u.owner = r.owner AND u.task = r.task) AND NOT loose",
    "iy",
    "owner, task",
)
_RELEASE: Final = Statement(
    "DELETE FROM blob_uses u USING {rows} WHERE u.owner = r.owner AND u.task = r.task", "iy", "owner, task"
)
_LOOSE: Final = f"""
SELECT hash FROM blobs WHERE loose AND touched < {NOW.format("$1")} - {HELD} ORDER BY touched LIMIT {STEP}
FOR UPDATE SKIP LOCKED
"""
_ANY_LOOSE: Final = f"SELECT EXISTS (SELECT 1 FROM blobs WHERE loose AND touched < {NOW.format('$1')} - {HELD})"
_TIGHTEN: Final = """
UPDATE blobs b SET loose = false WHERE hash = ANY ($1::bytea[])
AND EXISTS (SELECT 1 FROM blob_uses u WHERE u.hash = b.hash)
"""
_REMOVE: Final = "DELETE FROM blobs WHERE hash = ANY ($1::bytea[]) AND loose"


async def loosen(connection: Connection, places: Sequence[Place]) -> None:
    """Notes that tasks which are taken away may have been the last to refer to their blobs."""
    await _LOOSEN.run(connection, places)


async def release(connection: Connection, place: Place) -> None:
    """Notes that a task refers to no blob any more, inside the transaction that erases it; may be repeated."""
    await _LOOSEN.run(connection, [place])
    await _RELEASE.run(connection, [place])


async def sweep(database: Database) -> int:
    """Removes blobs that nothing refers to. Gives how many."""
    gone = 0
    while await database.look(_any_loose, database.at):
        seen, less = await database.change(_remove, database.at)
        gone += less
        if not seen:  # another process has them
            break
    return gone


async def _any_loose(connection: Connection, at: int | None) -> bool:
    return bool(await connection.fetchval(_ANY_LOOSE, at))


async def _remove(connection: Connection, at: int | None) -> tuple[int, int]:
    loose = [row[0] for row in await connection.fetch(_LOOSE, at)]
    await connection.execute(_TIGHTEN, loose)
    removed = await connection.execute(_REMOVE, loose)
    return len(loose), int(removed.rpartition(" ")[2])


async def keep(connection: Connection, digest: bytes, content: bytes, at: int | None) -> None:
    """Keeps the bytes of a blob, for a while without anybody who refers to them."""
    if await connection.execute(_TOUCH, digest, at) == "UPDATE 0":  # the bytes need not be sent again
        await connection.execute(_KEEP, digest, content, at)


async def contents_of(connection: Connection, digests: Collection[bytes]) -> dict[bytes, bytes]:
    """The bytes of those of these blobs that are there."""
    rows = await connection.fetch("SELECT hash, content FROM blobs WHERE hash = ANY ($1::bytea[])", list(digests))
    return {row[0]: row[1] for row in rows}
