"""The log of rejected requests."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dragoman.core.access.identity import ANONYMOUS, Identity
from dragoman.core.errors import AgentNotFound, ContentTypeNotSupported, PermissionDenied, RateLimited, Unauthenticated
from dragoman.core.limits.admission import TokenBuckets
from dragoman.core.names import ANONYMOUS_PRINCIPAL

if TYPE_CHECKING:  # commands that serve nothing do not import it
    from dragoman.runtime.observe.audit import Auditor

REJECTION_BURST: Final = 30
REJECTIONS_PER_MINUTE: Final = 30
"""Maximum log lines: at once, and on average. Each known principal has its own, all other callers share one."""

MAX_LOGGED_PRINCIPALS: Final = 1000  # with limits of their own; the one rejected least recently is forgotten
OTHER_CALLERS: Final = ""  # stands for all callers without valid credentials
LIMIT_LOG_INTERVAL: Final = 60.0  # seconds between two lines about the same caller and limit

MAX_LOGGED_FIELD_CHARS: Final = 200

_SECURITY_LOG: Final = logging.getLogger("dragoman.security")
_REQUEST_LOG: Final = logging.getLogger("dragoman.requests")


class RejectionLog:
    """Rate-limited log of rejections that an operator can do something about, shared by all bindings.

    These are failed authentication, exceeded limits, and content types that an agent does not accept. Never contains
    credentials.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, audit: Auditor | None = None) -> None:
        """`clock` returns monotonic seconds. The rate limit also bounds the entries of `audit`."""
        self._clock = clock
        self._audit = audit
        self._lines = TokenBuckets(MAX_LOGGED_PRINCIPALS)
        self._suppressed: Counter[str] = Counter()  # lines left out, by principal
        self._limits_logged = TokenBuckets()
        self._modes_logged: set[str] = set()

    def record(
        self, error: BaseException, *, peer: str, method: str, agent: str = "", identity: Identity = ANONYMOUS
    ) -> None:
        """Logs the rejection of a request, within the rate limit; ignores other errors."""
        if isinstance(error, AgentNotFound) and error.__cause__ is not None:  # an agent hidden from the caller
            error = error.__cause__
        if isinstance(error, Unauthenticated | PermissionDenied):
            # Calls without credentials may be harmless; invalid credentials are a mistake or an attack.
            level = logging.WARNING if isinstance(error, PermissionDenied) or error.error else logging.INFO
            fields = {"peer": peer, "method": method, **error.log_details}
            principal = error.log_details.get("principal", "") if isinstance(error, PermissionDenied) else ""
            if principal == ANONYMOUS_PRINCIPAL:  # without valid credentials
                principal = OTHER_CALLERS
            logged = self._write(level, f"request rejected: {error.message}", fields, principal=principal)
            if level == logging.WARNING and self._audit is not None:
                if logged:
                    self._audit.note_denied(error, peer, method)
                else:
                    self._audit.count_denied(error, principal)
        elif isinstance(error, RateLimited):
            self._record_limit(error, peer, method, identity)
        elif isinstance(error, ContentTypeNotSupported) and agent and agent not in self._modes_logged:
            self._modes_logged.add(agent)
            hint = "agent rejected a file; if it should read such files, add their type to @agent(input_modes=...)"
            self._write(logging.INFO, f"{hint}: {error.message.partition(';')[0]}", {"agent": agent}, _REQUEST_LOG)

    def _record_limit(self, error: RateLimited, peer: str, method: str, identity: Identity) -> None:
        """Logs the first of a caller's rejections for a limit in a minute: clients repeat what was rejected."""
        key, now = (identity.principal, error.metadata.get("limit")), self._clock()
        if self._limits_logged.delay(key, now, LIMIT_LOG_INTERVAL, 1):
            return
        self._limits_logged.take(key, now, LIMIT_LOG_INTERVAL)
        fields = {"principal": identity.principal} if identity.is_authenticated else {"peer": peer}
        fields["method"] = method
        self._write(logging.WARNING, f"request rejected: {error.message}", fields, _REQUEST_LOG)

    def record_invalid_http(self, reason: str, *, peer: str) -> None:
        """Logs bytes that are not a valid HTTP request, without quoting them: they may contain credentials."""
        self._write(logging.INFO, f"invalid HTTP request: {reason}", {"peer": peer})

    def _write(
        self,
        level: int,
        text: str,
        fields: dict[str, str],
        logger: logging.Logger = _SECURITY_LOG,
        *,
        principal: str = OTHER_CALLERS,
    ) -> bool:
        """Logs a line within the rate limit of a principal. Returns whether it did."""
        now, interval = self._clock(), 60 / REJECTIONS_PER_MINUTE
        if self._lines.delay(principal, now, interval, REJECTION_BURST):
            known = principal in self._suppressed or len(self._suppressed) < MAX_LOGGED_PRINCIPALS
            self._suppressed[principal if known else OTHER_CALLERS] += 1
            return False
        self._lines.take(principal, now, interval)
        suppressed = self._suppressed.pop(principal, 0)
        extra: dict[str, str | int] = {name: _single_line(value) for name, value in fields.items()}
        if suppressed:
            extra["others"] = suppressed
        logger.log(level, "%s", _single_line(text), extra=extra)
        return True


def _single_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_LOGGED_FIELD_CHARS])
