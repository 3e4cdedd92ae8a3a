"""One turn at a worker: converts between its frames and the turn context."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from dragoman.agents import values
from dragoman.agents.values import NewId, check_task_metadata, checked_metadata, message_of
from dragoman.core.errors import A2AError, InvalidAgentResponse
from dragoman.core.limits.quotas import MAX_USAGE, MAX_USAGE_KEY_LENGTH, UsageReport
from dragoman.core.task import states, steps
from dragoman.core.task.log import AppendRejected, ArtifactChange, StatusChange
from dragoman.core.task.steps import NO_POSITION, StepRecord, StepState
from dragoman.core.trace import CURRENT_TRACE
from dragoman.ports import NO_CHANGE, BufferFull, LeaseLost, Pause, StateUpdate, TurnContext, TurnResult, WorkerLost
from dragoman.ports.remote_agents import MAX_DETAILS_BYTES, decode_step, encode_step
from dragoman.wire.dialects import Dialect
from dragoman.wire.errors import codes
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.workers")


class WorkerLink(NamedTuple):
    """The part of a worker's connection that its turns use."""

    send: Callable[[wk.ConnectResponse], None]
    call_slots: asyncio.Semaphore  # each call of a turn takes one until the worker takes its answer


STEP_STATES: Final = frozenset(int(state) for state in StepState)
MAX_TASK_CALLS: Final = 100  # calls of a turn that have no answer yet
MAX_PAUSE_ERROR_CHARS: Final = 2_000  # of the error of a step or of an attempt; the rest is cut off
MAX_RELEASE_REASON_CHARS: Final = 200  # of the reason for which a worker returns a turn; the rest is cut off


class AgentStopped(Exception):
    """The agent stopped after a cancel request."""


