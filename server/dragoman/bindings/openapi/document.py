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

from dragoman import __version__
from dragoman.bindings import a2a_headers
from dragoman.bindings.method_table import RpcRow
from dragoman.bindings.openapi import examples, responses
from dragoman.bindings.openapi.responses import ErrorResponses
from dragoman.bindings.openapi.schemas import (
    SHARED_PARAMETERS,
    Schema,
    SchemaBuilder,
    is_query_field,
    parameter_ref,
    path_parameter,
    proto_comments,
    query_parameter,
    schema_ref,
)
from dragoman.core.access.identity import OPEN_ACCESS, AccessPolicy
from dragoman.core.cards.security_schemes import NO_SECURITY, SecurityScheme, ServerSecurity
from dragoman.core.errors import A2AError, PushNotificationNotSupported
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http.httprule import Rule, Template, Wildcard

_JSON_TYPE: Final = "application/json"
_A2A_JSON_TYPE: Final = "application/a2a+json"
_SSE_TYPE: Final = "text/event-stream"

_DESCRIPTION: Final = """\
Agents behind the A2A protocol, and their tasks. One task can be read, followed, canceled and continued in every
dialect below.

- A path without an agent means the root agent; `/{tenant}/...` means the agent with that id.
- Requests may spell keys in lowerCamelCase or as the proto does, and may hold keys that nobody knows.
- Every error has a `google.rpc.ErrorInfo` whose `reason` says what happened.
"""
_V1, _V03, _GOOGLE = "A2A 1.0", "A2A 0.3", "Google"
_TAGS: Final = {
    _V1: "The package `lf.a2a.v1`: paths without a version.",
    _V03: "The package `a2a.v1`: paths with `/v1`.",
    _GOOGLE: "Agents as Google Cloud resource names; where both packages have a path, `A2A-Version: 1.0` chooses 1.0.",
    responses.SERVER_TAG: "Cards and health.",
}
_PREFIXES: Final = {_V1: "v1", _V03: "v03", _GOOGLE: "google"}


@dataclass(frozen=True, slots=True)
class ServedRule:
    """One rule, the row behind it, and the dialect of its errors."""

    rule: Rule
    row: RpcRow
    dialect: Dialect

    @property
    def tag(self) -> str:
        if "projects" in self.rule.template.segments:
            return _GOOGLE
        return _V1 if self.dialect is Dialect.V1 else _V03


def openapi_document(
    rules: Iterable[ServedRule],
    *,
    root: str,
    table: errors.ErrorTable = "1.0.1",
    push: bool = True,
    security: ServerSecurity = NO_SECURITY,
    access_policy: AccessPolicy = OPEN_ACCESS,
) -> dict[str, Any]:
    """The description. Where two packages share a path, both schemas are allowed. `root` is an agent that exists.

    `push` says whether the server has push notifications. `enforced` is what callers have to show, but for
    those of
    agents that `doorway` opens to all.
    """
    required = [{name: list(scopes) for name, scopes in one.items()} for one in security.requirements]
    if required and access_policy.public_agents:
        required.append({})  # which agent is meant, the path says
    return _DocumentBuilder(root, table, push, required, security.schemes).build(rules)


