"""Tasks that messages refer to, as far as those who sent the messages see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dragoman.core.isolation import Isolation
from dragoman.core.log import Head
from dragoman.ports import Store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

REFERENCES: Final = 16
"""Referenced tasks that an agent is given; further ones it has to do without."""


class Referring:
    """Looks up references for the runs of one process."""

    def __init__(self, store: Store, isolation: Isolation) -> None:
        self._store = store
        self._isolation = isolation

    async def tasks(self, head: Head, sender: str, task_ids: Iterable[str]) -> list[pb.Task]:
        """The tasks of these ids that the sender sees of this task's agent; others are not there for either."""
        view = self._isolation.view(head.ref.owner.scope, head.agent, sender)
        found = []
        for task_id in list(dict.fromkeys(task_ids))[:REFERENCES]:
            other = await self._store.find(view.owner, head.agent, task_id, joined=view.joined)
            snapshot = await self._store.read(other.ref) if other else None
            if snapshot is not None:
                found.append(pb.Task.FromString(snapshot.task))
        return found