class RemoteTurn:
    """One turn of an agent at a worker. `result` holds its TurnResult or error.

    Errors: AgentStopped, WorkerLost, LeaseLost, AppendRejected, TimeoutError, or the error of a failed commit.
    """

    def __init__(self, id: str, agent: str, turn_context: TurnContext, worker: WorkerLink, new_id: NewId) -> None:
        self.id = id
        self.agent = agent
        self.turn_context = turn_context
        self.result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._send, self._call_slots = worker
        self._new_id = new_id
        self._received_number = 0
        self._committed_number = 0
        self._commit_task: asyncio.Task[None] | None = None
        self._incoming: AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]] | None = None
        self._message_task: asyncio.Task[None] | None = None
        self._call_tasks: set[asyncio.Task[None]] = set()
        self._stopping_sent = False
        self.was_returned = self.was_refused = False  # by its worker; without having begun it

    # Frames from the worker ---------------------------------------------------------------------------------------

    def receive(self, frame: wk.ConnectRequest) -> None:
        try:
            match frame.WhichOneof("frame"):
                case "events":
                    self._put_events(frame.events)
                case "message_request":
                    if self._message_task is None or self._message_task.done():
                        self._message_task = self._spawn(self._send_next_message(), "messages")
                case "cancel_refused":
                    if not frame.cancel_refused.reason:
                        raise InvalidAgentResponse("cancel_refused.reason is required, because clients see it")
                    self.turn_context.refuse_cancel(frame.cancel_refused.reason)
                case "task_call":
                    self._start_call(frame.task_call)
                case "usage":
                    self._count_usage(frame.usage)
                case "turn_end":
                    self._on_turn_end(frame.turn_end)
        except (LeaseLost, AppendRejected) as error:
            self.abort(error)
        except (InvalidAgentResponse, BufferFull, ValueError) as error:
            text = str(error) if isinstance(error, InvalidAgentResponse) else f"{type(error).__name__}: {error}"
            self._fail_invalid(text)
        except Exception as error:  # the error of a failed commit, which the run reports
            self.abort(error)

    def _put_events(self, frame: wk.Events) -> None:
        if not frame.events and not frame.HasField("state_update"):
            raise InvalidAgentResponse("events.events is empty; send at least one event, or a state_update")
        if frame.number <= self._received_number:
            rule = f"{frame.number} follows {self._received_number}; numbers must increase, from 1"
            raise InvalidAgentResponse(f"events.number: {rule}")
        changes = [decode_event(event, self.turn_context, self._new_id) for event in frame.events]
        state_update = decode_state_update(frame, self.turn_context)
        if not changes:
            self.turn_context.store(state_update)
        for change in changes[:-1]:
            self.turn_context.put(change)
        if changes:
            self.turn_context.put(changes[-1], state_update=state_update)
        self._received_number = frame.number
        if self._commit_task is None or self._commit_task.done():
            self._commit_task = self._spawn(self._commit(), "commits")

    async def _commit(self) -> None:
        """Confirms committed events to the worker until all are on disk."""
        while self._committed_number < self._received_number:
            number = self._received_number
            await self.turn_context.flush()
            self._committed_number = number
            self._send(wk.ConnectResponse(committed=wk.Committed(turn_id=self.id, number=number)))

    def _count_usage(self, frame: wk.Usage) -> None:
        if frame.tokens > MAX_USAGE or frame.cost > MAX_USAGE or len(frame.key) > MAX_USAGE_KEY_LENGTH:
            limits = f"{MAX_USAGE} tokens, cost {MAX_USAGE}, {MAX_USAGE_KEY_LENGTH} characters of key"
            raise InvalidAgentResponse(f"usage exceeds a limit: {limits}")
        self.turn_context.report_usage(UsageReport(frame.tokens, frame.cost, frame.key))

    async def _send_next_message(self) -> None:
        if self._incoming is None:
            self._incoming = self.turn_context.incoming()
        message, envelope = await anext(self._incoming)
        arrived = wk.MessageArrived(turn_id=self.id, message=message, envelope=envelope)
        self._send(wk.ConnectResponse(message_arrived=arrived))

    def _start_call(self, call: wk.TaskCall) -> None:
        if len(self._call_tasks) >= MAX_TASK_CALLS:
            raise InvalidAgentResponse(f"task_call: {MAX_TASK_CALLS} calls have no answer yet; wait for one")
        task = self._spawn(self._answer_call(call), "calls")
        self._call_tasks.add(task)
        task.add_done_callback(self._call_tasks.discard)

    async def _answer_call(self, call: wk.TaskCall) -> None:
        await self._call_slots.acquire()
        try:
            result = await self.turn_context.call(call)
        except A2AError as error:
            result = wk.TaskCallResult(error=error.message, reason=codes(error, Dialect.V1).reason)
        except BaseException:  # the worker gets no answer: the turn has ended, or the call has failed
            self._call_slots.release()
            raise
        result.turn_id, result.number = self.id, call.number
        self._send(wk.ConnectResponse(task_call_result=result))

    def _on_turn_end(self, frame: wk.TurnEnd) -> None:
        match frame.WhichOneof("outcome"):
            case "canceled" if self.turn_context.canceled:
                self._fail(AgentStopped())
            case "canceled":
                raise InvalidAgentResponse("turn_end.canceled is set, but the turn was not canceled")
            case "released" if self.turn_context.canceled and not frame.released.not_begun:
                self._fail(AgentStopped())
            case "released":
                self.was_returned, self.was_refused = True, frame.released.not_begun
                reason = frame.released.reason[:MAX_RELEASE_REASON_CHARS] or "The worker was stopped."
                self._fail(WorkerLost(reason, may_have_started=not self.was_refused))
            case _:
                self._finish(decode_turn_end(frame, self.turn_context, self._new_id))

    # Frames to the worker -----------------------------------------------------------------------------------------

    def start(self, history_length: int | None, time_limit: float) -> None:
        """Sends the turn to the worker, with the last `history_length` messages (None: all)."""
        turn_context = self.turn_context
        history = turn_context.history
        if history_length is not None:
            history = history[max(len(history) - history_length, 0) :]
        start = wk.TurnStart(
            turn_id=self.id, agent_id=self.agent, task_id=turn_context.task_id, context_id=turn_context.context_id,
            principal=turn_context.principal, message=turn_context.message, envelope=turn_context.envelope,
            history=history, turns_before=sum(message.role == pb.ROLE_USER for message in turn_context.history),
            references=turn_context.references, task_state=turn_context.task_state.decode(),
            context_state=turn_context.context_state.decode(), attempt=turn_context.attempt,
            previous_artifacts=turn_context.previous_artifacts, traceparent=CURRENT_TRACE.get(),
            steps=map(encode_step, turn_context.journal.stored), turn_number=turn_context.journal.turn_number,
            show_error_texts=turn_context.shows_error_texts,
        )  # fmt: skip
        start.now.FromMilliseconds(turn_context.now())
        if turn_context.task_metadata:
            start.task_metadata.MergeFromString(turn_context.task_metadata)
        if turn_context.question is not None:
            start.question.CopyFrom(turn_context.question)
        if time_limit:
            start.time_limit.FromNanoseconds(round(time_limit * 1e9))
        self._send(wk.ConnectResponse(turn_start=start))

    def cancel(self, reason: str, metadata: bytes) -> None:
        """Sends the worker a cancel request. `metadata`: of the client's request, a serialized Struct."""
        cancel = wk.Cancel(turn_id=self.id, reason=reason)
        if metadata:
            cancel.metadata.MergeFromString(metadata)
        self._send(wk.ConnectResponse(cancel=cancel))

    def notify_stopping(self) -> None:
        """Tells the worker, once, that the server is shutting down."""
        if self.turn_context.stopping and not self._stopping_sent:
            self._stopping_sent = True
            self._send(wk.ConnectResponse(stopping=wk.Stopping(turn_id=self.id)))

    def abort(self, error: BaseException) -> None:
        """Ends the turn with an error and tells the worker to stop sending."""
        if not self.result.done():
            self._send(wk.ConnectResponse(turn_revoked=wk.TurnRevoked(turn_id=self.id, reason=str(error))))
            self._fail(error)

    def on_worker_lost(self) -> None:
        self._fail(WorkerLost)

    def _fail_invalid(self, text: str) -> None:
        text = f"InvalidAgentResponse: agent {self.agent}: {text}"
        fields = {"agent": self.agent, "task": self.turn_context.task_id}
        log.error("invalid frame from a worker: %s", text, extra=fields)
        self._send(wk.ConnectResponse(turn_revoked=wk.TurnRevoked(turn_id=self.id, reason=text)))
        self._finish(failed_turn_result(text, self.turn_context, self._new_id))

    # Result -------------------------------------------------------------------------------------------------------

    def _finish(self, result: TurnResult) -> None:
        if not self.result.done():
            self.result.set_result(result)
        self._cancel_tasks()

    def _fail(self, error: BaseException | type[BaseException]) -> None:
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # prevents the "never retrieved" warning
        self._cancel_tasks()

    def _cancel_tasks(self) -> None:
        for task in (self._commit_task, self._message_task, *self._call_tasks):
            if task is not None:
                task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{name} of turn {self.id}")
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.abort(error)


