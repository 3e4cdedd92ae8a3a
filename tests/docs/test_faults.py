"""Every row of the table of faults in the manual names tests that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = tomllib.loads((Path(__file__).parent / "faults.toml").read_text("utf-8"))


def table_rows() -> list[tuple[str, str]]:
    """Fault and store of each row."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text("utf-8")
    section = page.split("\n## Faults and what you see\n")[1].split("\n## ")[0]
    cells = [re.split(r"(?<!\\)\|", line)[1:3] for line in section.splitlines() if line.startswith("|")]
    return [(fault.strip(), store.strip()) for fault, store in cells[2:]]


def test_the_rows_are_those_with_tests() -> None:
    assert sorted(table_rows()) == sorted((fault, store) for fault, stores in TESTS.items() for store in stores)


def test_every_named_test_exists() -> None:
    named = [name for stores in TESTS.values() for row in stores.values() for name in row["tests"]]
    assert named
    missing = []
    for name in named:
        file, test = name.split("::")
        path = ROOT / file
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        tree = ast.parse(path.read_text("utf-8")) if path.exists() else ast.Module([], [])
        if test not in {node.name for node in ast.walk(tree) if isinstance(node, functions)}:
            missing.append(name)
    assert missing == []


def test_no_row_is_without_tests() -> None:
    assert [row for stores in TESTS.values() for row in stores.values() if not row["tests"]] == []
