"""The one table of errors: what each failure is called in each dialect, and its form over gRPC and REST.

Sources: A2A 1.0.1 §5.4 (codes), §10.6 (gRPC), §11.6 (REST, AIP-193); the 1.0.0 table where it differed; for
0.3, whose text fixes only the JSON-RPC numbers, the codes that its Python server answers with, because
clients were written against it.

An error after the first byte of an SSE stream is an event named `error` whose data is `RestErrorResponse.body`, and
in a
streamed JSON array it is the last element; a response that has begun has no other place for it.
Every body is `application/json`, also for callers who accept `application/a2a+json`: readers exist that look
for that type before they parse an error.
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
"""`ErrorInfo.domain`: clients take the reason for one of A2A's only under this name (1.0 §10.6)."""

ERROR_CONTENT_TYPE: Final = "application/json"

ErrorTable = Literal["1.0.1", "1.0.0"]
"""Which patch release's codes callers of 1.0 get: five rows changed between them."""


class RpcCode(IntEnum):
    """`google.rpc.Code`, as far as the table needs it; names are also those of `grpc.StatusCode`."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class ErrorCodes(NamedTuple):
    """One row: the gRPC status, the HTTP status, the JSON-RPC number, and the reason in ErrorInfo."""

    rpc: RpcCode
    http: int
    jsonrpc: int
    reason: str


class GrpcStatus(NamedTuple):
    """What ends a failed call: `grpc-status`, `grpc-message`, `grpc-status-details-bin`."""

    code: RpcCode
    details: str
    status_bin: bytes


class RestErrorResponse(NamedTuple):
    """What answers a failed request: the HTTP status and the JSON body."""

    status: int
    body: bytes


class MethodNotAllowed(errors.MethodNotFound):
    """This path does not take this HTTP method."""

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allowed = tuple(allowed)
        super().__init__(f"{method} is not served at this path; use {' or '.join(self.allowed)}")


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
    # JSON that does not parse has no reason of its own in the official servers, and their clients know none.
    errors.ParseError: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32700, "INVALID_REQUEST"),
    errors.InvalidRequest: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32600, "INVALID_REQUEST"),
    # For REST paths. An RPC that no service has never gets here: gRPC itself answers UNIMPLEMENTED.
    errors.MethodNotFound: ErrorCodes(RpcCode.NOT_FOUND, 404, -32601, "METHOD_NOT_FOUND"),
    # google.rpc.Code has no word for 405. UNIMPLEMENTED is what grpc-gateway says there, and it keeps "the
    # path is there, the method is not" apart from NOT_FOUND, "no such path".
    MethodNotAllowed: ErrorCodes(RpcCode.UNIMPLEMENTED, 405, -32601, "METHOD_NOT_ALLOWED"),
    errors.InvalidParams: ErrorCodes(RpcCode.INVALID_ARGUMENT, 400, -32602, "INVALID_PARAMS"),
    # 1.0 §3.4.3: a message to a task that has ended is an unsupported operation.
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
    errors.InternalError: ErrorCodes(RpcCode.INTERNAL, 500, -32603, "INTERNAL_ERROR"),
}


def _with_codes(row: type[Exception], rpc: RpcCode, http: int) -> tuple[type[Exception], ErrorCodes]:
    return row, _V1_0_1[row]._replace(rpc=rpc, http=http)


_V1_0_0: Final = {
    **_V1_0_1,
    **dict(
        (
            _with_codes(errors.TaskNotCancelable, RpcCode.FAILED_PRECONDITION, 409),
            _with_codes(errors.PushNotificationNotSupported, RpcCode.UNIMPLEMENTED, 400),
            _with_codes(errors.UnsupportedOperation, RpcCode.UNIMPLEMENTED, 400),
            _with_codes(errors.TaskEnded, RpcCode.UNIMPLEMENTED, 400),
            _with_codes(errors.ContentTypeNotSupported, RpcCode.INVALID_ARGUMENT, 415),
            _with_codes(errors.InvalidAgentResponse, RpcCode.INTERNAL, 502),
            _with_codes(errors.VersionNotSupported, RpcCode.UNIMPLEMENTED, 400),
        )
    ),
}

# Errors that 0.3 does not know keep their 1.0 row: who names a version or an extension knows more than 0.3.
_V0_3: Final = {
    **_V1_0_1,
    **dict(
        (
            # UNIMPLEMENTED in the Python server, whose client looks at no code; a JavaScript one knows only this.
            _with_codes(errors.TaskNotCancelable, RpcCode.FAILED_PRECONDITION, 409),
            _with_codes(errors.PushNotificationNotSupported, RpcCode.UNIMPLEMENTED, 501),
            _with_codes(errors.UnsupportedOperation, RpcCode.UNIMPLEMENTED, 501),
            _with_codes(errors.ContentTypeNotSupported, RpcCode.UNIMPLEMENTED, 415),
            _with_codes(errors.InvalidAgentResponse, RpcCode.INTERNAL, 502),
            _with_codes(errors.ExtendedAgentCardNotConfigured, RpcCode.UNKNOWN, 404),
            _with_codes(errors.ParseError, RpcCode.INTERNAL, 400),
            _with_codes(errors.InvalidParams, RpcCode.INVALID_ARGUMENT, 422),
        )
    ),
}
_V0_3[errors.TaskEnded] = _V0_3[errors.InvalidParams]  # in 0.3 the task id is the parameter that is wrong

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
"""What the official SDKs call the error of a number, as their readers of 0.3 gRPC texts and REST bodies know
it."""

_LITERAL_MESSAGES: Final[Mapping[type[Exception], str]] = {
    errors.TaskNotFound: "Task not found",
    errors.TaskNotCancelable: "Task not cancelable",
    errors.PushNotificationNotSupported: "Push notification not supported",
}
"""Texts that readers of 0.x compare as literals. Only over JSON-RPC: elsewhere we may say more."""

_MAX_MESSAGE_BYTES: Final = 512
_MAX_DETAILS_BYTES: Final = 2560
"""Trailers share one limit (8 KiB in most clients), and what passes it loses the whole status. On the wire a byte
of text may take three, and a byte of details takes a third more."""


def codes(error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1") -> ErrorCodes:
    """The row of an error. What is no A2AError, or one the table does not know, is an InternalError.

    Google's resource forms speak `a2a.v1` messages but 1.0.1 statuses, whatever `table` says.
    """
    rows = _rows(dialect, table)
    for known in type(error).__mro__:
        if row := rows.get(known):
            return row
    return rows[errors.InternalError]


_OLDER_PART_FIELDS: Final = ("text, raw, url, data", "text, file, data")
_DIALECT_TERMS: Final[Mapping[Dialect, tuple[tuple[str, str], ...]]] = {
    Dialect.V03: (_OLDER_PART_FIELDS,),
    Dialect.GOOGLE: (_OLDER_PART_FIELDS,),
    Dialect.V01: (
        _OLDER_PART_FIELDS,
        ("is not the context of message.taskId", "is not the session of the task"),
        ("message.contextId", "sessionId"),
        ("message.taskId", "id"),
        ("configuration.", ""),
    ),
}
"""What the rules of 1.0 call something else than the dialect does: that, and the dialect's own words."""


