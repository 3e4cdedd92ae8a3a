"""What went wrong in an author's code, and on which line of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from traceback import walk_tb
from typing import Final

from dragoman.agents.turn import TurnEnded

TEXT: Final = 4_000
"""Characters of an error's text that its caller sees; the log has all of it."""


def leaf(error: BaseException) -> BaseException:
    """The exception that counts: of a group, the end of the turn if there is one, otherwise the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = _leaves(error)
    return next((one for one in leaves if isinstance(one, TurnEnded)), leaves[0])


def describe(cause: BaseException, error: BaseException) -> str:
    """`Name: text` of `cause`, and how many more there are in the group `error`. Always has a UTF-8 form."""
    text = str(cause).encode(errors="backslashreplace").decode()
    said = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
    more = len(_leaves(error)) - 1 if isinstance(error, BaseExceptionGroup) else 0
    if len(said) > TEXT:
        said = f"{said[:TEXT]}…"
    return f"{said} (and {more} more)" if more else said


def where(error: BaseException, function: Callable[..., object]) -> tuple[str, int]:
    """File and line: the innermost line in the function's own file, else where the function begins."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, begins = (code.co_filename, code.co_firstlineno) if code else ("<unknown>", 0)
    found: int | None = None
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and found is None and id(at) not in seen:
        seen.add(id(at))
        for frame, line in walk_tb(at.__traceback__):
            if frame.f_code.co_filename == file:
                found = line
        at = at.__cause__
    return file, begins if found is None else found


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found
