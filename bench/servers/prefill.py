"""Creates a store with N COMPLETED and N/10 FAILED tasks: `python -m bench.servers.prefill FILE N`.

Tasks are one millisecond apart and written through the store's append, so the rows equal those of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.responses import TEXT
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.names import Owner, make_task_key, task_id_of
from dragoman.core.task import frames, states
from dragoman.core.task.log import (
    Append,
    Appended,
    ArtifactChange,
    ClaimHeld,
    IncomingMessage,
    New,
    NewTask,
    StatusChange,
    TaskRef,
)
from dragoman.stores.sqlite import open_store
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BEGIN: Final = 1_760_000_000_000
"""Milliseconds since the epoch: the time of the first task."""

FAILED: Final = 10
"""Of eleven tasks, the one with this index is FAILED."""

ROOT: Final = "echo"
"""The agent implementation tasks they are (bench.servers.agents)."""

BATCH_SIZE: Final = 4096
SESSION: Final = 1
OWNER: Final = Owner("default", ANONYMOUS.principal)
MESSAGE: Final = pb.Message(message_id="m", role="ROLE_USER", parts=[pb.Part(text=TEXT)]).SerializeToString()
PART: Final = frames.frame(4, pb.Part(text=TEXT).SerializeToString())
ARTIFACT: Final = ArtifactChange("output", frames.text(1, "output"), PART)


def task_changes(completed: int) -> Iterator[tuple[Append, Append]]:
    """Yields two changes per task: its creation with a claim, and its end."""
    for number in range(completed + completed // FAILED):
        ref = TaskRef(OWNER, make_task_key((BEGIN + number) * 1_000_000, number.to_bytes(8)))
        new = NewTask(ROOT, task_id_of(ref.key), f"context-{number % 997}", dialect="1.0")
        begun = Append(task=ref, guard=New(), create=new, message=IncomingMessage(MESSAGE), claim_session=SESSION)
        state = states.FAILED if number % (FAILED + 1) == FAILED else states.COMPLETED
        events = (ARTIFACT, StatusChange(state))
        yield begun, Append(task=ref, guard=ClaimHeld(SESSION, 1), events=events, last_delivered=1, release=True)


async def fill(file: Path, completed: int) -> None:
    """Fills a new store. Raises AppendRejected if the changes violate the store's guards."""
    ticks = itertools.count(BEGIN * 2)
    store = open_store(file, clock=lambda: next(ticks) // 2, synchronous="normal")
    waiting: list[asyncio.Future[Appended]] = []
    for changes in task_changes(completed):
        waiting += [store.append(change) for change in changes]
        if len(waiting) >= BATCH_SIZE:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.servers.prefill", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("tasks", type=int)
    arguments = parser.parse_args()
    asyncio.run(fill(arguments.file, arguments.tasks))
