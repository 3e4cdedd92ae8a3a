"""Fixtures: the packages of the project, built from a copy without git, or those of a release.

`make release-test` names the folder of a release in RELEASE_DIST. So what is tried is what is published.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest
from tests.supply.packages import ROOT, UV, build, run

RELEASE: Final = os.environ.get("RELEASE_DIST", "")
"""The folder of a release. Empty: packages are built for the tests."""


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


def released(name: str) -> list[Path]:
    """The sdist and the wheel of a distribution, as the names of their files spell it, in the folder of a release."""
    found = sorted(Path(RELEASE).glob(f"{name}-*.whl")) + sorted(Path(RELEASE).glob(f"{name}-*[0-9].tar.gz"))
    assert len(found) == 2, f"not one wheel and one sdist of {name} in {RELEASE}: {found}"
    return sorted(found)


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> list[Path]:
    """The sdist and the wheel."""
    return released("dragoman") if RELEASE else build(request.getfixturevalue("tree"), "sdist", "wheel")


@pytest.fixture(scope="session")
def built_protos(request: pytest.FixtureRequest) -> list[Path]:
    """The sdist and the wheel of dragoman-protos."""
    if RELEASE:
        return released("dragoman_protos")
    return build(request.getfixturevalue("tree") / "gen", "sdist", "wheel")
