"""How a turn stops and finishes: requests to stop, limits, statuses of the server, and the decision what to write.

CANCELED means that the agent has stopped. So it is written when the agent has ended, never because time has passed: an
agent that ignores a cancel keeps its task active, until its process ends. Only a limit of the turn ends a task whose
agent may still run, as FAILED.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal, NamedTuple

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError
from dragoman.core.exceptions import name_of, text_of
from dragoman.core.limits.quotas import NO_USAGE, TaskBudget, Usage, UsageReport, usage_metadata
from dragoman.core.task import states
from dragoman.core.task.log import CHANGED, Append, Appended, AppendRejected, Guard, StatusChange, TaskRecord, TaskRef
from dragoman.ids import IDS
from dragoman.ports import NO_CHANGE, LeaseLost, Pause, StateUpdate, TurnResult, WorkerLost
from dragoman.runtime.log import EventLog
from dragoman.runtime.turn.events import Change
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

StopReason = Literal["client", "deadline", "drain", "lease_lost"]
"""`lease_lost`: the lease of the process has lapsed, or the task has ended without its agent."""


class Stop(Enum):
    """How far the stop of a turn has come."""

    NONE = "no stop was requested"
    REQUESTED = "the agent was asked to stop"
    MUTED = "the agent did not stop in time; its verbs fail"
    ENDED_WITHOUT_AGENT = "the task ends without its agent"


STOP_TRANSITIONS: Final = {
    Stop.NONE: frozenset({Stop.REQUESTED}),
    Stop.REQUESTED: frozenset({Stop.MUTED, Stop.ENDED_WITHOUT_AGENT}),
    Stop.MUTED: frozenset({Stop.ENDED_WITHOUT_AGENT}),
    Stop.ENDED_WITHOUT_AGENT: frozenset[Stop](),
}
"""A new turn begins in NONE again, or in REQUESTED while the process drains."""


class StopToken:
    """The stop requests of a run.

    Every request interrupts the agent. After a client's cancel or an exceeded limit the stop escalates at
    `Timings.mute_timeout`. A cancel becomes MUTED: the agent's verbs fail, and the task waits for the agent's end. A
    limit becomes ENDED_WITHOUT_AGENT: the final status is written, although the agent may still run. The stop of a
    drain or of a lapsed lease does not escalate.
    """

    # Class attributes, because most runs never change these.
    state = Stop.NONE  # of the current turn
    reason: StopReason | Literal[""] = ""  # of the current turn: the first request counts
    metadata = b""  # of the client's cancel request: a serialized Struct
    requests: frozenset[StopReason] = frozenset()
    """All reasons for which a stop was requested, in this turn or an earlier one, in time for its end or not."""

    @property
    def requested(self) -> bool:
        return self.state is not Stop.NONE

    def note(self, reason: StopReason) -> None:
        """Notes a request that comes too late for this turn; a later one looks at it."""
        self.requests |= {reason}

    def request(self, reason: StopReason, metadata: bytes = b"") -> bool:
        """Requests a stop. False when an earlier request counts."""
        self.note(reason)
        if self.state is not Stop.NONE:
            return False
        self._enter(Stop.REQUESTED)
        self.reason, self.metadata = reason, metadata
        return True

    def escalate(self) -> Stop:
        """The agent did not stop in time: MUTED after a client's cancel, else ENDED_WITHOUT_AGENT."""
        if self.reason == "client" and self.state is Stop.REQUESTED:
            self._enter(Stop.MUTED)
        else:
            self._enter(Stop.ENDED_WITHOUT_AGENT)
            self.reason = "lease_lost"
        return self.state

    def begin_turn(self) -> None:
        """Begins the next turn. A drain stops that as well."""
        draining = "drain" in self.requests
        self.state, self.reason, self.metadata = Stop.NONE, "", b""
        if draining:
            self.request("drain")

    def _enter(self, state: Stop) -> None:
        assert state in STOP_TRANSITIONS[self.state], f"{self.state.name} to {state.name}"
        self.state = state


@dataclass(frozen=True, slots=True)
class SystemStatus:
    """The reason and text with which the server itself ends a turn as FAILED.

    The text is for people; the reason, for programs, is in the metadata of the status message, so every dialect and
    transport shows it.
    """

    reason: str
    text: str


