"""One trace for each task: its runs, whenever and wherever they are, go on with the trace of the message that made it.

The trace context of a message is in its envelope, on disk with it. A run is a span under the first message's; one that
answers a later message of another trace is linked to that.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from dragoman.core import trace
from dragoman.core.names import task_id_of
from dragoman.core.task import states
from dragoman.core.task.log import TaskRef
from dragoman.ports import Store
from dragoman.ports.tracing import Tracer
from dragoman.runtime.turn.runner import NO_MESSAGE, TurnRunner

log = logging.getLogger("dragoman.runtime")


class TracedTurns:
    """Drives runs so that they are traced."""

    def __init__(self, store: Store, tracer: Tracer) -> None:
        self._store = store
        self._tracer = tracer

    async def run(self, runner: TurnRunner) -> None:
        """The same as `run.drive()`, as a span. To be called in an asyncio task of its own."""
        head = runner.record
        if runner.message is not NO_MESSAGE:  # its first, of which nothing need be read
            parent = trace.trace_of(runner.stored_envelope)
        else:
            parent = await self._read_context(head.ref, 1)
        tracer, began = self._tracer, time.perf_counter()
        context = tracer.start_span(parent)
        if not trace.is_recorded(context):
            trace.CURRENT_TRACE.set(context)
            return await runner.run()
        link = await self._read_context(head.ref, head.last_received) if head.last_received > 1 else ""
        tracer.activate(context)
        try:
            await runner.run()
        finally:
            state = runner.record.state
            tracer.record_span(
                f"run {head.agent}", "consumer", context, parent, time.perf_counter() - began,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt", "dragoman.state"),
                (head.agent, head.id, head.attempt, _STATES.get(state, "")),
                "the task failed" if state == states.FAILED else "",
                link if link and trace.trace_id_of(link) != trace.trace_id_of(parent) else "",
            )  # fmt: skip

    async def _read_context(self, task: TaskRef, message: int) -> str:
        """The trace context of a message; empty where it cannot be read: no run waits for who looks on, or fails."""
        try:
            return trace.trace_of(await self._store.envelope(task, message))
        except Exception as error:
            log.warning("the trace of a run could not be read: %s", error, extra={"task": task_id_of(task.key)})
            return ""


_STATES: Final = {state: states.name(state).removeprefix("TASK_STATE_") for state in states.STORED_STATES}


async def task_trace_context(store: Store, task: TaskRef) -> str:
    """The trace context of the message that made a task; empty when it was not traced."""
    return trace.trace_of(await store.envelope(task, 1))
