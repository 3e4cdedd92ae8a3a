"""From an HTTP method and a path to what serves it: a trie over path segments.

At each segment a literal is tried before a wildcard, with backtracking, so `/shelves/{id}` wins over
`/{tenant}/shelves`, where a tenant is an extra leading segment. Within one place the order of `add`
is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from dragoman.core.errors import InvalidParams
from dragoman.wire.httprule import Template, Variable, Wildcard

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """One target with the values its template binds, by dotted field path as the template spells it."""

    target: T
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """What serves a request: one candidate, or several whose templates fit equally, in the order they were
    added."""

    candidates: tuple[Candidate[T], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing serves the request.

    `allow` holds the methods that the path knows, sorted (405 with an Allow header), and is empty for an
    unknown path (404).
    """

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    target: T
    variables: tuple[Variable, ...]


# verb -> HTTP method -> entries in the order they were added
_Leaf = dict[str, dict[str, list[_Entry[T]]]]


@dataclass(slots=True)
class _Node(Generic[T]):
    literals: dict[str, _Node[T]] = field(default_factory=dict)
    one: _Node[T] | None = None
    rest: _Leaf[T] = field(default_factory=dict)
    leaf: _Leaf[T] = field(default_factory=dict)


class Routes(Generic[T]):
    """A set of templates with their targets, built once at start."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, http_method: str, template: Template, target: T) -> None:
        """Adds one binding; several targets may share a template. The method `*` is any that nothing else takes
        (`custom` in http.proto)."""
        node = self._root
        leaf: _Leaf[T] | None = None
        for segment in template.segments:
            if segment is Wildcard.REST:
                leaf = node.rest
            elif segment is Wildcard.ONE:
                node.one = node.one or _Node()
                node = node.one
            else:
                key = _decode(segment)
                if key not in node.literals:  # no `setdefault`: a node is dear, and most are there
                    node.literals[key] = _Node()
                node = node.literals[key]
        leaf = node.leaf if leaf is None else leaf
        entries = leaf.setdefault(template.verb, {}).setdefault(http_method, [])
        entries.append(_Entry(target, template.variables))

    def match(self, http_method: str, path: str) -> Match[T] | Refused:
        """What serves `http_method` on `path`.

        `path` is what stood in the request line, percent-encoded, without the query; do not hand in a path
        that a library has decoded, or an encoded slash in an id becomes a separator. Raises InvalidParams if
        a bound value is not UTF-8.
        """
        raw = path.removeprefix("/").split("/")
        keys = raw if "%" not in path else [_decode(segment) for segment in raw]
        allow: set[str] = set()
        for verb, known in self._leaves(raw, keys):
            entries = known.get(http_method) or known.get("*")
            if entries:
                if verb:
                    raw[-1] = raw[-1][: -len(verb) - 1]
                found = tuple(Candidate(e.target, _bind(e.variables, raw)) for e in entries)
                return Match(found)
            allow.update(known)
        return Refused(tuple(sorted(allow)))

    def _leaves(self, raw: list[str], keys: list[str]) -> Iterator[tuple[str, dict[str, list[_Entry[T]]]]]:
        """The places that fit, best first, each with the verb it was found under and its methods."""
        # google/api/http.proto: a verb is what follows the last colon of the last segment. An id may hold a
        # colon of its own, so the whole segment is tried when no template has that verb there.
        last, colon, verb = raw[-1].rpartition(":")
        known = False
        if colon and last and verb:
            for leaf in _walk(self._root, [*keys[:-1], _decode(last)], 0):
                if verb in leaf:
                    known = True
                    yield verb, leaf[verb]
        if known:
            return  # a known verb with the wrong method is that mistake, and no id that happens to end so
        for leaf in _walk(self._root, keys, 0):
            if "" in leaf:
                yield "", leaf[""]


def _walk(node: _Node[T], keys: list[str], at: int) -> Iterator[_Leaf[T]]:
    if at == len(keys):
        if node.leaf:
            yield node.leaf
    else:
        key = keys[at]
        literal = node.literals.get(key)
        if literal is not None:
            yield from _walk(literal, keys, at + 1)
        if node.one is not None and key:
            yield from _walk(node.one, keys, at + 1)
    if node.rest:
        yield node.rest


def _bind(variables: tuple[Variable, ...], raw: list[str]) -> dict[str, str]:
    return {".".join(v.field): _value(v, raw) for v in variables}


def _value(variable: Variable, raw: list[str]) -> str:
    if variable.is_single:
        return _decode_value(raw[variable.start], variable)
    # google/api/http.proto: in a value of several segments %2F stays as it is, so that the segments can be
    # told apart afterwards.
    text = "/".join(raw[variable.start : variable.end])
    if "%" not in text:
        return text
    kept = text.replace("%2F", "%252F").replace("%2f", "%252f")
    return _decode_value(kept, variable)


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace") if "%" in segment else segment


def _decode_value(segment: str, variable: Variable) -> str:
    if "%" not in segment:
        return segment
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise InvalidParams.field(_camel(variable), "must be percent-encoded UTF-8") from None


def _camel(variable: Variable) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), ".".join(variable.field))
