"""OpenAPI 3.1 of everything REST, made from the same rules that route it.

OpenAPI has no variable with slashes, so a resource name in a path is written out: `{name=tasks/*}` becomes
`tasks/{task}`. Every wildcard is called after the literal before it, or else after its field, so that one path is
one key whichever package it came from. Words come from the comments of the protos, errors from the error table,
examples from the codecs.

OpenAPI 3.1 has no word for a stream either. The schema of a stream of server-sent events is that of one event, in
the form that 3.2 gives it: an object whose `data` is a string, whose `contentSchema` is that of the message in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dragoman.bindings import examples, failures, site, versions
from dragoman.bindings.comments import comments
from dragoman.bindings.failures import Responses
from dragoman.bindings.methods import Row
from dragoman.bindings.parameters import SHARED, fits_a_query, in_path, in_query, shared
from dragoman.bindings.schemas import Schema, Schemas, pointer
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy
from dragoman.core.cards.security_schemes import NO_SECURITY, SecurityScheme, ServerSecurity
from dragoman.core.errors import A2AError, PushNotificationNotSupported
from dragoman.release import version
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http.httprule import Rule, Template, Wildcard

_JSON: Final = "application/json"
_A2A_JSON: Final = "application/a2a+json"
_EVENTS: Final = "text/event-stream"

_ABOUT: Final = """\
Agents behind the A2A protocol, and their tasks. One task can be read, followed, canceled and continued in every
dialect below.

