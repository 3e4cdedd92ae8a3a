"""Renames and moves: `python -m rename TABLE... --root ROOT --python PYTHON`, in the folder tools/."""

from __future__ import annotations

import argparse
import ast
import collections
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mypy.nodes import FuncDef, TypeInfo

from rename import merge, prose, tables, types_of
from rename.scopes import Imported, Scope, Scopes

ATTRIBUTE_CALLS = {"setattr", "getattr", "hasattr", "delattr", "object"}
COMMON = {"read", "write", "get", "put", "send", "close", "start", "stop"}
OURS = ("dragoman", "tests", "tools", "bench")


def module_of(path: Path, root: Path) -> str:
    place = path.relative_to(root)
    parts = list(place.parts)
    if parts[0] == "server":
        parts = parts[1:]
    parts[-1] = parts[-1].removesuffix(".py")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


class Source:
    """One file: its bytes, its tree, its scopes, and the edits so far."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.place = str(path.relative_to(root))
        self.data = path.read_bytes()
        self.tree = ast.parse(self.data)
        self.module = module_of(path, root)
        self.is_package = path.name == "__init__.py"
        self.scopes = Scopes(self.tree, self.module, self.is_package)
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.edits: dict[tuple[int, int], str] = {}
        self.places: types_of.Places | None = None

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def edit(self, start: int, old: str, new: str, complaints: list[str]) -> None:
        end = start + len(old.encode())
        if self.data[start:end] != old.encode():
            line = self.data[:start].count(b"\n") + 1
            complaints.append(f"{self.place}:{line}: {old!r} expected, {self.data[start:end]!r} found (-> {new})")
            return
        self.edits[start, end] = new

    def replace(self, start: int, end: int, new: str) -> None:
        for span in [s for s in self.edits if s[0] >= start and s[1] <= end]:
            del self.edits[span]
        self.edits[start, end] = new

    def result(self) -> bytes:
        data = self.data
        for (start, end), new in sorted(self.edits.items(), reverse=True):
            data = data[:start] + new.encode() + data[end:]
        return data


class Renamer:
    def __init__(self, root: Path, given: tables.Tables, sources: list[Source], complaints: list[str]) -> None:
        self.root, self.tables, self.complaints = root, given, complaints
        self.sources = {source.module: source for source in sources}
        self.members: dict[tuple[str, str], str] = {}

    # ------------------------------------------------------------ what a name means

    def defined(self, module: str, name: str, depth: int = 0) -> tuple[str, str] | None:
        """Where the symbol `name` of `module` is defined, through re-exports; None for a module."""
        if depth > 20:
            return module, name
        source = self.sources.get(module)
        if source is None:
            return module, name
        bound = source.scopes.top.bound.get(name, self)
        if bound is self:
            return None if f"{module}.{name}" in self.sources else (module, name)
        if isinstance(bound, Imported):
            if not bound.name:
                return None
            if (
                f"{bound.module}.{bound.name}" in self.sources
                and bound.name not in getattr(self.sources.get(bound.module), "scopes", source.scopes).top.bound
            ):
                return None
            return self.defined(bound.module, bound.name, depth + 1)
        return module, name

    def symbol(self, module: str, name: str) -> str:
        """The new name of a symbol, as seen from `module`."""
        found = self.defined(module, name)
        return name if found is None else self.tables.symbols.get(f"{found[0]}.{found[1]}", name)

    def means(self, scope: Scope, name: str) -> tuple[str, Any]:
        """("module", name), ("symbol", (module, name)), ("class", scope), ("local", scope) or ("", None)."""
        where = scope.find(name)
        if where is None:
            return "", None
        bound = where.bound[name]
        if isinstance(bound, Imported):
            full = f"{bound.module}.{bound.name}" if bound.name else bound.module
            if not bound.name or (full in self.sources and self._is_module(bound.module, bound.name)):
                return "module", full
            return "symbol", (bound.module, bound.name)
        if where.parent is None:
            return "symbol", (None, name)
        return ("class" if where.is_class else "local"), where

    def _is_module(self, package: str, name: str) -> bool:
        source = self.sources.get(package)
        return source is None or name not in source.scopes.top.bound

    # ------------------------------------------------------------ members

    def expand(self, infos: list[TypeInfo]) -> None:
        """Adds to the members of the tables those that override them, and those that implement a Protocol."""
        keys = dict(self.tables.members)
        known = {info.fullname for info in infos}
        for owner, member in keys:
            if owner not in known:
                self.complaints.append(f"table: no class {owner} (for {member})")
            else:
                info = next(i for i in infos if i.fullname == owner)
                if member not in info.names:
                    self.complaints.append(f"table: {owner} has no member {member}")
        protocols = [i for i in infos if i.is_protocol]
        needed = {
            p.fullname: {m for b in p.mro if b.is_protocol for m in b.names if not m.startswith("__")}
            for p in protocols
        }
        owners = {i.fullname: {m: b for b in reversed(i.mro) for m in b.names} for i in infos}
        while True:
            size = len(keys)
            for info in infos:
                for base in info.mro[1:]:
                    for member in info.names:
                        if (base.fullname, member) in keys:
                            self._add(keys, (info.fullname, member), keys[base.fullname, member])
                        elif (
                            (info.fullname, member) in keys
                            and member in base.names
                            and base.fullname.split(".")[0] in OURS
                        ):
                            self._add(keys, (base.fullname, member), keys[info.fullname, member])
            for protocol in protocols:
                wanted = [
                    (m, keys[b.fullname, m])
                    for m in needed[protocol.fullname]
                    for b in protocol.mro
                    if (b.fullname, m) in keys
                ]
                if (
                    not wanted or needed[protocol.fullname] <= COMMON or len(needed[protocol.fullname]) < 2
                ):  # one method alone says nothing of who is meant
                    continue
                for info in infos:
                    mine = owners[info.fullname]
                    if needed[protocol.fullname] <= mine.keys():
                        for member, new in wanted:
                            self._add(keys, (mine[member].fullname, member), new)
            if len(keys) == size:
                break
        self.members = keys

    def _add(self, keys: dict[tuple[str, str], str], key: tuple[str, str], new: str) -> None:
        if key[0].split(".")[0] not in OURS:
            return
        if keys.setdefault(key, new) != new:
            text = f"table: {key[0]}.{key[1]} becomes {keys[key]} and (by override) {new}"
            if text not in self.complaints:
                self.complaints.append(text)

    def member(self, info: TypeInfo, name: str) -> str | None:
        for base in info.mro:
            if name in base.names:
                return self.members.get((base.fullname, name))
        return None

    def member_of(self, classes: set[TypeInfo], name: str, where: str) -> str | None:
        new = {self.member(info, name) for info in classes if info.fullname != "builtins.object"}
        if len(new) > 1:
            self.complaints.append(f"{where}: .{name} of {sorted(i.name for i in classes)} becomes {new}")
            new.discard(None)
        return next(iter(new)) if len(new) == 1 else None

    # ------------------------------------------------------------ edits of one file

    def rename(self, source: Source) -> None:
        here = self.tables.module(source.module)
        local_modules = self._imports(source, here)
        wanted_members = {member for _, member in self.members}
        wanted_parameters = {parameter for _, parameter in self.tables.parameters}
        for node, scope in source.scopes.of.items():
            if isinstance(node, ast.Name):
                self._name(
                    source,
                    node.id,
                    source.offset(node.lineno, node.col_offset),
                    scope,
                    local_modules,
                    wanted_parameters,
                )
            elif isinstance(node, ast.Attribute):
                self._attribute(source, node, scope, here, local_modules, wanted_members)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._definition(source, node, scope)
            elif isinstance(node, ast.arg):
                self._argument(source, node, scope)
            elif isinstance(node, ast.Call):
                self._call(source, node, scope, wanted_members)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    new = self.tables.symbols.get(f"{source.module}.{name}") if isinstance(node, ast.Global) else None
                    if new:
                        start = source.offset(node.lineno, node.col_offset)
                        found = re.compile(rb"\b%s\b" % name.encode()).search(source.data, start)
                        assert found
                        source.edit(found.start(), name, new, self.complaints)
            elif isinstance(node, ast.Assign) and isinstance(scope.node, ast.ClassDef):
                self._slots(source, node, scope)
            elif isinstance(node, ast.MatchClass):
                for pattern_name in node.kwd_attrs:
                    if pattern_name in wanted_members:
                        self.complaints.append(
                            f"{source.place}:{node.lineno}: match by keyword {pattern_name}: by hand"
                        )
        self._exports(source)

    def _name(
        self, source: Source, name: str, start: int, scope: Scope, modules: dict[str, str], parameters: set[str]
    ) -> None:
        kind, what = self.means(scope, name)
        new = name
        if kind == "symbol":
            module, symbol = what
            where = scope.find(name)
            assert where is not None
            if module is None:
                new = self.tables.symbols.get(f"{source.module}.{name}", name)
            elif name == symbol:  # not `import x as y`
                new = self.symbol(module, symbol)
        elif kind == "module":
            new = modules.get(name, name)
        elif kind == "class":
            info = self._info(source, what.node)
            new = (self.member(info, name) if info else None) or name
        elif kind == "local" and name in parameters and name in what.parameters:
            new = self._parameter(source, what.node, name) or name
        if new != name and new:
            source.edit(start, name, new, self.complaints)

    def _info(self, source: Source, node: ast.ClassDef) -> TypeInfo | None:
        return source.places.classes.get((node.name, node.lineno)) if source.places else None

    def _qualified(self, source: Source, node: ast.AST) -> str:
        names: list[str] = []
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.Module):
            names.append(getattr(current, "name", "<lambda>"))
            current = source.scopes.of[current].node if current in source.scopes.of else None
        return ".".join([source.module, *reversed(names)])

    def _parameter(self, source: Source, node: ast.AST, name: str) -> str | None:
        if isinstance(node, ast.Lambda):
            return None
        return self.tables.parameters.get((self._qualified(source, node), name))

    def _argument(self, source: Source, node: ast.arg, scope: Scope) -> None:
        new = self._parameter(source, scope.node, node.arg)
        if new:
            source.edit(source.offset(node.lineno, node.col_offset), node.arg, new, self.complaints)

    def _definition(
        self, source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: Scope
    ) -> None:
        if isinstance(scope.node, ast.ClassDef):
            info = self._info(source, scope.node)
            new = self.member(info, node.name) if info else None
        elif scope.parent is None:
            new = self.tables.symbols.get(f"{source.module}.{node.name}")
        else:
            new = None
        if new:
            start = source.offset(node.lineno, node.col_offset)
            found = re.compile(rb"(?:def|class)\s+(%s)\b" % node.name.encode()).search(source.data, start)
            assert found
            source.edit(found.start(1), node.name, new, self.complaints)

    def _attribute(
        self, source: Source, node: ast.Attribute, scope: Scope, here: str, modules: dict[str, str], wanted: set[str]
    ) -> None:
        start = source.offset(node.end_lineno or 0, node.end_col_offset or 0) - len(node.attr.encode())
        module = self._module_of(node.value, scope)
        if module is not None:
            if module.split(".")[0] in OURS and f"{module}.{node.attr}" not in self.sources:
                new = self.symbol(module, node.attr)
                if self.tables.module(module) == here and module != source.module:
                    source.replace(source.offset(node.lineno, node.col_offset), start + len(node.attr.encode()), new)
                elif new != node.attr:
                    source.edit(start, node.attr, new, self.complaints)
            return
        if node.attr not in wanted:
            return
        place = (node.end_lineno or 0, node.end_col_offset or 0)
        classes = source.places.members.get(place, set()) if source.places else set()
        if not classes:
            self.complaints.append(f"{source.place}:{node.lineno}: .{node.attr} of an unknown type")
            return
        new_name = self.member_of(classes, node.attr, f"{source.place}:{node.lineno}")
        if new_name:
            source.edit(start, node.attr, new_name, self.complaints)

    def _module_of(self, node: ast.expr, scope: Scope) -> str | None:
        if isinstance(node, ast.Name):
            kind, what = self.means(scope, node.id)
            return what if kind == "module" else None
        if isinstance(node, ast.Attribute):
            outer = self._module_of(node.value, scope)
            if outer is not None and f"{outer}.{node.attr}" in self.sources:
                return f"{outer}.{node.attr}"
        return None

    def _call(self, source: Source, node: ast.Call, scope: Scope, wanted: set[str]) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ATTRIBUTE_CALLS and len(node.args) >= 2:
            self._by_text(source, node, scope, wanted)
        if name == "cast" and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            start = source.offset(node.args[0].lineno, node.args[0].col_offset) + 1
            for word in re.finditer(r"(?<![.\w])[A-Za-z_]\w*", node.args[0].value):
                self._name(source, word[0], start + word.start(), scope, {}, set())
        keywords = [k for k in node.keywords if k.arg]
        if not keywords or source.places is None:
            return
        place = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        call = source.places.calls.get(place)
        if call is None:
            return
        functions, classes = source.places.callee(call)
        if name == "partial" and call.args:
            functions, classes = source.places.named(call.args[0])
        elif name == "replace" and call.args and not classes:
            classes = list(types_of.infos(source.places.type_of(call.args[0])))
        elif name in ("_replace", "__replace__") and isinstance(node.func, ast.Attribute):
            classes = list(types_of.infos(source.places.type_of(getattr(call.callee, "expr", None))))
        for keyword in keywords:
            assert keyword.arg
            new = self._keyword(keyword.arg, functions, classes)
            if new:
                source.edit(source.offset(keyword.lineno, keyword.col_offset), keyword.arg, new, self.complaints)

    def _keyword(self, name: str, functions: list[FuncDef], classes: list[TypeInfo]) -> str | None:
        for function in functions:
            new = self.tables.parameters.get((function.fullname, name))
            if new:
                return new
        for info in classes:
            for base in info.mro:
                init = base.names.get("__init__")
                if init is not None and not init.plugin_generated:
                    return self.tables.parameters.get((f"{base.fullname}.__init__", name))
                if name in base.names and (base.fullname, name) in self.members:
                    return self.members[base.fullname, name]
        return None

    def _by_text(self, source: Source, node: ast.Call, scope: Scope, wanted: set[str]) -> None:
        """`setattr(thing, "name", ...)` and its like."""
        target, text = node.args[0], node.args[1]
        if not (isinstance(text, ast.Constant) and isinstance(text.value, str)):
            return
        module = self._module_of(target, scope)
        start = source.offset(text.lineno, text.col_offset) + 1
        if module is not None:
            new: str | None = self.symbol(module, text.value)
            if self.tables.module(module) != module and new == text.value:
                return
        elif text.value in wanted and source.places is not None and isinstance(target, ast.Name | ast.Attribute):
            classes = self._classes_named(target, scope, source)
            new = self.member_of(classes, text.value, f"{source.place}:{node.lineno}") if classes else None
            if not classes:
                self.complaints.append(f"{source.place}:{node.lineno}: {text.value!r} of an unknown type")
        else:
            return
        if new and new != text.value:
            source.edit(start, text.value, new, self.complaints)

    def _classes_named(self, node: ast.expr, scope: Scope, source: Source) -> set[TypeInfo]:
        if isinstance(node, ast.Name):
            kind, what = self.means(scope, node.id)
            if kind == "symbol":
                module, name = what
                found = self.defined(module or source.module, name)
                if found:
                    return {i for i in self.infos if i.fullname == ".".join(found)}
        elif isinstance(node, ast.Attribute):
            module = self._module_of(node.value, scope)
            if module:
                found = self.defined(module, node.attr)
                if found:
                    return {i for i in self.infos if i.fullname == ".".join(found)}
        return set()

    def _slots(self, source: Source, node: ast.Assign, scope: Scope) -> None:
        if not (isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__slots__"):
            return
        info = self._info(source, scope.node)  # type: ignore[arg-type]
        for text in ast.walk(node.value):
            if info and isinstance(text, ast.Constant) and isinstance(text.value, str):
                new = self.member(info, text.value)
                if new:
                    source.edit(source.offset(text.lineno, text.col_offset) + 1, text.value, new, self.complaints)

    def _exports(self, source: Source) -> None:
        for node in source.tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                for text in ast.walk(node.value):
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        new = self.symbol(source.module, text.value)
                        if new != text.value:
                            source.edit(
                                source.offset(text.lineno, text.col_offset) + 1, text.value, new, self.complaints
                            )

    # ------------------------------------------------------------ imports

    def _imports(self, source: Source, here: str) -> dict[str, str]:
        """Writes the import statements anew; returns how local names of modules change."""
        renamed: dict[str, str] = {}
        used = {n.id for n in ast.walk(source.tree) if isinstance(n, ast.Name)} | {
            a.arg for a in ast.walk(source.tree) if isinstance(a, ast.arg)
        }
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    new = self.tables.module(alias.name)
                    if new != alias.name:
                        if not alias.asname:
                            self.complaints.append(f"{source.place}:{node.lineno}: import {alias.name}: by hand")
                        start = source.offset(alias.lineno, alias.col_offset)
                        source.edit(start, alias.name, new, self.complaints)
                continue
            if not isinstance(node, ast.ImportFrom):
                continue
            from_module = _absolute(source, node)
            if from_module.split(".")[0] not in OURS:
                continue
            out: dict[str, list[str]] = collections.defaultdict(list)
            changed = False
            for alias in node.names:
                bound = alias.asname or alias.name
                full = f"{from_module}.{alias.name}"
                if full in self.sources and self._is_module(from_module, alias.name):
                    new_full = self.tables.module(full)
                    package, _, name = new_full.rpartition(".")
                    changed |= new_full != full
                    if new_full == here:
                        continue
                    local = alias.asname
                    if alias.asname is None and name != alias.name:
                        top_bound = source.scopes.top.bound
                        new_symbols = {self.tables.symbols.get(f"{source.module}.{n}", n) for n in top_bound}
                        other = top_bound.get(name)
                        if (
                            isinstance(other, Imported)
                            and self.tables.module(f"{other.module}.{other.name}") == new_full
                        ):
                            renamed[bound] = name  # both modules become this one
                        elif name in used or (name in top_bound and top_bound[name] is None) or name in new_symbols:
                            local = alias.name
                            self.complaints.append(
                                f"{source.place}:{node.lineno}: {name} is taken, {alias.name} kept as alias"
                            )
                        else:
                            renamed[bound] = name
                    if alias.asname == name:
                        local = None
                    out[package].append(f"{name} as {local}" if local and local != name else name)
                else:
                    package = self.tables.module(from_module)
                    # a package that was no module of the tables, but whose symbol lives in a moved module, stays
                    name = self.symbol(from_module, alias.name)
                    changed |= package != from_module or name != alias.name
                    if package == here and from_module != source.module:
                        if alias.asname and alias.asname != name:
                            self.complaints.append(
                                f"{source.place}:{node.lineno}: {alias.name} as {alias.asname} is here now"
                            )
                        continue
                    out[package].append(f"{name} as {alias.asname}" if alias.asname and alias.asname != name else name)
            if not changed and here == source.module:
                continue
            lines = []
            indent = " " * node.col_offset
            for package, names in out.items():
                shown = _relative(here, source, package) if node.level else package
                lines.append(f"from {shown} import {', '.join(dict.fromkeys(names))}")
            if not lines:
                lines = ["pass"] if node.col_offset else [""]
            text = ("\n" + indent).join(lines)
            start = source.offset(node.lineno, node.col_offset)
            end = source.offset(node.end_lineno or 0, node.end_col_offset or 0)
            lost = re.findall(rb"#.*", source.data[start:end])
            if lost:
                text += "  " + b" ".join(lost).decode()
            source.replace(start, end, text)
        return renamed

    infos: list[TypeInfo]


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    from rename.scopes import absolute

    return absolute(source.module, source.is_package, node.level, node.module)


def _relative(here: str, source: Source, package: str) -> str:
    base = here.split(".") if source.is_package else here.split(".")[:-1]
    target = package.split(".")
    common = 0
    while common < min(len(base), len(target)) and base[common] == target[common]:
        common += 1
    return "." * (len(base) - common + 1) + ".".join(target[common:])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--root", type=Path, default=Path.cwd())
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--check", action="store_true", help="only say what is wrong with the tables")
    parser.add_argument("--only", nargs="*", default=["server", "tools", "tests", "bench"])
    args = parser.parse_args()
    root = args.root.resolve()
    os.chdir(root)  # the configuration of mypy has relative paths
    given = tables.read(args.tables)
    complaints: list[str] = []
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split()
    mine = [
        p
        for p in tracked
        if p.startswith(("server/", "tests/", "tools/", "bench/", "examples/")) and "tools/rename/" not in p
    ]
    sources = [Source(root / p, root) for p in mine]
    by_path = {s.path.resolve(): s for s in sources}
    result = types_of.check(root, args.python, args.only)
    for error in result.errors:
        print("mypy:", error, file=sys.stderr)
    infos: dict[str, TypeInfo] = {}
    for path, tree in types_of.trees(result):
        if path in by_path:
            by_path[path].places = places = types_of.Places(result.types, tree)
            for info in places.classes.values():
                infos[info.fullname + (f"@{path}" if info.fullname in infos else "")] = info
    renamer = Renamer(root, given, sources, complaints)
    renamer.infos = list(infos.values())
    for symbol in given.symbols:
        module, _, name = symbol.rpartition(".")
        source = renamer.sources.get(module)
        if source is None or name not in source.scopes.top.bound:
            complaints.append(f"table: no symbol {symbol}")
    for old in given.modules:
        if not (root / tables.located(old)).exists():
            complaints.append(f"table: no file {old}")
    functions = set()
    for source in sources:
        for node in source.scopes.of:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for argument in ast.walk(node.args):
                    if isinstance(argument, ast.arg):
                        functions.add((renamer._qualified(source, node), argument.arg))
    complaints += [f"table: no parameter {f}({p})" for f, p in given.parameters if (f, p) not in functions]
    renamer.expand(renamer.infos)
    for source in sources:
        renamer.rename(source)
    print(f"{sum(len(s.edits) for s in sources)} edits in {sum(bool(s.edits) for s in sources)} files")
    for complaint in complaints:
        print("-", complaint)
    if not args.check:
        merge.write(root, given, [(s.place, s.result(), bool(s.edits)) for s in sources])
        prose.rewrite(root, given, {s.module: {n for n, v in s.scopes.top.bound.items() if v is None} for s in sources})
    return 0


if __name__ == "__main__":
    sys.exit(main())
