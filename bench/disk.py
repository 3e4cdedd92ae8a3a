"""How long the disk under a store takes to keep a commit: what `synchronous=FULL` cannot be faster than."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

PAGES: Final = 3
PAGE: Final = 4096
"""What a small commit adds to SQLite's write-ahead log, near enough."""

WRAP: Final = 4 * 2**20
"""Bytes after which the log is used again from its beginning."""


def commits(folder: Path, times: int) -> list[float]:
    """Milliseconds of each write and fdatasync, as a write-ahead log does them."""
    sync = getattr(os, "fdatasync", os.fsync)
    data = os.urandom(PAGES * PAGE)
    took = []
    path = folder / "probe"
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            if file.tell() >= WRAP:
                file.seek(0)
            begin = time.perf_counter()
            file.write(data)
            sync(file.fileno())
            took.append((time.perf_counter() - begin) * 1000)
    path.unlink()
    return took


def name_of(folder: Path) -> str:
    """The file system and the device below a folder, as Linux mounted them; "unknown" elsewhere."""
    try:
        lines = Path("/proc/mounts").read_text("utf-8").splitlines()
    except OSError:
        return "unknown"
    mounts = [line.split() for line in lines]
    above = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    device, _, system, *_ = max(above, key=lambda mount: len(mount[1]), default=["", "", "unknown"])
    return f"{system} on {device}"
