"""Errors of MCP: JSON-RPC codes and HTTP statuses (2026-07-28 basic, "Error Codes").

Three codes are MCP's own; all other errors use those of JSON-RPC, because MCP reserves the range in which A2A has its
codes. The reason that A2A has for an error is in `data.reason`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dragoman.core import errors
from dragoman.core.errors import A2AError
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import ContentCodingNotSupported, codes, error_message, retry_after

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The capability of clients that take task handles (SEP-2663)."""

TASKS_REQUIRED: Final[Mapping[str, Any]] = {"extensions": {TASKS_EXTENSION: {}}}
"""The capabilities that a request about task handles needs, as the error for a client without them names them."""


class MalformedEnvelope(errors.InvalidParams):
    """A field that `_meta` of each request must have is missing, or has another type."""


class HeaderMismatch(A2AError):
    """A header is missing, or does not match the body."""


class MissingClientCapability(A2AError):
    """The request needs a capability that the client has not declared."""

    def __init__(self, message: str, required: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.required = required


class UnsupportedVersion(A2AError):
    """Unsupported protocol version."""

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        super().__init__(
            f'MCP-Protocol-Version: "{requested[:40]}" is not supported; use one of {", ".join(supported)}'
        )
        self.requested, self.supported = requested, tuple(supported)


class InvalidSession(A2AError):
    """Mcp-Session-Id is not one of this server; send `initialize` again."""


_OWN_CODES: Final[dict[type[A2AError], tuple[int, int]]] = {
    HeaderMismatch: (-32020, 400),
    MissingClientCapability: (-32021, 400),
    UnsupportedVersion: (-32022, 400),
    InvalidSession: (-32600, 404),
}
"""JSON-RPC code and HTTP status."""

_STATUSES: Final = (
    (errors.ParseError, 400),
    (ContentCodingNotSupported, 415),
    (errors.InvalidRequest, 400),
    (MalformedEnvelope, 400),
    (errors.MethodNotFound, 404),
    (errors.Unauthenticated, 401),
    (errors.PermissionDenied, 403),
    (errors.PayloadTooLarge, 413),
    (errors.ContentTypeNotSupported, 415),
)
"""Errors that have an HTTP status of their own in every revision: the call was not read, or may not be made."""


def mcp_error(error: BaseException) -> dict[str, Any]:
    """The `error` object of a JSON-RPC response."""
    if not isinstance(error, A2AError) and errors.lacks_memory(error):
        error = errors.OutOfMemory()
    text = error_message(error, Dialect.V1).removeprefix("message.")  # the message of the send that a call becomes
    match error:
        case UnsupportedVersion():
            data: dict[str, Any] = {"supported": list(error.supported), "requested": error.requested}
        case MissingClientCapability():
            data = {"requiredCapabilities": error.required}
        case HeaderMismatch() | InvalidSession():
            data = {}
        case _:
            data = {"reason": codes(error, Dialect.V1).reason}
            if wait := retry_after(error):
                data["retryAfterSeconds"] = wait
            if isinstance(error, A2AError) and error.metadata:
                data |= error.metadata
    return {"code": error_code(error), "message": text, **({"data": data} if data else {})}


def error_code(error: BaseException) -> int:
    """The JSON-RPC code of an error."""
    for kind, (code, _) in _OWN_CODES.items():
        if isinstance(error, kind):
            return code
    code = codes(error, Dialect.V1).jsonrpc
    if code <= -32600:
        return code
    return -32602 if codes(error, Dialect.V1).http < 500 else -32603


def http_status(error: BaseException, *, is_stateless: bool, is_answered: bool = True) -> int:
    """The HTTP status of an error response. `is_stateless`: the request is of a revision without a handshake.

    There, errors of the request itself have 400 as well. Other errors are a JSON-RPC response like any other, with 200:
    clients of the revisions with a handshake do not read the body of anything else. `is_answered`: False for a response
    or notification, and for a call without a readable id, whose senders read the status alone (Streamable HTTP,
    "Sending Messages to the Server").
    """
    for kind, (_, status) in _OWN_CODES.items():
        if isinstance(error, kind):
            return status
    for known, status in _STATUSES:
        if isinstance(error, known):
            return 200 if known is errors.MethodNotFound and not is_stateless else status
    if is_answered:
        return 200
    status = codes(error, Dialect.V1).http
    return status if status == 429 or status >= 500 else 400  # 404 would end the session of the client