SERVER_STOPPED: Final = SystemStatus("INTERRUPTED", "The server stopped while this task was running.")
TURN_ABORTED: Final = SystemStatus("INTERRUPTED", "The server could not continue this task.")
WORKER_LOST: Final = SystemStatus("INTERRUPTED", "The worker running this task was lost.")
NO_WORKER: Final = SystemStatus("NO_WORKER", "No worker of this agent connected in time to run this task.")
UPSTREAM_AWAY: Final = SystemStatus(
    "UPSTREAM_AWAY", "The agent of this task became unavailable and did not come back in time."
)
DRAINED: Final = SystemStatus("DRAINED", "The server shut down before this task was finished.")
NOT_WRITTEN: Final = SystemStatus("NOT_WRITTEN", "The output of the agent could not be stored.")
LEASE_LAPSED: Final = SystemStatus("INTERRUPTED", "The server could not reach its store in time and stopped this task.")

TIMED_OUT: Final = SystemStatus("TIMED_OUT", "The turn exceeded its time limit.")
IDLE_TOO_LONG: Final = SystemStatus("IDLE", "The agent was inactive for longer than its idle limit.")
OVER_BUDGET: Final = SystemStatus("OVER_BUDGET", "The task exceeded its budget.")
CONTEXT_CHANGED: Final = SystemStatus(
    "CONTEXT_CHANGED", "Another task of this conversation changed the conversation's state during this turn."
)
OUTCOME_UNKNOWN: Final = SystemStatus(
    "OUTCOME_UNKNOWN", "The task was canceled, but the agent's server has not confirmed that its work has stopped."
)
EXPIRED: Final = SystemStatus("EXPIRED", "The task received no reply within its retention time.")

CANCEL_WAITS: Final = "The cancel waits until the agent's server can be reached: only that server can confirm it."

INVALID_TRANSITION: Final = SystemStatus("INVALID_AGENT_RESPONSE", "The agent made an invalid state transition:")


def retry_status(attempt: int, error: str = "", message: pb.Message | None = None) -> StatusChange:
    """The update that begins a repeated turn; its metadata have the attempt, and why the agent failed, if it did.

    `message`: what the turn waits for.
    """
    data = pb.Message(metadata={"attempt": attempt, **({"error": error} if error else {})})
    text = message.SerializeToString() if message is not None else b""
    return StatusChange(states.WORKING, text, metadata=data.metadata.SerializeToString())


def system_status(status: SystemStatus, record: TaskRecord, detail: str = "") -> StatusChange:
    """The status change that ends the task of `record` with a system status; `detail` is appended to the text.

    The message names its task and context, as every message of a task does (1.0 §4.1.4).
    """
    message = _message(f"{status.reason}: {status.text} {detail}".rstrip(), record)
    message.metadata["reason"] = status.reason
    return StatusChange(states.FAILED, message.SerializeToString())


def cancel_waits(record: TaskRecord) -> StatusChange:
    """The status of a canceled task whose agent's server cannot be reached."""
    return StatusChange(states.WORKING, _message(CANCEL_WAITS, record).SerializeToString())


def agent_failure(error: BaseException, record: TaskRecord) -> StatusChange:
    """FAILED with the name of an exception of the agent's; the log of the agent has more."""
    return StatusChange(states.FAILED, _message(name_of(error), record).SerializeToString())


def _message(text: str, record: TaskRecord) -> pb.Message:
    return pb.Message(
        message_id=IDS.hex(),
        context_id=record.context,
        task_id=record.id,
        role=pb.ROLE_AGENT,
        parts=[pb.Part(text=text)],
    )


