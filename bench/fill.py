"""`python -m bench.fill FILE N`: a store with N COMPLETED tasks and a tenth as many FAILED ones, one a millisecond.

Written through the store's own append, in batches as large as it takes, so the rows are those that a server writes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.answers import TEXT
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
"""Of eleven tasks, the one with this number."""

ROOT: Final = "echo"
"""The agent whose tasks they are (bench.agents)."""

AT_ONCE: Final = 4096
SESSION: Final = 1
OWNER: Final = Owner("default", ANONYMOUS.principal)
MESSAGE: Final = pb.Message(message_id="m", role="ROLE_USER", parts=[pb.Part(text=TEXT)]).SerializeToString()
PART: Final = frames.frame(4, pb.Part(text=TEXT).SerializeToString())
ARTIFACT: Final = ArtifactChange("output", frames.text(1, "output"), PART)


def lives(completed: int) -> Iterator[tuple[Append, Append]]:
    """For each task: how it begins, claimed, and how it ends."""
    for number in range(completed + completed // FAILED):
        ref = TaskRef(OWNER, make_task_key((BEGIN + number) * 1_000_000, number.to_bytes(8)))
        new = NewTask(ROOT, task_id_of(ref.key), f"context-{number % 997}", dialect="1.0")
        begun = Append(task=ref, guard=New(), create=new, message=IncomingMessage(MESSAGE), claim_session=SESSION)
        state = states.FAILED if number % (FAILED + 1) == FAILED else states.COMPLETED
        events = (ARTIFACT, StatusChange(state))
        yield begun, Append(task=ref, guard=ClaimHeld(SESSION, 1), events=events, last_delivered=1, release=True)


async def fill(file: Path, completed: int) -> None:
    """Raises core.log.Refused when the guards above are not those of the store any more."""
    ticks = itertools.count(BEGIN * 2)
    store = open_store(file, clock=lambda: next(ticks) // 2, synchronous="normal")
    waiting: list[asyncio.Future[Appended]] = []
    for life in lives(completed):
        waiting += [store.append(change) for change in life]
        if len(waiting) >= AT_ONCE:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("tasks", type=int)
    arguments = parser.parse_args()
    asyncio.run(fill(arguments.file, arguments.tasks))
