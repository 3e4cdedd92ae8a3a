"""Errors of calls to A2A servers: `ClientError` and its subclasses.

| class | meaning |
|---|---|
| `CallRefused` and its subclasses | the server responded, and rejected the call |
| `ServerUnavailable` | no response, or a broken one; `may_have_arrived` is False if the call cannot have begun |
| `ProtocolError` | the response violates the protocol |
| `CallForbidden` | a policy of this process forbids the call |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, cast

from dragoman.core.errors import Violation
from dragoman.core.push.delivery import retry_after_seconds
from dragoman.wire import remote_errors
from dragoman.wire.remote_errors import RemoteError

if TYPE_CHECKING:
    import grpc


class ClientError(Exception):
    """A call that failed.

    code: the name of the gRPC status (`NOT_FOUND`, `UNAVAILABLE`). reason: A2A's name for it
    (`TASK_NOT_FOUND`), empty if the server did not respond. violations: the invalid fields. metadata: further details
    from the server. retry_after: seconds to wait before a retry, if the server named them (RetryInfo, Retry-After).
    """

    is_temporary = False
    """Whether the same call may succeed later."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        violations: tuple[Violation, ...] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{reason or code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.violations = violations
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after

    @property
    def unreachable(self) -> bool:
        """Whether no A2A server responded."""
        return self.code == "UNAVAILABLE" and not self.reason

    @property
    def summary(self) -> str:
        """The message for logs and for users, without the code."""
        return self.message

    @property
    def remote_error(self) -> RemoteError:
        """This error as it is sent over the wire."""
        return RemoteError(self.code, self.message, self.reason, self.violations, self.metadata, self.retry_after)

    @staticmethod
    def from_rpc_error(error: grpc.aio.AioRpcError) -> ClientError:
        """Returns the error of an RPC's status, with its `google.rpc` details."""
        failure = ClientError.from_remote_error(remote_error_of(error))
        if isinstance(failure, ServerUnavailable):
            failure.may_have_arrived = not is_connect_failure(failure.message)
        return failure

    @staticmethod
    def from_response(status: int, headers: Mapping[str, str], body: Any) -> ClientError:
        """Returns the error of an HTTP response. `body` is its JSON, None without JSON."""
        remote_error = remote_errors.parse_rest_error(status, body)
        if remote_error.retry_after is None:
            lower = {name.lower(): text for name, text in headers.items()}
            seconds = retry_after_seconds(status, lower, datetime.now(UTC))
            remote_error = replace(remote_error, retry_after=seconds or None)
        return ClientError.from_remote_error(remote_error, Busy if status in (429, 503) else None)

    @staticmethod
    def from_remote_error(remote_error: RemoteError, error_class: type[ClientError] | None = None) -> ClientError:
        """Returns a server's error as the class for its reason or code."""
        return (error_class or _error_class_for(remote_error))(
            remote_error.code,
            remote_error.message,
            reason=remote_error.reason,
            violations=remote_error.violations,
            metadata=remote_error.metadata,
            retry_after=remote_error.retry_after,
        )


class CallRefused(ClientError):
    """The server responded, and rejected the call."""

    @property
    def summary(self) -> str:
        """The reason, and the server's text cut to 500 characters."""
        return f"{self.reason or self.code}: {self.message[:500]}"

    @staticmethod
    def from_answer(remote_error: RemoteError) -> CallRefused:
        """Returns a server's error as a rejection, also with the code `UNAVAILABLE`."""
        error_class = _error_class_for(remote_error)
        refused_class = error_class if issubclass(error_class, CallRefused) else CallRefused
        return cast(CallRefused, ClientError.from_remote_error(remote_error, refused_class))


class NotFound(CallRefused):
    """The task or agent does not exist, or is not visible to this caller."""


class NotAllowed(CallRefused):
    """The credentials are missing, invalid, or do not allow the call."""


class Invalid(CallRefused):
    """The request is invalid; `violations` name the fields."""


class NotSupported(CallRefused):
    """The server or the agent does not support the operation."""


class Conflict(CallRefused):
    """The request conflicts with the state of the server: a key in use, a task that cannot be canceled."""


class Busy(CallRefused):
    """The server is overloaded, or this caller is over its rate limit. The call was not begun.

    `retry_after` may name the seconds until a retry.
    """

    is_temporary = True


class ServerUnavailable(ClientError):
    """The server did not respond, or its response was incomplete. Not temporary: wrong certificates, a wrong port."""

    is_temporary = True
    may_have_arrived = True
    """Whether the server may have begun the call."""

    @classmethod
    def for_reason(cls, message: str, *, may_have_arrived: bool = True) -> Self:
        error = cls("UNAVAILABLE", message)
        error.may_have_arrived = may_have_arrived
        return error

    @classmethod
    def for_address(cls, address: str, reason: object, *, may_have_arrived: bool = True) -> Self:
        message = f"{address}: {str(reason) or type(reason).__name__}"
        return cls.for_reason(message, may_have_arrived=may_have_arrived)


class ProtocolError(ClientError):
    """The server's response violates the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__("INTERNAL", message)


class CallForbidden(ClientError):
    """A policy of this process forbids the call; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__("PERMISSION_DENIED", message)


class OutcomeUnknown(Exception):
    """It is unknown whether a message was delivered, or how its task ended. Not a failed call."""


class InactivityTimeout(ClientError):
    """A task produced no event for longer than the caller wants to wait. The task continues; `task_id` is its id."""

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__("DEADLINE_EXCEEDED", f"task {task_id or 'unknown'} produced no event for {seconds:g} s")
        self.task_id = task_id