class _DocumentBuilder:
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
        self._comments = proto_comments()
        self._schemas = SchemaBuilder(self._comments)
        self._error_responses = ErrorResponses(table)
        self._operation_counts: Counter[str] = Counter()

    def build(self, rules: Iterable[ServedRule]) -> dict[str, Any]:
        groups: dict[tuple[str, str], tuple[list[str], list[ServedRule]]] = {}
        for one in rules:
            path, names = _openapi_path(one.rule.template)
            groups.setdefault((path, one.rule.http_method.lower()), (names, []))[1].append(one)
        paths: dict[str, dict[str, Any]] = {}
        for (path, verb), (names, uses) in groups.items():
            paths.setdefault(path, {})[verb] = self._operation(names, uses)
        paths |= responses.server_paths(self._schemas, self._error_responses, self._root, push=self._push)
        schemas = {**responses.ERROR_SCHEMAS, **responses.SERVER_SCHEMAS, **self._schemas.schemas}
        return {
            "openapi": "3.1.0",
            "info": {"title": "Dragoman", "version": __version__, "description": _DESCRIPTION},
            "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "parameters": SHARED_PARAMETERS,
                "responses": dict(sorted(self._error_responses.responses.items())),
                **({"securitySchemes": self._schemes} if self._schemes else {}),
            },
        }

    def _operation(self, names: list[str], rules: list[ServedRule]) -> dict[str, Any]:
        first = rules[0]
        method = first.row.method
        summary, description = _split_summary(self._comments.get(method.full_name, method.name))
        if len(rules) > 1:
            description = (
                f"Served as 1.0 when `{a2a_headers.VERSION_HEADER}: 1.0` says so, otherwise as 0.3.\n\n{description}"
            )
        if self._is_disabled(first.row):
            reason = errors.codes(PushNotificationNotSupported(), first.dialect, table=self._table).reason
            description = f"**Not offered here**: every call is answered with `{reason}`.\n\n{description}"
        operation: dict[str, Any] = {
            "operationId": self._operation_id(first),
            "summary": summary,
            "description": description.strip(),
            "tags": [first.tag],
            "parameters": self._parameters(names, rules),
        }
        if first.rule.body:
            operation["requestBody"] = self._request_body(rules)
        asks = bool(self._required) and not first.row.op.shows_card
        if asks:
            operation["security"] = self._required
        failed = [(error, one.dialect) for one in rules for error in self._possible_errors(one, auth_required=asks)]
        operation["responses"] = self._success_responses(rules) | self._error_responses.refs(
            _PREFIXES[first.tag], failed
        )
        return operation

    def _operation_id(self, served: ServedRule) -> str:
        name = f"{_PREFIXES[served.tag]}_{served.row.name}"
        self._operation_counts[name] += 1
        return name if self._operation_counts[name] == 1 else f"{name}_{self._operation_counts[name]}"

    def _parameters(self, names: list[str], rules: list[ServedRule]) -> list[dict[str, Any]]:
        found = {name: path_parameter(name, self._root) for name in names}
        for one in rules:
            if one.rule.body != "*":
                bound = _path_fields(one.rule) | {one.rule.body}
                for field in one.row.method.input_type.fields:
                    if field.name not in bound and is_query_field(field):
                        found.setdefault(field.json_name, query_parameter(field, self._schemas))
        wide = [a2a_headers.VERSION_HEADER]
        if rules[0].row.streaming and rules[0].tag == _GOOGLE:
            wide.append("alt")
        return list(found.values()) + [parameter_ref(name) for name in wide]

    def _possible_errors(self, served: ServedRule, *, auth_required: bool) -> Iterator[A2AError]:
        return responses.possible_errors(served.rule, served.row, push=self._push, auth_required=auth_required)

    def _is_disabled(self, row: RpcRow) -> bool:
        return row.op.push and not self._push

    # ---- what is sent

    def _request_body(self, rules: list[ServedRule]) -> dict[str, Any]:
        schemas = [self._body_schema(one) for one in rules]
        shown = _merge_examples((one, examples.request_examples(one.row)) for one in rules)
        return {
            "required": any("required" in self._resolved(schema) for schema in schemas),
            "content": _content(rules, {"schema": _any_of(schemas), "examples": shown}),
        }

    def _body_schema(self, served: ServedRule) -> Schema:
        request = served.row.method.input_type
        if served.rule.body != "*":
            message = request.fields_by_name[served.rule.body].message_type
            assert message is not None
            return self._schemas.message_ref(message)
        bound = _path_fields(served.rule)
        return self._schemas.message_schema(request, bound) if bound else self._schemas.message_ref(request)

    def _resolved(self, schema: Schema) -> Schema:
        return self._schemas.schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    # ---- what comes back

    def _success_responses(self, rules: list[ServedRule]) -> dict[str, Any]:
        row = rules[0].row
        if self._is_disabled(row):
            return {}
        schemas = [self._schemas.message_ref(one.row.method.output_type) for one in rules]
        if row.streaming:
            return {"200": {"description": "The stream.", "content": _stream_content(rules, schemas)}}
        shown = _merge_examples((one, examples.response_examples(one.row)) for one in rules)
        content = _content(rules, {"schema": _any_of(schemas), "examples": shown})
        found: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
        if row.op.operation is None and not row.op.extended_card:
            found["304"] = {"description": "The caller has this card already."}
        return found


def _openapi_path(template: Template) -> tuple[str, list[str]]:
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


def _path_fields(rule: Rule) -> set[str]:
    """The fields of the request that the path has."""
    return {variable.field[0] for variable in rule.template.variables}


def _split_summary(text: str) -> tuple[str, str]:
    """The first sentence of a comment, and the rest."""
    first, _, rest = text.partition("\n\n")
    sentence, stop, more = " ".join(first.split()).partition(". ")
    return sentence.rstrip("."), "\n\n".join(filter(None, (more if stop else "", rest)))


def _content(rules: list[ServedRule], media: dict[str, Any]) -> dict[str, Any]:
    """JSON, and under its second name where 1.0 is spoken."""
    content = {_JSON_TYPE: media}
    if any(one.dialect is Dialect.V1 for one in rules):
        content[_A2A_JSON_TYPE] = {"schema": media["schema"]}
    return content


def _stream_content(rules: list[ServedRule], schemas: list[Schema]) -> dict[str, Any]:
    text, elements = examples.stream_example(rules[-1].row)
    event = {
        "type": "object",
        "description": "One event of the stream. When the stream breaks, its last event is named `error`.",
        "required": ["data"],
        "properties": {
            "event": {"type": "string"},
            "data": {
                "type": "string",
                "contentMediaType": _JSON_TYPE,
                "contentSchema": {"anyOf": [*schemas, schema_ref("Error")]},
            },
        },
    }
    content: dict[str, Any] = {_SSE_TYPE: {"schema": event, "example": text}}
    if rules[0].tag == _GOOGLE:
        array = {"type": "array", "items": {"anyOf": [*schemas, schema_ref("Error")]}}
        content[_JSON_TYPE] = {"schema": array, "example": elements}
    return content


def _any_of(schemas: Sequence[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _merge_examples(examples_by_rule: Iterable[tuple[ServedRule, examples.NamedExamples]]) -> examples.NamedExamples:
    """The examples of all who serve one path; where there are two, their names say whose they are."""
    every = list(examples_by_rule)
    if len(every) == 1:
        return every[0][1]
    return {
        f"{'v1' if one.dialect is Dialect.V1 else 'v03'}_{name}": example
        for one, named in every
        for name, example in named.items()
    }
