"""Runs one claimed task, turn after turn, until the task ends, waits or is lost.

One asyncio task per run. Events of the agent go through an open batch; the end of a turn (last artifacts, status,
release of the claim) is one append. Every write is guarded by the claim, so the store rejects writes of a run that lost
its task to a cancel or to another session, and the run stops.

A run is PREPARING until its asyncio task takes its first step: canceled before, that would never run, so a stop is only
noted. While RUNNING, a stop interrupts the agent. While FINISHING the end of a turn is decided and written, and a stop
comes too late; unread messages lead to the next turn, which is RUNNING again. CLOSED, nothing is written any more,
except by `abort` if the run failed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from dragoman.core.errors import Unavailable
from dragoman.core.exceptions import describe, is_a
from dragoman.core.task import states
from dragoman.core.task.log import CHANGED, Append, Appended, AppendRejected, StatusChange
from dragoman.ports import (
    NO_CHANGE,
    Agent,
    AgentStillRuns,
    LeaseLost,
    StateUpdate,
    StoredMessage,
    TurnResult,
    WorkerLost,
    is_called,
    is_remote,
)
from dragoman.runtime.lease import GuardedSteps
from dragoman.runtime.turn.context import NO_MESSAGE, RunContext, TurnServices
from dragoman.runtime.turn.events import Change
from dragoman.runtime.turn.finish import (
    CONTEXT_CHANGED,
    DRAINED,
    LEASE_LAPSED,
    OUTCOME_UNKNOWN,
    TURN_ABORTED,
    WORKER_LOST,
    Finish,
    FinishKind,
    Output,
    Stop,
    StopReason,
    agent_failure,
    decide,
    has_retries_left,
    system_status,
)
from dragoman.supervision import log_fault

log = logging.getLogger("dragoman.runtime")
turn_log = logging.getLogger("dragoman.turns")  # one line per turn, for people who develop agents

_LOGGED_FINISHES: Final = {
    FinishKind.RETRY: "RETRYING", FinishKind.REQUEUE: "REQUEUED", FinishKind.SUSPEND: "SLEEPING",
    FinishKind.NOTHING: "LOST",
}  # fmt: skip
"""How a turn ended that did not end its task."""


class Phase(Enum):
    """Where a run is. See the module's text.

    | from | to |
    |---|---|
    | PREPARING | RUNNING; FINISHING, if it never runs |
    | RUNNING | FINISHING; CLOSED, if the agent still runs |
    | FINISHING | RUNNING, with the next turn; CLOSED |
    | CLOSED | FINISHING, if the run failed |
    """

    PREPARING = "its asyncio task has not taken its first step"
    RUNNING = "its input is read, or its agent runs"
    FINISHING = "the end of a turn is decided and written"
    CLOSED = "it is over"


def lost_task() -> Unavailable:
    """The error for the sender of a task that is not visible yet and that another process may run or discard."""
    return Unavailable("this process lost the task; the request may still be done, so check before you repeat it")


class TurnRunner:
    """Runs one claimed task."""

    # Class attributes, because most runs never change these.
    phase = Phase.PREPARING
    task: asyncio.Task[None] | None = None  # the run, from its start by the scheduler to its end
    _end_task: asyncio.Task[None] | None = None
    _worker_lost: WorkerLost | None = None
    _begun = False  # whether the agent may have done anything in this turn

    def __init__(
        self, services: TurnServices, agent: Agent, appended: Appended, first: StoredMessage | None = None
    ) -> None:
        """The arguments are those of `RunContext`."""
        self.context = context = RunContext(services, agent, appended, first, self._on_limit_exceeded)
        self.stop, self.deadlines = context.stop, context.deadlines
        self._timings = services.options.timings
        self._log = services.event_log
        self._agent = agent
        self._loop = asyncio.get_running_loop()

    # For the scheduler ------------------------------------------------------------------------------------------

    @property
    def is_repeatable(self) -> bool:
        """Whether the turn starts again after an interruption, instead of ending as FAILED."""
        return has_retries_left(self.context.record, self._agent.spec.crash_retries)

    async def run(self) -> None:
        """Runs turn after turn, until the task ends, waits for its caller, or is lost."""
        context, timings = self.context, self._timings
        self.deadlines.after(
            timings.working_delay if context.record.visible else timings.direct_reply_timeout, self.show_working
        )
        self.deadlines.start()
        self.phase, stop = Phase.RUNNING, self.stop
        try:
            while await self._finish_turn(
                await self._run_agent()
                if stop.state is Stop.NONE or self._tells_server
                else TurnResult(self._stop_status())
            ):
                self._begin_next_turn()
        except AppendRejected as rejection:
            log.info("run stopped: %s", rejection.reason, extra=context.log_fields())
        except AgentStillRuns:
            log.warning(
                "the agent still runs; its task ends, or runs again, after this process", extra=context.log_fields()
            )
        except BaseException as error:
            if self._ends_run(error):
                raise
            if is_a(error, GeneratorExit):
                # A task that the agent awaits raised it: Python closes all who wait, so the agent's result is lost.
                await self.abort(agent_failure(error, context.record))
                return
            log_fault(log, "the end of a turn could not be written", error, **context.log_fields())
            await self.abort()
        finally:
            self.phase = Phase.CLOSED
            self.deadlines.stop(for_good=True)
            context.batch.close()
            self.task = None  # breaks the reference cycle, so the run is freed without the garbage collector
            if not context.first_response.done():  # another process discards the task, or repeats the turn
                context.fail_response(lost_task())
            if not context.turn_ended.done():
                context.turn_ended.set_result(False)

    def _ends_run(self, error: BaseException) -> bool:
        """Whether the process ends the run: cancels its task, or destroys it. Else the agent raised this error."""
        task = self.task
        if is_a(error, asyncio.CancelledError):
            return task is None or task.cancelling() > 0
        return is_a(error, GeneratorExit) and (task is None or asyncio.current_task(self._loop) is not task)

    @property
    def _tells_server(self) -> bool:
        """Whether a client has canceled a turn of an agent that calls another server: only that one can stop it."""
        return self.stop.reason == "client" and is_called(self._agent)

    async def abort(self, end: StatusChange | None = None) -> None:
        """Ends the task as FAILED without a result, trying again until the store takes that or rejects it."""
        self.phase, end = Phase.FINISHING, end or system_status(TURN_ABORTED, self.context.record)
        failures = 0
        while self.context.record.running:
            try:
                await self._write_end([end], NO_CHANGE)
            except AppendRejected:
                return
            except Exception as error:
                failures += 1
                log_fault(log, "a turn cannot be ended, trying again", error, **self.context.log_fields())
                await asyncio.sleep(self._timings.store_retry.delay(failures))

    # Stops ------------------------------------------------------------------------------------------------------

    def cancel(self, reason: StopReason = "client", metadata: bytes = b"") -> None:
        """Asks the agent to stop. CANCELED is written when it has; after `Timings.mute_timeout` its verbs fail.

        A task that exceeded a limit ends as FAILED by then, whatever its agent does. `metadata`: of the client's
        request, a serialized Struct.
        """
        if self.context.cancel_refusal and reason == "client":
            return
        if self.phase in (Phase.FINISHING, Phase.CLOSED):
            self.stop.note(reason)
        elif reason == "deadline" and self.stop.state is Stop.MUTED:
            self._end_without_agent(self.deadlines.end_status(self.context.record))
            if is_called(self._agent):  # else it would go on for as long as its server does
                self._interrupt()
        elif self.stop.request(reason, metadata):
            self.deadlines.after(self._timings.mute_timeout, self.mute)
            self._interrupt()

    def _on_limit_exceeded(self) -> None:
        if self.phase in (Phase.PREPARING, Phase.RUNNING):
            log.warning("a limit ends the turn: %s", self.deadlines.exceeded, extra=self.context.log_fields())
        self.cancel("deadline")

    def drain(self) -> None:
        """Stops the turn at the end of the drain: the task ends as FAILED or is released for a retry."""
        self.context.stopping = True
        if self.phase in (Phase.FINISHING, Phase.CLOSED):
            self.stop.note("drain")
        else:
            self.stop.request("drain")
            self._interrupt()

    def end_lapsed_lease(self) -> None:
        """Stops the turn if the process's lease has lapsed since it began: others may act for this process now."""
        if self._loses_lease():
            self._interrupt()

    def _loses_lease(self) -> bool:
        """Notes a lapse of the lease. True, once, if the agent has to be interrupted for it."""
        context = self.context
        if (
            context.hold is None
            or "lease_lost" in self.stop.requests
            or self.phase is Phase.FINISHING
            or not context.hold.lost
        ):
            return False
        log.warning("the lease of this process has lapsed; its turns stop", extra=context.log_fields())
        is_first_request = self.stop.request("lease_lost")
        if is_remote(self._agent):  # only its answer tells whether it has stopped
            return is_first_request or self._tells_server
        context.batch.close(LeaseLost("the lease of this process has lapsed"))
        return True

    def _interrupt(self) -> None:
        if self.phase is Phase.RUNNING and self.task is not None:
            self.task.cancel()

    def mute(self) -> None:
        """Rejects the output of a canceled agent that does not stop. A task that exceeded a limit ends without it."""
        if self.phase is not Phase.RUNNING:
            return
        text = "agent did not stop within %g s of a cancel; its verbs fail from now on"
        log.warning(text, self._timings.mute_timeout, extra=self.context.log_fields())
        if self.stop.reason != "client":
            self._end_without_agent(self._stop_status())
        elif "deadline" in self.stop.requests:
            self.stop.escalate()
            self.cancel("deadline")
        else:
            self.stop.escalate()
            if not is_remote(self._agent):  # which is told by its own process
                self.context.batch.close(LeaseLost("the task is being canceled"))

    def end_unconfirmed(self) -> None:
        """Ends a canceled task whose agent's server has not confirmed the cancel for too long."""
        if self.phase is Phase.RUNNING and self._tells_server:
            if self.stop.state is Stop.REQUESTED:
                self.stop.escalate()
            self._end_without_agent(system_status(OUTCOME_UNKNOWN, self.context.record))
            self._interrupt()

    def _end_without_agent(self, end: StatusChange) -> None:
        """Ends the task while its agent may run. The release makes the store reject every later write of this run."""
        if self._end_task is None:
            self.stop.escalate()
            self._end_task = asyncio.ensure_future(
                self._insist(self.context.build_append([end], NO_CHANGE, release=True))
            )
            self.context.batch.close(LeaseLost("the task has ended"))

    def _stop_status(self) -> StatusChange:
        """The final status of a run that stopped on request."""
        record = self.context.record
        if self.stop.reason == "deadline":
            return self.deadlines.end_status(record)
        if self.stop.reason == "drain":
            return system_status(DRAINED, record)
        lapsed = self.stop.reason == "lease_lost"
        return system_status(LEASE_LAPSED, record) if lapsed else StatusChange(states.CANCELED)

    # The turn ---------------------------------------------------------------------------------------------------

    async def _run_agent(self, *, may_repeat: bool = True) -> TurnResult:
        """Runs the agent. If it obeys a cancel the task ends as CANCELED; if it ignores it, its result counts."""
        context, turn = self.context, None
        try:
            if context.message is NO_MESSAGE or context.message.reference_task_ids:
                await self._log.retry_read(context.load_input, context.record.ref, context.guard, context.log_fields)
            turn = self._agent.take_turn(context)
            if context.hold is None:
                self._begun = True
                return await turn
            steps = GuardedSteps(turn, context.hold, self._loses_lease, self._agent)
            try:
                return await steps
            finally:
                self._begun = steps.begun
        except WorkerLost as lost:
            self._worker_lost, self._begun = lost, lost.may_have_started
            is_unconfirmed = self._begun and self._tells_server
            stopped = (self.stop.reason == "client" and not is_unconfirmed) or (
                self.stop.reason == "deadline" and not self._begun
            )
            return TurnResult(self._stop_status() if stopped else system_status(WORKER_LOST, context.record, str(lost)))
        except asyncio.CancelledError:
            if not self.stop.requested:
                raise
            if self.task is not None:
                self.task.uncancel()
            if not self._tells_server:
                return TurnResult(self._stop_status())
            if turn is None and may_repeat and self.stop.requests <= {"client"}:  # its input was being read
                return await self._run_agent(may_repeat=False)
            self._worker_lost, self._begun = WorkerLost(), True
            return TurnResult(system_status(WORKER_LOST, context.record))
        except Exception as error:
            if is_a(error, AgentStillRuns) or not context.batch.failed:
                raise
            log_fault(log, "an agent failed after its output could not be stored", error, **context.log_fields())
            return TurnResult(self._stop_status())  # the failure of the output decides how the turn ends

    def _begin_next_turn(self) -> None:
        self.phase, self._begun = Phase.RUNNING, False
        while self.task is not None and self.task.cancelling():
            self.task.uncancel()
        self.context.begin_next_turn()

    async def _finish_turn(self, result: TurnResult) -> bool:
        """Writes the end of the turn. True when unread messages require another turn."""
        context = self.context
        self.phase = Phase.FINISHING
        self.deadlines.after(self._timings.store_wait, context.release_callers)
        if context.usage_tracker is not None:
            await context.usage_tracker.flush()
        try:
            output = Output(*await context.batch.take_pending())
        except Exception as error:
            output = Output(failure=error)
            if not isinstance(error, LeaseLost | AppendRejected):
                log.warning("the output of a turn is not stored: %s", describe(error), extra=context.log_fields())
        finish = self._decide(result, output)
        if finish.kind is FinishKind.REPLY:
            try:
                await self._write_reply(finish)
                self._log_turn("REPLIED")
                return False
            except Exception as error:
                finish = self._decide(result, Output(failure=error))
        if finish.kind is not FinishKind.END:
            await self._finish_without_end(finish)
            self._log_turn("" if self._end_task else _LOGGED_FINISHES[finish.kind])
            return False
        changes, state_update = list(finish.changes), finish.state_update
        if finish.error is not None:
            finish.error.metadata["task"] = context.record.id
            context.response_error = finish.error
        if context.attempt > 1:
            changes = [context.replace_on_retry(change) for change in changes]
        if context.transitions is not None:
            changes = context.transitions.check_end(changes, context.record)
        try:
            appended = await self._write_end(changes, state_update)
        except AppendRejected as rejection:
            if rejection.reason != CHANGED:
                raise
            # Another task wrote the conversation's state first; this one must not overwrite it.
            changes = [*changes[:-1], system_status(CONTEXT_CHANGED, context.record)]
            appended = await self._write_end(changes, replace(state_update, context_state=None))
        self._log_turn()
        return appended.turn_continues

    def _log_turn(self, end: str = "") -> None:
        """Writes the line of a turn. `end`: how it ended, if not with the task's state."""
        if not turn_log.isEnabledFor(logging.INFO):  # in production: the check costs 0.1 us
            return
        record, ms = self.context.record, self.deadlines.elapsed * 1000
        end = end or states.short_name(record.state)
        fields: dict[str, str | float] = {**self.context.log_fields(), "state": end, "ms": round(ms, 1)}
        if record.status_text:
            fields["text"] = record.status_text.partition("\n")[0]
        turn_log.info("%s", turn_line(fields), extra=fields)

    async def _finish_without_end(self, finish: Finish) -> None:
        """Releases the turn for another attempt, or waits for the end written without its agent."""
        if finish.kind in (FinishKind.RETRY, FinishKind.REQUEUE, FinishKind.SUSPEND):
            retry = finish.kind is FinishKind.RETRY
            append = self.context.build_append(finish.changes, finish.state_update)
            append = replace(append, last_delivered=0, retry=retry, suspend=not retry, wake_at=finish.wake_at)
            await self._insist(replace(append, turn_us=self.deadlines.elapsed_us))
        elif self._end_task is not None:
            await self._end_task

    def _decide(self, result: TurnResult, output: Output) -> Finish:
        record, retries, lost = self.context.record, self._agent.spec.crash_retries, self._worker_lost
        if self.stop.reason and self._tells_server:  # its cancel is repeated for a time, not a number of attempts
            retries = sys.maxsize
        return decide(result, output, self.stop, self._stop_status, lost, record, retries, begun=self._begun)

    # Writes -----------------------------------------------------------------------------------------------------

    def _write_end(self, changes: Sequence[Change], state_update: StateUpdate) -> Coroutine[Any, Any, Appended]:
        change = self.context.build_append(changes, state_update, release=True)
        return self._log.insist(change, self.context.on_committed, self.context.log_fields)

    async def _write_reply(self, finish: Finish) -> None:
        """Replaces the task by a Message, which ends the run."""
        context = self.context
        assert finish.reply is not None
        reply = finish.reply.SerializeToString()
        turn_us = self.deadlines.elapsed_us
        change = Append(task=context.record.ref, guard=context.guard, discard=True, reply=reply, turn_us=turn_us)
        await self._log.insist(change, lambda _: None, context.log_fields)
        if not context.first_response.done():
            context.first_response.set_result(finish.reply)

    async def _insist(self, change: Append) -> None:
        """Ends or releases the turn as soon as the store is available."""
        try:
            await self._log.insist(change, self.context.on_committed, self.context.log_fields)
        except Exception as error:
            is_fault, fields = not isinstance(error, AppendRejected), self.context.log_fields()
            log.info("run stopped: %s", describe(error), exc_info=is_fault, extra=fields)

    def show_working(self) -> None:
        """Writes WORKING for an agent that has put nothing yet."""
        if (
            self.context.record.state == states.SUBMITTED
            and self.phase in (Phase.PREPARING, Phase.RUNNING)
            and not (self.context.batch.busy or self.context.batch.failed)
        ):
            self.context.batch.put(StatusChange(states.WORKING))


def turn_line(fields: Mapping[str, str | float]) -> str:
    """`echo 01a2fb2a-91a1… COMPLETED 11 ms`. The 48 bits of the id that are shown are its time, in milliseconds."""
    seconds = float(fields["ms"]) / 1000
    took = f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.0f} ms"
    line = f"{fields['agent']} {str(fields['task'])[:13]}… {fields['state']} {took}"
    return f"{line}: {fields['text']}" if "text" in fields else line
