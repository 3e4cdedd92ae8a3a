"""Which errors a route may answer with, for the description of the routes.

One table of what each operation may raise; what it is called in a dialect and how it looks is said by
`wire/errors.py` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import orjson
from google.protobuf.descriptor import Descriptor

from dragoman.bindings.method_table import RpcRow
from dragoman.bindings.openapi import examples
from dragoman.bindings.openapi.schemas import Schema, SchemaBuilder, path_parameter, schema_ref
from dragoman.core import errors
from dragoman.core.errors import A2AError, InvalidParams
from dragoman.wire import errors as wire
from dragoman.wire.dialects import Dialect
from dragoman.wire.http.httprule import Rule
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

_COMMON_ERRORS: Final = (errors.VersionNotSupported('A2A-Version: "9.9" is not supported; use one of 1.0, 0.3'),)
_AUTH_ERRORS: Final = (
    errors.Unauthenticated("credentials are required: send Authorization: Bearer CREDENTIALS"),
    errors.PermissionDenied('tenant: these credentials do not reach agent "playground" in scope "default"'),
    errors.Unavailable("the keys of the token's issuer cannot be had now; try again"),
)
_BODY_ERRORS: Final = (
    errors.ParseError("the body is no JSON: line 1, column 2"),
    errors.InvalidRequest("the body cannot be read: it ended early"),
    errors.ContentTypeNotSupported('Content-Type: "text/plain" is not supported; use application/json'),
    errors.PayloadTooLarge("body: at most 23418197 bytes are accepted"),
)
UNKNOWN_AGENT_ERROR: Final = errors.AgentNotFound('tenant: no agent "nobody" here; use one of playground')
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
    "CreateTaskPushNotificationConfig": (
        InvalidParams.field("url", "is required"),
        errors.TaskNotFound(),
    ),
    "GetTaskPushNotificationConfig": (
        InvalidParams.field("id", "is required"),
        errors.TaskNotFound("the task has no such push notification configuration"),
    ),
    "ListTaskPushNotificationConfigs": (_PAGE_SIZE_ERROR, errors.TaskNotFound()),
    "ListTaskPushNotificationConfig": (_PAGE_SIZE_ERROR, errors.TaskNotFound()),
    "DeleteTaskPushNotificationConfig": (InvalidParams.field("id", "is required"), errors.TaskNotFound()),
    "GetAgentCard": (),
    "GetExtendedAgentCard": (errors.UnsupportedOperation(), errors.Unauthenticated()),
}
_ENCODING_ERROR: Final = InvalidParams.field("tenant", "must be percent-encoded UTF-8")


def possible_errors(rule: Rule, row: RpcRow, *, push: bool = True, auth_required: bool = False) -> Iterator[A2AError]:
    """Every error that a caller of a route may meet, with a text such as it may have. Repeats a class at times.

    `push`: there are push notifications. `asks`: callers are asked who they are.
    """
    yield from _COMMON_ERRORS
    if auth_required:
        yield from _AUTH_ERRORS
    yield _RATE_LIMIT_ERROR
    if row.op.push and not push:
        yield errors.PushNotificationNotSupported()
    else:
        yield from _OPERATION_ERRORS[row.name]
        yield UNKNOWN_AGENT_ERROR
        if rule.body:
            yield from _BODY_ERRORS
    if rule.template.variables:
        yield _ENCODING_ERROR
    yield errors.InternalError()


# How they look ------------------------------------------------------------------------------------------------

_ERROR_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "An error as AIP-193 writes it.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "status", "message", "details"],
            "properties": {
                "code": {"type": "integer", "description": "The HTTP status."},
                "status": {"type": "string", "description": "The name of the `google.rpc.Code`."},
                "message": {"type": "string", "description": "For people."},
                "details": {
                    "type": "array",
                    "description": "A `google.rpc.ErrorInfo` with the reason; a `google.rpc.BadRequest` with fields;"
                    " a `google.rpc.RetryInfo` with the time after which to try again.",
                    "items": {
                        "type": "object",
                        "required": ["@type"],
                        "properties": {
                            "@type": {"type": "string"},
                            "reason": {"type": "string"},
                            "domain": {"type": "string"},
                            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
                            "retryDelay": {"type": "string", "description": "Seconds, such as `1.500s`."},
                            "fieldViolations": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["field", "description"],
                                    "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
                                },
                            },
                        },
                    },
                },
            },
        }
    },
}
_V03_ERROR_SCHEMA: Final[Schema] = {
    "description": "The same, with the fields that readers of 0.3 look for beside it.",
    "allOf": [schema_ref("Error")],
    "type": "object",
    "required": ["code", "type", "message"],
    "properties": {
        "code": {"type": "integer", "description": "The JSON-RPC number."},
        "type": {"type": "string", "description": "The class of the error in the official SDKs."},
        "message": {"type": "string"},
    },
}
ERROR_SCHEMAS: Final[Mapping[str, Schema]] = {"Error": _ERROR_SCHEMA, "Error03": _V03_ERROR_SCHEMA}
"""The bodies of errors, by name."""


class ErrorResponses:
    """The error responses of a document, one for each set of errors."""

    def __init__(self, table: wire.ErrorTable) -> None:
        self.responses: dict[str, Any] = {}
        self._table = table

    def refs(self, prefix: str, error_cases: Iterable[tuple[A2AError, Dialect]]) -> dict[str, Any]:
        """References by status to responses that show these errors, each in its dialect."""
        shown: dict[int, dict[str, Any]] = {}
        schema = schema_ref("Error")
        for error, dialect in error_cases:
            row = wire.codes(error, dialect, table=self._table)
            body = wire.rest_error(error, dialect, table=self._table).body
            shown.setdefault(row.http, {}).setdefault(row.reason, {"value": orjson.loads(body)})
            if dialect is Dialect.V03:
                schema = schema_ref("Error03")
        return {
            str(status): self._response_ref(f"{prefix}_{status}", schema, shown[status]) for status in sorted(shown)
        }

    def _response_ref(self, name: str, schema: Schema, examples: dict[str, Any]) -> dict[str, Any]:
        values = {
            "description": ", ".join(f"`{reason}`" for reason in examples),
            "content": {"application/json": {"schema": schema, "examples": examples}},
        }
        number, free = 1, name
        while self.responses.setdefault(free, values) != values:
            number += 1
            free = f"{name}_{number}"
        return {"$ref": f"#/components/responses/{free}"}


SERVER_TAG: Final = "Server"
_JSON_TYPE: Final = "application/json"
_EXAMPLE_JWK: Final = {
    **{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig"},
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s",
}
"""The key of RFC 7517, A.1, by its thumbprint."""

SERVER_SCHEMAS: Final[dict[str, Schema]] = {
    "Health": {
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {
                "type": "string",
                "enum": ["ok", "degraded", "draining", "not ready"],
                "description": "`degraded`: everything is served, but servers hear late of each other.",
            },
            "reason": {"type": "string", "description": "Why it is degraded."},
        },
    },
    "Keys": {
        "type": "object",
        "required": ["keys"],
        "properties": {
            "keys": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": sorted(_EXAMPLE_JWK.keys() - {"y"}),  # keys of Ed25519 have none
                    "properties": {name: {"type": "string"} for name in sorted(_EXAMPLE_JWK)},
                },
            }
        },
    },
}


def server_paths(
    schemas: SchemaBuilder, responses: ErrorResponses, root: str, *, push: bool
) -> dict[str, dict[str, Any]]:
    """The paths with their operations."""
    cards = [schemas.message_ref(cast(Descriptor, message.DESCRIPTOR)) for message in (pb.AgentCard, v03_pb.AgentCard)]
    unknown = responses.refs("site", [(UNKNOWN_AGENT_ERROR, Dialect.V1)])
    found: dict[str, dict[str, Any]] = {}
    for path, name in (
        ("/.well-known/agent-card.json", "card"),
        ("/.well-known/agent.json", "card_of_0_3"),
        ("/{agent}/.well-known/agent-card.json", "agent_card"),
        ("/{agent}/.well-known/agent.json", "agent_card_of_0_3"),
    ):
        own = path.startswith("/{agent}")
        shown = {"card": {"summary": "One card for both generations", "value": examples.card_example()}}
        answer = {"schema": {"allOf": cards}, "examples": shown}
        found[path] = {
            "get": {
                "operationId": name,
                "summary": f"The card of {'an' if own else 'the root'} agent",
                "description": "Who the agent is, what it can do, how it is reached; in one object for 1.0 and 0.3.",
                "tags": [SERVER_TAG],
                "parameters": [path_parameter("agent", root)] if own else [],
                "responses": {
                    "200": {"description": "The card.", "content": {_JSON_TYPE: answer}},
                    "304": {"description": "The caller has this card already."},
                    **(unknown if own else {}),
                },
            }
        }
    if push:
        found["/.well-known/jwks.json"] = {
            "get": {
                "operationId": "keys",
                "summary": "What signatures of push notifications are checked with",
                "description": "A JWK Set (RFC 7517).",
                "tags": [SERVER_TAG],
                "parameters": [],
                "responses": {
                    "200": {
                        "description": "The keys.",
                        "content": {_JSON_TYPE: {"schema": schema_ref("Keys"), "example": {"keys": [_EXAMPLE_JWK]}}},
                    }
                },
            }
        }
    for path, summary, states in (
        ("/healthz", "Is the process alive?", ((200, "ok"),)),
        ("/readyz", "Does it take new messages?", ((200, "ok"), (503, "draining"))),
    ):
        found[path] = {
            "get": {
                "operationId": path.strip("/"),
                "summary": summary,
                "tags": [SERVER_TAG],
                "parameters": [],
                "responses": {
                    str(status): {
                        "description": f"`{state}`",
                        "content": {_JSON_TYPE: {"schema": schema_ref("Health"), "example": {"status": state}}},
                    }
                    for status, state in states
                },
            }
        }
    return found
