"""Who may import whom inside `dragoman`, read from the sources, and proof that the reading catches a slip.

The table below is the rule. A floor may use the floors below it, never one above; adapters (floor 3) are named by
the composition root and the package's public face alone, and never by each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

PACKAGE: Final = Path(__file__).parents[1] / "server" / "dragoman"

FLOORS: Final = {
    "core": 1,
    "entropy": 1,
    "release": 1,
    "wire": 2,
    "ports": 2,
    "agents": 3,
    "stores": 3,
    "bus": 3,
    "security": 3,
    "telemetry": 3,
    "runtime": 4,
    "bindings": 5,
}
"""The floor of each room; what is not listed is on floor 6, `dragoman_pb` on floor 0."""

TOP: Final = 6
ADAPTERS: Final = 3

NAMES_ADAPTERS: Final = {
    "app",
    "cast",
    "foundation",
    "outward",
    "offline",
    "hosting",
    "loading",
    "observing",
    "tracing",
    "types",
    "testing",
    "__init__",
}
"""The rooms that may name an adapter: the root, what finds agents, and what agents' authors see."""

NEEDS_ONLY: Final = {
    "client": {"client", "wire", "core"},
    "runtime": {"runtime", "ports", "core", "entropy"},
    "ports": {"core"},
    "cli": {
        "cli",
        "client",
        "wire",
        "core",
        "ports",
        "settings",
        "hosting",
        "checkup",
        "setting_types",
        "tracing",
        "loading",
        "logs",
        "app",
        "foundation",
        "offline",
        "worker",
        "release",
        "flaky",
        "testing",
    },
    "transcoding": {"transcoding", "wire", "core"},
    "worker": {"worker", "client", "runtime", "ports", "core"},
    "flaky": {"flaky"},
    "guest": {"guest"},  # it runs in environments that have nothing of ours
}
"""Rooms that may use less of us than their floor allows."""

PURE: Final = {
    "core": {
        "asyncio",
        "threading",
        "socket",
        "sqlite3",
        "os",
        "time",
        "aiohttp",
        "grpc",
        "pathlib",
        "io",
        "subprocess",
    },
    "wire": {"asyncio", "threading", "socket", "sqlite3", "os", "aiohttp", "grpc", "pathlib", "io", "subprocess"},
    "ports": {"threading", "socket", "sqlite3", "os", "time", "aiohttp", "grpc"},
    "runtime": {"sqlite3", "aiohttp", "grpc", "nats", "asyncpg", "socket"},
    "client": {"sqlite3"},
}
"""What a room must not import from outside: `core` computes, `wire` has no I/O, `runtime` sees ports."""

VAGUE: Final = {"utils", "util", "helpers", "common", "manager", "base", "misc", "models"}
LONGEST: Final = 450


class Use(NamedTuple):
    """One import: who, at which line, what (dotted)."""

    room: str
    file: str
    line: int
    target: str

    def breaks(self, rule: str) -> str:
        return f"{self.file}:{self.line} imports {self.target}: {rule}"


def room_of(module: str) -> str:
    """The room of a module inside the package: its first part; `__init__` for the package itself."""
    return module.split(".")[1] if "." in module else "__init__"


