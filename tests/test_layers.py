"""The layers of `dragoman`: allowed imports, checked in the sources, with tests of the check itself.

The tables below are the rules. A layer imports only lower layers. Only the composition root imports adapters, and
adapters do not import each other. Import cycles and class names are checked too; `tests/ratchets` checks sizes.
"""

from __future__ import annotations

import ast
import collections
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "server" / "dragoman"

LAYERS: Final = {
    "core": 1,
    "ids": 1,
    "version": 1,
    "wire": 2,
    "ports": 2,
    "supervision": 2,
    "calling": 3,
    "agents": 4,
    "stores": 4,
    "bus": 4,
    "security": 4,
    "telemetry": 4,
    "runtime": 5,
    "bindings": 6,
}
"""The layer of each top-level module or folder. Others are in layer 7, `dragoman_pb` is in layer 0."""

TOP: Final = 7
ADAPTERS: Final = 4

NAMES_ADAPTERS: Final = {"wiring", "types", "testing", "__init__"}
"""The folders that may import an adapter: the composition root, and the public modules for agent authors."""

NEEDS_ONLY: Final = {
    "calling": {"calling", "wire", "core"},
    "client": {"client", "calling", "wire", "core"},
    "runtime": {"runtime", "ports", "supervision", "core", "ids"},
    "ports": {"core"},
    "cli": {
        "cli",
        "client",
        "calling",
        "wire",
        "core",
        "ports",
        "supervision",
        "ids",
        "settings",
        "wiring",
        "worker",
        "fault_proxy",
        "testing",
    },
    "transcoding": {"transcoding", "wire", "core"},
    "worker": {"worker", "client", "calling", "runtime", "ports", "core", "supervision", "ids"},
    "fault_proxy": {"fault_proxy"},
}
"""Folders that may import less of the package than their layer allows."""

CHILD: Final = "extensions/frameworks/child/"
"""The folder that runs in environments without the rest of the package."""

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
"""Forbidden external imports: `core` and `wire` do no I/O, `runtime` uses ports only."""

SCHEMA_LIBRARIES: Final = {"jsonschema", "jsonschema_rs", "referencing"}
SCHEMA_MODULE: Final = "core/schemas.py"
"""The one module that evaluates JSON Schemas: it has the bounds, and fetches nothing."""

VAGUE: Final = {"utils", "util", "helpers", "common", "manager", "base", "misc", "models"}


class Import(NamedTuple):
    """One import: its top-level folder, file and line, and the dotted target."""

    folder: str
    file: str
    line: int
    target: str

    def violates(self, rule: str) -> str:
        return f"{self.file}:{self.line} imports {self.target}: {rule}"


def folder_of(module: str) -> str:
    """The top-level folder or module: the second part of the name; `__init__` for the package itself."""
    return module.split(".")[1] if "." in module else "__init__"


def _extension_rule(one: Import) -> str | None:
    """The rule about extensions that an import breaks, if any."""
    mine = Path(one.file).parts[1].removesuffix(".py") if one.folder == "extensions" else None
    if one.file.startswith(CHILD):
        child = ".".join(["dragoman", *Path(CHILD).parts])
        inside = one.target.split(".")[0] != "dragoman" or one.target.startswith(child)
        return None if inside else "the child process has nothing else of the package"
    parts = one.target.split(".")
    if parts[:2] != ["dragoman", "extensions"]:
        return None
    if mine is None:
        return "core and adapters import no extension"
    return None if len(parts) < 3 or parts[2] == mine else "extensions do not import each other"


