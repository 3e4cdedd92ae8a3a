"""Other releases to run beside this one: an older one from the history, and a future one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.stores import next_schema

ROOT: Final = Path(__file__).parents[1]

BEFORE: Final = "c58691a08e"
"""A commit with schema 14 of SQLite and 8 of PostgreSQL: before delegation and the metadata of cancels.

Much earlier ones lose a turn that begins just as their drain ends."""


class Release(NamedTuple):
    """A tree with `server` and `gen` in it."""

    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make `python -m dragoman` run this release."""
        return {"PYTHONPATH": f"{self.folder / 'server'}:{self.folder / 'gen'}"}

    def schema(self, kind: str) -> int:
        """The version of its schema. kind: `sqlite` or `postgres`."""
        return max(number for number, _ in self.steps(kind))

    def steps(self, kind: str) -> next_schema.Migrations:
        """Its migrations."""
        found = (self.folder / "server" / "dragoman" / "stores" / kind / "migrations").glob("*.sql")
        return sorted((int(path.name.split("_")[0]), path.read_text()) for path in found)


def this() -> Release:
    """The current release."""
    return Release("this", ROOT)


def before(folder: Path) -> Release:
    """An older release, from the history. Skips the test without that commit, as in a shallow clone."""
    packed = subprocess.run(["git", "archive", BEFORE, "server", "gen"], cwd=ROOT, check=False, capture_output=True)
    if packed.returncode:
        pytest.skip(f"commit {BEFORE} is missing: {packed.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "-x"], cwd=folder, check=True, input=packed.stdout)
    return Release("before", folder)


def to_come(folder: Path) -> Release:
    """The next release: the current one, with a migration that changes every table of both stores."""
    for name in ("server", "gen"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    release = Release("to come", folder)
    for kind in ("sqlite", "postgres"):
        steps = release.steps(kind)
        tables = [table for _, script in steps for table in re.findall(r"CREATE TABLE (\w+) \(", script)]
        number, script = next_schema.with_next_migration(steps, tables)[-1]
        (folder / "server" / "dragoman" / "stores" / kind / "migrations" / f"{number:04}_to_come.sql").write_text(
            script
        )
    return release
