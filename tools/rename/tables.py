"""The tables of renames: which module goes where, and which name becomes which."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

NAME = re.compile(r"^(?P<path>[\w/]+\.py)::(?P<symbol>[\w.]+)(\((?P<parameter>\w+)\))?$")


def dotted(path: str) -> str:
    """`runtime/log.py` as `dragoman.runtime.log`, `tests/core/x.py` as `tests.core.x`."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    if path == "__init__.py":
        return "dragoman"
    return name if re.match(r"(tests|tools|bench)\b", path) else f"dragoman.{name}"


def located(path: str) -> str:
    """The path in the repository."""
    return path if re.match(r"(tests|tools|bench)/", path) else f"server/dragoman/{path}"


@dataclass
class Tables:
    """All tables as one."""

    modules: dict[str, str] = field(default_factory=dict)  # old path -> new path, as in the tables
    symbols: dict[str, str] = field(default_factory=dict)  # "dragoman.core.log.Head" -> "TaskRecord"
    members: dict[tuple[str, str], str] = field(default_factory=dict)  # ("dragoman.core.log.Head", "inbox") -> new
    parameters: dict[tuple[str, str], str] = field(default_factory=dict)  # ("dragoman.runtime.log.Log.append", "x")
    new: dict[str, str] = field(default_factory=dict)  # new path -> docstring

    def module(self, name: str) -> str:
        """The new dotted name of a module or package."""
        return self.dotted.get(name, name)

    def __post_init__(self) -> None:
        self.dotted: dict[str, str] = {}

    def finish(self) -> None:
        self.dotted = {dotted(old): dotted(new) for old, new in self.modules.items()}


def read(paths: list[Path]) -> Tables:
    tables = Tables()
    for path in paths:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for old, new in data.get("modules", {}).items():
            if tables.modules.setdefault(old, new) != new:
                raise SystemExit(f"{path.name}: {old} goes to {tables.modules[old]} and to {new}")
        tables.new.update(data.get("new", {}))
        for key, new in data.get("names", {}).items():
            match = NAME.match(key)
            if not match:
                raise SystemExit(f"{path.name}: {key!r} is no name")
            module, symbol, parameter = dotted(match["path"]), match["symbol"], match["parameter"]
            where: dict[object, str]
            if parameter:
                where, place = tables.parameters, (f"{module}.{symbol}", parameter)  # type: ignore[assignment]
            elif "." in symbol:
                owner, _, member = symbol.rpartition(".")
                where, place = tables.members, (f"{module}.{owner}", member)  # type: ignore[assignment]
            else:
                where, place = tables.symbols, f"{module}.{symbol}"  # type: ignore[assignment]
            if where.setdefault(place, new) != new:
                raise SystemExit(f"{path.name}: {key} becomes {where[place]} and {new}")
    tables.finish()
    return tables
