"""One run of one task: an agent at its desk, until the turn has ended on disk.

One asyncio task per run. The agent's verbs go through an open batch; what ends the turn (last artifacts, status,
release of the claim) is one append. Every write carries the claim, so a run that lost its task, to a cancel or
to another session, is refused by the store and stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.core.limits.quotas import NO_USAGE, TaskBudget, Usage, UsageReport
from dragoman.core.names import Owner, task_id_of
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
from dragoman.ports import NO_CHANGE, Agent, LeaseLost, StateUpdate, Store, StoredMessage, TurnResult, WorkerLost
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.events import NO_COALESCING, Change, Coalesce, EventBatch, TaskProjection
from dragoman.runtime.turn.input import ReferenceResolver, load_turn_input
from dragoman.runtime.turn.limits import TurnDeadlines, UsageTracker, call_on_loop
from dragoman.runtime.turn.status import (
    CONTEXT_CHANGED,
    DRAINED,
    FENCED_OFF,
    NOT_WRITTEN,
    TURN_ABORTED,
    WORKER_LOST,
    TransitionChecker,
    retry_status,
    system_status,
)
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.runtime")

WORKING_DELAY: Final = 0.05
"""Seconds after which a silent run is shown as WORKING; one that ends sooner goes straight to its end."""

DIRECT_REPLY_TIMEOUT: Final = 2.0
"""Seconds that a `direct` agent may think before its task is shown anyway."""

FENCE_TIMEOUT: Final = 10.0
"""Seconds a cancelled agent has to stop before its task ends without it."""

NO_MESSAGE: Final = pb.Message()
"""In the place of a message that has not been read yet."""


class TurnRunner:
    """Drives one claimed task. Implements `dragoman.ports.Desk` for its agent."""

    # What most runs never change stays here: an object of 30 attributes or more has a dictionary of its own kind,
    # and is made in twice the time.
    message: pb.Message = NO_MESSAGE
    envelope: pb.SendMessageRequest = pb.SendMessageRequest()
    question: pb.Message | None = None
    task_state = stored_envelope = b""
    previous_artifacts: Sequence[pb.Artifact] = ()
    references: Sequence[pb.Task] = ()
    waiting_messages = 0
    cancelled = stopping = False
    cancel_refusal = ""
    """Why the agent does not let itself be canceled; empty while it does."""
    _context = ContextState()
    _fresh_context = False
    _task: asyncio.Task[None] | None = None
    _started = False  # its asyncio task has taken its first step: cancelled before that, it never would
    _finishing = False
    _stop_reason = ""
    _fence_task: asyncio.Task[None] | None = None
    _client_canceled = False  # a client asked for its end: in the store stands up to which message
    _drained = False
    _worker_lost: WorkerLost | None = None
    budget = TaskBudget()
    usage_tracker: UsageTracker | None = None

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
    ) -> None:
        """`first`: the events of the append that made the task and claimed it, for a task that is new."""
        assert record.running, "a run begins with a claim"
        self.record = record
        loop = asyncio.get_running_loop()
        self.first_response: asyncio.Future[pb.Message | None] = loop.create_future()
        """Done when the task is seen (None), or with the Message that came instead of it."""
        self.turn_ended: asyncio.Future[bool] = loop.create_future()
        """Done when the turn has ended on disk: whether by this run, so that `head` and `shown` are the
        task.
        """
        self.projection = TaskProjection(first)
        self._log = event_log
        self._store = store
        self._agent = agent
        self._reference_resolver = reference_resolver
        self._transitions = TransitionChecker(record.state) if strict else None
        self._guard = ClaimHeld(record.session, record.token)
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

    # What the dispatcher asks -----------------------------------------------------------------------------------

    def begin(
        self, message: StoredMessage, spawn: Callable[[TurnRunner], asyncio.Task[None]], *, fresh_context: bool = False
    ) -> None:
        """Starts on the first message of a new task, which nothing need be read for; nor for a new conversation."""
        self._set_message(message)
        self._fresh_context = fresh_context
        self._task = spawn(self)

    def resume(self, spawn: Callable[[TurnRunner], asyncio.Task[None]]) -> None:
        """Starts on a task that has a past; the run reads it first."""
        self._task = spawn(self)

    async def run(self) -> None:
        """Turn after turn, until the task ends, waits for its caller, or is lost."""
        self.deadlines.after(WORKING_DELAY if self.record.visible else DIRECT_REPLY_TIMEOUT, self._show_working)
        self.deadlines.start()
        self._started, early = True, self.cancelled
        try:
            while await self._finish_turn(TurnResult(self._stop_status()) if early else await self._run_agent()):
                early = self._prepare_next_turn()
        except AppendRejected as refused:
            log.info("run stopped: %s", refused.reason, extra=self._log_fields())
        except Exception:
            log.exception("a run could not be ended in the store", extra=self._log_fields())
            self._finishing = True
            await self._insist(self._build_append([system_status(TURN_ABORTED)], NO_CHANGE, release=True))
        finally:
            self.deadlines.close()
            self._batch.close()
            self._task = None  # nothing of a run that is over leads back to it: it need not wait to be collected
            if not self.first_response.done():
                self.first_response.set_result(None)
            if not self.turn_ended.done():
                self.turn_ended.set_result(False)

    def cancel(self, reason: str = "client") -> None:
        """Asks the agent to stop, and ends the task without it when it does not."""
        if self.cancel_refusal and reason == "client":
            return
        self._client_canceled = self._client_canceled or reason == "client"
        if self.cancelled or self._finishing:
            return
        self.cancelled, self._stop_reason = True, reason
        self.deadlines.after(FENCE_TIMEOUT, self._fence)
        self._interrupt()

    def drain(self) -> None:
        """The server's patience is over: ends the task as FAILED, or leaves its turn to be begun again elsewhere."""
        self._drained = True
        if not self._finishing and self._task is not None and not self._task.done():
            self.cancelled, self._stop_reason = True, self._stop_reason or "drain"
            self._interrupt()

    def _interrupt(self) -> None:
        if self._task is not None and self._started:
            self._task.cancel()

    def announce_stop(self) -> None:
        """The server's patience is almost over."""
        self.stopping = True

    def notify_message(self) -> None:
        """A message arrived for this task."""
        self._message_arrived.set()

    # What the agent asks (dragoman.ports.Desk) ------------------------------------------------------------------

    @property
    def task_id(self) -> str:
        return self.record.id

    @property
    def context_id(self) -> str:
        return self.record.context

    @property
    def owner(self) -> Owner:
        return self.record.ref.owner

    @property
    def history(self) -> Sequence[pb.Message]:
        return self._history

    @property
    def context_state(self) -> bytes:
        return self._context.data

    @property
    def cancel_reason(self) -> str:
        return self._stop_reason

    def refuse_cancel(self, reason: str) -> None:
        self.cancel_refusal = reason

    def put(self, change: Change, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        self.deadlines.record_activity()
        if self._transitions is not None:
            self._transitions.check(change)
        if isinstance(change, ArtifactChange):
            change = self._replace_on_retry(change)
        return self._batch.put(change, state_update)

    def _replace_on_retry(self, change: ArtifactChange) -> ArtifactChange:
        """The first write of a second attempt to an artifact replaces what the dead one left of it."""
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

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            self._message_arrived.clear()
            for stored in await self._log.read(self._unread_messages, self.record.ref, self._guard, self._log_fields):
                self._last_delivered = stored.number
                message = pb.Message.FromString(stored.message)
                self._history.append(message)
                yield message, pb.SendMessageRequest.FromString(stored.envelope)
            await self._message_arrived.wait()

    # The turn ---------------------------------------------------------------------------------------------------

    async def _run_agent(self) -> TurnResult:
        """Runs the agent. A cancel that it obeys becomes CANCELED; one that it ignores is overtaken by its result."""
        try:
            if not self._fresh_context or self.message.reference_task_ids:
                await self._log.read(self._load_input, self.record.ref, self._guard, self._log_fields)
            self._fresh_context = False
            ending = await self._agent.take_turn(self)
        except WorkerLost as lost:
            self._worker_lost = lost
            ending = TurnResult(
                self._stop_status() if self._stop_reason == "client" else system_status(WORKER_LOST, str(lost))
            )
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
            if self._task is not None:
                self._task.uncancel()
            return TurnResult(self._stop_status())
        self._finishing = True
        return ending

    def _prepare_next_turn(self) -> bool:
        """Makes ready for the task's next turn, of which nothing was asked yet. True when it is not to begin."""
        while self._task is not None and self._task.cancelling():
            self._task.uncancel()
        self.cancelled, self._stop_reason = self._drained, "drain" if self._drained else ""
        self.message, self.references, self.attempt = NO_MESSAGE, (), self.record.attempt
        self._transitions = self._transitions and TransitionChecker(self.record.state)
        self.deadlines.stop()
        self.deadlines.start()
        if self.usage_tracker is not None:
            self.usage_tracker.begin_turn()
        return self._drained

    async def _finish_turn(self, result: TurnResult) -> bool:
        """Writes the end of the turn. True when unread messages keep the task going."""
        self._finishing = True
        if self.usage_tracker is not None:
            await self.usage_tracker.flush()
        try:
            if result.reply is not None and await self._reply_with_message(result.reply):
                return False
            put, notes = await self._batch.take_pending()
            changes = self._with_working(put)
        except LeaseLost:
            if self._fence_task is not None:
                await self._fence_task
            return False
        except AppendRejected as refused:
            if refused.reason != CHANGED:
                return False
            # The task is still this run's: only what a verb wrote of the conversation came too late.
            changes, notes = [], NO_CHANGE
            result = TurnResult(system_status(CONTEXT_CHANGED))
        except Exception as error:
            changes, notes = [], NO_CHANGE
            result = TurnResult(system_status(NOT_WRITTEN, str(error)))
        given_up = self._worker_lost is not None or self._stop_reason == "drain"
        free = self._worker_lost is not None and not self._worker_lost.may_have_started
        if given_up and (free or self.attempt <= self._agent.spec.retries) and result.status.state == states.FAILED:
            await self._give_back(changes, notes)
            return False
        changes += [*map(self._replace_on_retry, result.artifacts), result.status]
        notes = notes.merged_with(result.state_update)
        if self._transitions is not None:
            changes = self._transitions.check_end(changes, current_state=self.record.state)
        write = self._log.insist
        try:
            appended = await write(
                self._build_append(changes, notes, release=True), self._on_committed, self._log_fields
            )
        except AppendRejected as refused:
            if refused.reason != CHANGED:
                raise
            # Another task of the conversation was faster; what this one would undo is not its to undo.
            lost = [*changes[:-1], system_status(CONTEXT_CHANGED)]
            appended = await write(
                self._build_append(lost, StateUpdate(notes.task_state), release=True),
                self._on_committed,
                self._log_fields,
            )
        self._finishing = not appended.turn_continues
        return appended.turn_continues

    async def _give_back(self, changes: list[Change], state_update: StateUpdate) -> None:
        """Gives the turn back, to be begun again by another process."""
        if self.record.visible:
            changes = [*changes, retry_status(self.attempt + 1)]
        # Of the conversation it says nothing, which might be refused: whoever begins again will.
        await self._insist(
            replace(self._build_append(changes, StateUpdate(state_update.task_state)), last_delivered=0, retry=True)
        )

    async def _insist(self, change: Append) -> None:
        """Ends the turn, or gives it back, as soon as the store can."""
        try:
            await self._log.insist(change, self._on_committed, self._log_fields)
        except Exception as error:
            log.info("run stopped: %s", error, exc_info=not isinstance(error, AppendRejected), extra=self._log_fields())

    def _stop_status(self) -> StatusChange:
        """How a run ends that was asked to stop and did."""
        if self._stop_reason == "deadline":
            return self.deadlines.end_status()
        return system_status(DRAINED) if self._stop_reason == "drain" else StatusChange(states.CANCELED)

    async def _reply_with_message(self, message: pb.Message) -> bool:
        """Answers with a Message instead of a task, if nobody has seen the task. Takes it away then."""
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
        self.first_response.set_result(message)
        return True

    def _build_append(self, changes: list[Change], state_update: StateUpdate, *, release: bool = False) -> Append:
        context = None
        if state_update.context_state is not None:
            context = self._context = ContextState(state_update.context_state, self._context.version + 1)
        if release and self.usage_tracker is not None:
            changes = self.usage_tracker.with_usage(changes)
        return Append(
            task=self.record.ref,
            guard=self._guard,
            events=changes,
            task_state=state_update.task_state,
            context_state=context,
            last_delivered=self._last_delivered,
            release=release,
        )

    def _send(self, changes: list[Change], state_update: StateUpdate) -> asyncio.Future[Appended]:
        return self._log.append(self._build_append(self._with_working(changes), state_update), self._on_committed)

    def _with_working(self, changes: list[Change]) -> list[Change]:
        """Writes WORKING with the first verb of a run that has not said it itself."""
        if changes and self.record.state == states.SUBMITTED and not isinstance(changes[0], StatusChange):
            return [StatusChange(states.WORKING), *changes]
        return changes

    def _on_committed(self, appended: Appended | None) -> None:
        if appended is None:
            return
        self.record = appended.record
        self.projection.add(appended.events)
        if not self.first_response.done():
            self.first_response.set_result(None)
        if not (
            self.record.running or self.record.ready or self.turn_ended.done()
        ):  # `ready`: given back, to be begun again
            self.turn_ended.set_result(
                self.usage_tracker is None
            )  # what a task used stands in no event, but in the task

    def _show_working(self) -> None:
        if self.record.state == states.SUBMITTED and not self._finishing and not self._batch.busy:
            self._batch.put(StatusChange(states.WORKING))

    def _fence(self) -> None:
        """Ends a task whose agent does not stop. The release makes every later write of this run too late."""
        if self._finishing or self._task is None or self._task.done():
            return
        end = system_status(FENCED_OFF) if self._stop_reason == "client" else self._stop_status()
        self._stop_reason = "fenced"
        log.warning("agent did not stop within %g s of a cancel; fenced", FENCE_TIMEOUT, extra=self._log_fields())
        self._fence_task = asyncio.ensure_future(self._insist(self._build_append([end], NO_CHANGE, release=True)))
        self._batch.close(LeaseLost("the task was canceled"))

    # The messages -----------------------------------------------------------------------------------------------

    def _set_message(self, stored: StoredMessage) -> None:
        self._last_delivered = stored.number
        self.principal = stored.sender or self.record.ref.owner.principal
        self.message = pb.Message.FromString(stored.message)
        self.stored_envelope, self.envelope = stored.envelope, pb.SendMessageRequest.FromString(stored.envelope)

    async def _load_input(self) -> None:
        """Reads what the turn begins with; what is there already when that breaks off is not read again."""
        if self._client_canceled and self.record.ref in await self._store.cancel_requests.pending([self.record.ref]):
            self.cancelled, self._stop_reason = True, "client"
            raise asyncio.CancelledError("this message had come before the cancel")
        if self.message is NO_MESSAGE:
            past = await load_turn_input(self._store, self.record, self._last_delivered, self.attempt)
            if self.usage_tracker is None and past.usage:
                self.usage_tracker = self._new_usage_tracker(past.usage)
            self.task_state, self.question, self._history = past.task_state, past.question, past.history
            self.previous_artifacts, self.waiting_messages = past.artifacts, past.waiting_messages
            self._set_message(past.message)
        if not self._fresh_context:
            self._context = await self._store.context_state(
                self.record.ref.owner, self.record.agent, self.record.context
            )
        if named := self.message.reference_task_ids:
            self.references = await self._reference_resolver.resolve(self.record, self.principal, named)

    async def _unread_messages(self) -> list[StoredMessage]:
        conversation = await self._store.messages(self.record.ref, self._last_delivered)
        return conversation.unread(self._last_delivered) if conversation else []

    def _log_fields(self) -> dict[str, str]:
        return {
            "task": task_id_of(self.record.ref.key),
            "agent": self.record.agent,
            "scope": self.record.ref.owner.scope,
        }
