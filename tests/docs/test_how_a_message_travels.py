"""docs/explanation/how-a-message-travels.md names existing files and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ROOT / "server" / "dragoman"
PAGE: Final = (ROOT / "docs" / "explanation" / "how-a-message-travels.md").read_text()

FILE: Final = re.compile(r"\b((?:\w+/)*\w+\.py)\b")
NAME: Final = re.compile(r"`([A-Z]\w*\.\w+|_?[a-z]\w*|[A-Z][a-z]\w*)`")
ROW: Final = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.M)
SPOKEN: Final = {"id", "def", "path", "tenant", "Snapshot"}
"""Names outside the code, and words of the protocol."""


@cache
def names_of(file: Path) -> frozenset[str]:
    """What a file defines: functions, classes, and methods behind the name of their class."""
    return frozenset(_names(ast.parse(file.read_text())))


def _names(tree: ast.AST, within: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield f"{within}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from _names(node, f"{node.name}.")


def named_files() -> list[str]:
    """Every path on the page; those in the picture without a folder are in `bindings` or `runtime`, say its boxes."""
    picture = PAGE.split("```mermaid")[1].split("```")[0]
    return sorted({*FILE.findall(PAGE.replace(picture, "")), *(name for name in FILE.findall(picture) if "/" in name)})


@pytest.mark.parametrize("file", named_files())
def test_each_file_exists(file: str) -> None:
    assert (CODE / file).is_file()


@pytest.mark.parametrize("file", sorted(set(FILE.findall(PAGE))))
def test_each_file_of_the_diagram_exists(file: str) -> None:
    assert list(CODE.rglob(file))


@pytest.mark.parametrize(("file", "name"), ROW.findall(PAGE))
def test_each_function_of_a_table_is_in_its_file(file: str, name: str) -> None:
    assert name in names_of(CODE / file)


@pytest.mark.parametrize("name", sorted(set(NAME.findall(PAGE)) - SPOKEN))
def test_each_function_and_class_of_the_text_exists(name: str) -> None:
    assert any(name in names_of(file) for file in CODE.rglob("*.py"))


def test_the_page_names_enough_code() -> None:
    assert len(ROW.findall(PAGE)) > 25
    assert len(named_files()) > 40
