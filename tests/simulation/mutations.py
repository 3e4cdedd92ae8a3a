"""Planted faults: each is a change of one place of the source, and has to be found by the simulation.

    python -m tests.simulation.mutations            # all, as a table
    python -m tests.simulation.mutations NAME ...   # some
    python -m tests.simulation.mutations --page     # all, written into docs/explanation/simulation.md

Each runs in a child process, which changes the source of one module when that is imported. A fault whose text is no
longer in the source fails loudly. The child plays histories, from the same seed on, until one is bad. A fault that is
not found within its limit shows a gap of the checkers or the generator.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tests.simulation.planted import MUTATIONS, Mutation

PACKAGE: Final = Path(__file__).parents[2] / "server" / "dragoman"
FIRST_SEED: Final = 1
PAGE: Final = PACKAGE.parents[1] / "docs" / "explanation" / "simulation.md"
PAGE_BEGIN: Final = "<!-- planted faults: python -m tests.simulation.mutations --page -->\n"
PAGE_END: Final = "<!-- end -->"
MAX_PROBLEM_CHARS: Final = 110
"""Characters of a problem in the table."""
TABLE_HEAD: Final = "| planted | guarantee | found after | by |\n|---|---|---|---|"


_TASK_ID: Final = re.compile("[0-9a-f]{8}-[0-9a-f-]{27}")


class SourceChanged(Exception):
    """The text of a planted fault is not in the source, or not once."""


def mutated_source(mutation: Mutation, source: str) -> str:
    """The source with the fault. Raises SourceChanged."""
    count = source.count(mutation.text)
    if count != 1:
        raise SourceChanged(
            f"{mutation.name}: {mutation.module} has its text {count} times, and it has to be there once"
        )
    return source.replace(mutation.text, mutation.replacement)


def path_of(mutation: Mutation) -> Path:
    """The file of the module in which the fault is planted."""
    return PACKAGE.joinpath(*mutation.module.split(".")).with_suffix(".py")


class _MutatingLoader(SourceFileLoader):
    """Compiles a module with a fault, without any cache."""

    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = mutated_source(self._mutation, Path(self.path).read_text(encoding="utf-8"))
        return compile(source, self.path, "exec", dont_inherit=True)


class _MutatingFinder(importlib.abc.MetaPathFinder):
    """Finds the module of a fault before the usual finders."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self.used = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != f"dragoman.{self._mutation.module}":
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _MutatingLoader(fullname, spec.origin, self._mutation)
        self.used = True
        return spec


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one fault. `histories`: how many were played. `problem`: empty if it was not found."""

    name: str
    histories: int
    problem: str


def hunt(mutation: Mutation, first: int, limit: int) -> Found:
    """Plays histories with the fault until one is bad. In a process that has not imported the module yet."""
    finder = _MutatingFinder(mutation)
    sys.meta_path.insert(0, finder)
    processes = importlib.import_module("tests.simulation.processes")
    importlib.import_module(f"dragoman.{mutation.module}")  # those of called agents come with their first history
    if not finder.used:
        raise SourceChanged(f"{mutation.name}: {mutation.module} was imported without its fault")
    for number, outcome in enumerate(processes.histories(first, limit, mutation.seeds), 1):
        if outcome.problems:
            return Found(mutation.name, number, outcome.problems[0])
    return Found(mutation.name, limit, "")


def hunt_in_child(mutation: Mutation, first: int = FIRST_SEED) -> Found:
    """`hunt` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutations", "--child", mutation.name, str(first)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SourceChanged(f"{mutation.name}: its process failed:\n{done.stderr[-2000:]}")
    return Found(*json.loads(done.stdout.splitlines()[-1]))


def table_line(mutation: Mutation, found: Found) -> str:
    """A row of the table."""
    count = str(found.histories) if found.problem else f"not in {found.histories}"
    problem = _TASK_ID.sub("T", found.problem).replace("|", "/")
    problem = problem if len(problem) <= MAX_PROBLEM_CHARS else f"{problem[: MAX_PROBLEM_CHARS - 1]}…"
    return f"| {mutation.name} | {mutation.guarantee} | {count} | {problem} |"


def main(arguments: Sequence[str]) -> int:
    """Prints the table. Returns 1 if any fault was not found."""
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    if arguments[:1] == ["--child"]:
        mutation = by_name[arguments[1]]
        found = hunt(mutation, int(arguments[2]), mutation.limit)
        print(json.dumps((found.name, found.histories, found.problem)))
        return 0
    names = [name for name in arguments if name != "--page"]
    if names and "--page" in arguments:
        raise SystemExit("--page writes the whole table: name no fault with it")
    missed, rows = 0, list[str]()
    print(TABLE_HEAD, flush=True)
    for mutation in [by_name[name] for name in names] or MUTATIONS:
        found = hunt_in_child(mutation)
        missed += not found.problem
        rows.append(table_line(mutation, found))
        print(rows[-1], flush=True)
    print(f"\n{len(rows)} planted, {missed} not found")
    if "--page" in arguments:
        write_page("\n".join([TABLE_HEAD, *rows]))
    return 1 if missed else 0


def write_page(table: str) -> None:
    """Replaces the table in the documentation."""
    text = PAGE.read_text(encoding="utf-8")
    head, begin, rest = text.partition(PAGE_BEGIN)
    _, end, tail = rest.partition(PAGE_END)
    assert end, f"{PAGE} has no place for the table"
    PAGE.write_text(f"{head}{begin}\n{table}\n{end}{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
