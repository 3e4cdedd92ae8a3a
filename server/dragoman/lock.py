"""Who holds a store: a locked file beside it, which says so.

The system lets go of the lock when the process ends, however it ends, so whoever has it knows that every
earlier holder is dead (design: sessions). The text in the file is for people; the lock alone counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

_FAR: Final = 1 << 30
"""Windows locks bytes, and nobody else can read them: one far past the text leaves that readable."""

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class StoreInUseError(Exception):
    """Another process holds the store; the text says which, since when, and where it serves."""


class StoreLock:
    """A held lock. `tell` adds where the holder serves, once that is known."""

    def __init__(self, file: int, about: dict[str, str]) -> None:
        self._file = file
        self._about = about

    def tell(self, **about: str) -> None:
        """Writes more of what others are told about the holder."""
        self._about |= about
        text = json.dumps(self._about).encode()
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, text.ljust(512))


_held: set[int] = set()


def _let_go_in_a_fork() -> None:
    # A lock lives as long as any copy of its file: a child of an agent must not keep it when
    # the server is killed.
    for file in _held:
        with contextlib.suppress(OSError):
            os.close(file)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_a_fork)


@contextlib.contextmanager
def hold(store: Path) -> Iterator[StoreLock]:
    """Holds the store while the block runs. Raises StoreInUseError, at once, when somebody else does."""
    path = store.with_name(f"{store.name}-lock")
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            _lock(file)
        except OSError as error:
            raise StoreInUseError(_describe(store, path)) from error
        _held.add(file)
        lock = StoreLock(file, {"pid": str(os.getpid()), "since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"})
        lock.tell()
        yield lock
    finally:
        _held.discard(file)
        with contextlib.suppress(OSError):  # already closed in a fork
            os.close(file)


def _describe(store: Path, path: Path) -> str:
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError):  # the holder is writing it just now
        return f"{store} is in use by another process (it holds {path})"
    where = " and ".join(f"{kind} {about[kind]}" for kind in ("http", "grpc") if kind in about)
    since = f"process {about.get('pid', '?')} has held it since {about.get('since', '?')}"
    return f"{store} is in use: {since}{', serving ' + where if where else ', and is starting'}"
