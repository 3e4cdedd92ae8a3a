"""Error table: codes of each error per dialect, for JSON-RPC, gRPC and REST.

Sources: A2A 1.0.1 §5.4 (codes), §10.6 (gRPC), §11.6 (REST, AIP-193), and the 1.0.0 table where it differs. The 0.3
text fixes only the JSON-RPC numbers; the other 0.3 codes are those of its Python server, which clients rely on.
After the first byte of a response, an error is an SSE event named `error` with `RestErrorResponse.body` as data, or
the last element of a streamed JSON array. Every body is `application/json`, even if the caller accepts
`application/a2a+json`: some clients parse an error only with that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

import orjson
from google.rpc import error_details_pb2, status_pb2

from dragoman.core import errors
from dragoman.core.errors import A2AError, InvalidParams, Violation
from dragoman.wire.dialects import Dialect

ERROR_DOMAIN: Final = "a2a-protocol.org"
"""`ErrorInfo.domain`. Clients recognize A2A reasons only in this domain (1.0 §10.6)."""

ERROR_CONTENT_TYPE: Final = "application/json"

ErrorTable = Literal["1.0.1", "1.0.0"]
"""The patch release whose codes 1.0 callers get. Five rows differ."""


class RpcCode(IntEnum):
    """The values of `google.rpc.Code` used in the table. Names equal those of `grpc.StatusCode`."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class ErrorCodes(NamedTuple):
    """One row of the table: gRPC code, HTTP status, JSON-RPC number, ErrorInfo reason."""

    rpc: RpcCode
    http: int
    jsonrpc: int
    reason: str


class GrpcStatus(NamedTuple):
    """Trailers of a failed call: `grpc-status`, `grpc-message`, `grpc-status-details-bin`."""

    code: RpcCode
    details: str
    status_bin: bytes


class RestErrorResponse(NamedTuple):
    """Response to a failed REST request: HTTP status and JSON body."""

    status: int
    body: bytes


class MethodNotAllowed(errors.MethodNotFound):
    """The path exists but does not support this HTTP method."""

    def __init__(self, method: str, allowed: Iterable[str], advice: str = "") -> None:
        self.allowed = tuple(allowed)
        super().__init__(f"{method} is not served at this path; use {' or '.join(self.allowed)}{advice}")


class RequestLineTooLong(errors.InvalidRequest):
    """The request line is longer than this server accepts."""


class HeaderTooLong(errors.InvalidRequest):
    """A header is longer, or the headers are more, than this server accepts."""


class RequestTooSlow(errors.InvalidRequest):
    """The body arrives too slowly (RFC 9110 §15.5.9)."""


class TransferCodingNotSupported(errors.InvalidRequest):
    """The body has a transfer coding other than `chunked` (RFC 9112 §6.1)."""


class ContentCodingNotSupported(errors.InvalidRequest):
    """The body has a content coding that this server does not decode."""

    ACCEPTED: Final = "gzip, deflate"

    def __init__(self, codings: str) -> None:
        super().__init__(
            f'Content-Encoding: "{codings[:100]}" is not supported; send the body without one, or use one of '
            f"{self.ACCEPTED}"
        )


