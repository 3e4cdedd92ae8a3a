"""Blobs: large parts as files beside the database, named by their SHA-256, and their reference counts.

A file is durable on disk before the append that refers to it is committed, and is removed only without references.
Between the two a blob is held, and held files are never removed. Removal happens on the writer's thread inside the
transaction that deletes the blob's row, so no append can come between. If that transaction is rolled back, the blob
has no file and no uses, and the next write of the same bytes creates the file again.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from dragoman.core.task.blob_references import MARKER_BYTES
from dragoman.core.task.log import Blob

log = logging.getLogger("dragoman.store")

BLOBS_PER_SWEEP_STEP: Final = 64
"""Files removed in one commit."""

_INSERT_BLOB_USE: Final = "INSERT OR IGNORE INTO blob_uses (owner, task, hash) VALUES (?, ?, ?)"
_COUNT_BLOB_USE: Final = (
    "INSERT INTO blobs (hash, size, uses) VALUES (?, ?, 1) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1"
)
_RELEASE_BLOB_USES: Final = (
    "UPDATE blobs SET uses = uses - 1 WHERE hash IN (SELECT hash FROM blob_uses WHERE owner = ? AND task = ?)",
    "DELETE FROM blob_uses WHERE owner = ? AND task = ?",
)
_SELECT_UNUSED_BLOBS: Final = "SELECT hash FROM blobs WHERE uses = 0"
_IS_BLOB_KNOWN: Final = "SELECT 1 FROM blobs WHERE hash = ?"
_DELETE_BLOB: Final = "DELETE FROM blobs WHERE hash = ?"


def store_secret(connection: sqlite3.Connection) -> bytes:
    """The secret of this store, for signing. Created once."""
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secrets.token_hex(32),))
    return bytes.fromhex(connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0])


def reference_marker(secret: bytes) -> bytes:
    """Bytes that every reference of this store has, and that no caller can guess."""
    return hmac.digest(secret, b"reference", "sha256")[:MARKER_BYTES]


def use_blobs(connection: sqlite3.Connection, owner: int, task: bytes, blobs: Iterable[Blob]) -> None:
    """Counts a task's references to these blobs, in the transaction that adds them."""
    for blob in blobs:
        if connection.execute(_INSERT_BLOB_USE, (owner, task, blob.digest)).rowcount:
            connection.execute(_COUNT_BLOB_USE, (blob.digest, blob.size))


def release_blobs(connection: sqlite3.Connection, owner: int, task: bytes) -> None:
    """Removes a task's references, in the transaction that erases it. Idempotent.

    Files without references are removed later (`SqliteStore.compact`).
    """
    for statement in _RELEASE_BLOB_USES:
        connection.execute(statement, (owner, task))


def has_unused_blobs(connection: sqlite3.Connection) -> bool:
    """Whether there are files without references."""
    return connection.execute(f"{_SELECT_UNUSED_BLOBS} LIMIT 1").fetchone() is not None


def remove_unused_blobs(connection: sqlite3.Connection, files: BlobFiles) -> int:
    """One step: removes files without references. Returns how many."""
    removed = 0
    for (digest,) in connection.execute(_SELECT_UNUSED_BLOBS).fetchmany(BLOBS_PER_SWEEP_STEP):
        if files.remove(digest):
            connection.execute(_DELETE_BLOB, (digest,))
            removed += 1
    return removed


def remove_unknown_files(connection: sqlite3.Connection, files: BlobFiles, digests: Collection[bytes]) -> int:
    """Removes those of these files that have no row. Returns how many."""
    unknown = [digest for digest in digests if not connection.execute(_IS_BLOB_KNOWN, (digest,)).fetchone()]
    return sum(map(files.remove, unknown))


class BlobFiles:
    """A folder of blob files. Every method blocks; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = time.time()
        self._lock = threading.Lock()
        self._held: Counter[bytes] = Counter()

    def path(self, digest: bytes) -> Path:
        """The path of a blob, whether it exists or not."""
        name = digest.hex()
        return self._folder / name[:2] / name[2:]

    def hold(self, digests: Collection[bytes]) -> None:
        """Protects these files from removal until `release` was called as often."""
        with self._lock:
            self._held.update(digests)

    def release(self, digests: Collection[bytes]) -> None:
        with self._lock:
            self._held.subtract(digests)
            self._held = +self._held

    def write(self, digest: bytes, content: bytes) -> None:
        """Writes a blob unless it exists. Hold it first. Raises OSError."""
        path = self.path(digest)
        if path.exists():
            return
        new = [folder for folder in (path.parent, self._folder) if not folder.exists()]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _fsync(path.parent)
        for folder in new:
            _fsync(folder.parent)

    def remove(self, digest: bytes) -> bool:
        """Removes a blob unless it is held. True when it no longer exists."""
        with self._lock:
            if digest in self._held:
                return False
            self.path(digest).unlink(missing_ok=True)
            return True

    def files_before_start(self) -> list[bytes]:
        """The blobs older than this process's use of the folder. Removes drafts of that age."""
        digests = []
        for path in self._folder.glob("??/*"):
            if path.stat().st_mtime >= self._opened:
                continue
            try:
                digests.append(bytes.fromhex(path.parent.name + path.name))
            except ValueError:  # a draft: its writer died before it could rename it
                path.unlink(missing_ok=True)
        return digests


def _fsync(folder: Path) -> None:
    """Makes new names in a folder durable, where the system allows it."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
