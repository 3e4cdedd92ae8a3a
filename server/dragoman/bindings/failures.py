"""Which errors a route may answer with, for the description of the routes.

One table of what each operation may raise; what it is called in a dialect and how it looks is said by
`wire/errors.py` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from dragoman.bindings.methods import Row
from dragoman.bindings.schemas import Schema, pointer
from dragoman.core import errors
from dragoman.core.errors import A2AError, InvalidParams
from dragoman.wire import errors as wire
from dragoman.wire.dialects import Dialect
from dragoman.wire.http.httprule import Rule

_ANY: Final = (errors.VersionNotSupported('A2A-Version: "9.9" is not supported; use one of 1.0, 0.3'),)
_ASKED: Final = (
    errors.Unauthenticated("credentials are required: send Authorization: Bearer CREDENTIALS"),
    errors.PermissionDenied('tenant: these credentials do not reach agent "playground" in scope "default"'),
    errors.Unavailable("the keys of the token's issuer cannot be had now; try again"),
)
_BODY: Final = (
    errors.ParseError("the body is no JSON: line 1, column 2"),
    errors.InvalidRequest("the body cannot be read: it ended early"),
    errors.ContentTypeNotSupported('Content-Type: "text/plain" is not supported; use application/json'),
    errors.PayloadTooLarge("body: at most 23418197 bytes are accepted"),
)
UNKNOWN_AGENT: Final = errors.AgentNotFound('tenant: no agent "nobody" here; use one of playground')
_LIMITED: Final = errors.RateLimited(
    "open_streams: 2000 of your streams and waiting calls are open, and at most 2000 may be; close some",
    limit="open_streams",
    maximum=2000,
    retry_after=1,
)
_SEND: Final = (
    InvalidParams.field("message.parts", "must hold at least one part"),
    errors.TaskNotFound(),
    errors.TaskEnded(),
    errors.UnsupportedOperation("this agent takes no message while it works on the task"),
    errors.PushNotificationNotSupported(),
    errors.ContentTypeNotSupported('message.parts[0].mediaType: "image/png" is not accepted by this agent'),
    errors.InvalidAgentResponse(),
    errors.Unavailable("the server is shutting down and takes no new messages"),
)
_SUBSCRIBE: Final = (InvalidParams.field("id", "is required"), errors.TaskNotFound(), errors.Unavailable())
_PAGE: Final = InvalidParams.field("pageSize", "must be 1 to 100, or 0 for 50")
_OPERATIONS: Final[Mapping[str, tuple[A2AError, ...]]] = {
    "SendMessage": _SEND,
    "SendStreamingMessage": _SEND,
    "GetTask": (InvalidParams.field("historyLength", "must be 0 or more"), errors.TaskNotFound()),
    "ListTasks": (InvalidParams.field("pageSize", "must be 1 to 100"),),
    "CancelTask": (
        InvalidParams.field("id", "is required"),
        errors.TaskNotFound(),
        errors.TaskNotCancelable("the task ended before it could be canceled"),
    ),
    "SubscribeToTask": (*_SUBSCRIBE, errors.UnsupportedOperation("the task has ended; read it with GetTask")),
    "TaskSubscription": _SUBSCRIBE,
    "CreateTaskPushNotificationConfig": (
        InvalidParams.field("url", "is required"),
        errors.TaskNotFound(),
    ),
    "GetTaskPushNotificationConfig": (
        InvalidParams.field("id", "is required"),
        errors.TaskNotFound("the task has no such push notification configuration"),
    ),
    "ListTaskPushNotificationConfigs": (_PAGE, errors.TaskNotFound()),
    "ListTaskPushNotificationConfig": (_PAGE, errors.TaskNotFound()),
    "DeleteTaskPushNotificationConfig": (InvalidParams.field("id", "is required"), errors.TaskNotFound()),
    "GetAgentCard": (),
    "GetExtendedAgentCard": (errors.UnsupportedOperation(), errors.Unauthenticated()),
}
_ENCODING: Final = InvalidParams.field("tenant", "must be percent-encoded UTF-8")


def possible(rule: Rule, row: Row, *, push: bool = True, asks: bool = False) -> Iterator[A2AError]:
    """Every error that a caller of a route may meet, with a text such as it may have. Repeats a class at times.

    `push`: there are push notifications. `asks`: callers are asked who they are.
    """
    yield from _ANY
    if asks:
        yield from _ASKED
    yield _LIMITED
    if row.op.push and not push:
        yield errors.PushNotificationNotSupported()
    else:
        yield from _OPERATIONS[row.name]
        yield UNKNOWN_AGENT
        if rule.body:
            yield from _BODY
    if rule.template.variables:
        yield _ENCODING
    yield errors.InternalError()


# How they look ------------------------------------------------------------------------------------------------

_ERROR: Final[Schema] = {
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
_ERROR_V03: Final[Schema] = {
    "description": "The same, with the fields that readers of 0.3 look for beside it.",
    "allOf": [pointer("Error")],
    "type": "object",
    "required": ["code", "type", "message"],
    "properties": {
        "code": {"type": "integer", "description": "The JSON-RPC number."},
        "type": {"type": "string", "description": "The class of the error in the official SDKs."},
        "message": {"type": "string"},
    },
}
SCHEMAS: Final[Mapping[str, Schema]] = {"Error": _ERROR, "Error03": _ERROR_V03}
"""The bodies of errors, by name."""


class Responses:
    """The error responses of a document, one for each set of errors."""

    def __init__(self, table: wire.ErrorTable) -> None:
        self.found: dict[str, Any] = {}
        self._table = table

    def refer(self, prefix: str, failed: Iterable[tuple[A2AError, Dialect]]) -> dict[str, Any]:
        """References by status to responses that show these errors, each in its dialect."""
        shown: dict[int, dict[str, Any]] = {}
        schema = pointer("Error")
        for error, dialect in failed:
            row = wire.codes(error, dialect, table=self._table)
            body = wire.rest_error(error, dialect, table=self._table).body
            shown.setdefault(row.http, {}).setdefault(row.reason, {"value": orjson.loads(body)})
            if dialect is Dialect.V03:
                schema = pointer("Error03")
        return {str(status): self._refer(f"{prefix}_{status}", schema, shown[status]) for status in sorted(shown)}

    def _refer(self, name: str, schema: Schema, shown: dict[str, Any]) -> dict[str, Any]:
        made = {
            "description": ", ".join(f"`{reason}`" for reason in shown),
            "content": {"application/json": {"schema": schema, "examples": shown}},
        }
        number, free = 1, name
        while self.found.setdefault(free, made) != made:
            number += 1
            free = f"{name}_{number}"
        return {"$ref": f"#/components/responses/{free}"}
