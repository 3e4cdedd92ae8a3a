"""From an HTTP method and a path to what serves it: a trie over path segments.

At each segment a literal is tried before a wildcard, with backtracking, so `/shelves/{id}` wins over
`/{tenant}/shelves`, where a tenant is an extra leading segment. Within one place the order of `add`
is kept.
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
    """One target with the values its template binds, by dotted field path as the template spells it."""

    target: T
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """What serves a request: one candidate, or several whose templates fit equally, in the order they were
    added."""

    candidates: tuple[Candidate[T], ...]


@dataclass(frozen=True, slots=True)
class NoMatch:
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

    def match(self, http_method: str, path: str) -> Match[T] | NoMatch:
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
        return NoMatch(tuple(sorted(allow)))

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


@dataclass(frozen=True, slots=True)
class Binding:
    """One rule of one method, with what reads its requests and writes its answers."""

    method: MethodDescriptor
    rule: Rule
    transcoder: Transcoder[Any]
    response_encoder: ResponseEncoder[Any]

    @property
    def rpc(self) -> str:
        """The path of the method over gRPC, `/package.Service/Method`."""
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def response_class(self) -> type[Message]:
        """The class of the method's answers, or of each answer of a stream."""
        return GetMessageClass(self.method.output_type)


@dataclass(frozen=True, slots=True)
class MatchedBinding:
    """The binding that serves a request, with the values that its path binds."""

    binding: Binding
    variables: Mapping[str, str]

    def request(self, query: Iterable[tuple[str, str]] = (), body: object = None) -> Message:
        """The message of the request.

        `query` are the decoded pairs in their order, `body` the parsed JSON, None when there is none. Raises
        InvalidParams that names the field, the rule and the allowed values.
        """
        message: Message = self.binding.transcoder.request(self.variables, query, body)
        return message

    def response(self, message: Message) -> bytes:
        """The JSON of an answer, or of one answer of a stream. Raises ValueError for what JSON cannot say."""
        return self.binding.response_encoder.encode(message)


class ServiceRoutes:
    """The HTTP surface of services, built once at start and only read afterwards: threads may share it."""

    def __init__(self, *services: ServiceDescriptor, dialect: JsonDialect | None = None) -> None:
        """`dialect` says how the messages are spelled; by default as ProtoJSON has it.

        Raises TemplateError for a rule that does not follow the grammar, and TypeError for one that names what its
        messages do not have, or for a type without a JSON codec: all mistakes are found here.
        """
        self.dialect = dialect or JsonDialect("ProtoJSON")
        self._routes: Routes[Binding] = Routes()
        for service in services:
            for method, rule in httprule.rules(service):
                self._routes.add(rule.http_method, rule.template, self._binding(method, rule))

    def _binding(self, method: MethodDescriptor, rule: Rule) -> Binding:
        request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        requests = Transcoder(request, self.dialect, body=rule.body)
        for variable in rule.template.variables:
            requests.check_variable(".".join(variable.field))
        return Binding(method, rule, requests, ResponseEncoder(answer, self.dialect, response_body=rule.response_body))

    def find(self, http_method: str, path: str) -> MatchedBinding | NoMatch:
        """What serves a request, or why nothing does.

        `path` is what stood in the request line, still percent-encoded, without the query. Of rules that fit equally
        the first in the order of the services and their methods serves. Raises InvalidParams for a value in the path
        that is not UTF-8.
        """
        match = self._routes.match(http_method, path)
        if isinstance(match, NoMatch):
            return match
        first = match.candidates[0]
        return MatchedBinding(first.target, first.variables)
