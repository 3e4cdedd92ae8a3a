"""The tasks that a message refers to, for the agent that is given the message (A2A 1.0 §4.1.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.core.log import Head
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

MOST: Final = 16
"""Tasks that an agent is given; further ones it has to do without."""


async def referred(store: Store, head: Head, task_ids: Iterable[str]) -> list[pb.Task]:
    """Those that the owner of a task has with the same agent; others are not there for either."""
    found = []
    for task_id in list(dict.fromkeys(task_ids))[:MOST]:
        other = await store.find(head.ref.owner, head.agent, task_id)
        snapshot = await store.read(other.ref) if other else None
        if snapshot is not None:
            found.append(pb.Task.FromString(snapshot.task))
    return found