INTERMEDIATE_STATES: Final = frozenset({states.WORKING, states.AUTH_REQUIRED})
TURN_END_STATES: Final = frozenset({*states.TERMINAL, states.INPUT_REQUIRED, states.AUTH_REQUIRED})
"""States that a turn may report while it runs, and that it may end in."""


def decode_event(event: wk.Event, turn_context: TurnContext, new_id: NewId) -> StatusChange | ArtifactChange:
    """Converts one event frame. Raises InvalidAgentResponse."""
    match event.WhichOneof("event"):
        case "status":
            return decode_status(event.status, INTERMEDIATE_STATES, turn_context, new_id)
        case "artifact":
            return decode_artifact(event.artifact)
        case "text":
            chunk, id = event.text, _check_id(event.text.artifact_id, "text.artifact_id")
            head, metadata = values.encode_artifact_head(id), checked_metadata("text.metadata", chunk.metadata)
            text, append, last = chunk.text, chunk.append, chunk.last_chunk
            return ArtifactChange(id, head, text=text, append=append, last_chunk=last, metadata=metadata)
    raise InvalidAgentResponse("an event is empty; set one of status, artifact, text")


def decode_status(
    change: wk.StatusChange, allowed: frozenset[int], turn_context: TurnContext, new_id: NewId
) -> StatusChange:
    """Converts a status change. Raises InvalidAgentResponse unless its state is in `allowed`."""
    if change.state not in allowed:
        known = ", ".join(sorted(states.name(state) for state in allowed))
        raise InvalidAgentResponse(f"status.state: {states.name(change.state)} is not one of {known}")
    message = b""
    if change.HasField("message"):
        message = message_of(change.message, new_id, turn_context).SerializeToString()
    metadata = checked_metadata("status.metadata", change.metadata)
    return StatusChange(change.state, message, metadata, change.failure.SerializeToString())