class TransitionChecker:
    """Strict mode: checks the state transitions that one turn makes, from the state in which it began."""

    def __init__(self, state: int) -> None:
        self._state = state
        self._reported_working = False

    def check(self, change: Change) -> None:
        """Raises ValueError, in the agent's own call, for an invalid transition.

        A WORKING written by the server on the agent's behalf does not make the agent's own first WORKING a repetition.
        """
        if not isinstance(change, StatusChange):
            if self._state == states.SUBMITTED:
                self._state = states.WORKING
            return
        first_working = change.state == self._state == states.WORKING and not self._reported_working
        if not first_working and not states.can_transition_to(self._state, change.state, strict=True):
            raise ValueError(f"{states.name(self._state)} may not be followed by {states.name(change.state)}")
        self._reported_working = change.state == states.WORKING
        self._state = change.state

    def check_end(self, changes: list[Change], record: TaskRecord) -> list[Change]:
        """Completes the last append of a turn: adds WORKING before a result, replaces an invalid end by FAILED.

        `record` is the task in the store. An agent that wrote nothing may end as if it had written WORKING, which the
        server writes for slow agents anyway.
        """
        first, end, state = changes[0], changes[-1], self._state
        begins = isinstance(first, StatusChange) and first.state in states.STRICT_TRANSITIONS[states.SUBMITTED]
        if record.state == states.SUBMITTED and not begins:
            changes = [StatusChange(states.WORKING), *changes]
            state = states.WORKING
        possible_states = (state, states.WORKING) if state == states.SUBMITTED else (state,)
        if isinstance(end, StatusChange) and not any(
            states.can_transition_to(candidate, end.state, strict=True) for candidate in possible_states
        ):
            rule = f"{states.name(state)} may not be followed by {states.name(end.state)}"
            return [*changes[:-1], system_status(INVALID_TRANSITION, record, rule)]
        return changes


class FinishKind(Enum):
    """The write at the end of a turn."""

    END = "the changes; their last one is the status, and releases the claim"
    RETRY = "the changes, and a release for the next attempt"
    REQUEUE = "the changes, and a release for the same attempt: the agent has done nothing yet"
    SUSPEND = "the changes, and a release until the agent wakes"
    REPLY = "a Message in place of the task"
    NOTHING = "nothing"


class Finish(NamedTuple):
    """The end of a turn.

    | the turn | is finished by |
    |---|---|
    | its claim is lost, or its task was ended without it | nothing: the store rejects its writes, or has its end |
    | its output could not be stored | its end as FAILED, and without that output |
    | it was interrupted before its agent had begun | a release, for the same attempt |
    | it was interrupted, or failed, and may be repeated | a release, for the next attempt |
    | its agent sleeps | a release, until it wakes |
    | its result is a Message, and the task is not visible | that Message, in place of the task |
    | otherwise | its last artifacts and its final status |
    """

    kind: FinishKind
    changes: Sequence[Change] = ()
    state_update: StateUpdate = NO_CHANGE
    reply: pb.Message | None = None
    error: A2AError | None = None  # the sender's response in place of a task that no caller has seen
    wake_at: int = 0  # after a release: when the turn continues, in milliseconds since the epoch; 0: at once


WRITES_NOTHING: Final = Finish(FinishKind.NOTHING)


class Output(NamedTuple):
    """Output that a turn has put and not sent yet, or the reason why it could not be stored."""

    changes: Sequence[Change] = ()
    state_update: StateUpdate = NO_CHANGE
    failure: Exception | None = None


