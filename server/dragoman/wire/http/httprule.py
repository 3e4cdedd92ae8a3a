"""Parser for `google.api.http` rules and their path templates.

Grammar (google/api/http.proto):

    Template = "/" Segments [ Verb ]            Segment  = "*" | "**" | LITERAL | Variable
    Segments = Segment { "/" Segment }          Variable = "{" FieldPath [ "=" Segments ] "}"
    FieldPath = IDENT { "." IDENT }             Verb     = ":" LITERAL

A parsed template is a flat list of segments, with variables as ranges over it: `{name=shelves/*}` matches exactly
what `shelves/*` matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from google.api import annotations_pb2, http_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

_IDENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# RFC 3986 pchar without the characters that have a meaning in templates.
_LITERAL = re.compile(r"(?:[A-Za-z0-9._~!$&'()+,;@-]|%[0-9A-Fa-f]{2})+")


class Wildcard(Enum):
    """A variable segment: exactly one, or all the rest."""

    ONE = "*"
    REST = "**"


Segment = str | Wildcard  # a literal or a wildcard


class TemplateError(ValueError):
    """A path template or rule violates the grammar."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A field bound by the path segments from `start` to `end` (exclusive).

    `end` is None if the last segment is `**`, which matches the rest of the path.
    """

    field: tuple[str, ...]
    start: int
    end: int | None

    @property
    def is_single(self) -> bool:
        """Whether the value is one path segment, in which %2F decodes to a slash."""
        return self.end == self.start + 1


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed path template. Literal segments are strings; `verb` is "" if absent."""

    segments: tuple[Segment, ...]
    variables: tuple[Variable, ...] = ()
    verb: str = ""

    def __str__(self) -> str:
        parts = [s.value if isinstance(s, Wildcard) else s for s in self.segments]
        for variable in reversed(self.variables):
            inner = "/".join(parts[variable.start : variable.end])
            name = ".".join(variable.field)
            parts[variable.start : variable.end] = [f"{{{name}}}" if inner == "*" else f"{{{name}={inner}}}"]
        return "/" + "/".join(parts) + (f":{self.verb}" if self.verb else "")


@dataclass(frozen=True, slots=True)
class Rule:
    """One HTTP binding of a method.

    `http_method` is upper case. `body` is "" for none, "*" for the entire request, otherwise a field name.
    `primary` is False for `additional_bindings`.
    """

    http_method: str
    template: Template
    body: str = ""
    response_body: str = ""
    primary: bool = True


@lru_cache(16)
def rules(service: ServiceDescriptor) -> tuple[tuple[MethodDescriptor, Rule], ...]:
    """All bindings of a service's methods, in declared order; additional bindings follow the method's rule.

    Methods without the option are skipped. Raises TemplateError. Cached: all servers of a process use the same rules.
    """
    found: list[tuple[MethodDescriptor, Rule]] = []
    for method in service.methods:
        # Options are always in the default pool, even if the service is in another one; hence this form of access.
        extensions = method.GetOptions().Extensions
        if annotations_pb2.http in extensions:
            option = extensions[annotations_pb2.http]
            found.append((method, _rule(option, primary=True)))
            found += [(method, _rule(additional, primary=False)) for additional in option.additional_bindings]
    return tuple(found)


def _rule(option: http_pb2.HttpRule, *, primary: bool) -> Rule:
    kind = option.WhichOneof("pattern")
    if kind is None:
        raise TemplateError("an HTTP rule without a pattern")
    if kind == "custom":
        http_method, path = option.custom.kind, option.custom.path
    else:
        http_method, path = kind.upper(), getattr(option, kind)
    return Rule(http_method, parse(path), option.body, option.response_body, primary)


@lru_cache(512)
def parse(template: str) -> Template:
    """Parses a path template. Cached, because a starting server parses each several times.

    Raises TemplateError with the position of the mistake.
    """
    return _TemplateParser(template).template()


class _TemplateParser:
    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.position = 0
        self.segments: list[Segment] = []
        self.variables: list[Variable] = []

    def template(self) -> Template:
        self.expect("/")
        self.read_segments(in_variable=False)
        verb = ""
        if self.accept(":"):
            verb = self.read(_LITERAL, "a verb")
        if self.position < len(self.text):
            raise self.error("the end of the template")
        if Wildcard.REST in self.segments[:-1]:
            raise TemplateError(f"{self.text!r}: `**` is only allowed as the last segment")
        fields = [v.field for v in self.variables]
        if len(set(fields)) < len(fields):
            raise TemplateError(f"{self.text!r}: a field is bound twice")
        return Template(tuple(self.segments), tuple(self.variables), verb)

    def read_segments(self, *, in_variable: bool) -> None:
        while True:
            if self.accept("**"):
                self.segments.append(Wildcard.REST)
            elif self.accept("*"):
                self.segments.append(Wildcard.ONE)
            elif not in_variable and self.accept("{"):
                self.read_variable()
            else:
                self.segments.append(self.read(_LITERAL, "a segment"))
            if not self.accept("/"):
                return

    def read_variable(self) -> None:
        field = [self.read(_IDENT, "a field name")]
        while self.accept("."):
            field.append(self.read(_IDENT, "a field name"))
        start = len(self.segments)
        if self.accept("="):
            self.read_segments(in_variable=True)
        else:
            self.segments.append(Wildcard.ONE)
        self.expect("}")
        end = None if self.segments[-1] is Wildcard.REST else len(self.segments)
        self.variables.append(Variable(tuple(field), start, end))

    def accept(self, token: str) -> bool:
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"`{token}`")

    def read(self, pattern: re.Pattern[str], expected: str) -> str:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(expected)
        self.position = match.end()
        return match[0]

    def error(self, expected: str) -> TemplateError:
        return TemplateError(f"{self.text!r}: {expected} is missing at position {self.position}")
