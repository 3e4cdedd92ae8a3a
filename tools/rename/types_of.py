"""Which class defines the attribute at a place, and which function a call names: mypy's answers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mypy import build
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.fscache import FileSystemCache
from mypy.nodes import (
    CallExpr,
    ClassDef,
    FuncDef,
    MemberExpr,
    MypyFile,
    Node,
    OverloadedFuncDef,
    SuperExpr,
    TypeInfo,
    Var,
)
from mypy.options import Options
from mypy.types import (
    CallableType,
    Instance,
    Overloaded,
    ProperType,
    TupleType,
    TypedDictType,
    TypeType,
    TypeVarType,
    UnionType,
    get_proper_type,
)

Place = tuple[int, int]


def infos(given: Any) -> Iterator[TypeInfo]:
    """The classes that a value of this type can be an instance of (or the class itself, for a class object)."""
    kind = get_proper_type(given)
    if isinstance(kind, Instance):
        yield kind.type
    elif isinstance(kind, UnionType):
        for item in kind.items:
            yield from infos(item)
    elif isinstance(kind, TypeType):
        yield from infos(kind.item)
    elif isinstance(kind, CallableType | Overloaded) and kind.is_type_obj():
        yield kind.type_object()
    elif isinstance(kind, TupleType):
        yield kind.partial_fallback.type
    elif isinstance(kind, TypedDictType):
        yield kind.fallback.type
    elif isinstance(kind, TypeVarType):
        yield from infos(kind.upper_bound)
        for value in kind.values:
            yield from infos(value)


class Places:
    """What the types say of one file."""

    def __init__(self, types: dict[Any, Any], tree: MypyFile) -> None:
        self._types = types
        self.members: dict[Place, set[TypeInfo]] = {}  # by the end of the attribute
        self.calls: dict[tuple[int, int, int, int], CallExpr] = {}
        self.classes: dict[tuple[str, int], TypeInfo] = {}
        waiting: list[Any] = list(tree.defs)
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, ClassDef):
                self.classes[node.name, node.line] = node.info
            elif isinstance(node, MemberExpr):
                found = self.members.setdefault((node.end_line or 0, node.end_column or 0), set())
                if node.expr in types:
                    found.update(infos(types[node.expr]))
            elif isinstance(node, SuperExpr) and node.info is not None:
                self.members[node.end_line or 0, node.end_column or 0] = set(node.info.mro[1:2])
            elif isinstance(node, CallExpr):
                self.calls[node.line, node.column, node.end_line or 0, node.end_column or 0] = node
            for name in _children(type(node)):
                value = getattr(node, name, None)
                if isinstance(value, Node):
                    waiting.append(value)
                elif isinstance(value, list | tuple):
                    waiting += _nodes(value)

    def type_of(self, expression: Any) -> ProperType | None:
        return get_proper_type(self._types.get(expression))

    def callee(self, call: CallExpr) -> tuple[list[FuncDef], list[TypeInfo]]:
        """The functions and the classes that a call may name."""
        return self.named(call.callee)

    def named(self, expression: Any) -> tuple[list[FuncDef], list[TypeInfo]]:
        """The functions and the classes that an expression may be."""
        kind = self.type_of(expression)
        functions: list[FuncDef] = []
        classes: list[TypeInfo] = []
        waiting = [kind]
        while waiting:
            kind = get_proper_type(waiting.pop())
            if isinstance(kind, Overloaded):
                if kind.is_type_obj():
                    classes.append(kind.type_object())
                waiting += kind.items
            elif isinstance(kind, UnionType):
                waiting += [get_proper_type(i) for i in kind.items]
            elif isinstance(kind, TypeType):
                classes += infos(kind.item)
            elif isinstance(kind, CallableType):
                if kind.is_type_obj():
                    classes.append(kind.type_object())
                elif isinstance(kind.definition, FuncDef):
                    functions.append(kind.definition)
                elif kind.definition is not None and isinstance(getattr(kind.definition, "func", None), FuncDef):
                    functions.append(kind.definition.func)  # type: ignore[attr-defined]
                elif isinstance(kind.definition, OverloadedFuncDef):
                    functions += [i for i in kind.definition.items if isinstance(i, FuncDef)]
        node = getattr(expression, "node", None)
        if isinstance(node, FuncDef):
            functions.append(node)
        return functions, classes


CROSS_REFERENCES = {
    "node",
    "info",
    "type",
    "analyzed",
    "definition",
    "defn",
    "names",
    "fallback_to_any",
    "local_definitions",
}


@functools.cache
def _children(kind: type) -> list[str]:
    names = {name for base in kind.__mro__ for name in getattr(base, "__mypyc_attrs__", ())}
    return [name for name in names if name not in CROSS_REFERENCES and not name.startswith("__")]


def _nodes(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _nodes(value)
        elif isinstance(value, Node) and not isinstance(value, TypeInfo | Var):
            yield value


def check(root: Path, python: Path, files: list[str]) -> build.BuildResult:
    options = Options()
    parse_config_file(options, lambda: None, str(root / "pyproject.toml"), None, None)
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    options.fine_grained_incremental = False
    options.use_fine_grained_cache = False
    options.local_partial_types = True
    options.cache_dir = "/dev/null"
    options.python_executable = str(python)
    options.mypy_path = [str(root / p) for p in ("server", "gen")]
    cache = FileSystemCache()
    sources = create_source_list(files, options, cache)
    return build.build(sources, options, fscache=cache)


def trees(result: build.BuildResult) -> Iterator[tuple[Path, MypyFile]]:
    for state in result.graph.values():
        if state.tree is not None and state.path:
            yield Path(state.path).resolve(), state.tree
