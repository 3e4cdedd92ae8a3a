"""Another commit of this repository as a server, measured in the same rounds as the working tree.

The commit's files and its own environment are in `.bench/commits/`, and stay there for the next run.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.servers.contestants import ALL_BINDINGS, BENCH_FOLDER, CONTESTANTS, DRAGOMAN, Contestant, dragoman_arguments
from tools.environments import ROOT

COMMITS_FOLDER: Final = BENCH_FOLDER / "commits"
PREFIX: Final = f"{DRAGOMAN} at "


class CommitNotAvailable(Exception):
    """The commit cannot be checked out or installed. The text has the command and the end of its output."""


def add_commit(revision: str) -> str:
    """Adds the server of a commit (`main~1`, `0bb818d1`) to the contestants, and returns its name.

    The first time it checks the commit out and installs its dependencies. Raises CommitNotAvailable.
    """
    commit = _run(["git", "rev-parse", "--verify", "--short=8", f"{revision}^{{commit}}"], ROOT).strip()
    folder = COMMITS_FOLDER / commit
    if not (folder / ".venv" / ".made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = folder.with_suffix(".tar")
        _run(["git", "archive", f"--output={archive}", commit], ROOT)
        _run(["tar", "-xf", str(archive)], folder)
        archive.unlink()
        _run(["make", "--no-print-directory", "env"], folder)
    return add_name(f"{PREFIX}{commit}")


def add_name(name: str) -> str:
    """Adds a server by the name that `add_commit` returned, also if the commit is not there any more."""
    folder = COMMITS_FOLDER / name.removeprefix(PREFIX)
    command = dragoman_arguments("sqlite:///{folder}/tasks.db", python=str(folder / ".venv" / "bin" / "python"))
    CONTESTANTS[name] = Contestant(name, DRAGOMAN, ALL_BINDINGS, command, folder=folder)
    return name


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        output = f"{done.stdout}{done.stderr}".strip().splitlines()
        raise CommitNotAvailable(f"{' '.join(command)}: {output[-1] if output else f'ended with {done.returncode}'}")
    return done.stdout