class ResponseErrors:
    """Converts error responses of one server to `ClientError`s. `address` names the server in messages."""

    def __init__(self, address: str) -> None:
        self.address = address

    def from_rest(self, status: int | None, headers: Mapping[str, str], body: Any) -> ClientError:
        """Converts an error response of REST. status: None for an error event of a stream. body: its JSON, or None."""
        return ClientError.from_response(status or 500, headers, body)

    def from_jsonrpc(self, status: int, headers: Mapping[str, str], body: Any) -> ClientError:
        """Converts an error response of JSON-RPC: one with an `error`, or with an HTTP status of 400 and above."""
        error = body.get("error") if isinstance(body, dict) else None
        if (code := AUTH_ERROR_CODES.get(status)) and body is not None:
            message = error.get("message") if isinstance(error, dict) else None
            return NotAllowed(code, str(message or "no reason given"), reason=code)
        if error is not None:
            return ClientError.from_remote_error(remote_errors.parse_json_error(error))
        return ClientError.from_response(status, headers, body)

    def from_rpc(self, error: grpc.aio.AioRpcError) -> ClientError:
        return ClientError.from_rpc_error(error)

    def from_redirect(self, status: int, headers: Mapping[str, str]) -> ClientError:
        """Converts a redirect. Redirects are never followed, since requests contain credentials."""
        location = headers.get("location", "")[:500]
        return ProtocolError(f"{self.address}: responded with a redirect ({status}) to {location}; call that address")

    def not_json(self, status: int, data: bytes) -> ClientError:
        first_line = data.decode(errors="replace").partition("\n")[0][:200]
        return ProtocolError(f"{self.address}: the response ({status}) is not JSON: {first_line}")


def remote_error_of(error: grpc.aio.AioRpcError) -> RemoteError:
    """Parses the status of an RPC, with the `google.rpc` details in its trailing metadata."""
    details = next((value for key, value in error.trailing_metadata() or () if key == _STATUS_DETAILS_KEY), b"")
    status = details if isinstance(details, bytes) else b""
    return remote_errors.parse_grpc_status(error.code().name, error.details() or "", status)


def is_connect_failure(message: str) -> bool:
    """Whether this message of gRPC's core reports a missing connection."""
    return any(text in message for text in _NOT_CONNECTED_MESSAGES)


def is_resolution_failure(message: str) -> bool:
    """Whether this message of gRPC's core reports a host name without an address."""
    return any(text in message for text in _NOT_RESOLVED_MESSAGES)


AUTH_ERROR_CODES: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}  # for JSON-RPC: 0.x has no such numbers
_STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"

_NOT_RESOLVED_MESSAGES: Final = ("DNS resolution failed", "errors resolving")
"""Messages of gRPC's core, by version, for a name that cannot be resolved."""

_NOT_CONNECTED_MESSAGES: Final = ("failed to connect to all addresses", "Connection refused", *_NOT_RESOLVED_MESSAGES)
"""Messages of gRPC's core for a missing connection."""

_REASONS_AND_CODES: Final[Mapping[type[ClientError], tuple[str, str]]] = {
    NotFound: ("TASK_NOT_FOUND PUSH_NOTIFICATION_CONFIG_NOT_FOUND AGENT_NOT_FOUND KEY_NOT_FOUND", "NOT_FOUND"),
    NotAllowed: ("UNAUTHENTICATED PERMISSION_DENIED", "UNAUTHENTICATED PERMISSION_DENIED"),
    Invalid: (
        "INVALID_REQUEST INVALID_PARAMS CONTENT_TYPE_NOT_SUPPORTED PAYLOAD_TOO_LARGE",
        "INVALID_ARGUMENT OUT_OF_RANGE",
    ),
    NotSupported: (
        "EXTENSION_SUPPORT_REQUIRED METHOD_NOT_FOUND METHOD_NOT_ALLOWED UNSUPPORTED_OPERATION "
        "PUSH_NOTIFICATION_NOT_SUPPORTED EXTENDED_AGENT_CARD_NOT_CONFIGURED VERSION_NOT_SUPPORTED",
        "UNIMPLEMENTED",
    ),
    Conflict: ("TASK_NOT_CANCELABLE IDEMPOTENCY_KEY_REUSED AGENT_TAKEN", "ALREADY_EXISTS FAILED_PRECONDITION ABORTED"),
    Busy: ("OUT_OF_MEMORY RATE_LIMITED UNAVAILABLE", "RESOURCE_EXHAUSTED"),
    ServerUnavailable: ("", "UNAVAILABLE DEADLINE_EXCEEDED CANCELLED"),
    CallRefused: ("INVALID_AGENT_RESPONSE INTERNAL_ERROR", ""),
}
"""By error class: A2A's reasons, and the names of gRPC statuses, which count for errors without a known reason."""

_CLASSES_BY_REASON: Final = {
    reason: kind for kind, (known, _) in _REASONS_AND_CODES.items() for reason in known.split()
}
_CLASSES_BY_CODE: Final = {text: kind for kind, (_, codes) in _REASONS_AND_CODES.items() for text in codes.split()}


def _error_class_for(remote_error: RemoteError) -> type[ClientError]:
    by_code = _CLASSES_BY_CODE.get(remote_error.code, CallRefused)
    return _CLASSES_BY_REASON.get(remote_error.reason, by_code)
