"""The context of a turn: its input, its verbs, and the appends under its claim. Decides nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dragoman.core.access.identity import Isolation
from dragoman.core.errors import A2AError, Unavailable
from dragoman.core.limits.quotas import NO_BUDGETS, NO_USAGE, TaskBudget, TaskBudgets, Usage, UsageReport
from dragoman.core.names import Owner, task_id_of
from dragoman.core.task.log import Append, Appended, ArtifactChange, ClaimHeld, ContextState, TaskRecord
from dragoman.core.task.projection import merge_metadata
from dragoman.core.task.steps import StepJournal
from dragoman.ports import NO_CHANGE, Agent, LeaseLost, StateUpdate, Store, StoredMessage, is_called, is_remote
from dragoman.runtime.lease import Lease
from dragoman.runtime.log import EventLog
from dragoman.runtime.timings import DEFAULT_TIMINGS, SYSTEM_CLOCKS, Clocks, Timings
from dragoman.runtime.turn.events import NO_COALESCING, Change, Coalesce, EventBatch, TaskProjection, with_metadata
from dragoman.runtime.turn.finish import StopToken, TransitionChecker, TurnDeadlines, UsageTracker, with_working
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NO_MESSAGE: Final = pb.Message()  # stands for a message that has not been read yet
MAX_REFERENCES: Final = 16  # referenced tasks passed to an agent; further ones are dropped

DEFAULT_SLOTS: Final = 1000  # concurrent turns in one process, unless the settings say otherwise

WORKER_WAIT_SECONDS: Final = 300.0
"""Seconds that tasks wait for an absent remote agent, unless the settings say otherwise."""

CANCEL_WAIT_SECONDS: Final = 86_400.0
"""Seconds for which a cancel is repeated that another server does not confirm, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """How the turns of a process run."""

    runs_agents: bool = True  # False: the turns of this process's own agents are left to other processes on the store
    slots: int = DEFAULT_SLOTS  # concurrent turns
    worker_wait: float = WORKER_WAIT_SECONDS  # seconds that tasks wait for absent remote agents
    cancel_wait: float = CANCEL_WAIT_SECONDS  # seconds for which a cancel is repeated that no other server confirms
    strict: bool = False  # whether agents may make only the transitions of the strict table
    shows_error_texts: bool = True
    """Whether callers see what any exception of an agent says; else only what an AgentError says."""
    coalesce: Coalesce = NO_COALESCING
    budgets: TaskBudgets = NO_BUDGETS
    isolation: Isolation = field(default_factory=Isolation)
    timings: Timings = field(default_factory=lambda: DEFAULT_TIMINGS)
    clocks: Clocks = field(default_factory=lambda: SYSTEM_CLOCKS)


@dataclass(frozen=True, slots=True)
class TurnServices:
    """Services shared by all turns of a process."""

    store: Store
    event_log: EventLog
    options: TurnOptions
    call: Callable[[TaskRecord, str, wk.TaskCall], Awaitable[wk.TaskCallResult]]  # of a task's agent, as a principal
    lease: Lease | None = None  # of this process; None if no other process may act for it


