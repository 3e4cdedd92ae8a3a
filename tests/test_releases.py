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
        ([], [], None),
        (["latest", "v1.0.0-rc1", "0.3.0"], [], None),
        (["v0.1.0"], [], "v0.1.0"),
        (["v0.1.0"], ["v0.1.0"], None),  # the release itself
        (["v0.9.0", "v0.10.0", "v0.2.0"], [], "v0.10.0"),
        (["v0.1.0", "v0.2.0"], ["v0.2.0", "nightly"], "v0.1.0"),
    ],
)
def test_upgrades_start_at_the_newest_earlier_version(
    tags: Sequence[str], here: Sequence[str], start: str | None
) -> None:
    assert releases.newest(tags, except_for=here) == start


def test_the_tag_of_a_release_becomes_the_start_with_the_next_commit(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    for baseline in releases.BASELINES:
        (tmp_path / baseline).parent.mkdir(parents=True)
        (tmp_path / baseline).write_text("CREATE TABLE meta (name TEXT);")
        git("add", baseline)
        git("commit", "-q", "-m", f"Write {baseline}")
    first = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "Release 0.1.0")
    assert releases.previous(tmp_path) == first
    git("tag", "-a", "v0.1.0", "-m", "Dragoman 0.1.0")
    assert releases.previous(tmp_path) == first
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


@pytest.mark.parametrize(("script", "can_be_served"), [("DROP TABLE usage", False), ("-- since 1\n", True)])
def test_an_older_release_cannot_serve_a_store_whose_schema_forbids_it(
    tmp_path: Path, script: str, can_be_served: bool
) -> None:
    this, new = releases.this(), releases.in_tree("new", tmp_path)
    for kind in ("sqlite", "postgres"):
        folder = tmp_path / this.migrations(kind).relative_to(this.server.parent)
        shutil.copytree(this.migrations(kind), folder)
        (folder / "9999_new.sql").write_text(script.replace("since 1", f"since {this.schema(kind)}"))
        assert new.schema(kind) == 9999
        assert new.can_be_served_by(this, kind) is can_be_served
        assert this.can_be_served_by(new, kind)


def test_a_start_that_is_missing_fails_if_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPGRADE_FROM", "v99.99.99")
    with pytest.raises(AssertionError, match=r"v99\.99\.99 is missing"):
        releases.before(tmp_path / "old")
