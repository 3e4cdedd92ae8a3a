"""The commands of every page run on real servers with the shown output."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.docs import page as pages_of
from tests.docs.session import Differs, Session

from tools.pages import ROOT, pages

SESSIONS: Final = sorted(
    (page for page in pages() if pages_of.is_session(page)),
    key=lambda page: -page.read_text("utf-8").count("dragoman "),
)
"""The longest pages come first, so that parallel test processes end at about the same time."""

pytestmark = [pytest.mark.sessions, pytest.mark.timeout(600)]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", SESSIONS, ids=name)
def test_a_page_runs_as_shown(page: Path, tmp_path: Path) -> None:
    if wanting := pages_of.missing(page):
        pytest.skip(f"not on this machine: {', '.join(sorted(wanting))}")
    assert not "\n".join(pages_of.run(page, tmp_path / "demo"))


def test_pages_with_commands_are_found() -> None:
    assert len(SESSIONS) > 10
    assert {ROOT / "README.md", ROOT / "docs" / "tutorials" / "quickstart.md"} < set(SESSIONS)


def test_a_session_reports_differences(tmp_path: Path) -> None:
    with Session(tmp_path / "a") as session:
        session.write("said.txt", "http://127.0.0.1:8080\n")
        session.run("cat said.txt", ["http://127.0.0.1:8080"])
        session.run("export WORD=one; cd /")
        session.run("echo $WORD; pwd >&2", ["one", "/"])
        with pytest.raises(Differs, match="shown but not printed: two"):
            session.run("echo $WORD", ["two"])
        with pytest.raises(Differs, match="exit code 3"):
            session.run("(exit 3)")
        session.shows("echo one; echo two; echo three", ["one", "three"])
        with pytest.raises(Differs, match="shown but not printed: one"):
            session.shows("echo two; echo one", ["two", "one", "one"], timeout=0)
        session.run("sleep 60 &")
        session.run("kill %1")
