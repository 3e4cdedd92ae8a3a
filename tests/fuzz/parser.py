"""What a parser is for who feeds it: a function that takes any bytes, and what it is fed first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Parser:
    """Something that reads what a stranger wrote.

    `read` swallows the refusals that the parser documents, and raises for everything else: another exception, or a
    rule that does not hold of what was read. `seeds` are inputs that mean something, `words` pieces of them.
    """

    read: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[str, ...] = ()