class RunContext:
    """The `dragoman.ports.TurnContext` of the agent in one run, and the appends under its claim."""

    # Class attributes, because most turns never change these: an object with 30 instance attributes or more gets a
    # dictionary of its own and takes twice the time to create.
    message: pb.Message = NO_MESSAGE
    envelope: pb.SendMessageRequest = pb.SendMessageRequest()
    question: pb.Message | None = None
    task_state = task_metadata = b""
    stored_envelope = b""
    previous_artifacts: Sequence[pb.Artifact] = ()
    references: Sequence[pb.Task] = ()
    waiting_messages = 0
    stopping = False
    cancel_refusal = ""  # the agent's reason for refusing a cancel; empty when it does not refuse
    usage_tracker: UsageTracker | None = None
    end_is_late = False  # whether the turn has ended, and the store does not take its end now
    response_error: A2AError | None = None
    _context = ContextState()
    metadata_set = b""  # task metadata that this turn has set, repeated in the event that ends it
    _message_arrived: asyncio.Event | None = None
    _journal: StepJournal | None = None

    def __init__(
        self,
        services: TurnServices,
        agent: Agent,
        appended: Appended,
        first: StoredMessage | None,
        on_limit_exceeded: Callable[[], None],
    ) -> None:
        """`appended`: the claim, which has also created the task if there is a `first` message, of a new conversation;
        with None the run reads its input. `on_limit_exceeded`: stops the turn."""
        record = appended.record
        assert record.session, "a run begins with a claim"
        self._loop = loop = asyncio.get_running_loop()
        self.record = record
        self.first_response: asyncio.Future[pb.Message | None] = loop.create_future()
        """Done when the task is visible (None), or with the Message or the error that replaces it."""
        self.turn_ended: asyncio.Future[bool] = loop.create_future()
        """Done when callers need not wait for this run any more. True: its end is on disk, and `record` and
        `projection` are the task. False: they have to read the store, in which the end may still be missing."""
        self.stop = StopToken()
        self.deadlines = TurnDeadlines(agent.spec, on_limit_exceeded, services.options.clocks.monotonic)
        self.projection = TaskProjection(appended.events)
        self.principal = record.principal
        self.attempt = record.attempt
        self._services = services
        self._log = services.event_log
        self._agent = agent
        self.guard = ClaimHeld(record.session, record.token)
        self.hold = services.lease.hold() if services.lease is not None else None
        self.transitions = TransitionChecker(record.state) if services.options.strict else None
        self.batch = EventBatch(self._send, services.options.coalesce)
        self.history: list[pb.Message] = []
        self._written_artifacts: set[str] = set()
        self._last_delivered = record.last_delivered
        if record.visible:
            self.first_response.set_result(None)
        if first is not None:
            self._set_message(first)

    def begin_next_turn(self) -> None:
        """Resets what belongs to one turn."""
        self.stop.begin_turn()
        self.message, self.references, self.attempt = NO_MESSAGE, (), self.record.attempt
        self.cancel_refusal = ""
        self.metadata_set = b""
        self.transitions = self.transitions and TransitionChecker(self.record.state)
        self.deadlines.stop()
        self.deadlines.start()
        if self.usage_tracker is not None:
            self.usage_tracker.begin_turn()

    # Reads ------------------------------------------------------------------------------------------------------

    @property
    def shows_error_texts(self) -> bool:
        return self._services.options.shows_error_texts

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
    def context_state(self) -> bytes:
        return self._context.data

    def now(self) -> int:
        return self._services.store.now()

    @property
    def canceled(self) -> bool:
        return self.stop.requested

    @property
    def cancel_reason(self) -> str:
        return self.stop.reason

    @property
    def cancel_metadata(self) -> bytes:
        return self.stop.metadata

    @property
    def journal(self) -> StepJournal:
        if self._journal is None:  # the first run of its first turn
            self._journal = StepJournal((), self.record.ref.key.hex())
        return self._journal

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        arrived = self._message_arrived = self._message_arrived or asyncio.Event()
        while True:
            arrived.clear()  # before the read, so that a message arriving during it sets it again
            for stored in await self._log.retry_read(
                self._unread_messages, self.record.ref, self.guard, self.log_fields
            ):
                self._last_delivered = stored.number
                message = pb.Message.FromString(stored.message)
                self.history.append(message)
                yield message, pb.SendMessageRequest.FromString(stored.envelope)
            await arrived.wait()

    def notify_message(self) -> None:
        """Wakes the agent for a message that arrived for this task."""
        if self._message_arrived is not None:
            self._message_arrived.set()

    # Calls ------------------------------------------------------------------------------------------------------

    def put(self, change: Change, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        self._check_lease()
        self.deadlines.last_activity = self.deadlines.clock()
        if self.transitions is not None:
            self.transitions.check(change)
        if self.attempt > 1:
            change = self.replace_on_retry(change)
        accepted = self.batch.put(change, state_update)
        if state_update.task_metadata:
            self.task_metadata = merge_metadata(self.task_metadata, state_update.task_metadata)
        return accepted

    def _check_lease(self) -> None:
        if self.hold is not None and self.hold.lost and not is_remote(self._agent):
            raise LeaseLost("the lease of this process has lapsed")

    def replace_on_retry(self, change: Change) -> Change:
        """In a repeated turn, the first write to an artifact replaces the content of the dead attempt."""
        if not isinstance(change, ArtifactChange) or change.artifact_id in self._written_artifacts:
            return change
        self._written_artifacts.add(change.artifact_id)
        return replace(change, append=False) if change.append else change

    def store(self, state_update: StateUpdate) -> Awaitable[None]:
        self._check_lease()
        self.deadlines.last_activity = self.deadlines.clock()
        return self.batch.store(state_update)

    async def flush(self) -> None:
        await self.batch.flush()

    def refuse_cancel(self, reason: str) -> None:
        self.cancel_refusal = reason

    async def call(self, call: wk.TaskCall) -> wk.TaskCallResult:
        if call.HasField("send"):
            self.report_usage(UsageReport())  # the usage of the task counts for this one: read it before the turn ends
        return await self._services.call(self.record, self.principal, call)

    def report_usage(self, report: UsageReport) -> None:
        if threading.get_ident() == self.batch.loop_thread:
            self._record_usage(report)
        else:  # before what this thread schedules later
            self._loop.call_soon_threadsafe(self._record_usage, report)

    def _record_usage(self, report: UsageReport) -> None:
        self.usage_tracker = self.usage_tracker or self._new_usage_tracker()
        self.usage_tracker.add(report)

    def _new_usage_tracker(self, initial: Usage = NO_USAGE) -> UsageTracker:
        budgets = self._services.options.budgets
        budget = budgets.budget_of(self.record.agent) if budgets else TaskBudget()
        return UsageTracker(self._log, self.record.ref, self.guard, budget, self.deadlines.exceed_budget, initial)

    # Input ------------------------------------------------------------------------------------------------------

    async def load_input(self) -> None:
        """Reads the input of the turn. A repeated call after a failed read keeps what was read.

        Raises CancelledError if a client has canceled the turn before it began. An agent that calls another server
        begins nevertheless: it has to tell that server.
        """
        if "client" in self.stop.requests or self.attempt > 1 or is_called(self._agent):
            requests = await self._services.store.cancel_requests.pending([self.record.ref])
            if requests:
                self.stop.request("client", requests[self.record.ref])
                if not is_called(self._agent):
                    raise asyncio.CancelledError("the message arrived before the cancel")
        if self.message is NO_MESSAGE:
            await self._load_message()
        if task_ids := self.message.reference_task_ids:
            self.references = await self._read_references(task_ids)

    async def _read_references(self, task_ids: Iterable[str]) -> list[pb.Task]:
        """The referenced tasks that the sender may see, of this task's agent only; unknown ids are skipped."""
        record, services = self.record, self._services
        owner = services.options.isolation.owner(record.ref.owner.scope, record.agent, self.principal)
        found = []
        for task_id in list(dict.fromkeys(task_ids))[:MAX_REFERENCES]:
            record_found = await services.store.find(owner, record.agent, task_id)
            snapshot = await services.store.read(record_found.ref) if record_found else None
            if snapshot is not None:
                found.append(pb.Task.FromString(snapshot.task))
        return found

    async def _load_message(self) -> None:
        """Reads the message to answer, the history, and what earlier turns left.

        Raises AppendRejected for a task that was erased, LookupError without a message that no turn has received.
        """
        ref, store = self.record.ref, self._services.store
        conversation = await store.messages(ref)
        if conversation is None:
            await self._log.append(Append(task=ref, guard=self.guard))  # rejected: the task was erased
        if conversation is None or not (unread := conversation.unread(self._last_delivered)):
            raise LookupError("a claimed task has no message to answer")
        snapshot = await store.read(ref, history=0) if self.attempt > 1 else None
        self.previous_artifacts = tuple(pb.Task.FromString(snapshot.task).artifacts) if snapshot else ()
        messages = {stored.number: pb.Message.FromString(stored.message) for stored in conversation.messages}
        # A rerun refers to the task that has finished its first steps (`bindings/admin/task_changes.py`).
        may_be_rerun = messages[unread[0].number].reference_task_ids
        if self.record.token > 1 or self.record.last_completed or may_be_rerun:
            self._journal = StepJournal(await store.steps(ref, results=True), ref.key.hex())
        self.task_state, self.task_metadata = conversation.task_state, conversation.task_metadata
        self._context = conversation.context
        self.question = messages.get(conversation.record.question)
        self.history = [message for number, message in messages.items() if number < unread[0].number]
        self.waiting_messages = len(unread) - 1
        self._set_message(unread[0])
        if self.usage_tracker is None and conversation.usage:
            self.usage_tracker = self._new_usage_tracker(conversation.usage)
            await asyncio.sleep(0)  # a budget that is exceeded already cancels the turn here, before the agent begins

    def _set_message(self, stored: StoredMessage) -> None:
        self._last_delivered = stored.number
        self.principal = stored.sender or self.record.ref.owner.principal
        self.message = pb.Message.FromString(stored.message)
        self.stored_envelope, self.envelope = stored.envelope, pb.SendMessageRequest.FromString(stored.envelope)

    async def _unread_messages(self) -> list[StoredMessage]:
        conversation = await self._services.store.messages(self.record.ref, self._last_delivered)
        return conversation.unread(self._last_delivered) if conversation else []

    def log_fields(self) -> dict[str, str]:
        record = self.record
        return {"task": task_id_of(record.ref.key), "agent": record.agent, "scope": record.ref.owner.scope}

    # Appends under the claim ----------------------------------------------------------------------------------------

    def build_append(self, changes: Sequence[Change], state_update: StateUpdate, *, release: bool = False) -> Append:
        context = None
        if state_update.context_state is not None:
            context = self._context = ContextState(state_update.context_state, self._context.version + 1)
        if state_update.task_metadata:
            self.projection.clear()  # metadata is part of the task and of no event, so the task has to be read
            self.metadata_set = merge_metadata(self.metadata_set, state_update.task_metadata)
        if release and (self.metadata_set or self.usage_tracker is not None):
            usage = self.usage_tracker.metadata if self.usage_tracker is not None else b""
            changes = with_metadata(changes, merge_metadata(self.metadata_set, usage))
        return Append(
            task=self.record.ref,
            guard=self.guard,
            events=changes,
            task_state=state_update.task_state,
            task_metadata=state_update.task_metadata,
            context_state=context,
            last_delivered=self._last_delivered,
            release=release,
            steps=state_update.steps,
            turn_us=self.deadlines.elapsed_us if release else 0,
        )

    def _send(self, changes: list[Change], state_update: StateUpdate) -> asyncio.Future[Appended]:
        append = self.build_append(with_working(changes, self.record), state_update)
        return self._log.append(append, self.on_committed, lambda: self.batch.failed)

    def on_committed(self, appended: Appended | None) -> None:
        if appended is None:
            return
        self.record = appended.record
        self.projection.add(appended.events)
        if self.record.visible and not self.first_response.done():  # steps and state alone do not show a task
            if self.response_error is None:
                self.first_response.set_result(None)
            else:
                self.fail_response(self.response_error)
        # A turn that was released for a repeat is still open. Usage is in no event: with it, the task has to be read.
        if not (self.record.has_open_turn or self.turn_ended.done()):
            self.turn_ended.set_result(self.usage_tracker is None)

    def fail_response(self, error: A2AError) -> None:
        self.first_response.set_exception(error)
        self.first_response.exception()  # nobody may wait for it any more

    def release_callers(self) -> None:
        """Lets callers go whose turn has ended, but is not written yet: the store does not respond."""
        if not self.turn_ended.done():
            self.end_is_late = True
            self.turn_ended.set_result(False)
        if not self.first_response.done():
            text = "the store does not respond; this request may still be done, so check before you repeat it"
            self.fail_response(Unavailable(text))