def _in_dialect_terms(dialect: Dialect, error: BaseException) -> BaseException:
    """What was wrong with parameters, as a caller of the dialect knows them."""
    words = _DIALECT_TERMS.get(dialect)
    if words is None or not isinstance(error, InvalidParams):
        return error

    def said(text: str) -> str:
        for ours, theirs in words:
            text = text.replace(ours, theirs)
        return text

    told = InvalidParams(
        said(error.message), violations=[Violation(said(one.field), said(one.description)) for one in error.violations]
    )
    told.metadata, told.retry_after = error.metadata, error.retry_after
    return told


def error_message(error: BaseException, dialect: Dialect) -> str:
    """The text for people. An exception that is not ours may hold anything, so nothing of it is told."""
    if not isinstance(error, A2AError):
        return errors.InternalError().message
    if dialect is Dialect.V03 and isinstance(error, errors.TaskNotFound):
        return _LITERAL_MESSAGES[errors.TaskNotFound]
    return _clean(error.message)


def jsonrpc_error(error: BaseException, dialect: Dialect) -> dict[str, Any]:
    """The `error` object of a JSON-RPC answer.

    1.0: `data` is an array of typed objects, ErrorInfo first (1.0 §9.5). Before that nothing was said of `data`, so
    it is there only where it says more than the text. 0.1 knows the numbers up to -32005 only; what came later is
    said as an invalid request, or an internal error if it is not the caller's.
    """
    error = _in_dialect_terms(dialect, error)
    row = codes(error, dialect)
    if dialect in (Dialect.V1, Dialect.RUST):
        return {"code": row.jsonrpc, "message": error_message(error, dialect), "data": _details(error, row)}
    text = next(
        (said for known, said in _LITERAL_MESSAGES.items() if isinstance(error, known)), error_message(error, dialect)
    )
    number = row.jsonrpc
    if dialect is Dialect.V01 and -32010 < number < -32005:
        number = -32603 if row.http >= 500 else -32600
    told: dict[str, Any] = {"code": number, "message": text}
    if isinstance(error, A2AError) and (_violations(error) or error.metadata or error.retry_after):
        told["data"] = _details(error, row)
    return told