def targets_of(node: ast.AST, package: str, inside: list[str]) -> list[str]:
    """The targets of an import statement in a file of the package `inside`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parent = ".".join(inside[: len(inside) - node.level + 1]) if node.level else ""
        base = ".".join(filter(None, (parent, node.module)))
        # in `from dragoman import ids`, the imported names are the folders
        return [f"{base}.{alias.name}" for alias in node.names] if base == package else [base]
    return []


def imports(package: Path) -> Iterator[Import]:
    """Every import of every file, at module level or inside a function."""
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        inside = [package.name, *place.parent.parts]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in targets_of(node, package.name, inside):
                yield Import(place.parts[0].removesuffix(".py"), str(place), node.lineno, target)  # type: ignore[attr-defined]


def violations(package: Path) -> list[str]:
    """One line for each forbidden import, and for each file with a vague name."""
    folders = {path.stem for path in package.iterdir()} | {"__init__"}
    found = []
    all_imports = list(imports(package))
    for one in all_imports:
        top = one.target.split(".")[0]
        if top != package.name:
            if top in PURE.get(one.folder, ()):
                found.append(one.violates(f"{one.folder} must not import it"))
            if top in SCHEMA_LIBRARIES and one.file != SCHEMA_MODULE:
                found.append(one.violates(f"only {SCHEMA_MODULE} evaluates JSON Schemas"))
            continue
        if rule := _extension_rule(one):
            found.append(one.violates(rule))
        if rule or folder_of(one.target) == "extensions":
            continue
        other = folder_of(one.target)
        if other not in folders:  # `from dragoman import agent`: a public name
            other = "__init__"
        if other == one.folder:
            continue
        mine, theirs = LAYERS.get(one.folder, TOP), LAYERS.get(other, TOP)
        if one.folder in NEEDS_ONLY:
            if other not in NEEDS_ONLY[one.folder] | {"version"}:
                found.append(one.violates(f"{one.folder} uses only {', '.join(sorted(NEEDS_ONLY[one.folder]))}"))
        elif theirs > mine:
            found.append(one.violates(f"layer {mine} may not use layer {theirs}"))
        elif theirs == mine == ADAPTERS:
            found.append(one.violates("adapters do not import each other"))
        elif theirs == ADAPTERS and one.folder not in NAMES_ADAPTERS and one.folder != "extensions":
            found.append(one.violates("only the composition root and the public modules name adapters"))
    found += _imports_between_adapters(package, all_imports)
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package)
        if VAGUE & {part.removesuffix(".py") for part in place.parts}:
            found.append(f"{place}: the name is vague")
    return found


def _imports_between_adapters(package: Path, all_imports: Iterable[Import]) -> Iterator[str]:
    """Stores do not import each other, nor do buses; `stores/shared` is for both stores."""
    for one in all_imports:
        parts = one.target.split(".")
        if one.folder not in ("stores", "bus") or parts[:2] != [package.name, one.folder] or len(parts) < 3:
            continue
        mine = Path(one.file).parts
        if len(mine) > 1 and mine[1].removesuffix(".py") not in (parts[2], "__init__") and parts[2] != "shared":
            yield one.violates("adapters do not import each other")


def imported_modules(package: Path) -> dict[str, set[str]]:
    """The modules that each module imports: when it is loaded, inside functions, and for type checking."""
    modules = {
        ".".join([package.name, *path.relative_to(package).with_suffix("").parts]).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        inside = [package.name, *path.relative_to(package).parent.parts]
        found = graph.setdefault(name, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names if alias.name in modules)
            elif isinstance(node, ast.ImportFrom):
                parent = ".".join(inside[: len(inside) - node.level + 1]) if node.level else ""
                base = ".".join(filter(None, (parent, node.module)))
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    found.update({full} if full in modules else {base} & modules.keys())
        found.discard(name)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_no_import_breaks_a_layer() -> None:
    assert violations(PACKAGE) == []


def test_the_package_has_no_import_cycle() -> None:
    assert cycles(imported_modules(PACKAGE)) == []


def test_an_import_cycle_is_detected() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize(
    "back",
    [
        "from dragoman.calls.turn import Turn",
        "from dragoman.calls import turn",
        "from .turn import Turn",
        "import dragoman.calls.turn",
        "if TYPE_CHECKING:\n    from dragoman.calls.turn import Turn",
        "def new_turn():\n    from dragoman.calls.turn import Turn",
    ],
)
def test_an_import_for_types_or_in_a_function_closes_a_cycle_too(tmp_path: Path, back: str) -> None:
    folder = tmp_path / "dragoman" / "calls"
    folder.mkdir(parents=True)
    (folder / "turn.py").write_text("from dragoman.calls.agent import Agent")
    (folder / "agent.py").write_text(back)
    assert cycles(imported_modules(tmp_path / "dragoman")) == [["dragoman.calls.agent", "dragoman.calls.turn"]]


def test_contributing_lists_the_same_layers() -> None:
    rows = re.findall(r"^\| (\d) \| (`[^|]*) \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    listed = {name: int(layer) for layer, names in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", names)}
    sources = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")}
    present = {source.removesuffix(".py") for source in sources} - {"__init__", "__main__"}
    assert listed == {name: LAYERS.get(name, TOP) for name in present}


def test_docstrings_refer_to_existing_objects() -> None:
    references = {
        reference: str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for reference in re.findall(r"(?:See|Implements) `?(dragoman[\w.]*\w)", path.read_text("utf-8"))
    }
    assert len(references) > 20
    assert {name: file for name, file in references.items() if not _exists(name)} == {}


def _exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_listed_folder_exists() -> None:
    assert {path.stem for path in PACKAGE.iterdir()} >= set(LAYERS)


def test_class_names_are_unique_in_the_package() -> None:
    places: dict[str, list[str]] = collections.defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    ("file", "text", "rule"),
    [
        ("core/states.py", "from dragoman.wire import sse", "layer 1 may not use layer 2"),
        ("core/names.py", "def f():\n    import asyncio", "core must not import it"),
        ("core/names.py", "import os.path", "core must not import it"),
        ("wire/v1.py", "from grpc import aio", "wire must not import it"),
        ("wire/v1.py", "from dragoman import wiring", "layer 2 may not use layer 7"),
        ("wire/v1.py", "from .. import wiring", "layer 2 may not use layer 7"),
        ("wire/v1.py", "from ..runtime import scheduler", "layer 2 may not use layer 5"),
        ("stores/sqlite/store.py", "from dragoman.bus.local import LocalBus", "adapters do not import each other"),
        ("stores/sqlite/store.py", "from dragoman.stores.other import store", "adapters do not import each other"),
        (
            "stores/sqlite/store.py",
            "from dragoman.extensions.postgres import store",
            "core and adapters import no extension",
        ),
        ("extensions/nats/bus.py", "import dragoman.extensions.postgres.rows", "extensions do not import each other"),
        ("extensions/frameworks/child/main.py", "import dragoman.core.names", "the child process has nothing else"),
        (
            "runtime/scheduler.py",
            "from dragoman.stores.sqlite import open_store",
            "runtime uses only core, ids, ports, runtime, supervision",
        ),
        ("runtime/scheduler.py", "import sqlite3", "runtime must not import it"),
        ("bindings/cards.py", "import dragoman.agents.values", "only the composition root and the public modules"),
        ("bindings/cards.py", "from dragoman.cli import main", "layer 6 may not use layer 7"),
        ("cli/login.py", "from dragoman.stores.sqlite import open_store", "cli uses only calling, "),
        ("client/calls.py", "from dragoman.runtime import Runtime", "client uses only calling, client, core, wire"),
        (
            "extensions/mcp/servers/questions.py",
            "def f():\n    import jsonschema",
            "only core/schemas.py evaluates JSON Schemas",
        ),
        ("extensions/mcp/wire/tools.py", "from jsonschema_rs import validator_for", "only core/schemas.py evaluates"),
        ("core/cards/skills.py", "from referencing import Registry", "only core/schemas.py evaluates JSON Schemas"),
        ("utils.py", "", "the name is vague"),
        ("core/helpers/text.py", "", "the name is vague"),
    ],
)
def test_a_violation_is_detected(tmp_path: Path, file: str, text: str, rule: str) -> None:
    package = tmp_path / "dragoman"
    for folder in (*LAYERS, "wiring", "cli"):
        (package / folder).mkdir(parents=True)
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (found,) = violations(package)
    assert found.startswith(file)
    assert rule in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("wiring/app.py", "from dragoman.stores.sqlite import open_store\nfrom dragoman.bus.local import LocalBus"),
        (
            "runtime/turn/runner.py",
            "from dragoman.ports import Store\nimport asyncio\nfrom dragoman_pb.lf.a2a.v1 import a2a_pb2",
        ),
        ("stores/sqlite/store.py", "from dragoman.stores.sqlite.hot.writer import Writer\nimport sqlite3"),
        ("stores/sqlite/store.py", "from dragoman.stores.shared.erasure import Eraser"),
        ("playground.py", "from dragoman import Skill, Turn, agent"),
        ("core/schemas.py", "import jsonschema_rs"),
    ],
)
def test_an_allowed_import_passes(tmp_path: Path, file: str, text: str) -> None:
    package = tmp_path / "dragoman"
    for folder in LAYERS:
        (package / folder).mkdir(parents=True)
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert violations(package) == []
