"""`make settings`: writes docs/reference/schema.md from the first schemas of both stores and the fields of a record."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dragoman.core.task import log
from dragoman.extensions import postgres
from dragoman.stores import sqlite
from tools.pages import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "schema.md"

HEAD: Final = """\
# Schema of the stores

The tables of [SQLite and PostgreSQL](../how-to/data.md). `make settings` writes this page from the first migration of
each store (`migrations/0001_baseline.sql`). A column without a type exists only in the other store.
"""

_NOISE: Final = re.compile(r' (COLLATE "C"|NOT NULL|GENERATED ALWAYS AS IDENTITY)')


@dataclass
class Table:
    """A table, as its CREATE statement and the comment before it say."""

    name: str
    text: str
    columns: dict[str, str] = field(default_factory=dict)
    key: str = ""
    indexes: list[str] = field(default_factory=list)


def read(sql: str) -> dict[str, Table]:
    """The tables of a schema by name, in its order."""
    tables: dict[str, Table] = {}
    for comment, statement in re.findall(r"((?:^-- .*\n)*)^(CREATE [^;]*);", sql, re.MULTILINE):
        text = " ".join(line.removeprefix("-- ") for line in comment.splitlines())
        if found := re.fullmatch(r"CREATE (?:UNIQUE )?INDEX (\w+) ON (\w+) (.*)", statement, re.DOTALL):
            tables[found[2]].indexes.append(
                f"`{found[1]}` on `{' '.join(found[3].split())}`" + (f": {text}" if text else "")
            )
        elif found := re.match(r"CREATE TABLE (\w+) \((.*)\)", statement, re.DOTALL):
            table = tables.setdefault(found[1], Table(found[1], text))
            for line in re.split(r",\s+(?![^(]*\))", found[2].strip()):
                name, *rest = line.split()
                if name in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                    table.key = table.key or (" ".join(line.split()) if name == "PRIMARY" else "")
                else:
                    table.columns[name] = re.sub(
                        r' (COLLATE "C"|NOT NULL|GENERATED ALWAYS AS IDENTITY)', "", " ".join(rest)
                    )
    return tables


def task_fields() -> dict[str, str]:
    """The first line of the docstring of each field of TaskRecord, by its name."""
    body = ast.parse(inspect.getsource(log.TaskRecord)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        one.target.id: inspect.cleandoc(text.value.value)
        for one, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def baseline(package: Path) -> dict[str, Table]:
    return read((package / "migrations" / "0001_baseline.sql").read_text("utf-8"))


def sections() -> Iterator[str]:
    """A heading, the meaning, the columns and the indexes of each table."""
    ours, theirs = (baseline(Path(inspect.getfile(package)).parent) for package in (sqlite, postgres))
    meanings = task_fields()
    for name in dict.fromkeys((*ours, *theirs)):
        first, second = ours.get(name), theirs.get(name)
        any_of = first or second
        assert any_of is not None
        yield f"\n## {name}\n"
        if any_of.text:
            yield any_of.text + "\n"
        columns = dict.fromkeys([*(first.columns if first else ()), *(second.columns if second else ())])
        explained = name == "tasks"
        yield "| column | SQLite | PostgreSQL |" + (" |" if explained else "")
        yield "|---|---|---|" + ("---|" if explained else "")
        for column in columns:
            cells = [table.columns.get(column, "") if table else "" for table in (first, second)]
            yield f"| `{column}` | {cells[0]} | {cells[1]} |" + (f" {meanings.get(column, '')} |" if explained else "")
        if any_of.key:
            yield f"\nPrimary key: `{any_of.key.removeprefix('PRIMARY KEY ')}`."
        indexes = {
            title: table.indexes if table else [] for title, table in (("SQLite", first), ("PostgreSQL", second))
        }
        both = [index for index in indexes["SQLite"] if index in indexes["PostgreSQL"]]
        for title, listed in (("Indexes", both), *((f"Only {title}", listed) for title, listed in indexes.items())):
            if alone := [index for index in listed if listed is both or index not in both]:
                yield f"\n{title}:\n"
                yield from (f"- {index}" for index in alone)


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(line for line in sections()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"schema: {PAGE.relative_to(ROOT)}")
