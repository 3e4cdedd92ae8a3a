"""Errors of a database are classified in one place for each store, and none is raised from itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragoman

PACKAGE = Path(dragoman.__file__).parent
POSTGRES = PACKAGE / "extensions" / "postgres"

NEW_EACH_TIME = {"connection_error", "from_rpc_error", "listen_error", "store_start_error"}
"""Functions that are given an error and make another one of it, never the same."""


def raised_from_argument(source: str) -> Iterator[str]:
    """The functions of `raise function(error) from error`: one that returns `error` makes it its own cause."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.cause, ast.Name):
            function = node.exc.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            given = [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]
            names = {each.id for each in given if isinstance(each, ast.Name)}
            if not name.lstrip("_")[:1].isupper() and node.cause.id in names:
                yield name


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("raise map_error(error) from error", ["map_error"]),
        ("raise errors.mapped(error, is_write=False) from error", ["mapped"]),
        ("raise mapped(error=error) from error", ["mapped"]),
        ("raise StoreError(error) from error", []),
        ("raise failure from error", []),
        ("raise mapped(error)", []),
    ],
)
def test_a_function_that_may_return_the_cause_is_found(source: str, found: list[str]) -> None:
    assert list(raised_from_argument(source)) == found


def test_no_error_is_raised_from_itself() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        for name in raised_from_argument(path.read_text(encoding="utf-8"))
        if name not in NEW_EACH_TIME
    }
    assert not found, "raise a variable that holds a new exception, or a class"


def places(pattern: str, folder: Path) -> set[str]:
    """The files of a folder with code that matches."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_transactions_of_postgresql_begin_in_one_place() -> None:
    """Whatever the database's defaults are. rows.py reads types for the driver, before a connection is used."""
    assert places(r'"BEGIN', POSTGRES) == {"database.py"}
    assert places(r"\.transaction\(", POSTGRES) == {"rows.py"}


def test_connections_to_postgresql_are_opened_in_one_place() -> None:
    assert places(r"asyncpg\.connect\(", POSTGRES) == {"hosts.py"}
    assert places(r"asyncpg\.create_pool\(", POSTGRES) == {"database.py"}