_V1_0_1: Final[Mapping[type[Exception], ErrorCodes]] = {
    errors.TaskNotFound: ErrorCodes(RpcCode.NOT_FOUND, 404, -32001, "TASK_NOT_FOUND"),
    errors.TaskNotCancelable: ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32002, "TASK_NOT_CANCELABLE"),
    errors.PushNotificationNotSupported: ErrorCodes(
        RpcCode.FAILED_PRECONDITION, 400, -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED"
    ),
    errors.UnsupportedOperation: ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32004, "UNSUPPORTED_OPERATION"),
    errors.ContentTypeNotSupported: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32005, "CONTENT_TYPE_NOT_SUPPORTED"),
    errors.InvalidAgentResponse: ErrorCodes(RpcCode.INTERNAL, 500, -32006, "INVALID_AGENT_RESPONSE"),
    errors.ExtendedAgentCardNotConfigured: ErrorCodes(
        RpcCode.FAILED_PRECONDITION, 400, -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    ),
    errors.ExtensionSupportRequired: ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32008, "EXTENSION_SUPPORT_REQUIRED"),
    errors.VersionNotSupported: ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32009, "VERSION_NOT_SUPPORTED"),
    # The official servers have no separate reason for invalid JSON, and their clients know none.
    errors.ParseError: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32700, "INVALID_REQUEST"),
    errors.InvalidRequest: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32600, "INVALID_REQUEST"),
    RequestTooSlow: ErrorCodes(RpcCode.DEADLINE_EXCEEDED, 408, -32600, "REQUEST_TOO_SLOW"),
    RequestLineTooLong: ErrorCodes(RpcCode.INVALID_ARGUMENT, 414, -32600, "REQUEST_LINE_TOO_LONG"),
    ContentCodingNotSupported: ErrorCodes(RpcCode.INVALID_ARGUMENT, 415, -32600, "CONTENT_ENCODING_NOT_SUPPORTED"),
    HeaderTooLong: ErrorCodes(RpcCode.INVALID_ARGUMENT, 431, -32600, "HEADER_TOO_LONG"),
    TransferCodingNotSupported: ErrorCodes(RpcCode.UNIMPLEMENTED, 501, -32600, "TRANSFER_ENCODING_NOT_SUPPORTED"),
    # For REST paths only: gRPC itself answers unknown RPCs with UNIMPLEMENTED.
    errors.MethodNotFound: ErrorCodes(RpcCode.NOT_FOUND, 404, -32601, "METHOD_NOT_FOUND"),
    # google.rpc.Code has no value for 405. UNIMPLEMENTED, as in grpc-gateway, distinguishes an unsupported method
    # from an unknown path (NOT_FOUND).
    MethodNotAllowed: ErrorCodes(RpcCode.UNIMPLEMENTED, 405, -32601, "METHOD_NOT_ALLOWED"),
    errors.InvalidParams: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32602, "INVALID_PARAMS"),
    # 1.0 §3.4.3: a message to a task in a terminal state is an unsupported operation.
    errors.TaskEnded: ErrorCodes(RpcCode.FAILED_PRECONDITION, 400, -32004, "UNSUPPORTED_OPERATION"),
    errors.AgentNotFound: ErrorCodes(RpcCode.NOT_FOUND, 404, -32602, "AGENT_NOT_FOUND"),
    errors.PayloadTooLarge: ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 413, -32600, "PAYLOAD_TOO_LARGE"),
    errors.IdempotencyKeyReused: ErrorCodes(RpcCode.ALREADY_EXISTS, 409, -32602, "IDEMPOTENCY_KEY_REUSED"),
    errors.KeyNotFound: ErrorCodes(RpcCode.NOT_FOUND, 404, -32602, "KEY_NOT_FOUND"),
    errors.AgentIdTaken: ErrorCodes(RpcCode.ALREADY_EXISTS, 409, -32602, "AGENT_TAKEN"),
    errors.RateLimited: ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 429, -32603, "RATE_LIMITED"),
    errors.Unauthenticated: ErrorCodes(RpcCode.UNAUTHENTICATED, 401, -32603, "UNAUTHENTICATED"),
    errors.PermissionDenied: ErrorCodes(RpcCode.PERMISSION_DENIED, 403, -32603, "PERMISSION_DENIED"),
    errors.Unavailable: ErrorCodes(RpcCode.UNAVAILABLE, 503, -32603, "UNAVAILABLE"),
    errors.OutOfMemory: ErrorCodes(RpcCode.RESOURCE_EXHAUSTED, 503, -32603, "OUT_OF_MEMORY"),
    errors.InternalError: ErrorCodes(RpcCode.INTERNAL, 500, -32603, "INTERNAL_ERROR"),
}


def _with_codes(*changes: tuple[type[Exception], RpcCode, int]) -> dict[type[Exception], ErrorCodes]:
    """The table with other gRPC codes and HTTP statuses in some rows."""
    return {**_V1_0_1, **{row: _V1_0_1[row]._replace(rpc=rpc, http=http) for row, rpc, http in changes}}


_V1_0_0: Final = _with_codes(
    (errors.TaskNotCancelable, RpcCode.FAILED_PRECONDITION, 409),
    (errors.PushNotificationNotSupported, RpcCode.UNIMPLEMENTED, 400),
    (errors.UnsupportedOperation, RpcCode.UNIMPLEMENTED, 400),
    (errors.TaskEnded, RpcCode.UNIMPLEMENTED, 400),
    (errors.ContentTypeNotSupported, RpcCode.INVALID_ARGUMENT, 415),
    (errors.InvalidAgentResponse, RpcCode.INTERNAL, 502),
    (errors.VersionNotSupported, RpcCode.UNIMPLEMENTED, 400),
)

