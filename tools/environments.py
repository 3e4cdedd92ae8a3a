"""Environments of third-party packages, cached in `.foreign/` under a hash of their requirement files.

A changed pin creates a new environment; an unfinished one is created again.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".foreign"
_UV: Final = ROOT / ".tools" / "uv" / "bin" / "uv"


class NotCreated(Exception):
    """Creating an environment failed. The text has the command and its output."""


@dataclass(frozen=True)
class Environment:
    """One environment: a name and its requirement files (requirements.txt, or package.json and a lock)."""

    name: str
    sources: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        created_from = b"".join(path.read_bytes() for path in self.sources) + sys.version.encode()
        return CACHE / f"{self.name}-{hashlib.sha256(created_from).hexdigest()[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Creates the environment unless it exists. Raises NotCreated."""
        done = self.folder / ".made"
        if done.exists():
            return
        CACHE.mkdir(exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be creating it
            if done.exists():
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            if self.sources[0].name == "package.json":
                self._make_node()
            else:
                self._make_python(self.sources[0])
            done.touch()

    def _make_node(self) -> None:
        for path in self.sources:
            shutil.copy(path, self.folder)
        # Not `ci`: it requires a lock with the optional packages of every platform, which no single platform can write.
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent"], self.folder)

    def _make_python(self, requirements: Path) -> None:
        create: list[str | Path] = ["venv", "--quiet", "--allow-existing", "--python", sys.executable, self.folder]
        install: list[str | Path] = ["pip", "install", "--quiet", "--python", self.python, "-r", requirements]
        if _UV.exists() and not subprocess.call([_UV, *create]) and not subprocess.call([_UV, *install]):
            return
        _run([sys.executable, "-m", "venv", self.folder], ROOT)
        _run([self.python, "-m", "pip", "install", "--quiet", "-r", requirements], ROOT)


def _run(command: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCreated(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
