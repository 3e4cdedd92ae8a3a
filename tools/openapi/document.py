"""OpenAPI 3.1 document of the REST routes, built from the rules that route them: gen/openapi/dragoman.openapi.json.

A resource name in a path is written out: `{name=tasks/*}` becomes `tasks/{task}`. A wildcard is named after the literal
before it, or else after its field, so both packages get the same key for one path. Descriptions come from the comments
of the protos, errors from the error table, examples from the codecs.

OpenAPI 3.1 cannot describe streams. The schema of an SSE stream is that of one event, as in OpenAPI 3.2, without its
type: the example is a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dragoman import __version__
from dragoman.bindings import method_table
from dragoman.bindings.http import rest
from dragoman.bindings.method_table import RpcRow
from dragoman.bindings.pipeline import VERSION_HEADER
from dragoman.core.cards.security_schemes import server_security
from dragoman.core.errors import PushNotificationNotSupported
from dragoman.wire import errors
from dragoman.wire.dialects import Dialect
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule, Template, Wildcard
from tools.openapi import examples, responses
from tools.openapi.responses import ErrorResponses
from tools.openapi.schemas import (
    GOOGLE_PARAMETERS,
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

_JSON_TYPE: Final = "application/json"
_A2A_JSON_TYPE: Final = "application/a2a+json"
_SSE_TYPE: Final = "text/event-stream"

_DESCRIPTION: Final = """\
Agents behind the A2A protocol, and their tasks. Each task can be read, streamed, canceled and continued in every
dialect below.

- A path without an agent addresses the root agent; `/{tenant}/...` addresses the agent with that id.
- Requests may use lowerCamelCase keys or the proto's field names. Unknown keys are ignored,
  except on Google's paths. Values of enums may be numbers, and those of numbers texts. `null`, and an empty query
  parameter or header, counts as absent. `configId` in a query replaces the id in the body.
- On Google's paths, more than the maximum of `pageSize` counts as the maximum. Their system parameters (`alt`,
  `fields`, `prettyPrint`, `$.xgafv`) have no effect with `A2A-Version: 1.0`.
- JSON of any kind (`data`, `metadata`) has at most 24 levels, and integers up to 2^53; larger ones are sent as text.
- Every error has a `google.rpc.ErrorInfo` with a `reason`.
- Status codes of errors are those of A2A 1.0.1. With `--error-table 1.0.0` a server responds to callers of 1.0 with 409
  for `TASK_NOT_CANCELABLE`, 415 for `CONTENT_TYPE_NOT_SUPPORTED` and 502 for `INVALID_AGENT_RESPONSE`.