def grpc_status(error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1") -> GrpcStatus:
    """The status of a failed RPC: ErrorInfo always, RetryInfo where a time is known, BadRequest for violations
    (1.0 §10.6).

    The text and the Status inside `status_bin` agree, because clients drop the details when they do not. For
    `a2a.v1` the text is `ErrorClassName: text`, which is all that a 0.3 reader looks at. Long texts are cut:
    what does not fit into the trailers would take the status with it.
    """
    error = _in_dialect_terms(dialect, error)
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


def rest_error(error: BaseException, dialect: Dialect, *, table: ErrorTable = "1.0.1") -> RestErrorResponse:
    """The answer to a failed request: AIP-193 (1.0 §11.6), and for 0.3 the fields its clients read around it.

    0.3 fixes no body. One object suits all readers: `code` (the JSON-RPC number), `type` (the class in the
    SDKs) and `message` at the top, and the AIP-193 object in `error`.
    """
    error = _in_dialect_terms(dialect, error)
    row = codes(error, dialect, table=table)
    text = error_message(error, dialect)
    body: dict[str, Any] = {
        "error": {"code": row.http, "status": row.rpc.name, "message": text, "details": _details(error, row)}
    }
    if dialect is Dialect.V03:
        body = {"code": row.jsonrpc, "type": _sdk_name(row), "message": text, **body}
    return RestErrorResponse(row.http, orjson.dumps(body))


def retry_after(error: BaseException) -> float:
    """Seconds after which a caller may try again; 0 when nothing is known of that."""
    return error.retry_after if isinstance(error, A2AError) else 0.0


def _details(error: BaseException, row: ErrorCodes) -> list[dict[str, Any]]:
    """ErrorInfo, RetryInfo where a time is known, and BadRequest for violations, as JSON."""
    info: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": row.reason,
        "domain": ERROR_DOMAIN,
    }
    if metadata := _metadata(error):
        info["metadata"] = metadata
    details = [info]
    if wait := retry_after(error):
        # As ProtoJSON writes a Duration: whole seconds, or three digits of a fraction.
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
    match dialect:
        case Dialect.V03 | Dialect.V01 | Dialect.FASTA2A:
            return _V0_3
        case Dialect.V1 | Dialect.RUST if table == "1.0.0":
            return _V1_0_0
        case _:
            return _V1_0_1


def _sdk_name(row: ErrorCodes) -> str:
    # A name that no SDK has. One of them subscribes with POST and tries GET after a 405, but only if it does
    # not know the error by its name.
    return "MethodNotAllowedError" if row.http == 405 else _SDK_NAMES[row.jsonrpc]


def _metadata(error: BaseException) -> dict[str, str]:
    if not isinstance(error, A2AError):
        return {}
    return {_clean(key): _clean(value) for key, value in error.metadata.items()}


def _violations(error: BaseException) -> list[Violation]:
    if not isinstance(error, InvalidParams):
        return []
    return [Violation(_clean(v.field), _clean(v.description)) for v in error.violations]


def _clean(text: str) -> str:
    """Texts quote what a stranger sent, which may hold lone surrogates: no encoder takes those."""
    return text.encode(errors="replace").decode()
