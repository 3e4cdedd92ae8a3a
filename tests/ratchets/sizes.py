"""Measures the package's sources: lines, functions, constructors, and the members of a class."""

from __future__ import annotations

import ast
import collections
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OUTSIDE: Final = ("extensions/", "testing/contracts/")
"""Folders of the package that count neither as core nor as adapters."""

NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def sources(package: Path) -> Iterator[tuple[str, str]]:
    """Yields the path within the package, and the text, of every module."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).as_posix(), path.read_text(encoding="utf-8")


def core_and_adapters(package: Path) -> Iterator[str]:
    """Yields the texts of the modules of core and adapters."""
    return (text for place, text in sources(package) if not place.startswith(OUTSIDE))


def lines(text: str) -> int:
    return len(text.splitlines())


def code_lines(text: str) -> int:
    """Returns the number of lines that are neither blank, nor only a comment, nor part of a docstring."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for one in tokens if one.type not in NO_CODE for line in range(one.start[0], one.end[0] + 1)}
    return len(code - docstrings)


def long_files(package: Path, most: int) -> dict[str, int]:
    return {place: lines(text) for place, text in sources(package) if lines(text) > most}


def full_folders(package: Path, most: int) -> dict[str, int]:
    files = collections.Counter(Path(place).parent.as_posix() for place, _ in sources(package))
    return {folder: count for folder, count in files.items() if count > most}


def long_functions(package: Path, most: int) -> dict[str, int]:
    """Returns the lines of each longer function, its docstring included, by `file::name`."""
    return {
        f"{place}::{node.name}": length
        for place, text in sources(package)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > most
    }


def wide_constructors(package: Path, most: int) -> dict[str, int]:
    """Returns the number of arguments of each `__init__` with more, without `self`, by `file::class`."""
    return {
        f"{place}::{owner.name}": count
        for place, text in sources(package)
        for owner in ast.walk(ast.parse(text))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and (count := len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1) > most
    }


def members(text: str, class_name: str) -> list[str]:
    """Returns the names of the methods and annotated attributes that a class defines itself."""
    (found,) = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    return [
        node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ast.unparse(node.target)
        for node in found.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign)
    ]
