"""Fixtures: the packages of the project, built from a copy without git."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.supply.packages import ROOT, UV, build, run


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the project, as in a tarball of it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists() or not UV.exists():
        pytest.skip("made from a clone, by make")
    copy = tmp_path_factory.mktemp("project") / "dragoman"
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def built(tree: Path) -> list[Path]:
    """The sdist and the wheel."""
    return build(tree, "sdist", "wheel")
