"""Release preparation writes one version to all files; the scorecard has recorded results only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools import scorecard
from tools.release import PLACES, ReleaseError, prepare, version_of, with_heading

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
    ],
)
def test_a_changelog_without_unreleased_entries_is_rejected(text: str, rule: str) -> None:
    with pytest.raises(ReleaseError, match=rule):
        with_heading(text, "1.2.3", DAY)


# The scorecard ---------------------------------------------------------------------------------------------------

CLIENTS = """
| client | transport | send | get | list |
| --- | --- | --- | --- | --- |
| one 1.0 | GRPC | yes | yes | — |
| one 1.0 | JSONRPC | yes | FAILED | — |
| two 2.0 | HTTP+JSON | yes | yes | yes |
"""
RUN = {"several": False, "date": DAY, "commit": "abc", "seconds": 60, "seed": 7, "counts": "3 kills", "problems": 0}


def test_clients_are_counted_and_failures_are_named() -> None:
    page = scorecard.clients(CLIENTS)
    assert "2 published clients, 3 ways to call: 6 of 7 operations done" in page
    assert "Failed: one 1.0 by JSONRPC: get." in page
    assert "| one 1.0 | GRPC, JSONRPC | 3 of 4 |" in page


def test_missing_chaos_runs_and_broken_promises_are_listed() -> None:
    assert scorecard.chaos([]).count("was not run") == 2
    page = scorecard.chaos([RUN, {**RUN, "several": True, "problems": 2}])
    assert f"one server on SQLite, 60 s on {DAY} at abc, seed 7: no promise broken.\n  3 kills" in page
    assert "PostgreSQL and NATS, 60 s" in page
    assert "**2 promises broken**" in page
    assert "was not run" not in page


def test_the_committed_pages_produce_a_scorecard(tmp_path: Path) -> None:
    for name in ("reference", "explanation"):
        (tmp_path / "docs" / name).mkdir(parents=True)
    for name in ("reference/clients.md", "explanation/performance.md", "reference/limits.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".chaos").mkdir()
    (tmp_path / ".chaos" / "one.json").write_text(json.dumps(RUN))
    page = scorecard.write(tmp_path)
    assert page.startswith(f"# Scorecard of {version_of(ROOT)}\n")
    for text in ("a2a-sdk", "3 kills", "Measured on ", "| gRPC blocking send, 64 callers |", "`--live-tasks`"):
        assert text in page
    (tmp_path / "docs" / "explanation" / "performance.md").write_text(
        "<!-- make bench: begin -->\n\nMeasured on a day.\n\n"
    )
    with pytest.raises(scorecard.NoTable, match="Targets"):
        scorecard.write(tmp_path)
