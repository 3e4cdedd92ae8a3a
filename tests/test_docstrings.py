"""Docstrings and comments in one style: how docstrings begin, and where the note of a field stands.

A docstring begins with a noun or a verb, never with a free relative clause ("What ..."). A comment behind code is a
phrase without a period. Where fields have their notes behind them, a note that fits on the line stands there, too;
others are docstrings below. Public modules have docstrings only, which editors show.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SERVER: Final = Path(__file__).parents[1] / "server" / "dragoman"

RELATIVE_CLAUSE: Final = re.compile(r'^[ \t]*"""What\b.*', re.MULTILINE)


def test_no_docstring_begins_with_what() -> None:
    found = {
        f"{path.relative_to(SERVER)}: {line.strip()}"
        for path in sorted(SERVER.rglob("*.py"))
        for line in RELATIVE_CLAUSE.findall(path.read_text("utf-8"))
    }
    assert found == set(), "say the responsibility: Returns ..., The ... of ..."


def test_such_a_docstring_is_found_in_any_place() -> None:
    planted = 'LIMIT = 1\n"""What is held."""\n\ndef whats() -> None:\n    """What happens."""\n    """Whatever."""\n'
    assert len(RELATIVE_CLAUSE.findall(planted)) == 2


MAX_WIDTH: Final = 120  # as in pyproject.toml
PUBLIC: Final = ("client/", "ports/", "settings/", "testing/", "types.py")

BEHIND: Final = re.compile(r"\S  # (?!noqa|type:|fmt:|pragma)")


def sentences_behind_code(source: str) -> Iterator[str]:
    """The comments behind code that end like a sentence."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_behind = token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
        if is_behind and token.string.endswith(".") and not token.string.endswith("..."):
            yield f"{token.start[0]}: {token.string}"


def notes_below(source: str) -> Iterator[str]:
    """The notes below a field, or a constant, that fit behind it, where another one has its note behind it.

    A note below several lines without notes belongs to all of them.
    """
    lines = source.splitlines()
    for block in ast.walk(ast.parse(source)):
        if not isinstance(block, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        fields = [one for one in block.body if isinstance(one, ast.Assign | ast.AnnAssign)]
        ends = {one.end_lineno: one for one in fields if one.lineno == one.end_lineno}
        if not any(BEHIND.search(lines[end - 1]) for end in ends if end):
            continue
        for note in block.body:
            text = getattr(getattr(note, "value", None), "value", None)
            if not isinstance(note, ast.Expr) or not isinstance(text, str) or (above := note.lineno - 1) not in ends:
                continue
            is_of_group = above - 1 in ends and not BEHIND.search(lines[above - 2])
            is_short = note.lineno == note.end_lineno and ". " not in text and "\\" not in text
            fits = len(lines[above - 1]) + len("  # ") + len(text.rstrip(".")) <= MAX_WIDTH
            if is_short and fits and not is_of_group and "#" not in lines[above - 1]:
                yield f"{note.lineno}: {text}"


def test_comments_behind_code_are_no_sentences() -> None:
    found = [
        f"{path.relative_to(SERVER)}:{line}"
        for path in sorted(SERVER.rglob("*.py"))
        for line in sentences_behind_code(path.read_text("utf-8"))
    ]
    assert found == []


def test_notes_that_fit_stand_behind_their_fields() -> None:
    found = [
        f"{path.relative_to(SERVER)}:{line}"
        for path in sorted(SERVER.rglob("*.py"))
        if not path.relative_to(SERVER).as_posix().startswith(PUBLIC)
        for line in notes_below(path.read_text("utf-8"))
    ]
    assert found == []


def test_a_note_in_another_style_is_found() -> None:
    assert list(sentences_behind_code("a = 1  # Its number.\nb = 2  # and so on ...\n# A sentence.\n")) == [
        "1: # Its number."
    ]
    planted = (
        'class A:\n    a: int  # its number\n    b: int\n    """Its size."""\n'
        '    c: int\n    d: int\n    """Both times."""\n'
    )
    assert list(notes_below(planted)) == ["4: Its size."]
    assert list(notes_below(planted.replace("  # its number", ""))) == []
