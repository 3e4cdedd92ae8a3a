"""The lock of an SQLite store: one process serves it at a time.

The lock is on the database file itself, so it holds through every name of the file. A file beside it, `NAME-lock`, only
tells others who holds the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from dragoman.stores.sqlite.schema import connect, create_private_file

_LOCKED_BYTE: Final = 1 << 62
"""Far behind the end of any database: SQLite locks bytes 2^30 to 2^30 + 511 of the same file."""

# A lock of an open file description, not of the process: SQLite closes other descriptors of this file, and that would
# release a lock of the process. flock would lock the whole file, on some systems also against SQLite.
_SET_LOCK: Final = 90 if sys.platform == "darwin" else getattr(fcntl, "F_OFD_SETLK", 37)


def _lock_file(file: int) -> None:
    if sys.platform == "darwin":  # struct flock: start, length, process, type, whence
        request = struct.pack("qqihh", _LOCKED_BYTE, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:  # type, whence, start, length, process
        request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, _LOCKED_BYTE, 1, 0)
    fcntl.fcntl(file, _SET_LOCK, request)


class StoreInUseError(Exception):
    """Another process holds the store; the text names it, the time since when, and its addresses."""


class StoreFileError(Exception):
    """The database file must not be served: it has several names, or was emptied."""


class StoreLock:
    """A held lock. `publish` adds the addresses of the holder, once known."""

    def __init__(self, notice: Path, *, was_lost: bool) -> None:
        self._notice = notice
        self._details = {"pid": str(os.getpid()), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}
        self.was_lost = was_lost  # whether the store was held before, but its database file did not exist any more

    def publish(self, **details: str) -> None:
        """Adds details of the holder for other processes."""
        self._details |= details
        with contextlib.suppress(OSError):  # the details help people; the lock does not depend on them
            self._notice.write_text(json.dumps(self._details), "utf-8")


_held_files: set[int] = set()


def _close_in_fork() -> None:
    # A lock lives as long as any copy of its file: the child of an agent must not keep it when the server is killed.
    for file in _held_files:
        with contextlib.suppress(OSError):
            os.close(file)
    _held_files.clear()


os.register_at_fork(after_in_child=_close_in_fork)


@contextlib.contextmanager
def hold_store(store: Path) -> Iterator[StoreLock]:
    """Locks the database file while the block runs; creates it if missing.

    Raises StoreInUseError at once if another process holds it, StoreFileError, sqlite3.Error, and OSError.
    """
    notice = store.with_name(f"{store.name}-lock")
    existed = store.exists()
    was_lost = not existed and notice.exists()
    create_private_file(store)
    # Of this process: closing another descriptor of the file would release SQLite's own locks on it.
    if any(os.path.samestat(os.stat(store), os.fstat(held)) for held in _held_files):
        raise StoreInUseError(_describe_holder(store, notice))
    file = os.open(store, os.O_RDWR)
    try:
        try:
            _lock_file(file)
        except (BlockingIOError, PermissionError) as error:
            raise StoreInUseError(_describe_holder(store, notice)) from error
        if (names := os.fstat(file).st_nlink) > 1:
            # Its log is beside one of them, so each name shows another store.
            raise StoreFileError(
                f"{store} is one of {names} names (hard links) of the same file. The newest tasks are in a log beside "
                "the name that was served, so a server under another name would lose them: keep that name and remove "
                f"the others (find -samefile {store.name}), or serve a copy (dragoman backup)"
            )
        if existed and notice.exists() and not os.fstat(file).st_size:
            raise StoreFileError(
                f"{store} was served before, and is empty now: all its tasks are gone from it. Look for what has "
                "truncated it. Move it away with the files beside it that begin with its name, and restore a backup "
                f"(dragoman restore); to begin with no tasks, remove {store}"
            )
        if not existed:
            connect(store).close()  # writes its header: without one, a start that was killed would have emptied it
        _held_files.add(file)
        lock = StoreLock(notice, was_lost=was_lost)
        lock.publish()
        yield lock
    finally:
        _held_files.discard(file)
        with contextlib.suppress(OSError):  # already closed in a fork
            os.close(file)


def _describe_holder(store: Path, notice: Path) -> str:
    try:
        holder = json.loads(notice.read_bytes())
    except (OSError, ValueError):  # removed, or being written
        return f"{store} is in use by another process"
    addresses = " and ".join(f"{kind} {holder[kind]}" for kind in ("http", "grpc") if kind in holder)
    since = f"process {holder.get('pid', '?')} has held it since {holder.get('since', '?')}"
    return f"{store} is in use: {since}{', serving ' + addresses if addresses else ', and is starting'}"
