"""A release says one number everywhere, and its page only what was seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tools import scorecard
from tools.release import PLACES, Rejected, headed, prepare, version_of

ROOT = Path(__file__).parents[2]
DAY = "2026-12-24"
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.0.9 - 2026-01-01\n\n- Another.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files that say the number, as they are, under a changelog with something new in it."""
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_one_number_is_written_everywhere_and_once(project: Path) -> None:
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
        ("1.0", "is no version"),
        ("01.0.0", "is no version"),
        ("1.0.0-rc1", "is no version"),
        ("0.0.1", "is older than"),
        ("", "is no version"),
    ],
)
def test_what_is_no_newer_version_changes_nothing(project: Path, version: str, rule: str) -> None:
    before = {name: (project / name).read_text() for name in PLACES}
    with pytest.raises(Rejected, match=rule):
        prepare(project, version, DAY)
    assert {name: (project / name).read_text() for name in PLACES} == before


def test_a_place_that_says_another_number_stops_all_of_it(project: Path) -> None:
    (project / "README.md").write_text("Dragoman 0.0.0\n")
    with pytest.raises(Rejected, match=r"README\.md: .* 0 times"):
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
def test_a_changelog_without_news_is_no_release(text: str, rule: str) -> None:
    with pytest.raises(Rejected, match=rule):
        headed(text, "1.2.3", DAY)


# The scorecard ---------------------------------------------------------------------------------------------------

CLIENTS = """
| client | transport | send | get | list |
| --- | --- | --- | --- | --- |
| one 1.0 | GRPC | yes | yes | — |
| one 1.0 | JSONRPC | yes | FAILED | — |
| two 2.0 | HTTP+JSON | yes | yes | yes |
"""
RUN = {"several": False, "date": DAY, "commit": "abc", "seconds": 60, "seed": 7, "counts": "3 kills", "problems": 0}


def test_clients_are_counted_and_what_failed_is_named() -> None:
    page = scorecard.clients(CLIENTS)
    assert "2 published clients, 3 ways to call: 6 of 7 operations done" in page
    assert "Failed: one 1.0 by JSONRPC: get." in page
    assert "| one 1.0 | GRPC, JSONRPC | 3 of 4 |" in page


def test_a_chaos_run_that_was_not_is_said_and_one_that_broke_a_promise_too() -> None:
    assert scorecard.chaos([]).count("was not run") == 2
    page = scorecard.chaos([RUN, {**RUN, "several": True, "problems": 2}])
    assert f"one server on SQLite, 60 s on {DAY} at abc, seed 7: no promise broken.\n  3 kills" in page
    assert "PostgreSQL and NATS, 60 s" in page
    assert "**2 promises broken**" in page
    assert "was not run" not in page


def test_the_pages_as_they_are_make_a_scorecard(tmp_path: Path) -> None:
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