def decode_artifact(change: wk.ArtifactChange) -> ArtifactChange:
    """Converts an artifact or a chunk of one. Raises InvalidAgentResponse."""
    _check_id(change.artifact.artifact_id, "artifact.artifact.artifact_id")
    artifact = values.artifact_of(change.artifact, str)
    decoded = values.artifact_change(artifact, append=change.append, last=change.last_chunk)
    return replace(decoded, metadata=checked_metadata("artifact.metadata", change.metadata))


def decode_turn_end(end: wk.TurnEnd, turn_context: TurnContext, new_id: NewId) -> TurnResult:
    """Converts a turn end with a status or a reply. Raises InvalidAgentResponse."""
    artifacts = [decode_artifact(artifact) for artifact in end.artifacts]
    state_update = decode_state_update(end, turn_context)
    match end.WhichOneof("outcome"):
        case "status":
            status = decode_status(end.status, TURN_END_STATES, turn_context, new_id)
            return TurnResult(status, artifacts, None, state_update)
        case "reply":
            message = message_of(end.reply, new_id, turn_context)
            change = StatusChange(states.COMPLETED, message.SerializeToString())
            message.ClearField("task_id")  # the task will not exist
            return TurnResult(change, artifacts, message, state_update)
        case "pause":
            result = failed_turn_result(end.pause.error, turn_context, new_id)
            pause = Pause(end.pause.until.ToMilliseconds(), end.pause.error[:MAX_PAUSE_ERROR_CHARS])
            return replace(result, artifacts=artifacts, state_update=state_update, pause=pause)
    raise InvalidAgentResponse("turn_end has no outcome; set one of status, reply, canceled, released, pause")


def failed_turn_result(text: str, turn_context: TurnContext, new_id: NewId) -> TurnResult:
    """FAILED with a text, for a turn with an invalid frame."""
    message = message_of(text, new_id, turn_context)
    return TurnResult(StatusChange(states.FAILED, message.SerializeToString()))


def decode_state_update(frame: wk.Events | wk.TurnEnd, turn_context: TurnContext) -> StateUpdate:
    """The agent's changed state and metadata in a frame. Raises InvalidAgentResponse."""
    if not frame.HasField("state_update"):
        return NO_CHANGE
    update, metadata = frame.state_update, b""
    if update.HasField("task_metadata"):
        metadata = check_task_metadata("state_update.task_metadata", turn_context.task_metadata, update.task_metadata)
    return StateUpdate(
        _check_json_object(update.task_state, "task_state") if update.HasField("task_state") else None,
        _check_json_object(update.context_state, "context_state") if update.HasField("context_state") else None,
        metadata,
        tuple(map(_checked_step, update.steps)),
    )


def _checked_step(step: wk.Step) -> StepRecord:
    field = f'state_update.steps: step "{step.name}"'
    if not 0 < len(step.name) <= steps.MAX_STEP_NAME_CHARS or not step.name.isprintable():
        rule = f"must be 1 to {steps.MAX_STEP_NAME_CHARS} printable characters"
        raise InvalidAgentResponse(f"state_update.steps.name: {step.name!r} {rule}")
    if not step.number:
        raise InvalidAgentResponse(f"{field}: number must be 1 or more")
    if step.position < NO_POSITION:
        raise InvalidAgentResponse(f"{field}: position must be -1 or more")
    if step.state not in STEP_STATES:
        raise InvalidAgentResponse(f"{field}: state {step.state} is not known")
    if len(step.result.raw) > steps.MAX_RESULT_BYTES:
        raise InvalidAgentResponse(f"{field}: the result has more than {steps.MAX_RESULT_BYTES} bytes")
    if step.details.ByteSize() > MAX_DETAILS_BYTES:
        raise InvalidAgentResponse(f"{field}: the details have more than {MAX_DETAILS_BYTES} bytes")
    if step.details.input:
        step.details.input = steps.without_secrets(step.details.input)
    return replace(decode_step(step), error=step.error[:MAX_PAUSE_ERROR_CHARS])


def _check_json_object(text: str, field: str) -> bytes:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidAgentResponse(f"state_update.{field} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidAgentResponse(f"state_update.{field} must be a JSON object")
    return text.encode()


def _check_id(id: str, field: str) -> str:
    if not id:
        raise InvalidAgentResponse(f"{field} is required")
    return id
