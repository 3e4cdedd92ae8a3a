"""What can go wrong with a call: one exception, and the kinds of it that callers tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import grpc

from dragoman.core.errors import Violation
from dragoman.core.push.delivery import retry_after_seconds
from dragoman.wire import remote_errors
from dragoman.wire.remote_errors import RemoteError


class ClientError(Exception):
    """A call that failed.

    code: the name of the gRPC status (`NOT_FOUND`, `UNAVAILABLE`). reason: A2A's word for it
    (`TASK_NOT_FOUND`), empty when the failure is not the server's answer. violations: the fields that broke a
    rule. metadata: what else the server said about it. retry_after: seconds after which to try again, where the
    server said so (RetryInfo, Retry-After), else None.
    """

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
        """Whether no A2A server answered at all."""
        return self.code == "UNAVAILABLE" and not self.reason

    @property
    def remote_error(self) -> RemoteError:
        """The same as the wire has it."""
        return RemoteError(self.code, self.message, self.reason, self.violations, self.metadata, self.retry_after)

    @staticmethod
    def from_rpc_error(error: grpc.aio.AioRpcError) -> ClientError:
        """The failure behind an RPC's status, with the `google.rpc` details that came with it."""
        details = next((value for key, value in error.trailing_metadata() or () if key == _STATUS_DETAILS_KEY), b"")
        said = details if isinstance(details, bytes) else b""
        failure = ClientError.from_remote_error(
            remote_errors.parse_grpc_status(error.code().name, error.details() or "", said)
        )
        if isinstance(failure, ServerUnavailable):
            failure.may_have_arrived = not any(sign in failure.message for sign in _NOT_CONNECTED_MESSAGES)
        return failure

    @staticmethod
    def from_json(error: Any) -> ClientError:
        """The failure in an `error` object of JSON-RPC or AIP-193."""
        return ClientError.from_remote_error(remote_errors.parse_json_error(error))

    @staticmethod
    def from_response(status: int, headers: Mapping[str, str], value: Any) -> ClientError:
        """The failure that an HTTP answer is. `value` is its JSON, None when it has none."""
        told = remote_errors.parse_rest_error(status, value)
        if told.retry_after is None:
            lower = {name.lower(): text for name, text in headers.items()}
            told = replace(told, retry_after=retry_after_seconds(status, lower, datetime.now(UTC)) or None)
        return ClientError.from_remote_error(told, Busy if status in (429, 503) else None)

    @staticmethod
    def from_remote_error(remote_error: RemoteError, error_class: type[ClientError] | None = None) -> ClientError:
        """The failure that a complaint is, of its kind."""
        return (error_class or _error_class_for(remote_error))(
            remote_error.code,
            remote_error.message,
            reason=remote_error.reason,
            violations=remote_error.violations,
            metadata=remote_error.metadata,
            retry_after=remote_error.retry_after,
        )


class NotFound(ClientError):
    """There is no such task or agent, or nobody may see it."""


class NotAllowed(ClientError):
    """The server does not know who calls, or does not let them."""


class Invalid(ClientError):
    """What was sent breaks a rule; `violations` name the fields."""


class NotSupported(ClientError):
    """The server, or the agent, does without what was asked for."""


class Conflict(ClientError):
    """What was asked for does not go with what is there: a key that was used, a task that cannot be canceled."""


class Busy(ClientError):
    """The server has more to do than it can, or this caller asks too often; `retry_after` may say when to come again.
    Nothing was begun."""


class ServerUnavailable(ClientError):
    """No answer, or one that broke off. `arrived`: whether the call may have been begun."""

    may_have_arrived = True

    @classmethod
    def for_address(cls, address: str, reason: object, *, may_have_arrived: bool = True) -> ServerUnavailable:
        """Nobody answers at a place."""
        made = cls("UNAVAILABLE", f"{address}: {str(reason) or type(reason).__name__}")
        made.may_have_arrived = may_have_arrived
        return made


class ProtocolError(ClientError):
    """The answer is not what the protocol says."""

    def __init__(self, message: str) -> None:
        super().__init__("INTERNAL", message)


class InactivityTimeout(ClientError):
    """A task said nothing new for longer than the caller wants to wait. It goes on; `task_id` is where."""

    def __init__(self, task_id: str, seconds: float) -> None:
        super().__init__("DEADLINE_EXCEEDED", f"task {task_id or 'unknown'} said nothing new for {seconds:g} s")
        self.task_id = task_id


_STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"

_NOT_CONNECTED_MESSAGES: Final = ("failed to connect to all addresses", "Connection refused", "DNS resolution failed")
"""What gRPC's core says when it had no connection."""

_ERROR_CLASSES_BY_REASON: Final[Mapping[str, type[ClientError]]] = {
    "TASK_NOT_FOUND": NotFound,
    "AGENT_NOT_FOUND": NotFound,
    "KEY_NOT_FOUND": NotFound,
    "UNAUTHENTICATED": NotAllowed,
    "PERMISSION_DENIED": NotAllowed,
    "INVALID_REQUEST": Invalid,
    "INVALID_PARAMS": Invalid,
    "CONTENT_TYPE_NOT_SUPPORTED": Invalid,
    "PAYLOAD_TOO_LARGE": Invalid,
    "EXTENSION_SUPPORT_REQUIRED": NotSupported,
    "METHOD_NOT_FOUND": NotSupported,
    "METHOD_NOT_ALLOWED": NotSupported,
    "UNSUPPORTED_OPERATION": NotSupported,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": NotSupported,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": NotSupported,
    "VERSION_NOT_SUPPORTED": NotSupported,
    "TASK_NOT_CANCELABLE": Conflict,
    "IDEMPOTENCY_KEY_REUSED": Conflict,
    "AGENT_TAKEN": Conflict,
    "RATE_LIMITED": Busy,
    "UNAVAILABLE": Busy,
    "INVALID_AGENT_RESPONSE": ClientError,
    "INTERNAL_ERROR": ClientError,
}
"""By A2A's word."""

_ERROR_CLASSES_BY_CODE: Final[Mapping[str, type[ClientError]]] = {
    "NOT_FOUND": NotFound,
    "UNAUTHENTICATED": NotAllowed,
    "PERMISSION_DENIED": NotAllowed,
    "INVALID_ARGUMENT": Invalid,
    "OUT_OF_RANGE": Invalid,
    "UNIMPLEMENTED": NotSupported,
    "ALREADY_EXISTS": Conflict,
    "FAILED_PRECONDITION": Conflict,
    "ABORTED": Conflict,
    "RESOURCE_EXHAUSTED": Busy,
    "UNAVAILABLE": ServerUnavailable,
    "DEADLINE_EXCEEDED": ServerUnavailable,
    "CANCELLED": ServerUnavailable,
}
"""By the name of the gRPC status, where no known word came with it."""


def _error_class_for(remote_error: RemoteError) -> type[ClientError]:
    return _ERROR_CLASSES_BY_REASON.get(remote_error.reason) or _ERROR_CLASSES_BY_CODE.get(
        remote_error.code, ClientError
    )
