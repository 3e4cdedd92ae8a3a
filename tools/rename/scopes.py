"""What a name means at the place where it stands: lexical scopes of one file, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Imported(NamedTuple):
    """A name bound by an import: the module, and the name in it (empty: the module itself)."""

    module: str
    name: str


class Scope:
    """The names bound by one module, class, function or comprehension."""

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node = node
        self.parent = parent
        self.bound: dict[str, Imported | None] = {}
        self.parameters: set[str] = set()
        self.is_class = isinstance(node, ast.ClassDef)

    def find(self, name: str) -> Scope | None:
        """The scope whose binding of `name` is seen from here; class scopes are seen only from themselves."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


def absolute(module: str, is_package: bool, level: int, target: str | None) -> str:
    """The dotted name that an import statement of `module` means."""
    if not level:
        return target or ""
    parts = module.split(".")
    base = parts[: len(parts) - level + (1 if is_package else 0)]
    return ".".join([*base, *([target] if target else [])])


class Scopes(ast.NodeVisitor):
    """The scope of every node of one file."""

    def __init__(self, tree: ast.Module, module: str, is_package: bool) -> None:
        self.module, self.is_package = module, is_package
        self.of: dict[ast.AST, Scope] = {}
        self.top = Scope(tree, None)
        self._scope = self.top
        self._bind_body(tree.body)
        self.generic_visit(tree)

    def visit(self, node: ast.AST) -> None:
        self.of[node] = self._scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for outer in (
                *node.decorator_list,
                *_defaults(node.args),
                *_annotations(node.args),
                *filter(None, [node.returns]),
            ):
                self.visit(outer)
            self._inside(node, node.body, _names(node.args))
            for argument in _arguments(node.args):
                self.of[argument] = self.of[node.body[0]]
        elif isinstance(node, ast.Lambda):
            for outer in _defaults(node.args):
                self.visit(outer)
            self._inside(node, [node.body], _names(node.args))
        elif isinstance(node, ast.ClassDef):
            for outer in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
                self.visit(outer)
            self._inside(node, node.body, set())
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            self.visit(node.generators[0].iter)
            inner = Scope(node, self._scope)
            for generator in node.generators:
                for name in ast.walk(generator.target):
                    if isinstance(name, ast.Name):
                        inner.bound[name.id] = None
            self._scope, before = inner, self._scope
            for index, generator in enumerate(node.generators):
                self.visit(generator.target)
                if index:
                    self.visit(generator.iter)
                for condition in generator.ifs:
                    self.visit(condition)
            if isinstance(node, ast.DictComp):
                self.visit(node.key)
                self.visit(node.value)
            else:
                self.visit(node.elt)
            self._scope = before
        else:
            self.generic_visit(node)

    def _inside(self, node: ast.AST, body: list[ast.stmt] | list[ast.expr], parameters: set[str]) -> None:
        inner = Scope(node, self._scope)
        inner.parameters = parameters
        inner.bound.update(dict.fromkeys(parameters))
        self._scope, before = inner, self._scope
        self._bind_body(body)
        for statement in body:
            self.visit(statement)
        self._scope = before

    def _bind_body(self, body: list[ast.stmt] | list[ast.expr]) -> None:
        outside: set[str] = set()
        for node in _own(body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                self._scope.bound.setdefault(node.id, None)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._scope.bound.setdefault(node.name, None)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                self._scope.bound.setdefault(node.name, None)
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                self._scope.bound.setdefault(node.name, None)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    self._scope.bound[bound] = Imported(alias.name if alias.asname else bound, "")
            elif isinstance(node, ast.ImportFrom):
                base = absolute(self.module, self.is_package, node.level, node.module)
                for alias in node.names:
                    self._scope.bound[alias.asname or alias.name] = Imported(base, alias.name)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                outside.update(node.names)
        for name in outside:
            self._scope.bound.pop(name, None)


def _own(body: list[ast.stmt] | list[ast.expr]) -> Iterator[ast.AST]:
    """The nodes that bind names in this scope: everything but the inside of other scopes."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, Comprehension):
            waiting += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            continue
        waiting += ast.iter_child_nodes(node)


def _arguments(args: ast.arguments) -> list[ast.arg]:
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]


def _names(args: ast.arguments) -> set[str]:
    return {argument.arg for argument in _arguments(args)}


def _defaults(args: ast.arguments) -> list[ast.expr]:
    return [*args.defaults, *filter(None, args.kw_defaults)]


def _annotations(args: ast.arguments) -> list[ast.expr]:
    return [argument.annotation for argument in _arguments(args) if argument.annotation]
