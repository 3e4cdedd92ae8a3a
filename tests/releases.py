"""Other releases to run beside this one: an older one from the history or a wheel, and a future one.

The older one is the newest released version before the current commit, by its tag; as long as no version is tagged, the
newest commit that changed a baseline schema. UPGRADE_FROM names another: a tag, a commit, or a wheel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.stores import next_schema

from dragoman.core.task.maintenance import min_schema

ROOT: Final = Path(__file__).parents[1]

BASELINES: Final = (
    "server/dragoman/stores/sqlite/migrations/0001_baseline.sql",
    "server/dragoman/extensions/postgres/migrations/0001_baseline.sql",
)
"""The first schemas, which no migration leads to. The first tagged version freezes them."""

_TAG: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class Release(NamedTuple):
    """A release: folders with the packages `dragoman` and `dragoman_pb`."""

    name: str
    server: Path
    gen: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make `python -m dragoman` run this release."""
        return {"PYTHONPATH": f"{self.server}:{self.gen}"}

    def schema(self, kind: str) -> int:
        """The version of its schema. kind: `sqlite` or `postgres`."""
        return max(number for number, _ in self.steps(kind))

    def oldest(self, kind: str) -> int:
        """The oldest schema whose releases can serve its store."""
        return min_schema(self.steps(kind))

    def can_be_served_by(self, other: Release, kind: str) -> bool:
        """Whether another release, an older one too, can serve a store of this one."""
        return other.schema(kind) >= self.oldest(kind)

    def migrations(self, kind: str) -> Path:
        """The folder of its migrations."""
        folder = self.server / "dragoman" / "stores" / kind / "migrations"
        return folder if folder.is_dir() else self.server / "dragoman" / "extensions" / kind / "migrations"

    def steps(self, kind: str) -> next_schema.Migrations:
        """Its migrations."""
        found = self.migrations(kind).glob("*.sql")
        return sorted((int(path.name.split("_")[0]), path.read_text()) for path in found)


def in_tree(name: str, folder: Path) -> Release:
    """A release in a tree like that of the project."""
    return Release(name, folder / "server", folder / "gen")


def this() -> Release:
    """The current release."""
    return in_tree("this", ROOT)


def newest(tags: Iterable[str], *, except_for: Iterable[str] = ()) -> str | None:
    """Returns the newest released version among tags. Other tags, such as `v1.0.0-rc1`, do not count."""
    released = {tag: tuple(map(int, found.groups())) for tag in tags if (found := _TAG.fullmatch(tag))}
    for tag in except_for:
        released.pop(tag, None)
    return max(released, key=released.__getitem__, default=None)


def previous(root: Path) -> str:
    """Returns the newest released version in the history of a clone; without one, the newest commit of a baseline.

    A version tagged at the current commit is too new.
    """

    def git(*words: str) -> list[str]:
        listed = subprocess.run(["git", *words], cwd=root, check=False, capture_output=True, text=True)
        return listed.stdout.split()

    tag = newest(git("tag", "--merged", "HEAD"), except_for=git("tag", "--points-at", "HEAD"))
    return tag or "".join(git("log", "-1", "--format=%H", "--", *BASELINES))


def before(folder: Path) -> Release:
    """An older release, unpacked into a folder. Skips the test without its commit, as in a shallow clone."""
    start = os.environ.get("UPGRADE_FROM") or previous(ROOT)
    folder.mkdir()
    if start.endswith(".whl"):
        with zipfile.ZipFile(ROOT / start) as wheel:
            wheel.extractall(folder)
        return Release(start, folder, folder)
    packed = subprocess.run(["git", "archive", start, "server", "gen"], cwd=ROOT, check=False, capture_output=True)
    if packed.returncode:
        reason = f"{start} is missing: {packed.stderr.decode().strip()}"
        assert "UPGRADE_FROM" not in os.environ, reason
        pytest.skip(reason)
    subprocess.run(["tar", "-x"], cwd=folder, check=True, input=packed.stdout)
    return in_tree(start, folder)


def to_come(folder: Path) -> Release:
    """The next release: the current one, with a migration that changes every table of both stores."""
    for name in ("server", "gen"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    release = in_tree("to come", folder)
    for kind in ("sqlite", "postgres"):
        steps = release.steps(kind)
        tables = [table for _, script in steps for table in re.findall(r"CREATE TABLE (\w+) \(", script)]
        number, script = next_schema.with_next_migration(steps, tables)[-1]
        (release.migrations(kind) / f"{number:04}_to_come.sql").write_text(script)
    return release