def uses(package: Path) -> Iterator[Use]:
    """Every import of every file, wherever in the file it stands."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        room = place.parts[0].removesuffix(".py")
        inside = [package.name, *place.parent.parts]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                up = ".".join(inside[: len(inside) - node.level + 1]) if node.level else ""
                base = ".".join(filter(None, (up, node.module)))
                # `from dragoman import app` names a room by what it imports
                targets = [f"{base}.{alias.name}" for alias in node.names] if base == package.name else [base]
            else:
                continue
            for target in targets:
                yield Use(room, str(place), node.lineno, target)


def broken_rules(package: Path) -> list[str]:
    """One line for each import that the tables above do not allow, and for files too long or vaguely named."""
    rooms = {path.stem for path in package.iterdir()} | {"__init__"}
    found = []
    every = list(uses(package))
    for use in every:
        top = use.target.split(".")[0]
        if top != package.name:
            if top in PURE.get(use.room, ()):
                found.append(use.breaks(f"{use.room} does without"))
            continue
        other = room_of(use.target)
        if other not in rooms:  # `from dragoman import agent`: a name of the public face
            other = "__init__"
        if other == use.room:
            continue
        mine, theirs = FLOORS.get(use.room, TOP), FLOORS.get(other, TOP)
        if use.room in NEEDS_ONLY:
            if other not in NEEDS_ONLY[use.room]:
                found.append(use.breaks(f"{use.room} uses only {', '.join(sorted(NEEDS_ONLY[use.room]))}"))
        elif theirs > mine:
            found.append(use.breaks(f"floor {mine} may not use floor {theirs}"))
        elif theirs == mine == ADAPTERS:
            found.append(use.breaks("adapters do not know each other"))
        elif theirs == ADAPTERS and use.room not in NAMES_ADAPTERS:
            found.append(use.breaks("only the composition root and the public face name adapters"))
    found += _adapters_in_one_room(package, every)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if VAGUE & {part.removesuffix(".py") for part in place.parts}:
            found.append(f"{place}: the name does not say what it is for")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST:
            found.append(f"{place}: {lines} lines, at most {LONGEST}")
    return found


def _adapters_in_one_room(package: Path, every: Iterable[Use]) -> Iterator[str]:
    """Stores do not import each other, nor do buses: each adapter is a module or folder of its own."""
    for use in every:
        parts = use.target.split(".")
        if use.room not in ("stores", "bus") or parts[:2] != [package.name, use.room] or len(parts) < 3:
            continue
        mine = Path(use.file).parts
        if len(mine) > 1 and mine[1].removesuffix(".py") not in (parts[2], "__init__"):
            yield use.breaks("adapters do not know each other")


def test_the_house_stands() -> None:
    assert broken_rules(PACKAGE) == []


def test_every_floor_has_its_rooms() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir()}
    assert rooms >= set(FLOORS) - {"security"}  # security comes with authentication


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("core/task/states.py", "from dragoman.wire import sse", "floor 1 may not use floor 2"),
        ("core/names.py", "def f():\n    import asyncio", "core does without"),
        ("core/names.py", "import os.path", "core does without"),
        ("wire/v1.py", "from grpc import aio", "wire does without"),
        ("wire/v1.py", "from dragoman import app", "floor 2 may not use floor 6"),
        ("wire/v1.py", "from .. import app", "floor 2 may not use floor 6"),
        ("wire/v1.py", "from ..runtime import run", "floor 2 may not use floor 4"),
        ("stores/sqlite/store.py", "from dragoman.bus.local import LocalBus", "adapters do not know each other"),
        ("stores/sqlite/store.py", "from dragoman.stores.postgres import store", "adapters do not know each other"),
        ("bus/nats.py", "import dragoman.bus.local", "adapters do not know each other"),
        (
            "runtime/turn/runner.py",
            "from dragoman.stores.sqlite import open_store",
            "runtime uses only core, entropy, ports, runtime",
        ),
        ("runtime/turn/runner.py", "import sqlite3", "runtime does without"),
        (
            "bindings/grpc/server.py",
            "import dragoman.agents.functions.declaration",
            "only the composition root and the public face",
        ),
        ("bindings/grpc/server.py", "from dragoman.cli import main", "floor 5 may not use floor 6"),
        ("cli/serve/command.py", "from dragoman.stores.sqlite import open_store", "cli uses only app, "),
        ("client/calls.py", "from dragoman.runtime import Runtime", "client uses only client, core, wire"),
        ("utils.py", "", "the name does not say"),
        ("core/helpers/text.py", "", "the name does not say"),
        ("core/long.py", "x = 1\n" * 451, "451 lines"),
    ],
)
def test_a_slip_is_caught(tmp_path: Path, file: str, text: str, rule: str) -> None:
    package = tmp_path / "dragoman"
    for room in (*FLOORS, "app", "cli"):
        (package / room).mkdir(parents=True)
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (found,) = broken_rules(package)
    assert found.startswith(file)
    assert rule in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("app.py", "from dragoman.stores.sqlite import open_store\nfrom dragoman.bus.local import LocalBus"),
        (
            "runtime/turn/runner.py",
            "from dragoman.ports import Store\nimport asyncio\nfrom dragoman_pb.lf.a2a.v1 import a2a_pb2",
        ),
        ("stores/sqlite/store.py", "from dragoman.stores.sqlite.hot.writer import Writer\nimport sqlite3"),
        ("playground.py", "from dragoman import Skill, Turn, agent"),
    ],
)
def test_what_is_allowed_is_let_through(tmp_path: Path, file: str, text: str) -> None:
    package = tmp_path / "dragoman"
    for room in FLOORS:
        (package / room).mkdir(parents=True)
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert broken_rules(package) == []
