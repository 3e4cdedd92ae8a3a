"""Compaction in PostgreSQL (`stores.shared.compaction`): merges the chunks of a group."""

from __future__ import annotations

from typing import Final

from dragoman.core.task.maintenance import RowGroup
from dragoman.extensions.postgres.rows import insert_statement
from dragoman.stores.shared.compaction import CHUNK_RANGE, ArtifactKey
from dragoman.stores.shared.queries import Query, change

ADD_GROWTH: Final = insert_statement(
    "artifact_growth",
    "iyi",
    "owner, task, rows",
    "ON CONFLICT (owner, task) DO UPDATE SET rows = artifact_growth.rows + excluded.rows",
)
INSERT_LONG_LOGS: Final = insert_statement("long_logs", "iiy", "ended, owner, task", "ON CONFLICT DO NOTHING")

LOCK_TASK: Final = "SELECT 1 FROM tasks WHERE owner = ?1 AND task = ?2 FOR UPDATE"
_MERGE_CHUNKS: Final = f"""
UPDATE chunks SET data = (SELECT string_agg(data, ''::bytea ORDER BY sequence) {CHUNK_RANGE})
WHERE owner = ?1 AND task = ?2 AND artifact = ?3 AND sequence = ?4
"""
_DELETE_MERGED_CHUNKS: Final = f"DELETE {CHUNK_RANGE} AND sequence > ?4"


def merge_chunks(artifact_key: ArtifactKey, group: RowGroup) -> Query[None]:
    """Makes one row of a group, inside the database."""
    for statement in (_MERGE_CHUNKS, _DELETE_MERGED_CHUNKS):
        yield from change(statement, *artifact_key, group.first, group.last)
