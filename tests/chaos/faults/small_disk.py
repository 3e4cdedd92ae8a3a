"""A small disk of its own for the store of one server, which a test can fill and free."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Final

MEGABYTES: Final = 4096
"""More than the store of a long run takes. Memory is used only for what is stored."""
SLACK_BYTES: Final = 8 * 1024 * 1024
"""Room for what is written while the disk becomes smaller."""
BLOCK: Final = bytes(64 * 1024)


class SmallDisk:
    """A tmpfs at `folder`. Without the right to mount one it is an ordinary folder, and `missing` says why."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.missing = self._mount()
        self._ballast = folder / "ballast"

    def _mount(self) -> str:
        program = shutil.which("mount")
        if program is None or os.geteuid() != 0:
            return "only root can mount a small disk"
        words = [program, "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(self.folder)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        return done.stderr.strip() if done.returncode else ""

    def fill(self) -> None:
        """Takes all space that is left: most of it by a smaller disk, the rest by a file."""
        self._resize(shutil.disk_usage(self.folder).used + SLACK_BYTES)
        with self._ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(BLOCK)
            except OSError as error:
                if error.errno != ENOSPC:
                    raise
            with suppress(OSError):  # the rest of the last block
                while file.write(b"."):
                    pass

    def free(self) -> None:
        """Gives the space back."""
        if not self.missing:
            self._resize(MEGABYTES * 1024 * 1024)
        self._ballast.unlink(missing_ok=True)

    def _resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.folder)], check=True)

    def remove(self) -> None:
        """Unmounts it, and leaves its files in an ordinary folder of its name. Nothing may write to it."""
        self.free()
        if not self.missing:
            copy = self.folder.with_name(f"{self.folder.name}-copy")
            shutil.copytree(self.folder, copy)
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
            self.folder.rmdir()
            copy.rename(self.folder)
            self.missing = "removed"
