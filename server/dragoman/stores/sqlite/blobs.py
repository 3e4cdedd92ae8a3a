"""Blobs: large parts as files beside the database, named by their SHA-256, and who still refers to them.

A file is on disk, fsync and all, before the append that refers to it is committed, and goes only after nothing
refers to it any more. Between the two a blob is held: a file that is held is never removed. Removing happens on the
writer's thread and inside the transaction that forgets the blob, so no append can come between; should that
transaction be undone, the blob has no file and no uses, and whoever writes the bytes again makes the file again.
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
"""Files removed in one step."""

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
    """What this store signs with. Made once, and kept in it."""
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)", (secrets.token_hex(32),))
    return bytes.fromhex(connection.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()[0])


def reference_marker(secret: bytes) -> bytes:
    """What stands in every reference of this store, and in nothing that anyone could send."""
    return hmac.digest(secret, b"reference", "sha256")[:MARKER_BYTES]


# Who refers to what ----------------------------------------------------------------------------------------------


def use_blobs(connection: sqlite3.Connection, owner: int, task: bytes, blobs: Iterable[Blob]) -> None:
    """Notes that a task refers to these blobs, inside the transaction that makes it do so."""
    for blob in blobs:
        if connection.execute(_INSERT_BLOB_USE, (owner, task, blob.digest)).rowcount:
            connection.execute(_COUNT_BLOB_USE, (blob.digest, blob.size))


def release_blobs(connection: sqlite3.Connection, owner: int, task: bytes) -> None:
    """Notes that a task refers to no blob any more, inside the transaction that erases it; may be repeated.

    The files go later, on the slot for what may wait (`SqliteStore.tidy`), those that nobody else refers to.
    """
    for statement in _RELEASE_BLOB_USES:
        connection.execute(statement, (owner, task))


def has_unused_blobs(connection: sqlite3.Connection) -> bool:
    """Whether there are files that nothing refers to."""
    return connection.execute(f"{_SELECT_UNUSED_BLOBS} LIMIT 1").fetchone() is not None


def remove_unused_blobs(connection: sqlite3.Connection, files: BlobFiles) -> int:
    """One step: removes files that nothing refers to. Gives how many."""
    gone = 0
    for (digest,) in connection.execute(_SELECT_UNUSED_BLOBS).fetchmany(BLOBS_PER_SWEEP_STEP):
        if files.remove(digest):
            connection.execute(_DELETE_BLOB, (digest,))
            gone += 1
    return gone


def remove_unknown_files(connection: sqlite3.Connection, files: BlobFiles, digests: Collection[bytes]) -> int:
    """Removes those files of which the database knows nothing. Gives how many."""
    unknown = [digest for digest in digests if not connection.execute(_IS_BLOB_KNOWN, (digest,)).fetchone()]
    return sum(map(files.remove, unknown))


# The files -------------------------------------------------------------------------------------------------------


class BlobFiles:
    """A folder of blobs. Every method blocks; safe from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened = time.time()
        self._lock = threading.Lock()
        self._held: Counter[bytes] = Counter()

    def path(self, digest: bytes) -> Path:
        """Where a blob is, if it is there."""
        name = digest.hex()
        return self._folder / name[:2] / name[2:]

    def hold(self, digests: Collection[bytes]) -> None:
        """Lets none of these files be removed until `let_go` was called as often."""
        with self._lock:
            self._held.update(digests)

    def release(self, digests: Collection[bytes]) -> None:
        with self._lock:
            self._held.subtract(digests)
            self._held = +self._held

    def write(self, digest: bytes, content: bytes) -> None:
        """Puts a blob on disk unless it is there. Hold it before. Raises OSError."""
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
        """Removes a blob, unless it is held. True when it is gone."""
        with self._lock:
            if digest in self._held:
                return False
            self.path(digest).unlink(missing_ok=True)
            return True

    def files_before_start(self) -> list[bytes]:
        """The blobs that are older than this process's use of the folder. Drafts that old are removed."""
        found = []
        for path in self._folder.glob("??/*"):
            if path.stat().st_mtime >= self._opened:
                continue
            try:
                found.append(bytes.fromhex(path.parent.name + path.name))
            except ValueError:  # a draft: its writer did not live to rename it
                path.unlink(missing_ok=True)
        return found


def _fsync(folder: Path) -> None:
    """Makes new names in a folder durable, where the system lets one."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
