"""The starting point of upgrades: the newest released version before the current commit."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests import releases

from dragoman_pb.lf.a2a.v1 import a2a_pb2


@pytest.mark.parametrize(
    ("tags", "here", "start"),
    [
        ([], [], releases.FIRST),
        (["latest", "v1.0.0-rc1", "0.3.0"], [], releases.FIRST),
        (["v0.1.0"], [], "v0.1.0"),
        (["v0.1.0"], ["v0.1.0"], releases.FIRST),  # the release itself
        (["v0.9.0", "v0.10.0", "v0.2.0"], [], "v0.10.0"),
        (["v0.1.0", "v0.2.0"], ["v0.2.0", "nightly"], "v0.1.0"),
    ],
)
def test_upgrades_start_at_the_newest_earlier_version(tags: Sequence[str], here: Sequence[str], start: str) -> None:
    assert releases.newest(tags, except_for=here) == start


def test_the_tag_of_a_release_becomes_the_start_with_the_next_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "Release 0.1.0")
    assert releases.previous(tmp_path) == releases.FIRST
    git("tag", "-a", "v0.1.0", "-m", "Dragoman 0.1.0")
    assert releases.previous(tmp_path) == releases.FIRST
    git("commit", "-q", "--allow-empty", "-m", "one")
    assert releases.previous(tmp_path) == "v0.1.0"
    git("tag", "v0.2.0")
    git("checkout", "-q", "-b", "fixes", "v0.1.0")
    git("commit", "-q", "--allow-empty", "-m", "a fix")
    assert releases.previous(tmp_path) == "v0.1.0"  # 0.2.0 is not in its history


def test_a_wheel_is_a_start_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "dragoman-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for kind in ("sqlite", "postgres"):
            for path in sorted(releases.this().migrations(kind).glob("*.sql")):
                archive.write(path, path.relative_to(releases.ROOT / "server"))
    monkeypatch.setenv("UPGRADE_FROM", str(wheel))
    found, this = releases.before(tmp_path / "old"), releases.this()
    assert found.environment == {"PYTHONPATH": f"{tmp_path / 'old'}:{tmp_path / 'old'}"}
    assert (found.schema("sqlite"), found.oldest("postgres")) == (this.schema("sqlite"), this.oldest("postgres"))
    assert this.can_be_served_by(found, "sqlite")
    assert Path(str(a2a_pb2.__file__)).is_relative_to(this.gen)


def test_an_older_release_cannot_serve_a_store_whose_schema_forbids_it(tmp_path: Path) -> None:
    this = releases.this()
    for kind in ("sqlite", "postgres"):
        folder = tmp_path / this.migrations(kind).relative_to(this.server.parent)
        shutil.copytree(this.migrations(kind), folder)
        old = releases.in_tree("old", tmp_path)
        for path in sorted(folder.glob("*.sql")):
            if int(path.name.partition("_")[0]) >= this.oldest(kind):
                path.unlink()
        assert old.schema(kind) == this.oldest(kind) - 1
        assert not this.can_be_served_by(old, kind)
        assert old.can_be_served_by(this, kind)


def test_a_start_that_is_missing_fails_if_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPGRADE_FROM", "v99.99.99")
    with pytest.raises(AssertionError, match=r"v99\.99\.99 is missing"):
        releases.before(tmp_path / "old")
