"""Tracing of turns: every turn continues the trace of the message that created its task.

A message's trace context is stored with its envelope. A turn is a span under the context of the first message; a turn
that answers a later message of another trace is linked to that one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Final

from dragoman.core import trace
from dragoman.core.names import task_id_of
from dragoman.core.task import states
from dragoman.core.task.log import TaskRef
from dragoman.ports import Store
from dragoman.ports.tracing import Span, Tracer
from dragoman.runtime.turn.context import NO_MESSAGE
from dragoman.runtime.turn.runner import TurnRunner

log = logging.getLogger("dragoman.runtime")


@dataclass(eq=False, repr=False)
class TracedTurns:
    """Runs turns inside spans."""

    store: Store
    tracer: Tracer

    async def run(self, runner: TurnRunner) -> None:
        """Does `runner.run()` inside a span. Call it in an asyncio task of its own."""
        record = runner.context.record
        if runner.context.message is not NO_MESSAGE:  # a new task's first message, already in memory
            parent = trace.trace_of(runner.context.stored_envelope)
        else:
            parent = await self._read_context(record.ref, 1)
        tracer, began = self.tracer, time.perf_counter()
        context = tracer.start_span(parent)
        if not trace.is_recorded(context):
            trace.CURRENT_TRACE.set(context)
            return await runner.run()
        link = await self._read_context(record.ref, record.last_received) if record.last_received > 1 else ""
        tracer.activate(context)
        try:
            await runner.run()
        finally:
            state = runner.context.record.state
            tracer.record_span(Span(
                f"run {record.agent}", "consumer", context, parent, time.perf_counter() - began,
                ("dragoman.agent", "dragoman.task", "dragoman.attempt", "dragoman.state"),
                (record.agent, record.id, record.attempt, _STATES.get(state, "")),
                "the task failed" if state == states.FAILED else "",
                link if link and trace.trace_id_of(link) != trace.trace_id_of(parent) else "",
            ))  # fmt: skip

    async def _read_context(self, task: TaskRef, message: int) -> str:
        """The trace context of a message; empty when it cannot be read: tracing must not delay or fail a run."""
        try:
            return trace.trace_of(await self.store.envelope(task, message))
        except Exception as error:
            log.warning(
                "the trace context of a turn could not be read: %s", error, extra={"task": task_id_of(task.key)}
            )
            return ""


_STATES: Final = {state: states.short_name(state) for state in states.STORED_STATES}


async def task_trace_context(store: Store, task: TaskRef) -> str:
    """The trace context of the message that created a task; empty when it was not traced."""
    return trace.trace_of(await store.envelope(task, 1))
