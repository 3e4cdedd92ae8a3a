"""Response masks: the `fields` parameter of Google's APIs, such as `task(id,status/state)`.

Commas separate fields, a slash or a dot goes one level down, parentheses select several fields below one, and `*` is
every field. A mask applies to each element of an array, and to each element of a stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from dragoman.core.errors import InvalidParams
from dragoman.wire.json.protojson import JsonDialect, is_map

FieldTree = dict[str, Any]
"""The selected fields by JSON name, each with the tree below it; None selects everything below."""

MAX_MASK_DEPTH: Final = 32  # levels of a mask: more than any response has
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
        tokens = [match[1] for match in _TOKEN.finditer(text)]
        if "".join(tokens) != "".join(text.split()) or not tokens:
            raise self._error("must name fields of the response, such as id,status/state")
        tree: FieldTree = {}
        for path in self._paths(tokens):
            below: FieldTree | None = None
            for name in reversed(path[1:]):
                below = {name: below}
            _add(tree, path[0], below)
        self._tree = self._resolve(tree, descriptor)

    def apply(self, value: Any) -> Any:
        """The selected part of a response's JSON value. The value itself is not changed."""
        return _select(value, self._tree)

    def _error(self, rule: str) -> InvalidParams:
        return InvalidParams.field(self._parameter, rule)

    def _paths(self, tokens: Sequence[str]) -> Iterator[list[str]]:
        """The selected fields, each as the names that lead to it."""
        path: list[str] = []
        groups: list[int] = []  # for each open parenthesis, how many names lead to it
        needs_name, after_group = True, False
        for token in (*tokens, ""):
            if needs_name:
                if token in "/.,()":  # so is the end
                    place = f'before "{token}"' if token else "at its end"
                    raise self._error(f"needs the name of a field {place}")
                path.append(token)
                if len(path) == MAX_MASK_DEPTH:
                    raise self._error(f"has more than {MAX_MASK_DEPTH} levels")
                needs_name = after_group = False
            elif token in ("/", ".", "(") and not after_group:
                groups += [len(path)] if token == "(" else []
                needs_name = True
            elif token in ("", ",") or (token == ")" and groups):
                if not after_group:
                    yield path
                needs_name, after_group = token == ",", token == ")"
                path = path[: groups.pop() if after_group else groups[-1] if groups else 0]
            else:
                raise self._error(f'has an unexpected "{token[:40]}"')
        if groups:
            raise self._error('has a "(" without a ")"')

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
