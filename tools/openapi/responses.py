"""Error responses of the OpenAPI document, and its paths for cards, keys and health.

One table lists the errors that each operation may raise. Their codes and bodies come from `wire/errors.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import orjson
from google.protobuf.descriptor import Descriptor

from dragoman.bindings.method_table import RpcRow
from dragoman.core import errors
from dragoman.core.errors import A2AError, InvalidParams
from dragoman.wire import errors as wire
from dragoman.wire.dialects import Dialect
from dragoman.wire.http.httprule import Rule
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from tools.openapi import examples
from tools.openapi.schemas import Schema, SchemaBuilder, path_parameter, schema_ref

_COMMON_ERRORS: Final = (errors.VersionNotSupported('A2A-Version: "9.9" is not supported; use one of 1.0, 0.3'),)
_AUTH_ERRORS: Final = (
    errors.Unauthenticated("credentials are required: send Authorization: Bearer CREDENTIALS"),
    errors.PermissionDenied('tenant: these credentials do not reach agent "playground" in scope "default"'),
    errors.Unavailable("the keys of the token's issuer are not available now; retry later"),
)
_BODY_ERRORS: Final = (
    errors.ParseError("the body is not JSON: line 1, column 2"),
    errors.InvalidRequest("the body cannot be read: it ended early"),
    errors.ContentTypeNotSupported('Content-Type: "text/plain" is not supported; use application/json'),
    errors.PayloadTooLarge("body: at most 23418197 bytes are accepted"),
)
UNKNOWN_AGENT_ERROR: Final = errors.AgentNotFound('tenant: no agent "unknown" here; use one of playground')
_RATE_LIMIT_ERROR: Final = errors.RateLimited(
    "open_streams: 2000 of your streams and waiting calls are open; at most 2000 may be. Close some",
    limit="open_streams",
    maximum=2000,
    retry_after=1,
)
_SEND_ERRORS: Final = (
    InvalidParams.field("message.parts", "must hold at least one part"),
    errors.TaskNotFound(),
    errors.TaskEnded(),
    errors.UnsupportedOperation("this agent accepts no messages while it works on the task; retry later"),
    errors.PushNotificationNotSupported(),
    errors.ContentTypeNotSupported('message.parts[0].mediaType: "image/png" is not accepted by this agent'),
    errors.InvalidAgentResponse(),
    errors.Unavailable("the server is shutting down and accepts no new messages; retry later"),
)
_SUBSCRIBE_ERRORS: Final = (InvalidParams.field("id", "is required"), errors.TaskNotFound(), errors.Unavailable())
_PAGE_SIZE_ERROR: Final = InvalidParams.field("pageSize", "must be 1 to 100, or 0 for 50")
_OPERATION_ERRORS: Final[Mapping[str, tuple[A2AError, ...]]] = {
    "SendMessage": _SEND_ERRORS,
    "SendStreamingMessage": _SEND_ERRORS,
    "GetTask": (InvalidParams.field("historyLength", "must be 0 or more"), errors.TaskNotFound()),
    "ListTasks": (InvalidParams.field("pageSize", "must be 1 to 100"),),
    "CancelTask": (
        InvalidParams.field("id", "is required"),
        errors.TaskNotFound(),
        errors.TaskNotCancelable("the task ended before it could be canceled"),
    ),
    "SubscribeToTask": (*_SUBSCRIBE_ERRORS, errors.UnsupportedOperation("the task has ended; read it with GetTask")),
    "TaskSubscription": _SUBSCRIBE_ERRORS,
    "CreateTaskPushNotificationConfig": (InvalidParams.field("url", "is required"), errors.TaskNotFound()),
    "GetTaskPushNotificationConfig": (
        InvalidParams.field("id", "is required"),
        errors.PushConfigNotFound(),
    ),
    "ListTaskPushNotificationConfigs": (_PAGE_SIZE_ERROR, errors.TaskNotFound()),
    "ListTaskPushNotificationConfig": (_PAGE_SIZE_ERROR, errors.TaskNotFound()),
    "DeleteTaskPushNotificationConfig": (InvalidParams.field("id", "is required"), errors.TaskNotFound()),
    "GetAgentCard": (),
    "GetExtendedAgentCard": (errors.UnsupportedOperation(), errors.Unauthenticated()),
}
_ENCODING_ERROR: Final = InvalidParams.field("tenant", "must be percent-encoded UTF-8")


def possible_errors(rule: Rule, row: RpcRow) -> Iterator[A2AError]:
    """Yields every error of a route with an example message; a class may come several times."""
    yield from _COMMON_ERRORS
    if not row.op.shows_card:
        yield from _AUTH_ERRORS
    yield _RATE_LIMIT_ERROR
    if row.op.push:
        yield errors.PushNotificationNotSupported()
    yield from _OPERATION_ERRORS[row.name]
    yield UNKNOWN_AGENT_ERROR
    if rule.body:
        yield from _BODY_ERRORS
    if rule.template.variables:
        yield _ENCODING_ERROR
    yield errors.InternalError()


_V03_ERROR_SCHEMA: Final[Schema] = {
    "description": "The same error, with the fields that clients of 0.3 read.",
    "type": "object",
    "required": ["error", "code", "type", "message"],
    "properties": {
        "error": schema_ref("ErrorStatus"),
        "code": {"type": "integer", "description": "The JSON-RPC error code."},
        "type": {"type": "string", "description": "The error's class in the official SDKs."},
        "message": {"type": "string"},
    },
}
ERROR_SCHEMAS: Final[Mapping[str, Schema]] = {
    "Error": {
        "type": "object",
        "description": "An error in the format of AIP-193.",
        "required": ["error"],
        "properties": {"error": schema_ref("ErrorStatus")},
    },
    "Error03": _V03_ERROR_SCHEMA,
    "ErrorStatus": {
        "type": "object",
        "required": ["code", "status", "message", "details"],
        "properties": {
            "code": {"type": "integer", "description": "The HTTP status."},
            "status": {"type": "string", "description": "The name of the `google.rpc.Code`."},
            "message": {"type": "string", "description": "A message for people."},
            "details": {
                "type": "array",
                "description": "A `google.rpc.ErrorInfo` with the reason; a `google.rpc.BadRequest` with the"
                " invalid fields; a `google.rpc.RetryInfo` with the delay before a retry.",
                "items": schema_ref("ErrorDetail"),
            },
        },
    },
    "ErrorDetail": {
        "type": "object",
        "required": ["@type"],
        "properties": {
            "@type": {"type": "string"},
            "reason": {"type": "string"},
            "domain": {"type": "string"},
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            "retryDelay": {"type": "string", "description": "Seconds, such as `1.500s`."},
            "fieldViolations": {"type": "array", "items": schema_ref("FieldViolation")},
        },
    },
    "FieldViolation": {
        "type": "object",
        "required": ["field", "description"],
        "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
    },
}
"""The schemas of error bodies by name: each object has one of its own, which generators of clients make a type of."""


class ErrorResponses:
    """Collects the error responses of a document, one for each set of errors."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}

    def refs(self, prefix: str, error_cases: Iterable[tuple[A2AError, Dialect]]) -> dict[str, Any]:
        """Returns references to error responses by status; each error is encoded in its dialect."""
        examples_by_status: dict[int, dict[str, Any]] = {}
        schema = schema_ref("Error")
        for error, dialect in error_cases:
            row = wire.codes(error, dialect)
            body = wire.rest_error(error, dialect).body
            examples_by_status.setdefault(row.http, {}).setdefault(row.reason, {"value": orjson.loads(body)})
            if dialect is Dialect.V03:
                schema = schema_ref("Error03")
        return {
            str(status): self._response_ref(f"{prefix}_{status}", schema, examples)
            for status, examples in sorted(examples_by_status.items())
        }

    def _response_ref(self, name: str, schema: Schema, examples: dict[str, Any]) -> dict[str, Any]:
        response = {
            "description": ", ".join(f"`{reason}`" for reason in examples),
            "content": {"application/json": {"schema": schema, "examples": examples}},
        }
        number, unique_name = 1, name
        while self.responses.setdefault(unique_name, response) != response:
            number += 1
            unique_name = f"{name}_{number}"
        return {"$ref": f"#/components/responses/{unique_name}"}