# Errors that 0.3 does not define keep their 1.0 row: a caller that names a version or an extension knows 1.0.
_V0_3: Final = _with_codes(
    # The Python server sends UNIMPLEMENTED, but its client ignores it; a JavaScript client needs this code.
    (errors.TaskNotCancelable, RpcCode.FAILED_PRECONDITION, 409),
    (errors.PushNotificationNotSupported, RpcCode.UNIMPLEMENTED, 501),
    (errors.UnsupportedOperation, RpcCode.UNIMPLEMENTED, 501),
    (errors.ContentTypeNotSupported, RpcCode.UNIMPLEMENTED, 415),
    (errors.InvalidAgentResponse, RpcCode.INTERNAL, 502),
    (errors.ExtendedAgentCardNotConfigured, RpcCode.UNKNOWN, 404),
    (errors.ParseError, RpcCode.INTERNAL, 400),
    (errors.InvalidParams, RpcCode.INVALID_ARGUMENT, 422),
)
_V0_3[errors.TaskEnded] = _V0_3[errors.InvalidParams]  # in 0.3 the task id counts as an invalid parameter

# Elsewhere the reason stays that of a task: clients map reasons to exceptions, and know no other for "not found" (1.0
# §5.4); the official JavaScript SDK does so for 0.3, too.
_GOOGLE: Final = {
    **_V1_0_1,
    errors.PushConfigNotFound: _V1_0_1[errors.TaskNotFound]._replace(reason="PUSH_NOTIFICATION_CONFIG_NOT_FOUND"),
}

_SDK_NAMES: Final = {
    -32700: "JSONParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32001: "TaskNotFoundError",
    -32002: "TaskNotCancelableError",
    -32003: "PushNotificationNotSupportedError",
    -32004: "UnsupportedOperationError",
    -32005: "ContentTypeNotSupportedError",
    -32006: "InvalidAgentResponseError",
    -32007: "ExtendedAgentCardNotConfiguredError",
    -32008: "ExtensionSupportRequiredError",
    -32009: "VersionNotSupportedError",
}
"""Class names in the official SDKs, by JSON-RPC number. Their 0.3 clients read these in gRPC texts and REST bodies."""

_LITERAL_MESSAGES: Final[Mapping[int, str]] = {
    -32700: "Invalid JSON payload",
    -32600: "Request payload validation error",
    -32601: "Method not found",
    -32602: "Invalid parameters",
    -32603: "Internal error",
    -32001: "Task not found",
    -32002: "Task not cancelable",
    -32003: "Push notification not supported",
    -32004: "This operation is not supported",
    -32005: "Incompatible content types",
    -32006: "Invalid agent response",
}
"""Texts that 0.x clients compare literally, by number. Over JSON-RPC only; other bindings may send longer texts."""

_LOCALIZED_MESSAGE: Final = "type.googleapis.com/google.rpc.LocalizedMessage"

_MAX_MESSAGE_BYTES: Final = 512
_MAX_DETAILS_BYTES: Final = 2560
"""All trailers share one limit (8 KiB in most clients); exceeding it loses the whole status. Encoded, a byte of text
can take three bytes, and details grow by a third."""


