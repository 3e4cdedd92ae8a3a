"""The errors that callers can see.

Everything below the bindings raises these and knows no status codes. One table in `wire/errors.py` maps them to the
protocol versions and transports (A2A 1.0 §5.4, `google.rpc.Code`). A class's docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from dragoman.core.exceptions import is_a, text_of, walk


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule. `field` is a dotted path in camelCase (`message.parts[0].raw`)."""

    field: str
    description: str


class A2AError(Exception):
    """The request could not be served."""

    retry_after = 0.0  # seconds after which to retry; 0 when unknown

    def __init__(self, message: str | None = None, *, metadata: Mapping[str, str] | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip().rstrip(".")
        self.metadata = dict(metadata or {})
        super().__init__(self.message)


class TaskNotFound(A2AError):
    """Task not found."""


class PushConfigNotFound(TaskNotFound):
    """The task has no such push notification configuration."""


class TaskNotCancelable(A2AError):
    """Task cannot be canceled."""


class PushNotificationNotSupported(A2AError):
    """Push Notification is not supported."""


class UnsupportedOperation(A2AError):
    """This operation is not supported."""


class ContentTypeNotSupported(A2AError):
    """Incompatible content types."""


class InvalidAgentResponse(A2AError):
    """Invalid agent response."""


class ExtendedAgentCardNotConfigured(A2AError):
    """Authenticated Extended Card is not configured."""


class ExtensionSupportRequired(A2AError):
    """The agent requires an extension that the request did not name."""


class VersionNotSupported(A2AError):
    """The requested protocol version is not supported."""


class ParseError(A2AError):
    """Invalid JSON payload."""


class InvalidRequest(A2AError):
    """Request payload validation error."""


class MethodNotFound(A2AError):
    """Method not found."""


class InvalidParams(A2AError):
    """Invalid parameters."""

    def __init__(self, message: str | None = None, *, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)

    @classmethod
    def field(cls, field: str, rule: str) -> Self:
        """One violation; the message names the field and the rule."""
        return cls(f"{field}: {rule}", violations=(Violation(field, rule),))


class TaskEnded(A2AError):
    """The task has ended and takes no more messages; start a new task in the same context."""


NO_AGENTS_YET: Final = "no agent is served here yet: no worker has connected; try again later"


class AgentNotFound(A2AError):
    """No such agent."""


class PayloadTooLarge(A2AError):
    """The message is larger than this server accepts."""


class IdempotencyKeyReused(A2AError):
    """The idempotency key was used for a message with other content."""


class KeyNotFound(A2AError):
    """No such API key."""


class AgentIdTaken(A2AError):
    """The id of the agent is taken."""


class RateLimited(A2AError):
    """The request exceeds a limit of this server; try again later."""

    def __init__(
        self, message: str | None = None, *, limit: str = "", maximum: int = 0, retry_after: float = 1.0
    ) -> None:
        """`limit` is the name of the setting, `maximum` its value, `retry_after` is in seconds."""
        super().__init__(message, metadata={"limit": limit, "maximum": str(maximum)} if limit else None)
        self.retry_after = retry_after


class Unauthenticated(A2AError):
    """The credentials are missing or invalid."""

    def __init__(
        self, message: str | None = None, *, error: str = "", log_details: Mapping[str, str] | None = None
    ) -> None:
        """error: the error code of RFC 6750 §3.1, empty without credentials. log_details: details for the log that the
        caller does not see, such as the id of a key."""
        super().__init__(message)
        self.error = error
        self.log_details = dict(log_details or {})


class PermissionDenied(A2AError):
    """The credentials are valid, but do not allow this."""

    def __init__(
        self, message: str | None = None, *, scope: str = "", log_details: Mapping[str, str] | None = None
    ) -> None:
        """scope: the required scopes, if the token lacks one (RFC 6750 §3.1). log_details: as for Unauthenticated."""
        super().__init__(message)
        self.scope = scope
        self.log_details = dict(log_details or {})


class OriginNotAllowed(PermissionDenied):
    """The origin of this web page may not call this server."""


class Unavailable(A2AError):
    """The server is not ready or is shutting down; try again."""

    retry_after = 1.0
    outcome_unknown = False  # whether the request may have been executed, or may still be


class OutOfMemory(Unavailable):
    """The server is out of memory; try again later."""


class InternalError(A2AError):
    """Internal error."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an error, or what caused it, is that no memory was left: also none for the stack of a thread."""
    return any(
        is_a(cause, (MemoryError, OutOfMemory))
        or (is_a(cause, RuntimeError) and text_of(cause) == "can't start new thread")
        for cause in walk(error)
    )


def out_of_memory(error: BaseException) -> OutOfMemory:
    """OutOfMemory caused by this error."""
    mapped = OutOfMemory()
    mapped.__cause__ = error
    return mapped
