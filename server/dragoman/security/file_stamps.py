"""Detects changes of files by polling modification time, inode and size."""

from __future__ import annotations

from pathlib import Path


class FileStamps:
    """The state of some files, without their contents. A missing file is a state, too."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._last = self._read()

    def changed(self) -> bool:
        """Whether a file has changed since the last call, or since this object was created."""
        current = self._read()
        changed, self._last = current != self._last, current
        return changed

    def _read(self) -> tuple[tuple[int, int, int], ...]:
        stamps = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(stamps)
