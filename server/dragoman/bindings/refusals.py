"""The log of who was refused, and why: never with what was shown, and never more lines than somebody can read.

A stranger can cause `BURST` lines at once and `RATE` a minute after that, whatever is sent; what had no line is counted
in the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from dragoman.core.errors import AgentNotFound, PermissionDenied, Unauthenticated

BURST: Final = 30
RATE: Final = 30
"""Lines."""

LONGEST: Final = 200
"""Characters of one field."""

Audit = Callable[[BaseException, str, str], None]
"""Is told the refusal, the caller's address, and what it called."""

_log: Final = logging.getLogger("dragoman.security")


class Refusals:
    """Tells the log of refused callers. One for all bindings of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, audit: Audit | None = None) -> None:
        """`clock` gives seconds since any moment. `audit` is told of those who showed something wrong, or too little,
        and whose refusal had a line: so no stranger can make it grow faster than that."""
        self._clock = clock
        self._audit = audit
        self._room = float(BURST)
        self._at = clock()
        self._silent = 0

    def tell(self, error: BaseException, *, peer: str, method: str) -> None:
        """Writes a line if this is the refusal of a caller, and there is room for one."""
        if isinstance(error, AgentNotFound) and error.__cause__ is not None:  # of what is hidden from the caller
            error = error.__cause__
        if isinstance(error, Unauthenticated | PermissionDenied):
            # Who shows nothing may only have looked; wrong credentials are somebody's mistake, or an attempt.
            level = logging.WARNING if isinstance(error, PermissionDenied) or error.error else logging.INFO
            fields = {"peer": peer, "method": method, **error.log_details}
            said = self._say(level, f"a caller was refused: {error.message}", fields)
            if said and level == logging.WARNING and self._audit is not None:
                self._audit(error, peer, method)

    def unreadable(self, reason: str, *, peer: str) -> None:
        """The same for what is no request at all, and may hold credentials in the wrong place."""
        self._say(logging.INFO, f"what came is no HTTP that can be read: {reason}", {"peer": peer})

    def _say(self, level: int, text: str, fields: dict[str, str]) -> bool:
        now = self._clock()
        self._room = min(self._room + (now - self._at) * RATE / 60, BURST)
        self._at = now
        if self._room < 1:
            self._silent += 1
            return False
        self._room -= 1
        silent, self._silent = self._silent, 0
        shown: dict[str, str | int] = {name: _clean(value) for name, value in fields.items()}
        if silent:
            shown["others"] = silent
        _log.log(level, "%s", _clean(text), extra=shown)
        return True


def _clean(text: str) -> str:
    """One line, whatever a stranger put into it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
