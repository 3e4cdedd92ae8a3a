"""Router: finds the target of an HTTP method and path, in a trie of path segments.

At each segment a literal is tried before a wildcard, with backtracking, so `/shelves/{id}` takes precedence over
`/{tenant}/shelves`. Targets of equal templates keep the order of `add`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.errors import InvalidParams
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule, Template, Variable, Wildcard
from dragoman.wire.http.transcode import ResponseEncoder, Transcoder
from dragoman.wire.json.protojson import JsonDialect

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """A target with its path variables, by dotted field path as written in the template."""

    target: T
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """The candidates for a request: one, or several with equal templates in the order of `add`."""

    candidates: tuple[Candidate[T], ...]


@dataclass(frozen=True, slots=True)
class NoMatch:
    """No route for the request.

    `allow` has the methods that the path supports, sorted (405 with an Allow header); empty for an unknown path (404).
    """

    allow: tuple[str, ...] = ()


_Entry = tuple[T, tuple[Variable, ...]]
# verb -> HTTP method -> entries in the order they were added
_Leaf = dict[str, dict[str, list[_Entry[T]]]]


@dataclass(slots=True)
class _Node(Generic[T]):
    literals: dict[str, _Node[T]] = field(default_factory=dict)
    one: _Node[T] | None = None
    rest: _Leaf[T] = field(default_factory=dict)
    leaf: _Leaf[T] = field(default_factory=dict)


class Routes(Generic[T]):
    """A routing table from templates to targets, built once at start."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, http_method: str, template: Template, target: T) -> None:
        """Adds a route; several targets may share a template.

        The method `*` matches every method without a route of its own (`custom` in http.proto).
        """
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
                if key not in node.literals:  # no `setdefault`: nodes are expensive, and most exist already
                    node.literals[key] = _Node()
                node = node.literals[key]
        leaf = node.leaf if leaf is None else leaf
        entries = leaf.setdefault(template.verb, {}).setdefault(http_method, [])
        entries.append((target, template.variables))

    def match(self, http_method: str, path: str) -> Match[T] | NoMatch:
        """Finds the candidates for `http_method` on `path`.

        `path` is the path of the request line: percent-encoded, without the query. In a decoded path, an encoded slash
        in an id would become a separator. Raises InvalidParams if a path variable is not UTF-8.
        """
        raw = path.removeprefix("/").split("/")
        keys = raw if "%" not in path else [_decode(segment) for segment in raw]
        allow: set[str] = set()
        has_known_verb = False
        for verb, known in self._leaves(raw, keys):
            entries = known.get(http_method) or known.get("*")
            if entries:
                if verb:
                    raw[-1] = raw[-1][: -len(verb) - 1]
                return Match(tuple(Candidate(target, _bind(variables, raw)) for target, variables in entries))
            has_known_verb = has_known_verb or bool(verb)
            allow.update(known)
        last, _, verb = raw[-1].rpartition(":")
        if last and verb and not has_known_verb:
            return NoMatch()  # an unknown verb is an unknown path, not a wrong method of the resource before the colon
        return NoMatch(tuple(sorted(allow)))

    def _leaves(self, raw: list[str], keys: list[str]) -> Iterator[tuple[str, dict[str, list[_Entry[T]]]]]:
        """Yields matching leaves, best first: the verb and the entries by HTTP method."""
        # google/api/http.proto: the verb follows the last colon of the last segment. An id may contain a colon, so
        # the complete segment is tried if no template has that verb here.
        last, colon, verb = raw[-1].rpartition(":")
        known = False
        if colon and last and verb:
            for leaf in _walk(self._root, [*keys[:-1], _decode(last)], 0):
                if verb in leaf:
                    known = True
                    yield verb, leaf[verb]
        if known:
            return  # a known verb with the wrong method is a 405, not an id that ends in `:verb`
        for leaf in _walk(self._root, keys, 0):
            if "" in leaf:
                yield "", leaf[""]


