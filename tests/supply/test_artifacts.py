"""The folder of a release: every artifact, a manifest and checksums, the same bytes each time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests import releases

from tools.artifacts import ARTIFACTS, archive, complete, manifest, names, packages, schemas_of, seconds_of, sums
from tools.versions import ReleaseError

ROOT = Path(__file__).parents[2]
VERSION, DAY = "7.1.0", "2026-12-24"
FILES = {name: name.encode() for name in names(VERSION)}
MIGRATION = "server/dragoman/{}/migrations/{}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, one in a folder."""
    (tmp_path / "site" / "a").mkdir(parents=True)
    (tmp_path / "site" / "b.html").write_text("b")
    (tmp_path / "site" / "a" / "c.html").write_text("c")
    return tmp_path / "site"


def test_an_archive_has_every_file_with_the_day_of_the_release_and_no_owner(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive(folder, "manual-1", seconds_of(DAY)))) as tar:
        entries = tar.getmembers()
        assert [entry.name for entry in entries] == ["manual-1/a/c.html", "manual-1/b.html"]
        assert {(entry.uid, entry.gid, entry.uname, entry.mode) for entry in entries} == {(0, 0, "", 0o644)}
        assert {entry.mtime for entry in entries} == {seconds_of(DAY)} == {1798070400}


def test_an_archive_does_not_depend_on_times_modes_and_places(folder: Path, tmp_path: Path) -> None:
    again = shutil.copytree(folder, tmp_path / "elsewhere" / "other")
    for path in again.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    packed = archive(folder, "x", 5)
    assert archive(again, "x", 5) == packed
    assert archive(folder, "x", 6) != packed
    assert b"b" in gzip.decompress(packed)


def test_the_manifest_has_the_digest_of_every_artifact() -> None:
    found = manifest(VERSION, DAY, {"sqlite": 3}, FILES)
    assert (found["version"], found["date"], found["schemas"]) == (VERSION, DAY, {"sqlite": 3})
    assert [one["file"] for one in found["artifacts"]] == names(VERSION)
    for one in found["artifacts"]:
        assert one["sha256"] == hashlib.sha256(one["file"].encode()).hexdigest()
        assert one["bytes"] == len(one["file"])
        assert one["what"]


@pytest.mark.parametrize("name", names(VERSION))
def test_a_release_without_one_of_its_artifacts_is_rejected(name: str) -> None:
    files = {one: data for one, data in FILES.items() if one != name}
    with pytest.raises(ReleaseError, match=f"not in the release: {name}"):
        manifest(VERSION, DAY, {}, files)


def test_a_release_with_another_file_is_rejected() -> None:
    with pytest.raises(ReleaseError, match=r"not a file of a release: notes\.txt"):
        manifest(VERSION, DAY, {}, {**FILES, "notes.txt": b""})


def test_packages_for_an_index_are_three_wheels_and_two_sdists() -> None:
    assert packages(VERSION) == [
        "dragoman-7.1.0-py3-none-any.whl", "dragoman-7.1.0.tar.gz",
        "dragoman_client-7.1.0-py3-none-any.whl",
        "dragoman_protos-7.1.0-py3-none-any.whl", "dragoman_protos-7.1.0.tar.gz",
    ]  # fmt: skip
    assert len({artifact.name for artifact in ARTIFACTS}) == len(ARTIFACTS)


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    command = ["sha256sum", "--quiet", "--strict", "-c", "-"]
    assert subprocess.run(command, cwd=tmp_path, input=sums(FILES), text=True, check=False).returncode == 0
    (tmp_path / next(iter(FILES))).write_bytes(b"changed")
    assert subprocess.run(command, cwd=tmp_path, input=sums(FILES), text=True, check=False).returncode == 1


def test_a_folder_is_completed_twice_to_the_same_bytes(tmp_path: Path) -> None:
    root, dist = tmp_path / "root", tmp_path / "dist"
    for name, text in {
        "pyproject.toml": f'version = "{VERSION}"\n',
        "CHANGELOG.md": f"## {VERSION} - {DAY}\n",
        "gen/dragoman.binpb": "image",
        "gen/openapi/dragoman.openapi.json": "{}",
        "server/dragoman/console/index.html": "console",
        MIGRATION.format("stores/sqlite", "0020_more.sql"): "",
        MIGRATION.format("stores/sqlite", "0003_less.sql"): "",
        MIGRATION.format("extensions/postgres", "0014_more.sql"): "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    written = []
    for _ in range(2):  # the first time into an empty folder, then into the completed one
        (dist / "site").mkdir(parents=True)
        (dist / "site" / "index.html").write_text("site")
        for name in (*packages(VERSION), "dragoman.cdx.json"):
            (dist / name).write_text(name)
        written.append({path.name: path.read_bytes() for path in complete(root, dist)})
    assert written[0] == written[1]
    assert set(written[0]) == {*names(VERSION), "manifest.json", "SHA256SUMS"}
    assert json.loads(written[0]["manifest.json"])["schemas"] == {"sqlite": 20, "postgres": 14}
    assert written[0]["SHA256SUMS"].count(b"\n") == len(ARTIFACTS) + 1


def test_the_schemas_of_this_tree_are_found() -> None:
    assert schemas_of(ROOT) == {kind: releases.this().schema(kind) for kind in ("postgres", "sqlite")}