def decide(
    result: TurnResult,
    output: Output,
    stop: StopToken,
    stop_status: Callable[[], StatusChange],
    lost: WorkerLost | None,
    record: TaskRecord,
    retries: int,
    *,
    begun: bool,
) -> Finish:
    """Decides how a turn of the task of `record` finishes.

    `stop_status`: gives the final status of a turn that was stopped. `lost`: the death of the process that ran it.
    `retries`: how often it may be repeated. `begun`: whether the agent may have done anything.
    """
    changes: Sequence[Change] = output.changes
    if not begun and _waits_again(result, output, stop):
        # The sender gets the task now, so others have to see it, too: it may wait for its agent for minutes.
        changes = changes if changes or record.visible else [StatusChange(states.WORKING)]
        return Finish(FinishKind.REQUEUE, changes, output.state_update)
    if output.failure is not None:
        match output.failure:
            case LeaseLost() if stop.state is Stop.ENDED_WITHOUT_AGENT:
                return WRITES_NOTHING
            case AppendRejected(reason=reason) if reason != CHANGED:
                return WRITES_NOTHING
            case LeaseLost():
                result = TurnResult(stop_status())
            case AppendRejected():  # the claim holds; only the write of the conversation's state was too late
                result = TurnResult(system_status(CONTEXT_CHANGED, record))
            case failure:
                result = TurnResult(system_status(NOT_WRITTEN, record, text_of(failure)))
    changes = with_working(changes, record)
    if result.pause is not None and output.failure is None:
        if stop.state is Stop.NONE:
            return _pause(result.pause, changes, output.state_update.merged_with(result.state_update), record)
        if not result.pause.error:
            result = TurnResult(stop_status(), state_update=result.state_update)
    may_retry = lost is not None or stop.reason in ("drain", "lease_lost")
    if result.status.state == states.FAILED and may_retry and has_retries_left(record, retries):
        waits = _message(CANCEL_WAITS, record) if stop.reason == "client" else None
        changes = [*changes, retry_status(record.attempt + 1, message=waits)]
        # Without the conversation's state, which might be rejected: the next attempt writes it.
        return Finish(FinishKind.RETRY, changes, replace(output.state_update, context_state=None))
    if result.reply is not None and not changes and not record.visible:
        return Finish(FinishKind.REPLY, reply=result.reply)
    state_update = result.state_update
    if output.state_update is not NO_CHANGE:  # most turns change their state in their result only
        state_update = output.state_update.merged_with(state_update)
    error = None if changes or record.visible else result.error
    return Finish(FinishKind.END, [*changes, *result.artifacts, result.status], state_update, error=error)


def _pause(pause: Pause, changes: Sequence[Change], state_update: StateUpdate, record: TaskRecord) -> Finish:
    """A turn that sleeps is visible: others can see its task, and cancel it."""
    state_update = replace(state_update, context_state=None) if pause.error else state_update
    if pause.error:
        status = retry_status(record.attempt + 1, pause.error)
        return Finish(FinishKind.RETRY, [*changes, status], state_update, wake_at=pause.until)
    if record.state == states.SUBMITTED and not changes:
        changes = [StatusChange(states.WORKING)]
    return Finish(FinishKind.SUSPEND, changes, state_update, wake_at=pause.until)


def _waits_again(result: TurnResult, output: Output, stop: StopToken) -> bool:
    """Whether a turn that has not begun goes back to the queue: neither its caller nor a limit has ended it."""
    stored = output.failure is None or (
        isinstance(output.failure, LeaseLost) and stop.state is not Stop.ENDED_WITHOUT_AGENT
    )
    return stored and result.status.state == states.FAILED and stop.reason in ("", "drain", "lease_lost")


def has_retries_left(record: TaskRecord, retries: int) -> bool:
    """Whether a turn of this attempt may be repeated after an interruption."""
    return record.attempt <= retries


def with_working(changes: Sequence[Change], record: TaskRecord) -> Sequence[Change]:
    """Adds WORKING before the first event of a run that has not written it itself."""
    if changes and record.state == states.SUBMITTED and not isinstance(changes[0], StatusChange):
        return [StatusChange(states.WORKING), *changes]
    return changes


