"""Preparing a release writes one version to all files, once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools.pages import pages
from tools.versions import (
    GENERATED,
    NOTES,
    PLACES,
    WRITTEN,
    ReleaseError,
    check_notes,
    day_of,
    is_prepared,
    prepare,
    unexpected,
    version_of,
    with_heading,
)

ROOT = Path(__file__).parents[2]
DAY = "2026-12-24"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.0.9 - 2026-01-01\n\n- Another.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files with the version, and a changelog with an unreleased entry."""
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / NOTES).parent.mkdir(parents=True)
    (tmp_path / NOTES).write_text("| 77.1.0 | nothing |\n| 0.0.1 | nothing |\n")
    return tmp_path


def test_the_version_is_written_once_to_every_place(project: Path) -> None:
    old = version_of(project)
    before = {name: (project / name).read_text() for name in PLACES}
    prepare(project, "77.1.0", DAY)
    assert version_of(project) == "77.1.0"
    for name, patterns in PLACES.items():
        text = (project / name).read_text()
        assert text.count("77.1.0") == len(patterns), name
        assert text.replace("77.1.0", old) == before[name]
    assert (project / "CHANGELOG.md").read_text() == CHANGELOG.replace(
        "## Unreleased\n", f"## Unreleased\n\n## 77.1.0 - {DAY}\n"
    )


def test_preparing_a_prepared_release_changes_nothing_and_keeps_its_day(project: Path) -> None:
    assert not is_prepared(project, "77.1.0")
    assert len(prepare(project, "77.1.0", DAY)) == len(PLACES) + 1
    assert is_prepared(project, "77.1.0")
    assert prepare(project, "77.1.0", "2027-01-01") == []
    assert day_of((project / "CHANGELOG.md").read_text(), "77.1.0") == DAY


def test_a_page_that_shows_the_version_is_in_the_table() -> None:
    version = version_of(ROOT)
    shows = re.compile(rf'[Dd]ragoman[": ]{{1,3}}{re.escape(version)}\b')
    names = {page.relative_to(ROOT).as_posix() for page in pages() if shows.search(page.read_text("utf-8"))}
    # These keep what is true of a version, are generated, or have a version as an example.
    others = {"CHANGELOG.md", NOTES, "docs/reference/scorecard.md", "docs/how-to/releasing.md"}
    assert names - others <= set(PLACES)


def test_the_guide_names_every_file_that_a_release_changes() -> None:
    guide = (ROOT / "docs" / "how-to" / "releasing.md").read_text("utf-8")
    assert [name for name in WRITTEN if f"`{name}`" not in guide] == []
    assert [name for name in WRITTEN if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("1.0", "is not a version"),
        ("01.0.0", "is not a version"),
        ("1.0.0-rc1", "is not a version"),
        ("0.0.1", "is older than"),
        ("", "is not a version"),
    ],
)
def test_invalid_and_older_versions_change_no_file(project: Path, version: str, rule: str) -> None:
    before = {name: (project / name).read_text() for name in PLACES}
    with pytest.raises(ReleaseError, match=rule):
        prepare(project, version, DAY)
    assert {name: (project / name).read_text() for name in PLACES} == before


def test_a_file_with_another_version_stops_the_release(project: Path) -> None:
    (project / "README.md").write_text("Dragoman 0.0.0\n")
    with pytest.raises(ReleaseError, match=r"README\.md: .* 0 times"):
        prepare(project, "77.1.0", DAY)
    assert version_of(project) != "77.1.0"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("# Changelog\n\n## Unreleased\n\n## 0.1.0\n\n- A thing.\n", "nothing under Unreleased"),
        ("# Changelog\n\n- A thing.\n", "nothing under Unreleased"),
        ("## Unreleased\n\n- A thing.\n\n## 1.2.3 - 2026-01-01\n", "has 1.2.3 already"),
        ("## Unreleased\n\n## 1.3.0 - 2026-01-02\n\n## 1.2.3 - 2026-01-01\n", "has 1.2.3 already"),
    ],
)
def test_a_changelog_without_unreleased_entries_is_rejected(text: str, rule: str) -> None:
    with pytest.raises(ReleaseError, match=rule):
        with_heading(text, "1.2.3", DAY)


@pytest.mark.parametrize("text", ["", "| 1.2.3 | |", "| 1.2.30 | nothing |", "1.2.3 needs nothing"])
def test_a_release_without_upgrade_notes_is_rejected(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"no row for 1\.2\.3 under Upgrade notes"):
        check_notes(text, "1.2.3")


def test_the_current_version_has_upgrade_notes() -> None:
    check_notes((ROOT / NOTES).read_text("utf-8"), version_of(ROOT))


@pytest.mark.parametrize("text", ["", "## 1.2.3", "## 1.2.3 - soon", "## 1.2.30 - 2026-01-01"])
def test_a_version_without_a_heading_has_no_day(text: str) -> None:
    with pytest.raises(ReleaseError, match=r'no heading "## 1\.2\.3 - DAY"'):
        day_of(text, "1.2.3")


@pytest.mark.parametrize(
    ("status", "files"),
    [
        ("", []),
        (" M CHANGELOG.md\n M pyproject.toml", []),
        (" M gen/openapi/lf/a2a/v1/a2a.swagger.json", []),
        (" M gen/openapi.md", ["gen/openapi.md"]),
        ("?? notes.txt\n M README.md\nMM server/dragoman/ids.py", ["notes.txt", "server/dragoman/ids.py"]),
        ("R  README.md -> READYOU.md", ["READYOU.md"]),
    ],
)
def test_only_files_of_a_release_may_differ(status: str, files: list[str]) -> None:
    assert unexpected(status, (*PLACES, "CHANGELOG.md", *GENERATED)) == files