def codes(error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1") -> ErrorCodes:
    """The table row of an error. Unknown exceptions map to the row of InternalError.

    Google's resource paths use `a2a.v1` messages with 1.0.1 statuses, regardless of `table`.
    """
    rows = _rows(dialect, table)
    for known in type(error).__mro__:
        if row := rows.get(known):
            return row
    return rows[errors.InternalError]


_OLDER_PART_FIELDS: Final = ("text, raw, url, data", "text, file, data")
_PROTO_V03: Final = (
    _OLDER_PART_FIELDS,
    ("message.parts", "message.content"),
    (".mediaType", ""),  # a part has a media type only in its file
    ("authentication.scheme", "authentication.schemes"),
    ("tenant: no agent", "no agent"),  # no field of its own: a name, a parent or the path has the agent
)
"""`a2a.v1` as ProtoJSON: over REST of 0.3, and in Google's form."""

_Terms = tuple[tuple[str, str], ...]
_REST_V03: Final[Mapping[Dialect, _Terms]] = {Dialect.V03: _PROTO_V03}
_GRPC_V03: Final[Mapping[Dialect, _Terms]] = {
    Dialect.V03: (
        *_PROTO_V03,
        *((f"message.{name}", f"request.{name}") for name in ("content", "messageId", "role", "taskId", "contextId")),
    )
}
_DIALECT_TERMS: Final[Mapping[Dialect, _Terms]] = {
    Dialect.V03: (_OLDER_PART_FIELDS,),
    Dialect.GOOGLE: _PROTO_V03,
    Dialect.V01: (
        _OLDER_PART_FIELDS,
        ("is not the context of message.taskId", "is not the session of the task"),
        ("message.contextId", "sessionId"),
        ("message.taskId", "id"),
        ("configuration.", ""),
        ("taskPushNotificationConfig", "pushNotification"),
    ),
}
"""Pairs of field names: as the 1.0 validation rules write them, and as the dialect does."""

_NAMES_FIELDS: Final = (InvalidParams, errors.ContentTypeNotSupported, errors.AgentNotFound)


def _in_dialect_terms(
    dialect: Dialect, error: BaseException, of_binding: Mapping[Dialect, _Terms] = _DIALECT_TERMS
) -> BaseException:
    """The error with field names of the dialect in its texts, if it is one that names fields.

    `of_binding`: the terms that differ in this binding. A lack of memory is the caller's OutOfMemory, wherever it was
    raised.
    """
    if not isinstance(error, A2AError) and errors.lacks_memory(error):
        return errors.OutOfMemory()
    terms = of_binding.get(dialect) or _DIALECT_TERMS.get(dialect)
    if terms is None or not isinstance(error, _NAMES_FIELDS):
        return error

    def translate(text: str) -> str:
        for ours, theirs in terms:
            text = text.replace(ours, theirs)
        return text

    if not isinstance(error, InvalidParams):
        metadata = {key: translate(value) for key, value in error.metadata.items()}
        return type(error)(translate(error.message), metadata=metadata)
    translated = InvalidParams(
        translate(error.message),
        violations=[Violation(translate(v.field), translate(v.description)) for v in error.violations],
    )
    translated.metadata, translated.retry_after = error.metadata, error.retry_after
    return translated


def error_message(error: BaseException, dialect: Dialect) -> str:
    """The human-readable text. Foreign exceptions may contain anything, so their text is never sent."""
    if not isinstance(error, A2AError):
        return errors.InternalError().message
    if dialect is Dialect.V03 and type(error) is errors.TaskNotFound:
        return _LITERAL_MESSAGES[-32001]
    return _clean(error.message)


def jsonrpc_error(
    error: BaseException, dialect: Dialect, *, in_stream: bool = False, names_version: bool = False
) -> dict[str, Any]:
    """The `error` object of a JSON-RPC response.

    `in_stream`: of a method that streams. `names_version`: the caller sent an `A2A-Version`.

    In 1.0, `data` is an array of typed objects, ErrorInfo first (1.0 §9.5). Earlier versions do not define `data`, so
    it is present only if it adds to the text; a text that a literal replaces is its LocalizedMessage. There it is an
    object with that array as `details`, as a2a-go 0.3 requires, or the array for callers that name a version, as the
    0.3 layer of a2a-go 2.x requires. 0.1 defines the numbers up to -32005; later ones are sent as invalid request, or
    as internal error if the caller is not at fault. Its streams have internal errors only.
    """
    error = _in_dialect_terms(dialect, error)
    row = codes(error, dialect)
    if dialect in (Dialect.V1, Dialect.RUST):
        return {"code": row.jsonrpc, "message": error_message(error, dialect), "data": _details(error, row)}
    number = row.jsonrpc
    if dialect is Dialect.V01 and -32010 <= number < -32005:
        number = -32603 if row.http >= 500 else -32600
    if dialect is Dialect.V01 and in_stream:
        number = -32603
    text = error_message(error, dialect)
    body: dict[str, Any] = {"code": number, "message": _LITERAL_MESSAGES.get(number, text)}
    details = _details(error, row)
    if text != body["message"]:
        details.append({"@type": _LOCALIZED_MESSAGE, "locale": "en-US", "message": text})
    if len(details) > 1 or _metadata(error):
        body["data"] = details if names_version else {"details": details}
    return body


def grpc_status(error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1") -> GrpcStatus:
    """The status of a failed RPC (1.0 §10.6).

    Details: always ErrorInfo; RetryInfo if a delay is known; BadRequest for violations. The text equals that of the
    Status in `status_bin`, because clients drop the details otherwise. For `a2a.v1` the text is
    `ErrorClassName: text`, the only thing that 0.3 clients read. Long texts are truncated: trailers over the limit
    would lose the status.
    """
    error = _in_dialect_terms(dialect, error, _GRPC_V03)
    row = codes(error, dialect, table=table)
    text = error_message(error, dialect)
    if len(encoded := text.encode()) > _MAX_MESSAGE_BYTES:
        text = encoded[:_MAX_MESSAGE_BYTES].decode(errors="ignore") + "…"
    if dialect is Dialect.V03:
        text = f"{_sdk_name(row)}: {text}"
    status = status_pb2.Status(code=row.rpc, message=text)
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=ERROR_DOMAIN)
    for key, value in _metadata(error).items():
        if info.ByteSize() + len(key) + len(value.encode()) < _MAX_DETAILS_BYTES // 2:
            info.metadata[key] = value
    status.details.add().Pack(info)
    if wait := retry_after(error):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(wait * 1000))
        status.details.add().Pack(retry)
    bad = error_details_pb2.BadRequest()
    for violation in _violations(error):
        bad.field_violations.add(field=violation.field, description=violation.description)
        if status.ByteSize() + bad.ByteSize() > _MAX_DETAILS_BYTES:
            del bad.field_violations[-1]
            break
    if bad.field_violations:
        status.details.add().Pack(bad)
    return GrpcStatus(row.rpc, text, status.SerializeToString(deterministic=True))