- The errors of credentials (401, 403) concern servers with authentication, except for their public agents.
"""
_PUSH_NOTE: Final = "A server without push notifications responds with `{reason}` to every call."

_V1, _V03, _GOOGLE = "A2A 1.0", "A2A 0.3", "Google"
_TAGS: Final = {
    _V1: "The package `lf.a2a.v1`: paths without a version.",
    _V03: "The package `a2a.v1`: paths with `/v1`.",
    _GOOGLE: "Agents as Google Cloud resource names; where both packages have a path, `A2A-Version: 1.0` selects 1.0.",
    responses.SERVER_TAG: "Cards and health.",
}
_PREFIXES: Final = {_V1: "v1", _V03: "v03", _GOOGLE: "google"}


@dataclass(frozen=True, slots=True)
class ServedRule:
    """A rule, its row of the method table, and the dialect of its errors."""

    rule: Rule
    row: RpcRow
    dialect: Dialect

    @property
    def tag(self) -> str:
        if "projects" in self.rule.template.segments:
            return _GOOGLE
        return _V1 if self.dialect is Dialect.V1 else _V03


def openapi_document() -> dict[str, Any]:
    """Returns the document, with bearer tokens and API keys as credentials.

    A server replaces them by its own (`dragoman.bindings.pages`). Where two packages share a path, both schemas are
    allowed.
    """
    return _DocumentBuilder().build()


def served_rules() -> Iterator[ServedRule]:
    """Yields every route of a server."""
    for service, rows in method_table.rpc_services():
        for method, rule in httprule.rules(service):
            row = rows[method.name]
            yield ServedRule(rule, row, rest.rule_dialect(row, rule))


class _DocumentBuilder:
    def __init__(self) -> None:
        self._comments = proto_comments()
        self._schemas = SchemaBuilder(self._comments)
        self._error_responses = ErrorResponses()
        self._operation_counts: Counter[str] = Counter()

    def build(self) -> dict[str, Any]:
        groups: dict[tuple[str, str], list[ServedRule]] = {}
        variables: dict[str, list[str]] = {}
        for served in served_rules():
            path, variables[path] = _openapi_path(served.rule.template)
            groups.setdefault((path, served.rule.http_method.lower()), []).append(served)
        paths: dict[str, dict[str, Any]] = {}
        for (path, verb), group in groups.items():
            paths.setdefault(path, {})[verb] = self._operation(variables[path], group)
        paths |= responses.server_paths(self._schemas, self._error_responses)
        schemas = {**responses.ERROR_SCHEMAS, **responses.SERVER_SCHEMAS, **self._schemas.schemas}
        security = server_security(token=True, keys=True, issuers=())
        return {
            "openapi": "3.1.0",
            "info": {"title": "Dragoman", "version": __version__, "description": _DESCRIPTION},
            "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
            "security": [{name: list(scopes) for name, scopes in one.items()} for one in security.requirements],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "parameters": SHARED_PARAMETERS,
                "responses": dict(sorted(self._error_responses.responses.items())),
                "securitySchemes": security.schemes,
            },
        }

    def _operation(self, names: list[str], rules: list[ServedRule]) -> dict[str, Any]:
        first = rules[0]
        method = first.row.method
        summary, description = _split_summary(self._comments.get(method.full_name, method.name))
        if len(rules) > 1:
            description = f"Served as 1.0 with the header `{VERSION_HEADER}: 1.0`, otherwise as 0.3.\n\n{description}"
        if first.row.op.push:
            reason = errors.codes(PushNotificationNotSupported(), first.dialect).reason
            description = f"{description}\n\n{_PUSH_NOTE.format(reason=reason)}"
        operation: dict[str, Any] = {
            "operationId": self._operation_id(first),
            "summary": summary,
            "description": description.strip(),
            "tags": [first.tag],
            "parameters": self._parameters(names, rules),
        }
        if first.rule.body:
            operation["requestBody"] = self._request_body(rules)
        if first.row.op.shows_card:
            operation["security"] = []
        possible_errors = [
            (error, served.dialect) for served in rules for error in responses.possible_errors(served.rule, served.row)
        ]
        operation["responses"] = self._success_responses(rules) | self._error_responses.refs(
            _PREFIXES[first.tag], possible_errors
        )
        return operation

    def _operation_id(self, served: ServedRule) -> str:
        name = f"{_PREFIXES[served.tag]}_{served.row.name}"
        self._operation_counts[name] += 1
        return name if self._operation_counts[name] == 1 else f"{name}_{self._operation_counts[name]}"

    def _parameters(self, names: list[str], rules: list[ServedRule]) -> list[dict[str, Any]]:
        parameters = {name: path_parameter(name) for name in names}
        for served in rules:
            if served.rule.body != "*":
                bound = _path_fields(served.rule) | {served.rule.body}
                for field in served.row.method.input_type.fields:
                    if field.name not in bound and is_query_field(field):
                        parameters.setdefault(field.json_name, query_parameter(field, self._schemas))
        shared = [VERSION_HEADER]
        if any(served.dialect is Dialect.GOOGLE for served in rules):
            shared += ["altStream" if rules[0].row.op.streaming else "alt", *GOOGLE_PARAMETERS]
        return [*parameters.values(), *map(parameter_ref, shared)]

    def _request_body(self, rules: list[ServedRule]) -> dict[str, Any]:
        schemas = [self._body_schema(served) for served in rules]
        return {
            "required": any("required" in self._schemas.resolve(schema) for schema in schemas),
            "content": _json_content(rules, schemas, examples.request_examples),
        }

    def _body_schema(self, served: ServedRule) -> Schema:
        request = served.row.method.input_type
        if served.rule.body != "*":
            message = request.fields_by_name[served.rule.body].message_type
            assert message is not None
            return self._schemas.message_ref(message)
        return self._schemas.partial_ref(request, _path_fields(served.rule))

    def _success_responses(self, rules: list[ServedRule]) -> dict[str, Any]:
        row = rules[0].row
        schemas = [self._schemas.message_ref(served.row.method.output_type) for served in rules]
        if row.streaming:
            return {"200": {"description": "The stream.", "content": _stream_content(rules, schemas)}}
        content = _json_content(rules, schemas, examples.response_examples)
        success: dict[str, Any] = {"200": {"description": "The response.", "content": content}}
        if row.op.operation is None and not row.op.extended_card:
            success["304"] = {"description": "The caller's copy of the card is current."}
        return success


def _openapi_path(template: Template) -> tuple[str, list[str]]:
    fields = {v.start: v.field[-1] for v in template.variables if v.is_single}
    parts: list[str] = []
    names: list[str] = []
    for index, segment in enumerate(template.segments):
        if not isinstance(segment, Wildcard):
            parts.append(segment)
            continue
        before = template.segments[index - 1] if index else None
        name = before.removesuffix("s") if isinstance(before, str) else fields.get(index, f"part{index}")
        names.append(name)
        parts.append(f"{{{name}}}")
    return "/" + "/".join(parts) + (f":{template.verb}" if template.verb else ""), names


def _path_fields(rule: Rule) -> set[str]:
    """Returns the request fields that the path contains."""
    return {variable.field[0] for variable in rule.template.variables}


def _split_summary(text: str) -> tuple[str, str]:
    """Returns the first sentence of a comment, and the rest."""
    first, _, rest = text.partition("\n\n")
    sentence, stop, more = " ".join(first.split()).partition(". ")
    return sentence.rstrip("."), "\n\n".join(filter(None, (more if stop else "", rest)))


def _json_content(
    rules: list[ServedRule], schemas: list[Schema], named_examples: Callable[[RpcRow], examples.NamedExamples]
) -> dict[str, Any]:
    """Returns the JSON content of all rules of one path, also under the media type of 1.0 where a rule is 1.0."""
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    named = {
        (f"{'v1' if served.dialect is Dialect.V1 else 'v03'}_{name}" if len(rules) > 1 else name): example
        for served in rules
        for name, example in named_examples(served.row).items()
    }
    content: dict[str, Any] = {_JSON_TYPE: {"schema": schema, "examples": named}}
    if any(served.dialect is Dialect.V1 for served in rules):
        content[_A2A_JSON_TYPE] = {"schema": schema}
    return content


def _stream_content(rules: list[ServedRule], schemas: list[Schema]) -> dict[str, Any]:
    text, elements = examples.stream_example(rules[-1].row)
    element = {"anyOf": [*schemas, schema_ref("Error")]}
    events = {  # of no type: some readers take it for that of the text, others for that of each event
        "description": "Server-sent events with this `data`. If the stream fails, its last event is named `error`.",
        "properties": {"data": {"type": "string", "contentMediaType": _JSON_TYPE, "contentSchema": element}},
    }
    content: dict[str, Any] = {_SSE_TYPE: {"schema": events, "example": text}}
    if rules[0].tag == _GOOGLE:
        content[_JSON_TYPE] = {"schema": {"type": "array", "items": element}, "example": elements}
    return content
