"""Plain buf works in a fresh clone after `make env`, and generates what is committed."""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
FILES = ("buf.yaml", "buf.gen.yaml", "proto", "gen", "tools")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that buf reads, with the environment, after the script of `make env`. uv itself has nothing to do."""
    for name in FILES:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    run("sh", "tools/make_env.sh", sys.executable, "true", ".venv", folder=tmp_path)
    return tmp_path


def run(*command: str | Path, folder: Path) -> None:
    """Runs a command with a PATH that has neither buf nor the generators; it must succeed."""
    words = [str(word) for word in command]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("command", ["lint", "build"])
def test_plain_buf_needs_no_arguments(clone: Path, command: str) -> None:
    run(".venv/bin/buf", command, folder=clone)


def test_plain_buf_generate_writes_what_is_committed(clone: Path) -> None:
    ours, theirs = ROOT / "gen" / "dragoman_pb", clone / "gen" / "dragoman_pb"
    shutil.rmtree(theirs)
    run(".venv/bin/buf", "generate", folder=clone)
    assert files_below(theirs) == files_below(ours)
    assert filecmp.cmpfiles(ours, theirs, sorted(files_below(ours)), shallow=False)[1:] == ([], [])


def test_the_repository_is_a_git_input_of_buf(tmp_path: Path) -> None:
    """`buf generate 'https://.../dragoman.git'` finds the Google files that the protos import."""
    repository = tmp_path / "dragoman.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", f"file://{ROOT}", repository], check=True)
    buf = Path(sys.executable).parent / "buf"
    run(buf, "build", str(repository), "--path", "proto/lf/a2a/v1", "-o", "image.binpb", folder=tmp_path)
    assert (tmp_path / "image.binpb").stat().st_size > 0
