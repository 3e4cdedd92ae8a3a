"""One trace for each task: its runs, whenever and wherever they are, go on with the trace of the message that made it.

The trace context of a message is in its envelope, on disk with it. A run is a span under the first message's; one that
answers a later message of another trace is linked to that.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from dragoman.core import states, trace
from dragoman.core.log import TaskRef
from dragoman.core.names import id_of
from dragoman.ports import Store
from dragoman.ports.tracing import Tracer
from dragoman.runtime.run import NO_MESSAGE, Run

log = logging.getLogger("dragoman.runtime")


class Traced:
    """Drives runs so that they are traced."""

    def __init__(self, store: Store, tracer: Tracer) -> None:
        self._store = store
        self._tracer = tracer

    async def drive(self, run: Run) -> None:
        """The same as `run.drive()`, as a span. To be called in an asyncio task of its own."""
        head = run.head
        if run.message is not NO_MESSAGE:  # its first, of which nothing need be read
            parent = trace.of(run.stored_envelope)
        else:
            parent = await self._read(head.ref, 1)
        tracer, began = self._tracer, time.perf_counter()
        context = tracer.begin(parent)
        if not trace.is_recorded(context):
            trace.CURRENT.set(context)
            return await run.drive()
        link = await self._read(head.ref, head.inbox) if head.inbox > 1 else ""
        tracer.enter(context)
        try:
            await run.drive()
        finally:
            state = run.head.state
            tracer.record(
                f"run {head.agent}", "consumer", context, parent, time.perf_counter() - began,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt", "dragoman.state"),
                (head.agent, head.id, head.attempt, _STATES.get(state, "")),
                "the task failed" if state == states.FAILED else "",
                link if link and trace.id_of(link) != trace.id_of(parent) else "",
            )  # fmt: skip

    async def _read(self, task: TaskRef, message: int) -> str:
        """The trace context of a message; empty where it cannot be read: no run waits for who looks on, or fails."""
        try:
            return trace.of(await self._store.envelope(task, message))
        except Exception as error:
            log.warning("the trace of a run could not be read: %s", error, extra={"task": id_of(task.key)})
            return ""


_STATES: Final = {state: states.name(state).removeprefix("TASK_STATE_") for state in states.STORED}


async def context_of(store: Store, task: TaskRef) -> str:
    """The trace context of the message that made a task; empty when it was not traced."""
    return trace.of(await store.envelope(task, 1))
