"""The index of the decisions names each one, in its layer and in order, and each has its four lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "decisions.md"
LINES: Final = ["Context", "Choice", "Cost", "Would change our mind"]


def index(page: str) -> list[str]:
    """The layers and titles of the index."""
    part = page.split("\n## ")[1]
    return [layer or title for layer, title in re.findall(r"^(?:\*\*(.+)\*\*|- \[(.+)\]\(#.+\))$", part, re.MULTILINE)]


def decisions(page: str) -> dict[str, list[str]]:
    """The layers and titles of the page, with the names of the four lines of each decision."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"^##+ ", page, flags=re.MULTILINE)[2:]:
        found[block.splitlines()[0]] = re.findall(r"^- \*\*(.+?)\.\*\*", block, re.MULTILINE)
    return found


def test_the_index_names_every_decision_in_order() -> None:
    page = PAGE.read_text("utf-8")
    assert index(page) == list(decisions(page))


def test_every_decision_has_four_lines() -> None:
    found = decisions(PAGE.read_text("utf-8"))
    assert {title: lines for title, lines in found.items() if lines not in ([], LINES)} == {}


def test_a_decision_that_the_index_lacks_is_found() -> None:
    page = PAGE.read_text("utf-8") + "\n### A new one\n"
    assert set(decisions(page)) - set(index(page)) == {"A new one"}
