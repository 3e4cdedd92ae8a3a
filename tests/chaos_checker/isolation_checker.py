"""Checker of isolation and of keys: what a stranger names does not exist, and a key belongs to one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.history import Entry, Foreign, Reused


def judge_isolation(history: Sequence[Entry]) -> Iterator[str]:
    """Yields one line per operation of another principal that did not answer as for a task that does not exist (G7)."""
    for entry in history:
        if isinstance(entry, Foreign) and entry.reason != "TASK_NOT_FOUND":
            answer = f"was answered with {entry.reason}" if entry.reason else "was served"
            yield f"task {entry.task}: {entry.operation} of another principal {answer}"


def judge_reuse(history: Sequence[Entry]) -> Iterator[str]:
    """Yields one line per key that was accepted with another message (G4)."""
    for entry in history:
        if isinstance(entry, Reused) and not entry.reason:
            yield f"key {entry.key}: was accepted with another message"
