"""`make lint` finds retired words in identifiers and file names of each language, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tools.identifiers import python_identifiers, sql_identifiers, typescript_identifiers
from tools.retired_words import ROOT, SOURCES, Terms, findings, main, read_terms

pytestmark = pytest.mark.long

WORDS: Final = {"desk": "turn context", "told": "event"}
NAMES: Final = {"Head": "TaskRecord"}
EXCEPTIONS: Final = frozenset({("*", "desk_lamp"), ("*", "deskTop")})
TERMS: Final = {
    "python": Terms(WORDS, NAMES, EXCEPTIONS, frozenset({"told"})),
    "typescript": Terms(WORDS | {"wear": "apply"}, NAMES | {"SOON": "MIN_INTERVAL_MS"}, EXCEPTIONS),
    "sql": Terms(WORDS | {"roster": "worker_agents"}, NAMES | {"long": "long_logs"}),
}


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
        ("a.py", "read = 'SELECT agent FROM roster'", "roster"),
        ("a.py", "read = f'{first} WHERE long.task = {task}'", "long"),
        ("a.ts", "const desk = 1;", "desk"),
        ("a.ts", "function openDesk() {}", "openDesk"),
        ("a.ts", "class WorkerDesk {}", "WorkerDesk"),
        ("a.ts", "interface Row { readonly told: string }", "told"),
        ("a.ts", "const SOON = 3_000;", "SOON"),
        ("a.ts", "const text = `at the ${rows.map((row) => `${row.desk}`)}`;", "desk"),
        ("a.tsx", "const view = <Row told={1} />;", "told"),
        ("a.tsx", "const view = <p>at the {rows.map((row) => <b>{row.desk}</b>)}</p>;", "desk"),
        ("a.tsx", "const view = <Desk>text</Desk>;", "Desk"),
        ("wear.ts", "", "wear.ts"),
        ("desk/a.tsx", "", "desk"),
        ("a.mjs", "export function wear() {}", "wear"),
        ("a.sql", "CREATE TABLE roster (agent TEXT PRIMARY KEY);", "roster"),
        ("a.sql", "CREATE INDEX roster_by_agent ON workers (agent);", "roster_by_agent"),
        ("a.sql", "CREATE TABLE tasks (told INTEGER);", "told"),
        ("a.sql", 'CREATE TABLE "long" (task BLOB);', "long"),
        ("0002_roster.sql", "", "0002_roster.sql"),
    ],
)
def test_a_retired_word_is_found_with_its_replacement(tmp_path: Path, file: str, text: str, name: str) -> None:
    (line,) = found(tmp_path, file, text)
    assert f"{name} is a retired name; use " in line


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", "'desk'"),
        ("a.py", "# desk"),
        ("a.py", "desktop = 1"),
        ("a.py", "head = heads = 1"),
        ("a.py", "desk_lamp = 1"),
        ("a.py", "def test_a_caller_is_told_why(): ..."),
        ("a.py", "roster = wear = long = SOON = 1"),
        ("a.py", "'the roster is long'"),
        ("a.ts", "// desk\n/* desk */ const desktop = 'desk' + \"desk\" + `desk`;"),
        ("a.ts", "const pattern = /desk'[/]'/; const share = 1 / rows / 2; // 'desk"),
        ("a.ts", "const deskTop = 1; const roster = long;"),
        ("a.tsx", "const view = <p title='desk' data-at=\"desk\">a desk's {/* desk */}{name} desk <br /> desk</p>;"),
        ("a.tsx", "const first = rows[0] < desktop; const same = <T,>(value: T) => value;"),
        ("a.sql", "-- desk\nCREATE TABLE a (b TEXT DEFAULT 'desk ''told'' ' /* desk */, longest INTEGER);"),
        ("a.md", "desk"),
    ],
)
def test_other_words_texts_and_exceptions_pass(tmp_path: Path, file: str, text: str) -> None:
    assert found(tmp_path, file, text) == []


def test_a_finding_has_its_line() -> None:
    assert list(python_identifiers("first = 1\n'''\n'''\ndesk = 2\n")) == [(1, "first"), (4, "desk")]
    assert list(typescript_identifiers("let first = `\n`;\n\ndesk();"))[-1] == (4, "desk")
    assert list(sql_identifiers("-- one\n'\n' desk")) == [(3, "desk")]


def test_every_declaration_of_the_console_is_read() -> None:
    """A scanner that took a comparison for an element would skip the rest of its file."""
    declaration = re.compile(r"^(?:export )?(?:async )?(?:const|function|class|interface|type)\*? (\w+)", re.MULTILINE)
    for file in (ROOT / "console" / "src").rglob("*.ts*"):
        text = file.read_text(encoding="utf-8")
        assert set(declaration.findall(text)) <= {name for _, name in typescript_identifiers(text)}, file


def test_the_terms_are_data() -> None:
    terms = read_terms()
    for own in terms.values():
        assert {"said", "told", "letters", "road"} <= own.words.keys()
        assert not own.words.keys() & {"task", "event", "turn", "request"}
    assert "wear" in terms["typescript"].words.keys() - terms["python"].words.keys()
    assert "standings" in terms["sql"].words.keys() - terms["python"].words.keys()


def test_the_tree_has_none() -> None:
    assert main([]) == 0, f"python -m tools.retired_words lists them ({', '.join(SOURCES)})"