class TurnDeadlines:
    """Timers of one turn at a time. Calls `on_exceeded` when a limit is passed."""

    def __init__(
        self, spec: AgentSpec, on_exceeded: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: monotonic seconds, from any thread."""
        self.clock = clock
        self._spec = spec
        self._on_exceeded = on_exceeded
        self._context = contextvars.copy_context()  # a canceled timer keeps its context: not one that leads to a turn
        self.timers: list[asyncio.TimerHandle] = []  # those of this turn, canceled or not
        self.started_at = self._last_checked = 0.0
        self.last_activity = 0.0
        """When the agent last did something, in monotonic seconds. May be set from any thread."""
        self._exceeded = (TIMED_OUT, "")  # the limit, and its text

    def start(self) -> None:
        self.started_at = self.last_activity = self.clock()
        if limit := self._spec.time_limit:
            self.after(limit, lambda: self._exceed(TIMED_OUT, limit))
        if self._spec.idle_limit:
            self._watch_idle()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls `call` after so many seconds, unless the timers are stopped before."""
        self.timers.append(asyncio.get_running_loop().call_later(seconds, call, context=self._context))

    @property
    def elapsed(self) -> float:
        """Seconds since the turn began."""
        return self.clock() - self.started_at

    @property
    def elapsed_us(self) -> int:
        """Microseconds since the turn began; 0 if it never did."""
        return round((self.clock() - self.started_at) * 1e6) if self.started_at else 0

    @property
    def idle_seconds(self) -> float | None:
        """Seconds since the agent's last output; None before the first."""
        return self.clock() - self.last_activity if self.last_activity > self.started_at else None

    def stop(self, *, for_good: bool = False) -> None:
        """Cancels all timers, until the next `start`. `for_good`: drops the callback, which leads to the turn."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        if for_good:
            self._on_exceeded = lambda: None

    def exceed_budget(self, reason: str) -> None:
        self._exceeded = (OVER_BUDGET, reason)
        self._on_exceeded()

    def end_status(self, record: TaskRecord) -> StatusChange:
        """The status of a turn of the task of `record` that a limit ended."""
        status, limit = self._exceeded
        return system_status(status, record, limit)

    @property
    def exceeded(self) -> str:
        """Which limit was exceeded, as the text of `end_status`."""
        status, limit = self._exceeded
        return f"{status.reason}: {status.text} {limit}"

    def _watch_idle(self) -> None:
        self._last_checked = self.last_activity
        now = asyncio.get_running_loop().time()
        self.timers = [timer for timer in self.timers if timer.when() > now]
        self.after(self._spec.idle_limit, self.check_idle)

    def check_idle(self) -> None:
        """Stops the turn if there was no activity since the last check."""
        if self.last_activity != self._last_checked:
            self._watch_idle()
        else:
            self._exceed(IDLE_TOO_LONG, self._spec.idle_limit)

    def _exceed(self, status: SystemStatus, limit: float) -> None:
        self._exceeded = (status, f"The limit is {limit:g} s.")
        self._on_exceeded()


@dataclass(eq=False, repr=False)
class UsageTracker:
    """Writes and sums the usage reports of one runner."""

    event_log: EventLog
    task: TaskRef
    guard: Guard
    budget: TaskBudget
    on_exceeded: Callable[[str], None]  # called once per turn with the reason when the budget is exceeded
    initial: Usage = NO_USAGE  # the usage of earlier turns

    def __post_init__(self) -> None:
        self.total = self._certain = self.initial
        """`_certain`: the sum of reports without a key, which count for certain, whether written yet or not."""
        self._delegates = self.initial.own != self.initial
        self._pending_appends: set[asyncio.Future[Appended]] = set()
        self._reported = False
        self._check_budget(self.initial)

    def add(self, report: UsageReport) -> None:
        """Writes one report; an empty one marks that another task works for this one. Call on the event loop."""
        self._delegates = self._delegates or not report.has_amount
        if not report.key:
            self._certain = Usage(self._certain.tokens + report.tokens, self._certain.cost + report.cost)
            self._check_budget(self._certain)
        change = Append(task=self.task, guard=self.guard, usage_report=report)
        # It is not given up while the store is unavailable, until its claim is lost.
        append = self.event_log.append(change, self._on_committed, lambda: False)
        self._pending_appends.add(append)
        append.add_done_callback(self._pending_appends.discard)

    def begin_turn(self) -> None:
        """Starts another turn, which is stopped as well when the budget is exceeded already."""
        self._reported = False
        self._check_budget(self.total)

    async def flush(self) -> None:
        """Waits until every report is committed or rejected, and loads what delegate tasks have used."""
        if self._delegates:
            self.add(UsageReport())
        if self._pending_appends:
            await asyncio.wait(self._pending_appends)

    @property
    def metadata(self) -> bytes:
        """The usage total as metadata of the event that ends a turn; empty for none."""
        return usage_metadata(self.total) if self.total else b""

    def _on_committed(self, appended: Appended | None) -> None:
        if appended is not None and appended.usage is not None:
            self.total = appended.usage
            self._check_budget(self.total)

    def _check_budget(self, usage: Usage) -> None:
        if not self._reported and (reason := self.budget.exceeded(usage)):
            self._reported = True
            # Deferred: the caller may be the asyncio task to be canceled, with its result in hand.
            asyncio.get_running_loop().call_soon(self.on_exceeded, reason)
