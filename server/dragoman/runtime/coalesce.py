"""Several text chunks as one event, for agents that yield word by word. Off unless somebody asks for it.

Only neighbours become one, only chunks that Dragoman itself made from text, and only those that say nothing else. So
the text of every artifact, the order of all events and the task they fold to are what they would be without.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from dragoman.core.log import ArtifactChange, StatusChange

Change = StatusChange | ArtifactChange

BYTES: Final = 64 * 1024
"""The most in one event when only a time was set."""


@dataclass(frozen=True, slots=True)
class Coalesce:
    """`seconds` that a chunk may wait for others; `bytes` of text that one event holds at most. Both 0: off.

    With `bytes` alone nothing waits: chunks become one while an earlier commit is under way.
    """

    seconds: float = 0.0
    bytes: int = 0

    @property
    def limit(self) -> int:
        """Bytes of text in one event; 0 when this is off."""
        return self.bytes or (BYTES if self.seconds else 0)


OFF: Final = Coalesce()


def may_wait(change: Change) -> bool:
    """Whether a change is a chunk of plain text with more to come."""
    return _plain(change) is not None and isinstance(change, ArtifactChange) and not change.last_chunk


def coalesced(changes: Iterable[Change], limit: int) -> list[Change]:
    """The changes with neighbouring chunks of the same artifact as one, up to `limit` bytes of text each."""
    found: list[Change] = []
    run: list[ArtifactChange] = []
    size = 0
    for change in changes:
        chunk = _plain(change)
        length = len(chunk.text.encode()) if chunk and chunk.text else 0
        if run and (chunk is None or not _continues(run[-1], chunk) or size + length > limit):
            found.append(_one(run))
            run, size = [], 0
        if chunk is None:
            found.append(change)
        else:
            run.append(chunk)
            size += length
    return [*found, _one(run)] if run else found


def _plain(change: Change) -> ArtifactChange | None:
    """The change, if it is a chunk of text and says nothing else."""
    if isinstance(change, ArtifactChange) and change.text is not None and not change.tail and not change.metadata:
        return change
    return None


def _continues(before: ArtifactChange, chunk: ArtifactChange) -> bool:
    return chunk.append and chunk.artifact_id == before.artifact_id and not before.last_chunk


def _one(run: list[ArtifactChange]) -> ArtifactChange:
    if len(run) == 1:
        return run[0]
    return replace(run[0], text="".join([chunk.text or "" for chunk in run]), last_chunk=run[-1].last_chunk)