SERVER_TAG: Final = "Server"
_JSON_TYPE: Final = "application/json"
_EXAMPLE_JWK: Final = {
    **{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig"},
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
}
"""The key of RFC 7517, A.1, with its thumbprint as `kid`."""

SERVER_SCHEMAS: Final[dict[str, Schema]] = {
    "Health": {
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {
                "type": "string",
                "enum": ["ok", "degraded", "draining", "not ready"],
                "description": "`degraded`: all requests are served, but events of other servers arrive late.",
            },
            "reason": {"type": "string", "description": "Why the server is degraded."},
        },
    },
    "Keys": {
        "type": "object",
        "required": ["keys"],
        "properties": {
            "keys": {"type": "array", "items": schema_ref("Key")},
        },
    },
    "Key": {
        "type": "object",
        "required": sorted(_EXAMPLE_JWK.keys() - {"y"}),  # Ed25519 keys have no y
        "properties": {name: {"type": "string"} for name in sorted(_EXAMPLE_JWK)},
    },
}


def server_paths(schemas: SchemaBuilder, responses: ErrorResponses) -> dict[str, dict[str, Any]]:
    """Returns the paths of cards, keys and health, with their operations."""
    paths: dict[str, dict[str, Any]] = {}

    def add(path: str, operation_id: str, summary: str, operation_responses: dict[str, Any], **fields: Any) -> None:
        operation = {"operationId": operation_id, "summary": summary, "tags": [SERVER_TAG], "parameters": [], **fields}
        paths[path] = {"get": {**operation, "security": [], "responses": operation_responses}}

    def ok(description: str, **media: Any) -> dict[str, Any]:
        return {"description": description, "content": {_JSON_TYPE: media}}

    cards = [schemas.message_ref(cast(Descriptor, message.DESCRIPTOR)) for message in (pb.AgentCard, v03_pb.AgentCard)]
    example = {"summary": "One card for A2A 1.0 and 0.3", "value": examples.card_example()}
    card_responses = {
        "200": ok("The card.", schema={"allOf": cards}, examples={"card": example}),
        "304": {"description": "The caller's copy of the card is current."},
    }
    description = "The agent's identity, skills and addresses, in one object for 1.0 and 0.3."
    unknown_agent = responses.refs("site", [(UNKNOWN_AGENT_ERROR, Dialect.V1)])
    for file, operation_id in (("agent-card.json", "card"), ("agent.json", "card_of_0_3")):
        path = f"/.well-known/{file}"
        add(path, operation_id, "The card of the root agent", card_responses, description=description)
        add(
            f"/{{agent}}{path}",
            f"agent_{operation_id}",
            "The card of an agent",
            card_responses | unknown_agent,
            description=description,
            parameters=[path_parameter("agent")],
        )
    keys = ok("The keys.", schema=schema_ref("Keys"), example={"keys": [_EXAMPLE_JWK]})
    summary = "The keys that verify the signatures of push notifications"
    about_keys = "A JWK Set (RFC 7517). A server that signs nothing does not have this path."
    add("/.well-known/jwks.json", "keys", summary, {"200": keys}, description=about_keys)
    healthy = ok("`ok`", schema=schema_ref("Health"), example={"status": "ok"})
    draining = ok("`draining`", schema=schema_ref("Health"), example={"status": "draining"})
    add("/healthz", "healthz", "Is the process alive?", {"200": healthy})
    add("/readyz", "readyz", "Does the server accept new messages?", {"200": healthy, "503": draining})
    return paths
