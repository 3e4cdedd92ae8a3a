"""Exceptions of others are read in one place, `core/exceptions.py`: a check of the sources, and tests of the check.

Their classes are unknown: causes may form a ring, and texts may raise or be megabytes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.long

PACKAGE: Final = Path(__file__).parents[1] / "server" / "dragoman"

HOME: Final = "core/exceptions.py"

LINKS: Final = frozenset({"__cause__", "__context__", "exceptions"})
"""Attributes that lead from one exception to another. A single step is no walk, so it may be taken anywhere."""

FORMATTERS: Final = frozenset(
    {"TracebackException", "format_exception", "format_exc", "print_exc", "print_exception", "format_tb", "print_tb"}
    | {"formatException", "walk_tb", "extract_tb"}
)
"""Functions that follow causes, read texts or list frames without a bound."""

BOUNDARY: Final = (
    *("agents/functions/", "extensions/frameworks/child/", "worker/", "runtime/turn/", "runtime/scheduler.py"),
    *("supervision.py", "wiring/agent_loader.py"),
)
"""Where exceptions of agents arrive: their texts are read by `text_of` and `describe` only."""

ANY: Final = frozenset({"Exception", "BaseException", "_FAILURES"})


def walks(tree: ast.AST) -> Iterator[int]:
    """Lines that read a link between exceptions in a loop, a comprehension or a function that calls itself."""
    for node in ast.walk(tree):
        is_walk = isinstance(
            node, ast.While | ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
            is_walk = node.name in {
                call.id if isinstance(call, ast.Name) else call.attr
                for call in calls
                if isinstance(call, ast.Name | ast.Attribute)
            }
        if is_walk:
            modules = {
                id(one.value) for one in ast.walk(node) if isinstance(one, ast.Attribute)
            }  # library.exceptions.X
            for one in ast.walk(node):
                if isinstance(one, ast.Attribute) and one.attr in LINKS and id(one) not in modules:
                    yield one.lineno


def formats(tree: ast.AST) -> Iterator[int]:
    """Lines that name a function without a bound."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if (node.id if isinstance(node, ast.Name) else node.attr) in FORMATTERS:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and FORMATTERS & {one.name for one in node.names}:
            yield node.lineno


def texts(tree: ast.AST) -> Iterator[int]:
    """Lines that turn an exception of any class into text: `str(error)`, `f"{error}"`, or an argument of a log line."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        if not ANY.intersection(one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)):
            continue
        for node in ast.walk(handler):
            values: list[ast.expr] = []
            if isinstance(node, ast.FormattedValue):
                values = [node.value]
            elif isinstance(node, ast.Call):
                function = node.func
                is_text = isinstance(function, ast.Name) and function.id in ("str", "repr", "ascii", "format")
                owner = function.value if isinstance(function, ast.Attribute) else None
                if is_text or (isinstance(owner, ast.Name) and owner.id in ("log", "logger")):
                    values = node.args
            for value in values:
                if isinstance(value, ast.Name) and value.id == handler.name:
                    yield value.lineno


def violations(package: Path) -> list[str]:
    """One line for each place that reads exceptions of others without `core/exceptions.py`."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place == HOME:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [f"{place}:{line} walks causes; use exceptions.walk or leaves" for line in walks(tree)]
        found += [f"{place}:{line} formats a traceback; use exceptions.format_traceback" for line in formats(tree)]
        if place.startswith(BOUNDARY):
            found += [f"{place}:{line} reads an unknown text; use exceptions.describe" for line in texts(tree)]
    return found


def test_only_one_module_reads_exceptions_of_others() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("while error:\n    error = error.__cause__ or error.__context__", {2}),
        ("def first(error):\n    return first(error.exceptions[0])", {2}),
        ("found = [one.__context__ for one in errors]", {1}),
        ("class A:\n    def flat(self, group):\n        self.flat(group.exceptions)", {3}),
        ("cause = error.__cause__\nfor one in ():\n    library.exceptions.Failed()", set()),
    ],
)
def test_the_check_finds_walks(source: str, lines: set[int]) -> None:
    assert set(walks(ast.parse(source))) == lines


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from traceback import format_exc", True),
        ("import traceback\ntraceback.TracebackException.from_exception(e)", True),
        ("self.formatException(record.exc_info)", True),
        ("formatter.formatStack(info)", False),
    ],
)
def test_the_check_finds_formatters_without_a_bound(source: str, found: bool) -> None:
    assert bool(list(formats(ast.parse(source)))) == found


@pytest.mark.parametrize(
    ("clause", "body", "found"),
    [
        ("Exception", "str(error)", True),
        ("(ValueError, BaseException)", "f'no: {error}'", True),
        ("BaseException", "log.info('no: %s', error)", True),
        ("BaseException", "log.error('no', exc_info=error)", False),
        ("Exception", "describe(error)", False),
        ("ValueError", "str(error)", False),
    ],
)
def test_the_check_finds_texts_of_unknown_exceptions(clause: str, body: str, found: bool) -> None:
    source = f"try:\n    pass\nexcept {clause} as error:\n    {body}"
    assert bool(list(texts(ast.parse(source)))) == found
