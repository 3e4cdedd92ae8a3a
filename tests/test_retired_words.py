"""`make lint` finds retired words in identifiers and file names, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tools.retired_words import ROOT, SOURCES, Terms, findings, main, read_terms

TERMS: Final = Terms(
    {"desk": "turn context", "told": "event"},
    {"Head": "TaskRecord"},
    frozenset({("*", "desk_lamp")}),
    frozenset({"told"}),
)


def found(root: Path, file: str, text: str) -> list[str]:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(findings(root, [file], TERMS))


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("a.py", "desk = 1", "desk"),
        ("a.py", "def open_desk(): ...", "open_desk"),
        ("a.py", "class WorkerDesk: ...", "WorkerDesk"),
        ("a.py", "run(DESK_LIMIT)", "DESK_LIMIT"),
        ("a.py", "class Head: ...", "Head"),
        ("a.py", "told = 1", "told"),
        ("a.py", "def test_a_caller_at_a_desk_waits(): ...", "test_a_caller_at_a_desk_waits"),
        ("desk/a.py", "", "desk"),
    ],
)
def test_a_retired_word_is_found_with_its_replacement(tmp_path: Path, file: str, text: str, name: str) -> None:
    (line,) = found(tmp_path, file, text)
    assert f"{name} is a retired name; use " in line


@pytest.mark.parametrize(
    "text",
    ["'desk'", "# desk", "desktop = 1", "head = heads = 1", "desk_lamp = 1", "def test_a_caller_is_told_why(): ..."],
)
def test_other_words_texts_and_exceptions_pass(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "a.py", text) == []


def test_the_terms_are_data() -> None:
    terms = read_terms()
    assert {"said", "told", "letters", "road"} <= terms.words.keys()
    assert not terms.words.keys() & {"task", "event", "turn", "request"}


def test_the_tree_has_none() -> None:
    assert main([]) == 0, f"python {ROOT.name}/tools/retired_words.py lists them ({', '.join(SOURCES)})"