- A path without an agent means the root agent; `/{tenant}/...` means the agent with that id.
- Requests may spell keys in lowerCamelCase or as the proto does, and may hold keys that nobody knows.
- Every error has a `google.rpc.ErrorInfo` whose `failure_reason` says what happened.
"""
_V1, _V03, _GOOGLE = "A2A 1.0", "A2A 0.3", "Google"
_TAGS: Final = {
    _V1: "The package `lf.a2a.v1`: paths without a version.",
    _V03: "The package `a2a.v1`: paths with `/v1`.",
    _GOOGLE: "Agents as Google Cloud resource names; where both packages have a path, `A2A-Version: 1.0` chooses 1.0.",
    site.TAG: "Cards and health.",
}
_PREFIXES: Final = {_V1: "v1", _V03: "v03", _GOOGLE: "google"}


@dataclass(frozen=True, slots=True)
class Served:
    """One rule, the row behind it, and the dialect of its errors."""

    rule: Rule
    row: Row
    dialect: Dialect

    @property
    def tag(self) -> str:
        if "projects" in self.rule.template.segments:
            return _GOOGLE
        return _V1 if self.dialect is Dialect.V1 else _V03


def document(
    served: Iterable[Served],
    *,
    root: str,
    table: errors.ErrorTable = "1.0.1",
    push: bool = True,
    enforced: ServerSecurity = NO_SECURITY,
    doorway: AccessPolicy = OPEN_ACCESS,
) -> dict[str, Any]:
    """The description. Where two packages share a path, both schemas are allowed. `root` is an agent that exists.

    `push` says whether the server has push notifications. `server_security` is what callers have to show, but for
    those of
    agents that `doorway` opens to all.
    """
    required = [{name: list(scopes) for name, scopes in one.items()} for one in enforced.requirements]
    if required and doorway.public_agents:
        required.append({})  # which agent is meant, the path says
    return _Document(root, table, push, required, enforced.schemes).made(served)


class _Document:
    """A description while it is being made."""

    def __init__(
        self,
        root: str,
        table: errors.ErrorTable,
        push: bool,
        required: list[dict[str, list[str]]],
        schemes: Mapping[str, SecurityScheme],
    ) -> None:
        self._root = root
        self._push = push
        self._table = table
        self._required = required
        self._schemes = {name: dict(scheme) for name, scheme in schemes.items()}
        self._comments = comments()
        self._schemas = Schemas(self._comments)
        self._responses = Responses(table)
        self._ids: Counter[str] = Counter()

    def made(self, served: Iterable[Served]) -> dict[str, Any]:
        groups: dict[tuple[str, str], tuple[list[str], list[Served]]] = {}
        for one in served:
            path, names = _path(one.rule.template)
            groups.setdefault((path, one.rule.http_method.lower()), (names, []))[1].append(one)
        paths: dict[str, dict[str, Any]] = {}
        for (path, verb), (names, uses) in groups.items():
            paths.setdefault(path, {})[verb] = self._operation(names, uses)
        paths |= site.paths(self._schemas, self._responses, self._root, push=self._push)
        schemas = {**failures.SCHEMAS, **site.SCHEMAS, **self._schemas.found}
        return {
            "openapi": "3.1.0",
            "info": {"title": "Dragoman", "version": version(), "description": _ABOUT},
            "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "parameters": SHARED,
                "responses": dict(sorted(self._responses.found.items())),
                **({"securitySchemes": self._schemes} if self._schemes else {}),
            },
        }

    def _operation(self, names: list[str], uses: list[Served]) -> dict[str, Any]:
        first = uses[0]
        method = first.row.method
        summary, description = _sentences(self._comments.get(method.full_name, method.name))
        if len(uses) > 1:
            description = f"Served as 1.0 when `{versions.HEADER}: 1.0` says so, otherwise as 0.3.\n\n{description}"
        if self._refused(first.row):
            reason = errors.codes(PushNotificationNotSupported(), first.dialect, table=self._table).reason
            description = f"**Not offered here**: every call is answered with `{reason}`.\n\n{description}"
        operation: dict[str, Any] = {
            "operationId": self._id(first),
            "summary": summary,
            "description": description.strip(),
            "tags": [first.tag],
            "parameters": self._parameters(names, uses),
        }
        if first.rule.body:
            operation["requestBody"] = self._body(uses)
        asks = bool(self._required) and not first.row.op.shows_card
        if asks:
            operation["security"] = self._required
        failed = [(error, one.dialect) for one in uses for error in self._failures(one, asks=asks)]
        operation["responses"] = self._answers(uses) | self._responses.refer(_PREFIXES[first.tag], failed)
        return operation

    def _id(self, one: Served) -> str:
        name = f"{_PREFIXES[one.tag]}_{one.row.name}"
        self._ids[name] += 1
        return name if self._ids[name] == 1 else f"{name}_{self._ids[name]}"

    def _parameters(self, names: list[str], uses: list[Served]) -> list[dict[str, Any]]:
        found = {name: in_path(name, self._root) for name in names}
        for one in uses:
            if one.rule.body != "*":
                bound = _bound(one.rule) | {one.rule.body}
                for field in one.row.method.input_type.fields:
                    if field.name not in bound and fits_a_query(field):
                        found.setdefault(field.json_name, in_query(field, self._schemas))
        wide = [versions.HEADER]
        if uses[0].row.streaming and uses[0].tag == _GOOGLE:
            wide.append("alt")
        return list(found.values()) + [shared(name) for name in wide]

    def _failures(self, one: Served, *, asks: bool) -> Iterator[A2AError]:
        return failures.possible(one.rule, one.row, push=self._push, asks=asks)

    def _refused(self, row: Row) -> bool:
        return row.op.push and not self._push

    # ---- what is sent

    def _body(self, uses: list[Served]) -> dict[str, Any]:
        schemas = [self._body_schema(one) for one in uses]
        shown = _named((one, examples.requests(one.row)) for one in uses)
        return {
            "required": any("required" in self._resolved(schema) for schema in schemas),
            "content": _content(uses, {"schema": _any_of(schemas), "examples": shown}),
        }

    def _body_schema(self, one: Served) -> Schema:
        request = one.row.method.input_type
        if one.rule.body != "*":
            message = request.fields_by_name[one.rule.body].message_type
            assert message is not None
            return self._schemas.message(message)
        bound = _bound(one.rule)
        return self._schemas.without(request, bound) if bound else self._schemas.message(request)

    def _resolved(self, schema: Schema) -> Schema:
        return self._schemas.found[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    # ---- what comes back

    def _answers(self, uses: list[Served]) -> dict[str, Any]:
        row = uses[0].row
        if self._refused(row):
            return {}
        schemas = [self._schemas.message(one.row.method.output_type) for one in uses]
        if row.streaming:
            return {"200": {"description": "The stream.", "content": _stream(uses, schemas)}}
        shown = _named((one, examples.answers(one.row)) for one in uses)
        content = _content(uses, {"schema": _any_of(schemas), "examples": shown})
        found: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
        if row.op.call is None and not row.op.extended_card:
            found["304"] = {"description": "The caller has this card already."}
        return found


def _path(template: Template) -> tuple[str, list[str]]:
    fields = {v.start: v.field[-1] for v in template.variables if v.is_single}
    parts: list[str] = []
    names: list[str] = []
    for at, segment in enumerate(template.segments):
        if not isinstance(segment, Wildcard):
            parts.append(segment)
            continue
        before = template.segments[at - 1] if at else None
        name = before.removesuffix("s") if isinstance(before, str) else fields.get(at, f"part{at}")
        names.append(name)
        parts.append(f"{{{name}}}")
    return "/" + "/".join(parts) + (f":{template.verb}" if template.verb else ""), names


def _bound(rule: Rule) -> set[str]:
    """The fields of the request that the path has."""
    return {variable.field[0] for variable in rule.template.variables}


def _sentences(text: str) -> tuple[str, str]:
    """The first sentence of a comment, and the rest."""
    first, _, rest = text.partition("\n\n")
    sentence, stop, more = " ".join(first.split()).partition(". ")
    return sentence.rstrip("."), "\n\n".join(filter(None, (more if stop else "", rest)))


def _content(uses: list[Served], media: dict[str, Any]) -> dict[str, Any]:
    """JSON, and under its second name where 1.0 is spoken."""
    content = {_JSON: media}
    if any(one.dialect is Dialect.V1 for one in uses):
        content[_A2A_JSON] = {"schema": media["schema"]}
    return content


def _stream(uses: list[Served], schemas: list[Schema]) -> dict[str, Any]:
    text, elements = examples.stream(uses[-1].row)
    event = {
        "type": "object",
        "description": "One event of the stream. When the stream breaks, its last event is named `error`.",
        "required": ["data"],
        "properties": {
            "event": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": _JSON,
                "contentSchema": {"anyOf": [*schemas, pointer("Error")]},
            },
        },
    }
    content: dict[str, Any] = {_EVENTS: {"schema": event, "example": text}}
    if uses[0].tag == _GOOGLE:
        array = {"type": "array", "items": {"anyOf": [*schemas, pointer("Error")]}}
        content[_JSON] = {"schema": array, "example": elements}
    return content


def _any_of(schemas: Sequence[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _named(shown: Iterable[tuple[Served, examples.Named]]) -> examples.Named:
    """The examples of all who serve one path; where there are two, their names say whose they are."""
    every = list(shown)
    if len(every) == 1:
        return every[0][1]
    return {
        f"{'v1' if one.dialect is Dialect.V1 else 'v03'}_{name}": example
        for one, named in every
        for name, example in named.items()
    }
