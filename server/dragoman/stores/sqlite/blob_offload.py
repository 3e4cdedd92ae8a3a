"""Stores large parts as files, on threads of their own, before their append goes to the writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dragoman.core.task import blob_references
from dragoman.core.task.blob_references import OffloadedChange
from dragoman.core.task.log import Append, Appended
from dragoman.stores.shared.blob_offload import BlobOffloader
from dragoman.stores.sqlite.blob_restore import SqliteBlobRestorer
from dragoman.stores.sqlite.blobs import BlobFiles

BLOB_WRITER_THREADS: Final = 2
"""Threads that write files: more would only wait for the same disk."""


class SqliteBlobOffloader(BlobOffloader):
    """Writes large parts to blob files, and holds these files until their append is committed."""

    def __init__(
        self,
        blob_files: BlobFiles,
        blob_restorer: SqliteBlobRestorer,
        marker: bytes,
        submit: Callable[[Append], asyncio.Future[Appended]],
    ) -> None:
        super().__init__(blob_restorer, submit)
        self._blob_files = blob_files
        self._marker = marker
        self._threads = ThreadPoolExecutor(BLOB_WRITER_THREADS, "dragoman-blobs")

    async def close(self) -> None:
        await super().close()
        self._threads.shutdown(wait=False)

    async def _offload(self, change: Append) -> OffloadedChange:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._write, change)

    def _release(self, contents: Mapping[bytes, bytes]) -> None:
        self._blob_files.release(contents.keys())

    def _write(self, change: Append) -> OffloadedChange:
        offloaded = blob_references.offload_parts(change, self._marker)
        self._blob_files.hold(offloaded.contents.keys())
        try:
            for digest, content in offloaded.contents.items():
                self._blob_files.write(digest, content)
        except BaseException:
            self._blob_files.release(offloaded.contents.keys())
            raise
        return offloaded