def _walk(node: _Node[T], keys: list[str], index: int) -> Iterator[_Leaf[T]]:
    if index == len(keys):
        if node.leaf:
            yield node.leaf
    else:
        key = keys[index]
        literal = node.literals.get(key)
        if literal is not None:
            yield from _walk(literal, keys, index + 1)
        if node.one is not None and key:
            yield from _walk(node.one, keys, index + 1)
    if node.rest:
        yield node.rest


def _bind(variables: tuple[Variable, ...], raw: list[str]) -> dict[str, str]:
    return {".".join(v.field): _value(v, raw) for v in variables}


def _value(variable: Variable, raw: list[str]) -> str:
    text = "/".join(raw[variable.start : variable.end])
    if "%" not in text:
        return text
    if not variable.is_single:
        # google/api/http.proto: in a value of several segments %2F stays encoded, so that the segments remain
        # distinguishable.
        text = text.replace("%2F", "%252F").replace("%2f", "%252f")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        name = re.sub(r"_([a-z])", lambda found: found[1].upper(), ".".join(variable.field))
        raise InvalidParams.field(name, "must be percent-encoded UTF-8") from None


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace") if "%" in segment else segment


@dataclass(frozen=True, slots=True)
class Binding:
    """One rule of one method, with its request decoder and response encoder."""

    method: MethodDescriptor
    rule: Rule
    transcoder: Transcoder[Any]
    response_encoder: ResponseEncoder[Any]

    @property
    def rpc(self) -> str:
        """The gRPC path of the method, `/package.Service/Method`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def response_class(self) -> type[Message]:
        """The response class of the method, or of each element of a stream."""
        return GetMessageClass(self.method.output_type)


@dataclass(frozen=True, slots=True)
class MatchedBinding:
    """The binding of a request, with its path variables."""

    binding: Binding
    variables: Mapping[str, str]

    def request(self, query: Iterable[tuple[str, str]] = (), body: object = None) -> Message:
        """Builds the request message.

        `query` has the decoded pairs in order; `body` is the parsed JSON, None if absent. Raises InvalidParams with
        the field, the rule and the allowed values.
        """
        message: Message = self.binding.transcoder.request(self.variables, query, body)
        return message

    def response(self, message: Message) -> bytes:
        """Encodes a response, or one element of a stream, as JSON. Raises ValueError if JSON cannot represent it."""
        return self.binding.response_encoder.encode(message)


class ServiceRoutes:
    """All HTTP routes of services. Built once at start, immutable afterwards, so thread-safe."""

    def __init__(self, *services: ServiceDescriptor, dialect: JsonDialect | None = None) -> None:
        """`dialect` is the JSON form of the messages; default: ProtoJSON.

        Finds all mistakes in the rules: raises TemplateError for invalid syntax, and TypeError for unknown fields or
        types without a JSON codec.
        """
        self.dialect = dialect or JsonDialect("ProtoJSON")
        self._routes: Routes[Binding] = Routes()
        for service in services:
            for method, rule in httprule.rules(service):
                self._routes.add(rule.http_method, rule.template, self._binding(method, rule))

    def _binding(self, method: MethodDescriptor, rule: Rule) -> Binding:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        transcoder = Transcoder(request, self.dialect, body=rule.body)
        for variable in rule.template.variables:
            transcoder.check_variable(".".join(variable.field))
        encoder = ResponseEncoder(response, self.dialect, response_body=rule.response_body)
        return Binding(method, rule, transcoder, encoder)

    def find(self, http_method: str, path: str) -> MatchedBinding | NoMatch:
        """Finds the binding of a request.

        `path` is the path of the request line: percent-encoded, without the query. Of equal rules the first in
        declared order is used. Raises InvalidParams for a path variable that is not UTF-8.
        """
        match = self._routes.match(http_method, path)
        if isinstance(match, NoMatch):
            return match
        first = match.candidates[0]
        return MatchedBinding(first.target, first.variables)
