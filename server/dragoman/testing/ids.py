"""Ids that are the same each time a test runs."""

from __future__ import annotations

import itertools


class Ids:
    """Counts: the first task is always `00000000-0000-7000-8000-000000000001`, the first conversation `context-1`.

    An agent's messages and artifacts are `id-1` and so on, in the order in which they are made.
    """

    def __init__(self) -> None:
        self._tasks = itertools.count(1)
        self._contexts = itertools.count(1)
        self._others = itertools.count(1)
        self._messages = itertools.count(1)

    def key(self) -> bytes:
        """A task's key: 16 bytes that look like a UUID of version 7, and sort in the order of their making."""
        return bytes.fromhex("00000000000070008000") + next(self._tasks).to_bytes(6, "big")

    def context(self) -> str:
        """A conversation's id."""
        return f"context-{next(self._contexts)}"

    def message(self) -> str:
        """The id of a caller's message."""
        return f"message-{next(self._messages)}"

    def other(self) -> str:
        """The id of whatever an agent makes."""
        return f"id-{next(self._others)}"
