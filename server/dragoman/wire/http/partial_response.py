"""Response masks: the `fields` parameter of Google's APIs, such as `task(id,status/state)`.

Commas separate fields, a slash or a dot goes one level down, parentheses select several fields below one, and `*` is
every field. A mask applies to each element of an array, and to each element of a stream.
"""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from dragoman.core.errors import InvalidParams
from dragoman.wire.json.protojson import JsonDialect, is_map

FieldTree = dict[str, Any]
"""The selected fields by JSON name, each with the tree below it; None selects everything below."""

MAX_MASK_DEPTH: Final = 32
"""Levels of a mask: more than any response has."""

_ALL: Final = "*"
_TOKEN: Final = re.compile(r"\s*([^\s/.,()]+|[/.,()])")
_FREE_FORM: Final = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
"""Types whose keys are the caller's own."""


class FieldMask:
    """A parsed mask for the responses of one type."""

    def __init__(self, text: str, descriptor: Descriptor, dialect: JsonDialect, *, parameter: str = "fields") -> None:
        """Raises InvalidParams for `parameter`: invalid syntax, or a field that the type does not have."""
        self._dialect = dialect
        self._parameter = parameter
        self._tokens = [match[1] for match in _TOKEN.finditer(text)]
        if "".join(self._tokens) != "".join(text.split()) or not self._tokens:
            raise self._error("must name fields of the response, such as id,status/state")
        self._position = 0
        tree = self._read_list(1)
        if self._position < len(self._tokens):
            raise self._error(f'has an unexpected "{self._tokens[self._position][:40]}"')
        self._tree = self._resolve(tree, descriptor)

    def apply(self, value: Any) -> Any:
        """The selected part of a response's JSON value. The value itself is not changed."""
        return _select(value, self._tree)

    def _error(self, rule: str) -> InvalidParams:
        return InvalidParams.field(self._parameter, rule)

    def _next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _read_list(self, depth: int) -> FieldTree:
        tree: FieldTree = {}
        while True:
            self._read_path(tree, depth)
            if self._next() != ",":
                return tree
            self._position += 1

    def _read_path(self, tree: FieldTree, depth: int) -> None:
        names = [self._read_name()]
        while self._next() in ("/", "."):
            self._position += 1
            names.append(self._read_name())
        depth += len(names)
        if depth > MAX_MASK_DEPTH:
            raise self._error(f"has more than {MAX_MASK_DEPTH} levels")
        below: FieldTree | None = None
        if self._next() == "(":
            self._position += 1
            below = self._read_list(depth)
            if self._next() != ")":
                raise self._error('has a "(" without a ")"')
            self._position += 1
        for name in reversed(names[1:]):
            below = {name: below}
        _add(tree, names[0], below)

    def _read_name(self) -> str:
        name = self._next()
        if not name or name in "/.,()":
            place = f'before "{name}"' if name else "at its end"
            raise self._error(f"needs the name of a field {place}")
        self._position += 1
        return name

    def _resolve(self, tree: FieldTree, descriptor: Descriptor) -> FieldTree:
        """The tree with JSON names, `*` written out."""
        known = self._dialect.decoders.accepted_keys(descriptor)
        resolved: FieldTree = {}
        for name, below in tree.items():
            if name != _ALL and name not in known:
                names = ", ".join(field.json_name for field in descriptor.fields)
                raise self._error(f'"{name[:40]}" is not a field of {descriptor.name}; use {names}')
            for field in descriptor.fields if name == _ALL else [known[name]]:
                inner = field.message_type
                if below is None or (inner is not None and (is_map(field) or inner.full_name in _FREE_FORM)):
                    _add(resolved, field.json_name, below)
                elif inner is not None and inner.file.package != "google.protobuf":
                    _add(resolved, field.json_name, self._resolve(below, inner))
                elif name != _ALL:
                    raise self._error(f'"{name[:40]}" has no fields to select from')
        return resolved


def _add(tree: FieldTree, name: str, below: FieldTree | None) -> None:
    """Adds a selection. Everything below a field includes any part of it."""
    if name not in tree:
        tree[name] = below
    elif tree[name] is None or below is None:
        tree[name] = None
    else:
        for key, inner in below.items():
            _add(tree[name], key, inner)


def _select(value: Any, tree: FieldTree) -> Any:
    if isinstance(value, list):
        return [_select(item, tree) for item in value]
    selected = {}
    for key, item in value.items():
        name = key if key in tree else _ALL
        if name not in tree:
            continue
        below = tree[name]
        if below is None:
            selected[key] = item
        elif isinstance(item, (dict, list)):
            selected[key] = _select(item, below)
    return selected
