"""Runs one claimed task, turn after turn, until the task ends, waits or is lost.

One asyncio task per run. Events of the agent go through an open batch; the end of a turn (last artifacts, status,
release of the claim) is one append. Every write is guarded by the claim, so the store rejects writes of a run that lost
its task to a cancel or to another session, and the run stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.core.errors import A2AError, Unavailable
from dragoman.core.limits.quotas import NO_USAGE, TaskBudget, Usage, UsageReport
from dragoman.core.task import states
from dragoman.core.task.log import (
    CHANGED,
    Append,
    Appended,
    AppendRejected,
    ArtifactChange,
    ClaimHeld,
    ContextState,
    Event,
    StatusChange,
    TaskRecord,
)
from dragoman.core.task.projection import merge_metadata
from dragoman.ports import (
    NO_CHANGE,
    Agent,
    AgentStillRuns,
    LeaseLost,
    RemoteAgent,
    StateUpdate,
    Store,
    StoredMessage,
    TurnResult,
    WorkerLost,
)
from dragoman.runtime.lease import GuardedSteps, LeaseHold
from dragoman.runtime.log import STORE_RETRY_BACKOFF, EventLog
from dragoman.runtime.turn.events import NO_COALESCING, Change, Coalesce, EventBatch, TaskProjection, with_metadata
from dragoman.runtime.turn.input import NO_MESSAGE, ReferenceResolver
from dragoman.runtime.turn.limits import STORE_WAIT_SECONDS, TurnDeadlines, UsageTracker, call_on_loop
from dragoman.runtime.turn.status import (
    CONTEXT_CHANGED,
    NOT_WRITTEN,
    TURN_ABORTED,
    WORKER_LOST,
    TransitionChecker,
    retry_status,
    system_status,
)
from dragoman.runtime.turn.stop import StoppableTurn
from dragoman.supervision import log_fault
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.runtime")

WORKING_DELAY: Final = 0.05
"""Seconds until a silent run shows WORKING; a shorter one goes straight to its final state."""

DIRECT_REPLY_TIMEOUT: Final = 2.0
"""Seconds that a `direct` agent may take before its task becomes visible."""


class TurnRunner(StoppableTurn):
    """Runs one claimed task. Implements `dragoman.ports.TurnContext` for its agent."""

    # Class attributes: see StoppableTurn.
    _worker_lost: WorkerLost | None = None
    budget = TaskBudget()
    usage_tracker: UsageTracker | None = None
    end_is_late = False
    """Whether the turn has ended, and the store does not take its end now."""
    _metadata_set = b""
    """Task metadata that this turn has set, repeated in the event that ends it."""

    def __init__(
        self,
        event_log: EventLog,
        store: Store,
        agent: Agent,
        record: TaskRecord,
        reference_resolver: ReferenceResolver,
        *,
        first: Sequence[Event] = (),
        strict: bool = False,
        coalesce: Coalesce = NO_COALESCING,
        hold: LeaseHold | None = None,
    ) -> None:
        """`first`: for a new task, the events of the append that created and claimed it. `hold`: the process's lease;
        None if no other process may act for this one."""
        assert record.running, "a run begins with a claim"
        self.record = record
        loop = asyncio.get_running_loop()
        self.first_response: asyncio.Future[pb.Message | None] = loop.create_future()
        """Done when the task is visible (None), or with the Message or the error that replaces it."""
        self._response_error: A2AError | None = None
        self.turn_ended: asyncio.Future[bool] = loop.create_future()
        """Done when the turn has ended on disk: True if `record` and `projection` are the final task."""
        self.projection = TaskProjection(first)
        self._log = event_log
        self._store = store
        self._agent = agent
        self._reference_resolver = reference_resolver
        self._transitions = TransitionChecker(record.state) if strict else None
        self._guard = ClaimHeld(record.session, record.token)
        self._hold = hold
        self._batch = EventBatch(self._send, coalesce)
        self._message_arrived = asyncio.Event()
        self._history: list[pb.Message] = []
        self._written_artifacts: set[str] = set()
        self._last_delivered = record.last_delivered
        self.deadlines = TurnDeadlines(agent.spec, lambda: self.cancel("deadline"))
        self.principal = record.principal
        self.attempt = record.attempt
        if record.visible:
            self.first_response.set_result(None)

    # For the scheduler ------------------------------------------------------------------------------------------

    def begin(
        self, message: StoredMessage, spawn: Callable[[TurnRunner], asyncio.Task[None]], *, fresh_context: bool = False
    ) -> None:
        """Starts on the first message of a new task. Nothing is read from the store for a new conversation."""
        self._set_message(message)
        self._fresh_context = fresh_context
        self._task = spawn(self)

    def resume(self, spawn: Callable[[TurnRunner], asyncio.Task[None]]) -> None:
        """Starts on an existing task. The run reads its input first."""
        self._task = spawn(self)

    async def run(self) -> None:
        """Runs turn after turn, until the task ends, waits for its caller, or is lost."""
        self.deadlines.after(WORKING_DELAY if self.record.visible else DIRECT_REPLY_TIMEOUT, self._show_working)
        self.deadlines.start()
        self._started, stop_at_once = True, self.canceled
        try:
            while await self._finish_turn(TurnResult(self._stop_status()) if stop_at_once else await self._run_agent()):
                stop_at_once = self._prepare_next_turn()
        except AppendRejected as rejection:
            log.info("run stopped: %s", rejection.reason, extra=self._log_fields())
        except AgentStillRuns:
            log.warning(
                "the agent of a canceled task still runs; the task ends after this process", extra=self._log_fields()
            )
        except Exception as error:
            log_fault(log, "the end of a turn could not be written", error, **self._log_fields())
            await self.abort()
        finally:
            self.deadlines.close()
            self._batch.close()
            self._task = None  # breaks the reference cycle, so the run is freed without the garbage collector
            if not self.first_response.done():
                self.first_response.set_result(None)
            if not self.turn_ended.done():
                self.turn_ended.set_result(False)

    async def abort(self) -> None:
        """Ends the task as FAILED without a result, trying again until the store takes that or rejects it."""
        self._finishing, failures = True, 0
        while self.record.running:
            try:
                end = self._build_append([system_status(TURN_ABORTED, self.record)], NO_CHANGE, release=True)
                await self._log.insist(end, self._on_committed, self._log_fields)
            except AppendRejected:
                return
            except Exception as error:
                failures += 1
                log_fault(log, "a turn cannot be ended, trying again", error, **self._log_fields())
                await asyncio.sleep(STORE_RETRY_BACKOFF.delay(failures))

    def notify_message(self) -> None:
        """Wakes the agent for a message that arrived for this task."""
        self._message_arrived.set()

    # For the agent (dragoman.ports.TurnContext); reads are in ReadableTurn --------------------------------------

    def put(self, change: Change, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        if self._hold is not None and self._hold.lost and not isinstance(self._agent, RemoteAgent):
            raise LeaseLost("the lease of this process has lapsed")
        self.deadlines.record_activity()
        if self._transitions is not None:
            self._transitions.check(change)
        if isinstance(change, ArtifactChange):
            change = self._replace_on_retry(change)
        accepted = self._batch.put(change, state_update)
        if state_update.task_metadata:
            self.task_metadata = merge_metadata(self.task_metadata, state_update.task_metadata)
        return accepted

    def _replace_on_retry(self, change: ArtifactChange) -> ArtifactChange:
        """In a repeated turn, the first write to an artifact replaces the content of the dead attempt."""
        first = change.artifact_id not in self._written_artifacts
        self._written_artifacts.add(change.artifact_id)
        return replace(change, append=False) if self.attempt > 1 and first and change.append else change

    async def flush(self) -> None:
        await self._batch.flush()

    def report_usage(self, report: UsageReport) -> None:
        call_on_loop(self.turn_ended.get_loop(), self._record_usage, report)

    def _record_usage(self, report: UsageReport) -> None:
        self.usage_tracker = self.usage_tracker or self._new_usage_tracker()
        self.usage_tracker.add(report)

    def _new_usage_tracker(self, initial: Usage = NO_USAGE) -> UsageTracker:
        return UsageTracker(self._log, self.record.ref, self._guard, self.budget, self.deadlines.exceed_budget, initial)

    # The turn ---------------------------------------------------------------------------------------------------

    async def _run_agent(self) -> TurnResult:
        """Runs the agent. If it obeys a cancel the task ends as CANCELED; if it ignores it, its result counts."""
        try:
            if not self._fresh_context or self.message.reference_task_ids:
                await self._log.retry_read(self._load_input, self.record.ref, self._guard, self._log_fields)
            self._fresh_context = False
            turn = self._agent.take_turn(self)
            result = await (turn if self._hold is None else GuardedSteps(turn, self._loses_lease))
        except WorkerLost as lost:
            self._worker_lost = lost
            by_client = self._stop_reason == "client"
            result = TurnResult(
                self._stop_status() if by_client else system_status(WORKER_LOST, self.record, str(lost))
            )
        except asyncio.CancelledError:
            if not self.canceled:
                raise
            if self._task is not None:
                self._task.uncancel()
            return TurnResult(self._stop_status())
        self._finishing = True
        return result

    def _prepare_next_turn(self) -> bool:
        """Resets per-turn state for the next turn. True when the turn must end at once."""
        while self._task is not None and self._task.cancelling():
            self._task.uncancel()
        self.canceled, self._stop_reason = self._drained, "drain" if self._drained else ""
        self.message, self.references, self.attempt = NO_MESSAGE, (), self.record.attempt
        self._metadata_set = self.cancel_metadata = b""
        self._transitions = self._transitions and TransitionChecker(self.record.state)
        self.deadlines.stop()
        self.deadlines.start()
        if self.usage_tracker is not None:
            self.usage_tracker.begin_turn()
        return self._drained

    async def _finish_turn(self, result: TurnResult) -> bool:
        """Writes the end of the turn. True when unread messages require another turn."""
        self._finishing = True
        self.deadlines.after(STORE_WAIT_SECONDS, self._release_callers)
        if self.usage_tracker is not None:
            await self.usage_tracker.flush()
        try:
            if result.reply is not None and await self._reply_with_message(result.reply):
                return False
            pending, state_update = await self._batch.take_pending()
            changes = self._with_working(pending)
        except LeaseLost:
            if self._fence_task is not None:
                await self._fence_task
                return False
            changes, state_update, result = [], NO_CHANGE, TurnResult(self._stop_status())
        except AppendRejected as rejection:
            if rejection.reason != CHANGED:
                return False
            # This run still holds the task; only its write of the conversation's state was too late.
            changes, state_update = [], NO_CHANGE
            result = TurnResult(system_status(CONTEXT_CHANGED, self.record))
        except Exception as error:
            changes, state_update = [], NO_CHANGE
            result = TurnResult(system_status(NOT_WRITTEN, self.record, str(error)))
        interrupted = self._worker_lost is not None or self._stop_reason in ("drain", "fenced")
        not_started = self._worker_lost is not None and not self._worker_lost.may_have_started
        may_retry = not_started or self.attempt <= self._agent.spec.retries
        if interrupted and may_retry and result.status.state == states.FAILED:
            await self._give_back(changes, state_update)
            return False
        if result.error is not None and not (changes or self.record.visible):
            result.error.metadata["task"] = self.record.id
            self._response_error = result.error
        changes += [*map(self._replace_on_retry, result.artifacts), result.status]
        state_update = state_update.merged_with(result.state_update)
        if self._transitions is not None:
            changes = self._transitions.check_end(changes, self.record)
        try:
            appended = await self._write_end(changes, state_update)
        except AppendRejected as rejection:
            if rejection.reason != CHANGED:
                raise
            # Another task wrote the conversation's state first; this one must not overwrite it.
            events = [*changes[:-1], system_status(CONTEXT_CHANGED, self.record)]
            appended = await self._write_end(events, replace(state_update, context_state=None))
        self._finishing = not appended.turn_continues
        return appended.turn_continues

    async def _write_end(self, changes: list[Change], state_update: StateUpdate) -> Appended:
        change = self._build_append(changes, state_update, release=True)
        return await self._log.insist(change, self._on_committed, self._log_fields)

    async def _give_back(self, changes: list[Change], state_update: StateUpdate) -> None:
        """Releases the turn, to be repeated by another process."""
        if self.record.visible:
            changes = [*changes, retry_status(self.attempt + 1)]
        # Without the conversation's state, which might be rejected: the next attempt writes it.
        await self._insist(
            replace(
                self._build_append(changes, replace(state_update, context_state=None)), last_delivered=0, retry=True
            )
        )

    async def _insist(self, change: Append) -> None:
        """Ends or releases the turn as soon as the store is available."""
        try:
            await self._log.insist(change, self._on_committed, self._log_fields)
        except Exception as error:
            log.info("run stopped: %s", error, exc_info=not isinstance(error, AppendRejected), extra=self._log_fields())

    async def _reply_with_message(self, message: pb.Message) -> bool:
        """Replaces the task by a Message, if the task is not visible yet. True when that was written."""
        if self.record.visible:
            return False
        changes, _ = await self._batch.take_pending()
        if changes or self.record.visible:
            for change in changes:
                self._batch.put(change)
            return False
        await self._log.append(
            Append(task=self.record.ref, guard=self._guard, discard=True, reply=message.SerializeToString())
        )
        if not self.first_response.done():
            self.first_response.set_result(message)
        return True

    def _build_append(self, changes: list[Change], state_update: StateUpdate, *, release: bool = False) -> Append:
        context = None
        if state_update.context_state is not None:
            context = self._context = ContextState(state_update.context_state, self._context.version + 1)
        if state_update.task_metadata:
            self.projection.clear()  # metadata is part of the task and of no event, so the task has to be read
            self._metadata_set = merge_metadata(self._metadata_set, state_update.task_metadata)
        if release:
            usage = self.usage_tracker.metadata if self.usage_tracker is not None else b""
            changes = with_metadata(changes, merge_metadata(self._metadata_set, usage))
        return Append(
            task=self.record.ref,
            guard=self._guard,
            events=changes,
            task_state=state_update.task_state,
            task_metadata=state_update.task_metadata,
            context_state=context,
            last_delivered=self._last_delivered,
            release=release,
        )

    def _send(self, changes: list[Change], state_update: StateUpdate) -> asyncio.Future[Appended]:
        return self._log.append(self._build_append(self._with_working(changes), state_update), self._on_committed)

    def _with_working(self, changes: list[Change]) -> list[Change]:
        """Writes WORKING before the first event of a run that has not written it itself."""
        if changes and self.record.state == states.SUBMITTED and not isinstance(changes[0], StatusChange):
            return [StatusChange(states.WORKING), *changes]
        return changes

    def _on_committed(self, appended: Appended | None) -> None:
        if appended is None:
            return
        self.record = appended.record
        self.projection.add(appended.events)
        if not self.first_response.done():
            if self._response_error is None:
                self.first_response.set_result(None)
            else:
                self._fail_response(self._response_error)
        # `ready`: released, to be repeated. Usage is part of the task and of no event, so it has to be read.
        if not (self.record.has_open_turn or self.turn_ended.done()):
            self.turn_ended.set_result(self.usage_tracker is None)

    def _fail_response(self, error: A2AError) -> None:
        self.first_response.set_exception(error)
        self.first_response.exception()  # nobody may wait for it any more

    def _release_callers(self) -> None:
        """Lets callers go whose turn has ended, but is not written yet: the store does not respond."""
        if not self.turn_ended.done():
            self.end_is_late = True
            self.turn_ended.set_result(False)
        if not self.first_response.done():
            text = "the store does not respond; this request may still be done, so check before you repeat it"
            self._fail_response(Unavailable(text))

    def _show_working(self) -> None:
        if self.record.state == states.SUBMITTED and not self._finishing and not self._batch.busy:
            self._batch.put(StatusChange(states.WORKING))

    async def _load_input(self) -> None:
        """Reads the input of the turn. A repeated call after a failed read keeps what was read."""
        ref = self.record.ref
        # An upstream agent has to be told, which `cancel` does.
        upstream = isinstance(self._agent, RemoteAgent) and not self._agent.is_worker_backed
        repeated = self.attempt > 1 and not upstream
        if (self._client_canceled or repeated) and (requests := await self._store.cancel_requests.pending([ref])):
            self.canceled, self._stop_reason, self.cancel_metadata = True, "client", requests[ref]
            raise asyncio.CancelledError("the message arrived before the cancel")
        if self.message is NO_MESSAGE:
            usage = await self._load_message()
            if self.usage_tracker is None and usage:
                self.usage_tracker = self._new_usage_tracker(usage)
        await self._load_context()
