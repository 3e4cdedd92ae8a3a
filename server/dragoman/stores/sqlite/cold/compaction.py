"""Compaction in SQLite (`stores.shared.compaction`): merges the chunks of a group."""

from __future__ import annotations

from typing import Final

from dragoman.core.task.maintenance import RowGroup
from dragoman.stores.shared.compaction import CHUNK_RANGE, ArtifactKey
from dragoman.stores.shared.queries import Query, change, select

_INSERT_CHUNK: Final = (
    "INSERT INTO chunks (owner, task, artifact, sequence, text, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
)


def merge_chunks(artifact_key: ArtifactKey, group: RowGroup) -> Query[None]:
    """Makes one row of a group. SQLite has no function that joins BLOBs."""
    span = *artifact_key, group.first, group.last
    rows = yield from select(f"SELECT data {CHUNK_RANGE} ORDER BY sequence", *span)
    yield from change(f"DELETE {CHUNK_RANGE}", *span)
    yield from change(_INSERT_CHUNK, *artifact_key, group.first, group.kind, b"".join([row[0] for row in rows]))
