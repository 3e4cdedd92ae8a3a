"""Parsers for the error responses of remote servers, in every version and binding.

| binding | form of an error |
|---|---|
| JSON-RPC, any version | `error` with `code` (a number), `message`, `data` |
| REST 1.0 | `error` as in AIP-193: `status`, `message`, `details` with ErrorInfo |
| REST 0.3 | by server: `{"code", "message"}` with the JSON-RPC number, `{"type", "message"}`, or AIP-193 |
| gRPC | a status; 1.0 has ErrorInfo in its details, 0.3 may begin its text with a class: `TaskNotFoundError: ...` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dragoman.core.errors import Violation
from dragoman.wire.json import remote_values

_REASON_BY_NUMBER: Final[Mapping[Any, str]] = {
    -32700: "INVALID_REQUEST",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL_ERROR",
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
}
"""The 1.0 reason of each JSON-RPC number, for 0.x servers, which send no reason."""

_GRPC_CODE_BY_HTTP_STATUS: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "FAILED_PRECONDITION",
    413: "RESOURCE_EXHAUSTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""The gRPC code of an HTTP status, for responses without a code."""

PAYLOAD_TOO_LARGE_REASON: Final = "PAYLOAD_TOO_LARGE"
"""The message is too large for the server or a proxy. Unlike other RESOURCE_EXHAUSTED errors, no retry can succeed."""

_TOO_LARGE_TEXT: Final = re.compile("larger than max|exceeds maximum size", re.IGNORECASE)
"""The texts of gRPC libraries for a message that is too large."""

_ERROR_CLASS: Final = re.compile(r"(?P<name>[A-Z][A-Za-z]+)Error(?:: (?P<text>.*))?", re.DOTALL)
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.ASCII)
_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class RemoteError:
    """The error with which a remote server answered a call.

    code: the name of the gRPC status, or the JSON-RPC number as text. reason: the A2A reason (`TASK_NOT_FOUND`), empty
    if the server sent none.
    """

    code: str
    message: str
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    """Seconds after which to retry (RetryInfo); None if the server sent none."""

    @property
    def is_unknown_method(self) -> bool:
        """Whether the server does not know the method, so the call had no effect."""
        return self.reason in ("METHOD_NOT_FOUND", "VERSION_NOT_SUPPORTED") or (
            not self.reason and self.code in ("UNIMPLEMENTED", "NOT_FOUND")
        )

    @property
    def is_unsupported(self) -> bool:
        """Whether the server does not support the operation, even if its card says so."""
        return self.is_unknown_method or self.reason == "UNSUPPORTED_OPERATION" or self.code == "UNIMPLEMENTED"

    @property
    def is_task_not_found(self) -> bool:
        return self.reason == "TASK_NOT_FOUND" or (not self.reason and self.code == "NOT_FOUND")

    @property
    def is_busy(self) -> bool:
        """Whether the server is overloaded: the call had no effect, and a retry may succeed."""
        return self.code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE") and self.reason != PAYLOAD_TOO_LARGE_REASON


def parse_json_error(error: Any) -> RemoteError:
    """Parses the `error` object of JSON-RPC or AIP-193."""
    error = error if isinstance(error, dict) else {}
    data = error.get("data")
    given = error.get("details", data.get("details") if isinstance(data, dict) else data)
    details = remote_values.objects(given)
    info: dict[str, Any] = next((detail for detail in details if "reason" in detail), {})
    number = error.get("code")
    metadata = info.get("metadata")
    # Servers of 0.x send literal texts, and this one says more in a LocalizedMessage.
    texts = (detail.get("message") for detail in details if str(detail.get("@type")).endswith(".LocalizedMessage"))
    return RemoteError(
        str(error.get("status", number)),
        str(next(texts, error.get("message", "no reason given"))),
        str(info.get("reason") or (_REASON_BY_NUMBER.get(number, "") if type(number) is int else "")),
        tuple(
            Violation(str(v.get("field", "")), str(v.get("description", "")))
            for detail in details
            for v in remote_values.objects(detail.get("fieldViolations"))
        ),
        metadata if isinstance(metadata, dict) else {},
        next((delay for detail in details if (delay := _seconds(detail.get("retryDelay"))) is not None), None),
    )


def parse_rest_error(status: int, body: Any) -> RemoteError:
    """Parses a REST response with an error status. `body` is its parsed JSON, None if it is not JSON."""
    code = _GRPC_CODE_BY_HTTP_STATUS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    fields = body if isinstance(body, dict) else {}
    error = fields.get("error")
    if isinstance(error, dict):
        remote_error = parse_json_error(error)
        return remote_error if "status" in error else replace(remote_error, code=code)
    number, class_name = fields.get("code"), fields.get("type")
    reason = _REASON_BY_NUMBER.get(number, "") if type(number) is int else ""
    if not reason and isinstance(class_name, str):
        reason = _reason_of_class(class_name)
    if not reason and status == 413:
        reason = PAYLOAD_TOO_LARGE_REASON
    return RemoteError(code, str(fields.get("message", f"status {status}, and no reason given")), reason)


def parse_grpc_status(code: str, text: str, details: bytes = b"") -> RemoteError:
    """Parses a gRPC status: the name of its code, its text, and `grpc-status-details-bin`."""
    status = status_pb2.Status()
    try:
        status.MergeFromString(details)
    except DecodeError:  # damaged on the way; code and text remain
        status.Clear()
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        for known in (info, bad, retry):
            if detail.Is(known.DESCRIPTOR):
                detail.Unpack(known)
    reason = info.reason or _reason_of_class(text)
    if not reason and code == "RESOURCE_EXHAUSTED" and _TOO_LARGE_TEXT.search(text):
        reason = PAYLOAD_TOO_LARGE_REASON
    return RemoteError(
        code,
        text or "no reason given",
        reason,
        tuple(Violation(v.field, v.description) for v in bad.field_violations),
        dict(info.metadata),
        retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None,
    )


def _seconds(duration: Any) -> float | None:
    """The seconds of a Duration in ProtoJSON; None for anything else."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    return float(match[1]) if match else None


def _reason_of_class(text: str) -> str:
    """The reason in a text: TASK_NOT_FOUND for `TaskNotFoundError: no such task`; empty for texts of another form."""
    match = _ERROR_CLASS.fullmatch(text)
    return _WORD_BOUNDARY.sub("_", match["name"]).upper() if match else ""
