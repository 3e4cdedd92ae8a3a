"""What a server says when it refuses a call, read in the form of every generation and binding.

| from | form |
|---|---|
| JSON-RPC, any version | `error` with `code` (a number), `message`, `data` |
| REST 1.0 | `error` as AIP-193 has it: `status`, `message`, `details` with ErrorInfo |
| REST 0.3 | `{"code", "message"}` with JSON-RPC's number, `{"type", "message"}`, or AIP-193, as servers differ |
| gRPC 1.0 | a status with ErrorInfo in its details |
| gRPC 0.3 | a status; its text may begin with the class of the error: `TaskNotFoundError: ...` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dragoman.core.errors import Violation

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
"""What 0.x means by a number; 1.0 says it itself."""

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
"""What a bare HTTP status means, in gRPC's words."""

PAYLOAD_TOO_LARGE_REASON: Final = "PAYLOAD_TOO_LARGE"
"""The reason of a refusal that no other time mends, unlike the others that exhaust something: the message is too long,
for the server or for a proxy in front of it."""

_TOO_LARGE_TEXT: Final = re.compile("larger than max|exceeds maximum size", re.IGNORECASE)
"""How libraries of gRPC say that themselves."""

_ERROR_CLASS: Final = re.compile(r"(?P<name>[A-Z][A-Za-z]+)Error(?:: (?P<text>.*))?", re.DOTALL)
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.ASCII)
_WORD_BOUNDARY: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class RemoteError:
    """Why a call was refused.

    code: the name of the gRPC status, or JSON-RPC's number as text. reason: A2A's word for it (`TASK_NOT_FOUND`),
    empty when the server did not say one.
    """

    code: str
    message: str
    reason: str = ""
    violations: tuple[Violation, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    """Seconds after which to try again (RetryInfo); None when the server did not say."""

    @property
    def is_unknown_method(self) -> bool:
        """Whether the server does not know the call at all, so that nothing was begun."""
        return self.reason in ("METHOD_NOT_FOUND", "VERSION_NOT_SUPPORTED") or (
            not self.reason and self.code in ("UNIMPLEMENTED", "NOT_FOUND")
        )

    @property
    def is_unsupported(self) -> bool:
        """Whether the server does without the operation, whatever its card says."""
        return self.is_unknown_method or self.reason == "UNSUPPORTED_OPERATION" or self.code == "UNIMPLEMENTED"

    @property
    def is_task_not_found(self) -> bool:
        """Whether the server does not know the task."""
        return self.reason == "TASK_NOT_FOUND" or (not self.reason and self.code == "NOT_FOUND")

    @property
    def is_busy(self) -> bool:
        """Whether the server has more to do than it can, so that nothing was begun, and may go better later."""
        return self.code in ("RESOURCE_EXHAUSTED", "UNAVAILABLE") and self.reason != PAYLOAD_TOO_LARGE_REASON


def parse_json_error(error: Any) -> RemoteError:
    """The `error` object of JSON-RPC or AIP-193."""
    error = error if isinstance(error, dict) else {}
    given = error.get("details", error.get("data"))
    details = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    info: dict[str, Any] = next((one for one in details if "reason" in one), {})
    number = error.get("code")
    value = info.get("metadata")
    return RemoteError(
        str(error.get("status", number)),
        str(error.get("message", "no reason given")),
        str(info.get("reason") or (_REASON_BY_NUMBER.get(number, "") if type(number) is int else "")),
        tuple(
            Violation(str(v.get("field", "")), str(v.get("description", "")))
            for one in details
            for v in _objects(one.get("fieldViolations"))
        ),
        value if isinstance(value, dict) else {},
        next((wait for one in details if (wait := _seconds(one.get("retryDelay"))) is not None), None),
    )


def parse_rest_error(status: int, value: Any) -> RemoteError:
    """The body of a REST answer with an error status. `value` is its JSON, None when it is none."""
    code = _GRPC_CODE_BY_HTTP_STATUS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        found = parse_json_error(error)
        return found if "status" in error else replace(found, code=code)
    values = value if isinstance(value, dict) else {}
    number, kind = values.get("code"), values.get("type")
    reason = _REASON_BY_NUMBER.get(number, "") if type(number) is int else ""
    if not reason and isinstance(kind, str):
        reason = _reason_of_class(kind)
    if not reason and status == 413:
        reason = PAYLOAD_TOO_LARGE_REASON
    return RemoteError(code, str(values.get("message", f"status {status}, and no reason given")), reason)


def parse_grpc_status(code: str, text: str, details: bytes = b"") -> RemoteError:
    """A gRPC status by its name, with the `grpc-status-details-bin` that came along."""
    status = status_pb2.Status()
    try:
        status.MergeFromString(details)
    except DecodeError:  # somebody on the way spoiled it; code and text are still there
        status.Clear()
    info, bad, wait = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        for known in (info, bad, wait):
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
        wait.retry_delay.ToTimedelta().total_seconds() if wait.HasField("retry_delay") else None,
    )


def _seconds(value: Any) -> float | None:
    """A Duration as ProtoJSON has it; None for what is none."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def _reason_of_class(text: str) -> str:
    """`TaskNotFoundError: no such task` is TASK_NOT_FOUND; empty for a text of another form."""
    found = _ERROR_CLASS.fullmatch(text)
    return _WORD_BOUNDARY.sub("_", found["name"]).upper() if found else ""


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
