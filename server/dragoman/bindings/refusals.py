"""The log of who was refused, and why: never with what was shown, and never more lines than somebody can read.

A stranger can cause `BURST` lines at once and `RATE` a minute after that, whatever is sent; what had no line is counted
in the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from dragoman.core.errors import PermissionDenied, Unauthenticated

BURST: Final = 30
RATE: Final = 30
"""Lines."""

LONGEST: Final = 200
"""Characters of one field."""

_log: Final = logging.getLogger("dragoman.security")


class Refusals:
    """Tells the log of refused callers. One for all bindings of a server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds since any moment."""
        self._clock = clock
        self._room = float(BURST)
        self._at = clock()
        self._silent = 0

    def tell(self, error: BaseException, *, peer: str, method: str) -> None:
        """Writes a line if this is the refusal of a caller, and there is room for one."""
        if not isinstance(error, Unauthenticated | PermissionDenied):
            return
        now = self._clock()
        self._room = min(self._room + (now - self._at) * RATE / 60, BURST)
        self._at = now
        if self._room < 1:
            self._silent += 1
            return
        self._room -= 1
        silent, self._silent = self._silent, 0
        fields = {"peer": peer, "method": method, **error.about, **({"others": silent} if silent else {})}
        # Who shows nothing may only have looked; wrong credentials are somebody's mistake, or an attempt.
        level = logging.WARNING if isinstance(error, PermissionDenied) or error.error else logging.INFO
        shown = {name: _clean(value) if isinstance(value, str) else value for name, value in fields.items()}
        _log.log(level, "a caller was refused: %s", _clean(error.message), extra=shown)


def _clean(text: str) -> str:
    """One line, whatever a stranger put into it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
