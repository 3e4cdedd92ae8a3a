"""Commits large parts as rows of their own before their append goes to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import OffloadedChange
from dragoman.core.task.log import Append
from dragoman.stores.postgres import blobs
from dragoman.stores.postgres.blob_restore import PostgresBlobRestorer
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.hot.writer import PostgresWriter
from dragoman.stores.shared.blob_offload import BlobOffloader


class PostgresBlobOffloader(BlobOffloader):
    """Writes large parts to `blobs`. They stay for `blobs.UNUSED_BLOB_GRACE_MS` without their append."""

    def __init__(
        self, database: Database, writer: PostgresWriter, blob_restorer: PostgresBlobRestorer, marker: bytes
    ) -> None:
        super().__init__(blob_restorer, writer.submit)
        self._database = database
        self._marker = marker

    async def _offload(self, change: Append) -> OffloadedChange:
        offloaded = await asyncio.to_thread(blob_references.offload_parts, change, self._marker)
        for digest, content in sorted(offloaded.contents.items()):
            await self._database.write(blobs.write_blob, digest, content, self._database.fixed_now)
        return offloaded

    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        """Nothing is held: unused blobs are removed once they are old enough."""