_LIST_REASONS: Final = {
    400: "badRequest",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    429: "rateLimitExceeded",
    501: "notImplemented",
}
"""Reasons of Google's first error format, by HTTP status."""


def rest_error(
    error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1", with_list: bool = False
) -> RestErrorResponse:
    """The response to a failed REST request: AIP-193 (1.0 §11.6), with extra fields for 0.3.

    0.3 does not define a body. One object serves all clients: `code` (JSON-RPC number), `type` (class name in the
    SDKs) and `message` at the top level, and the AIP-193 object in `error`. `with_list`: the object also has the list
    `errors` of Google's first error format.
    """
    error = _in_dialect_terms(dialect, error, _REST_V03)
    row = codes(error, dialect, table=table)
    text = error_message(error, dialect)
    body: dict[str, Any] = {
        "error": {"code": row.http, "status": row.rpc.name, "message": text, "details": _details(error, row)}
    }
    if with_list:
        reason = _LIST_REASONS.get(row.http, "backendError" if row.http >= 500 else "badRequest")
        body["error"]["errors"] = [{"domain": "global", "reason": reason, "message": text}]
    if dialect is Dialect.V03:
        body = {"code": row.jsonrpc, "type": _sdk_name(row), "message": text, **body}
    return RestErrorResponse(row.http, orjson.dumps(body))


def retry_after(error: BaseException) -> float:
    """Seconds after which the caller may retry; 0 if unknown."""
    return error.retry_after if isinstance(error, A2AError) else 0.0


def _details(error: BaseException, row: ErrorCodes) -> list[dict[str, Any]]:
    """ErrorInfo, RetryInfo if a delay is known, and BadRequest for violations, as JSON."""
    info: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": row.reason,
        "domain": ERROR_DOMAIN,
    }
    if metadata := _metadata(error):
        info["metadata"] = metadata
    details = [info]
    if wait := retry_after(error):
        # ProtoJSON form of a Duration: whole seconds or three fractional digits.
        delay = f"{wait:.0f}s" if wait == round(wait) else f"{wait:.3f}s"
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    if violations := _violations(error):
        details.append(
            {
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": v.field, "description": v.description} for v in violations],
            }
        )
    return details


def _rows(dialect: Dialect, table: ErrorTable) -> Mapping[type[Exception], ErrorCodes]:
    if dialect in (Dialect.V03, Dialect.V01, Dialect.FASTA2A):
        return _V0_3
    if dialect is Dialect.GOOGLE:
        return _GOOGLE
    return _V1_0_0 if table == "1.0.0" else _V1_0_1


def _sdk_name(row: ErrorCodes) -> str:
    # No SDK knows these names. The first on purpose: one SDK subscribes with POST and retries with GET after a 405, but
    # only if it does not know the error's name.
    if row.http == 405:
        return "MethodNotAllowedError"
    return "AgentNotFoundError" if row.reason == "AGENT_NOT_FOUND" else _SDK_NAMES[row.jsonrpc]


def _metadata(error: BaseException) -> dict[str, str]:
    if not isinstance(error, A2AError):
        return {}
    return {_clean(key): _clean(value) for key, value in error.metadata.items()}


def _violations(error: BaseException) -> list[Violation]:
    if not isinstance(error, InvalidParams):
        return []
    return [Violation(_clean(v.field), _clean(v.description)) for v in error.violations]


def _clean(text: str) -> str:
    """Replaces lone surrogates, which quoted input can contain and encoders reject."""
    return text.encode(errors="replace").decode()
