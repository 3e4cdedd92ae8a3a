"""A parser under fuzzing: a function that takes any bytes, and its seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Parser:
    """A parser of untrusted input.

    `read` ignores the documented errors of the parser, and raises for any other exception and any violated invariant of
    the result. `seeds` are valid inputs, `words` are fragments of them.
    """

    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
