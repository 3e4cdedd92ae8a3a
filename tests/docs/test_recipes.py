"""The recipes of docs/explanation/how-a-message-travels.md, followed on a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


class Copy:
    """A copy of the package, whose files a recipe changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        ignored = shutil.ignore_patterns("__pycache__", "console")
        shutil.copytree(ROOT / "server" / "dragoman", root / "dragoman", ignore=ignored)

    def add(self, file: str, after: str, text: str) -> None:
        """Adds text after a line that the file has once."""
        path = self._root / "dragoman" / file
        source = path.read_text(encoding="utf-8")
        assert source.count(after) == 1, f"{file}: {after}"
        path.write_text(source.replace(after, after + text), encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """What Python prints that imports the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self._root), "DRAGOMAN_MAX_FOO": "8"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self._root, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


PRINTS_A_SETTING: Final = """
from dragoman.settings.settings import load_settings
print(load_settings({}).limits.max_foo, load_settings({"max_foo": "9"}).limits.max_foo)
"""


def test_a_setting_is_added_in_one_place(copy: Copy) -> None:
    title = '    """Sizes, counts and waits."""\n\n    title: ClassVar[str] = "Limits"\n'
    copy.add("settings/groups.py", title, '\n    max_foo: int = setting(7, "N", "Foos of a caller. [7]", ge=1)\n')
    assert "--max-foo" in copy.run("-m", "dragoman", "serve", "--help")
    assert copy.run("-c", PRINTS_A_SETTING) == "8 9\n"  # from the environment, and given


STORES_A_TASK: Final = """
import asyncio, sqlite3
from pathlib import Path
from dragoman.stores.sqlite import open_store
from dragoman.testing.fixtures import created, new_ref

async def main():
    store, ref = open_store(Path("tasks.db")), new_ref()
    await store.append(created(ref))
    snapshot = await store.read(ref)
    await store.close()
    print(snapshot.record.mood, *sqlite3.connect("tasks.db").execute("SELECT mood FROM tasks").fetchone())

asyncio.run(main())
"""


def test_a_task_column_is_added_in_the_record_and_each_migration(copy: Copy) -> None:
    summary = '    """The beginning of its first message; empty for tasks of releases that did not store it."""\n'
    copy.add("core/task/log.py", summary, '    mood: str = "calm"\n')
    last = "    status_text    TEXT    NOT NULL,\n"
    copy.add("stores/sqlite/migrations/0001_baseline.sql", last, "    mood           TEXT    NOT NULL,\n")
    assert copy.run("-c", STORES_A_TASK) == "calm calm\n"
