"""Builds the packages of the project as somebody without its folder would get them, and looks into them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from tests.cli.server import clean_environment

ROOT: Final = Path(__file__).parents[2]
UV: Final = ROOT / ".tools/uv/bin/uv"
VERSION: Final = "dragoman " + next(
    line.split('"')[1] for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = ")
)
"""What `dragoman --version` prints."""


def run(*words: object, cwd: Path, **environment: str) -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder: Path, *targets: str) -> list[Path]:
    """Builds targets in a folder. Returns the files in its dist/."""
    for target in targets:
        run(sys.executable, "-m", "hatchling", "build", "-t", target, cwd=folder)
    return sorted((folder / "dist").iterdir())


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
