"""One turn of an upstream agent: sends a message, and writes the events of its task.

A streaming agent's stream is read, and resumed when it breaks; otherwise its task is polled. A turn that another
process had begun continues the same upstream task, known from our task's state or found by its message. If it cannot
be found the turn fails: the work may cost money, and is not started twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from google.protobuf.message import Message

from dragoman.agents.called.agent import RETRY_BACKOFF, CalledTurn, Sleep, TaskLost
from dragoman.agents.upstream import turn_writer
from dragoman.agents.upstream.agent import UpstreamAgent
from dragoman.agents.upstream.follow_ups import FollowUp, FollowUpSender
from dragoman.agents.upstream.transport import UpstreamTransport
from dragoman.agents.upstream.turn_writer import TurnWriter
from dragoman.agents.values import NewId
from dragoman.calling import retry
from dragoman.calling.errors import CallRefused, ClientError, OutcomeUnknown, ProtocolError, ServerUnavailable
from dragoman.core.durations import Backoff
from dragoman.core.errors import A2AError
from dragoman.core.task import states
from dragoman.core.task.log import StatusChange
from dragoman.ports import TurnContext, TurnResult, WorkerLost
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

UPSTREAM_POLL_BACKOFF: Final = Backoff(0.25, 5.0, factor=1.5)  # between two polls of a task that bring no new event

MAX_DOWNLOAD_ATTEMPTS: Final = 4  # attempts to read a large content behind a link, while the agent responds

AUTH_REQUIRED_HOLD_SECONDS: Final = 1.0
"""Seconds for which AUTH_REQUIRED is held back: a stream that ends with it ends the turn."""

_MESSAGE_ERRORS: Final = ("INVALID_PARAMS", "CONTENT_TYPE_NOT_SUPPORTED", "INVALID_REQUEST")
"""Refusals because of the message, which are not failures of the agent."""

OUTCOME_UNKNOWN_TEXT: Final = (
    "the message may have been sent to the agent, but no response arrived; it is not sent again"
)
"""The text of a failed task whose message may have been delivered."""


class UpstreamTurn(CalledTurn):
    """Sends a turn's message upstream, and follows its task to the end."""

    reason_prefix = "UPSTREAM"

    def __init__(
        self, context: TurnContext, connection: UpstreamAgent, new_id: NewId, sleep: Sleep = asyncio.sleep
    ) -> None:
        super().__init__(context, connection, sleep)
        self.connection = connection
        self.writer = TurnWriter(context, connection.location, new_id)
        self._maybe_sent = False  # whether an idempotent agent may have the message of an earlier call all the same
        self._chosen_task_id = ""  # the id that we chose for the upstream task (0.1); else empty
        self._message, self._envelope = context.message, context.envelope
        last = self.writer.state.last_message_id  # of an earlier turn, or of this one: then it has the message
        self._has_message = bool(last) and last not in [message.message_id for message in context.history]

    @property
    def is_marked_unsent(self) -> bool:
        return self.writer.state.unsent

    async def store_unsent(self, unsent: bool) -> None:
        await self.writer.store_unsent(unsent)

    @property
    def upstream_task(self) -> str:
        """The id of the upstream task; empty while unknown."""
        return self.writer.state.task or self._chosen_task_id

    @property
    def remote_task(self) -> str:
        return self.upstream_task

    async def until_cancelable(self) -> None:
        if not self.upstream_task:
            await self.writer.task_known.wait()

    # Calls ------------------------------------------------------------------------------------------------------

    def _lost(self) -> TaskLost:
        """The error for a task that the agent no longer knows."""
        return TaskLost(f"the agent no longer knows its task {self.upstream_task}, or hides it")

    async def _get_task(self, task_id: str = "") -> pb.Task:
        """Reads the upstream task. Raises TaskLost, and WorkerLost for an unavailable agent.

        task_id: its id, if it is not recorded yet.
        """
        try:
            return await self._read_task(pb.GetTaskRequest(id=task_id or self.upstream_task, history_length=0))
        except CallRefused as refused:
            if refused.remote_error.is_task_not_found:
                raise self._lost() from None
            raise

    async def _read_task(self, request: pb.GetTaskRequest) -> pb.Task:
        """Reads an upstream task. Raises ClientError, and WorkerLost for an unavailable agent."""
        task = await self._call("GetTask", request)
        assert isinstance(task, pb.Task)
        return task

    async def _call(self, rpc: str, request: Message) -> Message:
        """Repeats an idempotent call until it succeeds. Raises ClientError, and WorkerLost for an unavailable agent."""
        extensions = self.connection.required_extensions
        return await self.repeat(lambda: self.connection.transport.call(rpc, request, extensions=extensions))

    # The runtime ------------------------------------------------------------------------------------------------

    def describe_runner(self) -> str:
        agent, transports = self.connection, self.connection.transports
        task = f" as its task {self.upstream_task}" if self.upstream_task else ""
        problem = f"; the last call failed: {agent.breaker.last_error}" if agent.breaker.last_error else ""
        return f"upstream {transports[0].interface if transports else agent.location}{task}{problem}"

    def describe_wait(self) -> str:
        waits = "It has the message and has not responded yet" if not self.upstream_task else "Its task is being read"
        seconds = self.connection.idle_timeout
        return f"{waits}. A call that receives nothing for {seconds:g} s is aborted and repeated."

    # Recovery: finds the task of a message that may have been delivered ---------------------------------------------

    async def _find_task(self) -> pb.Task | None:
        """The upstream task that has the message. None: the message is safe to send (again).

        Raises OutcomeUnknown when that cannot be known, WorkerLost when the agent is unavailable.
        """
        state, dialect = self.writer.state, self.connection.transport.interface.dialect
        task_id = state.task
        if not task_id and dialect == "0.1":
            task_id = turn_writer.upstream_task_id(self.context.task_id, self._message.message_id)
        if task_id:
            return await self._find_by_id(task_id)
        if self.connection.idempotent:
            return None
        if dialect != "1.0":
            raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)
        # The context has tasks of this owner only.
        context_id = state.context or turn_writer.upstream_context_id(self.context.owner, self.context.context_id)
        try:
            return await retry.find_task_of_message(partial(self._call, "ListTasks"), self._message, context_id)
        except (CallRefused, OutcomeUnknown):
            raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT) from None

    async def _find_by_id(self, task_id: str) -> pb.Task | None:
        state = self.writer.state
        try:
            task = await self._read_task(pb.GetTaskRequest(id=task_id))
        except CallRefused as refused:
            if not refused.remote_error.is_task_not_found:
                raise
            if state.task:
                raise self._lost() from None
            return None
        has_it = self._has_message or state.last_message_id == self._message.message_id
        return task if has_it or retry.has_accepted(task, self._message) else None

    async def _has_received(self, message: pb.Message) -> bool:
        """Whether the upstream task has a message that was sent to it while it worked. Raises as `_find_task` does."""
        state = self.writer.state
        try:
            task = await self._read_task(pb.GetTaskRequest(id=state.task))
        except CallRefused as refused:
            is_lost = refused.remote_error.is_task_not_found
            raise (self._lost() if is_lost else OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)) from None
        if retry.contains_message(task, message):
            return True
        if any(one.message_id == state.last_message_id for one in task.history):
            return False  # its history is complete enough to show the message
        raise OutcomeUnknown(OUTCOME_UNKNOWN_TEXT)

    # The turn ---------------------------------------------------------------------------------------------------

    async def answer(self) -> TurnResult:
        may_be_sent = may_have_begun = self.may_have_begun
        await self.begin_work()
        follow_ups = FollowUpSender(self.context, self.writer, self._send_follow_up)
        try:
            while True:
                result = await follow_ups.run_with(self._answer_one(may_be_sent=may_be_sent))
                if not follow_ups.undelivered:
                    if states.is_terminal(result.status.state):
                        self.writer.forget_task()  # else a repeated next turn would take this result for its own
                    return replace(result, state_update=self.writer.state_update())
                # A message came too late for the upstream task: it starts another in the same context.
                await self.writer.continue_after(result)
                (self._message, self._envelope), is_doubtful = follow_ups.undelivered.pop(0)
                may_be_sent, self._has_message = may_have_begun and is_doubtful, False
        finally:
            await follow_ups.close()

    async def _answer_one(self, *, may_be_sent: bool) -> TurnResult:
        """The result for one message, or of the upstream task as it is if a canceled turn has not sent the message.

        `may_be_sent`: another process may have sent it.
        """
        if may_be_sent:
            found = await self._find_task()
            if found is not None:
                return await self._apply(pb.StreamResponse(task=found), polled=True) or await self._follow()
            # Of an idempotent agent it is not known: to send the message once more shows its task, which is canceled.
            self.is_sent = self._maybe_sent = self.connection.idempotent
        return await self._send()

    async def _unsent_end(self) -> TurnResult | None:
        """The result of a canceled turn whose message was not sent; None if it is to be sent."""
        if not self.context.canceled or self.is_sent:
            return None
        if not self.writer.state.task:
            return TurnResult(StatusChange(states.CANCELED))
        polls = 0
        while not self.is_cancel_refused:
            task = await self._get_task()
            if states.is_terminal(task.status.state):
                return await self._apply(pb.StreamResponse(task=task), polled=True)
            polls += 1
            await self.wait_for_wakeup(UPSTREAM_POLL_BACKOFF.delay(polls))
        return None

    async def _send(self) -> TurnResult:
        without_context, streams = False, self.connection.supports_streaming
        while True:
            if (result := await self._unsent_end()) is not None:
                return result
            transport, task = self.connection.transport, self.writer.state.task
            try:
                self.is_sent = True
                request = self._next_request(without_context=without_context)
                result = await self._send_once(transport, request, streams=streams)
            except ServerUnavailable as error:
                self._maybe_sent |= error.may_have_arrived and self.connection.idempotent
                self.is_sent = error.may_have_arrived or self._maybe_sent
                await self.wait_to_retry(error)
                found = await self._find_task() if error.may_have_arrived else None
                if found is None:
                    continue
                result = await self._apply(pb.StreamResponse(task=found), polled=True)
            except CallRefused as refused:
                self.connection.record_success()
                if refused.remote_error.is_busy:
                    self.is_sent = self._maybe_sent
                    await self.wait_to_retry(ServerUnavailable.for_reason(refused.summary, may_have_arrived=False))
                elif streams and refused.remote_error.is_unsupported:
                    streams = False
                elif refused.remote_error.is_unknown_method and self.connection.drop_transport(transport):
                    streams = self.connection.supports_streaming
                elif task and await self._has_ended(refused):
                    self.writer.forget_task()
                    streams = self.connection.supports_streaming  # the refusal may have been because of the task
                elif not (without_context or task) and "contextId" in _rejected_fields(refused):
                    without_context = True
                else:
                    raise
                continue
            if self.connection.supports_streaming and not streams:
                text = "%s does not stream, although its card says so"
                log.warning(text, self.connection.location, extra=self._fields)
                self.connection.supports_streaming = False
            return result or await self._follow()

    async def _send_once(
        self, transport: UpstreamTransport, request: pb.SendMessageRequest, *, streams: bool
    ) -> TurnResult | None:
        """Sends once, and reads the response. None when it stopped before the turn ended."""
        key = turn_writer.idempotency_key(self.context.task_id, self._message.message_id)
        extensions = self._extensions(self._message)
        self.writer.may_change_task = True
        if streams:
            events = transport.stream("SendStreamingMessage", request, key=key, extensions=extensions)
            return await self._read_stream(events, complete=True)
        response = await transport.call("SendMessage", request, key=key, extensions=extensions)
        self.connection.record_success()
        assert isinstance(response, pb.SendMessageResponse)
        if response.HasField("message"):
            return await self._apply(pb.StreamResponse(message=response.message))
        if not response.HasField("task"):
            location = self.connection.location
            raise ProtocolError(f"{location}: the response to a message holds neither a task nor a message")
        return await self._apply(pb.StreamResponse(task=response.task), polled=True)

    def _next_request(self, *, without_context: bool) -> pb.SendMessageRequest:
        """The request that sends the message. `without_context`: the agent chooses the context."""
        task, context = self.writer.state.task, self.writer.state.context
        if not task and self.connection.transport.interface.dialect == "0.1":
            task = turn_writer.upstream_task_id(self.context.task_id, self._message.message_id)
            self._chosen_task_id = task
        context = context or turn_writer.upstream_context_id(self.context.owner, self.context.context_id)
        return self._build_request(self._message, self._envelope, task, "" if without_context else context)

    def _build_request(
        self, message: pb.Message, envelope: pb.SendMessageRequest, task_id: str, context_id: str
    ) -> pb.SendMessageRequest:
        """The request that sends a message with these upstream ids."""
        request = pb.SendMessageRequest(message=message)
        request.message.ClearField("reference_task_ids")  # ids of our tasks, unknown upstream
        request.message.task_id, request.message.context_id = task_id, context_id
        if envelope.HasField("metadata"):
            request.metadata.CopyFrom(envelope.metadata)
        request.configuration.return_immediately = True
        modes: Sequence[str] = envelope.configuration.accepted_output_modes
        if not modes and self.connection.transport.interface.dialect == "0.3":
            modes = self.connection.spec.output_modes  # required in 0.2, and by some servers still
        request.configuration.accepted_output_modes.extend(modes)
        return request

    def _extensions(self, message: pb.Message) -> str:
        named = [*filter(None, self.connection.required_extensions.split(",")), *message.extensions]
        return ",".join(dict.fromkeys(named))

    async def _send_follow_up(self, follow_up: FollowUp, *, is_doubtful: bool) -> None:
        """Implements `follow_ups.SendFollowUp`."""
        message, state = follow_up[0], self.writer.state
        request = self._build_request(*follow_up, state.task, state.context)
        key = turn_writer.idempotency_key(self.context.task_id, message.message_id)

        async def send_once() -> None:
            nonlocal is_doubtful
            if is_doubtful and not self.connection.idempotent and await self._has_received(message):
                return
            is_doubtful = False
            extensions = self._extensions(message)
            try:
                await self.connection.transport.call("SendMessage", request, key=key, extensions=extensions)
            except ServerUnavailable as error:
                is_doubtful = error.may_have_arrived
                raise

        try:
            await self.repeat(send_once)
        except WorkerLost as lost:
            if is_doubtful:
                raise
            raise ServerUnavailable.for_reason(str(lost), may_have_arrived=False) from lost

    async def _has_ended(self, refused: CallRefused) -> bool:
        """Whether a message was refused because the upstream task has ended. Raises TaskLost."""
        if refused.remote_error.is_task_not_found:
            raise self._lost()
        return states.is_terminal((await self._get_task()).status.state)

    # Following the task -----------------------------------------------------------------------------------------

    async def _follow(self) -> TurnResult:
        polls, subscribes = 1, True
        while True:
            before = self.writer.event_count
            if self.connection.supports_streaming and subscribes:
                try:
                    request = pb.SubscribeToTaskRequest(id=self.upstream_task)
                    required = self.connection.required_extensions
                    events = self.connection.transport.stream("SubscribeToTask", request, extensions=required)
                    if (result := await self._read_stream(events, complete=False)) is not None:
                        return result
                except ServerUnavailable as error:
                    await self.wait_to_retry(error)
                except CallRefused as refused:  # the task has ended, or the method is not supported
                    self.connection.record_success()
                    subscribes = not refused.remote_error.is_unsupported
            task = await self._get_task()
            if (result := await self._apply(pb.StreamResponse(task=task), polled=True)) is not None:
                return result
            polls = 1 if self.writer.event_count > before else polls + 1
            await self.wait_for_wakeup(UPSTREAM_POLL_BACKOFF.delay(polls))

    async def _read_stream(
        self, events: AsyncGenerator[pb.StreamResponse, None], *, complete: bool
    ) -> TurnResult | None:
        """Reads a stream until the turn or the stream is over.

        `complete`: the stream has all events of the task. Otherwise it has them from its first Task on; earlier events
        only signal a change.
        """
        async with aclosing(events):
            wakeup = asyncio.create_task(self._wakeup.wait(), name="wakeup of an upstream turn")
            step: asyncio.Task[pb.StreamResponse | None] | None = None
            try:
                while True:
                    step = step or asyncio.create_task(_next_event(events), name="event of an upstream turn")
                    timeout = AUTH_REQUIRED_HOLD_SECONDS if self.writer.held_status else None
                    await asyncio.wait([step, wakeup], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                    if step.done():
                        event, step = step.result(), None
                        if event is None:
                            return self.writer.take_held_result()
                        self.connection.record_success()
                        complete = complete or event.HasField("task")
                    elif wakeup.done():
                        # Some servers never stream the result of a cancel.
                        self._wakeup.clear()
                        wakeup = asyncio.create_task(self._wakeup.wait(), name="wakeup of an upstream turn")
                        if not self.upstream_task:
                            continue
                        event = pb.StreamResponse(task=await self._get_task())
                        complete = False  # the stream may repeat it
                    else:  # the stream is still open: the task continues by itself
                        await self.writer.flush_held()
                        continue
                    if not (complete or event.HasField("task")):
                        event = pb.StreamResponse(task=await self._get_task())
                    restored = await self._with_contents(event)
                    complete = complete and restored is event  # the stream may repeat what was read again
                    if (result := await self._write(restored)) is not None:
                        return result if event.HasField("task") else await self._with_missing_artifacts(result)
            finally:
                for one in (step, wakeup):
                    if one is not None:
                        one.cancel()
                        await asyncio.wait([one])

    async def _with_missing_artifacts(self, result: TurnResult) -> TurnResult:
        """The result, after reading artifacts that the stream left out: some servers stream COMPLETED without them."""
        if result.status.state == states.COMPLETED and result.reply is None and not self.writer.artifacts.contents:
            try:
                event = pb.StreamResponse(task=await self._get_task())
            except (ClientError, OutcomeUnknown, WorkerLost):  # the task has ended all the same
                return result
            event = await self._with_contents(event)
            with suppress(ClientError):
                return await self._write(event, polled=True) or result
        return result

    async def _apply(self, event: pb.StreamResponse, *, polled: bool = False) -> TurnResult | None:
        return await self._write(await self._with_contents(event), polled=polled)

    async def _with_contents(self, event: pb.StreamResponse) -> pb.StreamResponse:
        """The event with its large contents in place of their links; a Task may be read again for that.

        Raises ProtocolError when they cannot be read, WorkerLost for an unavailable agent.
        """
        contents, attempt = self.connection.linked_contents, 1
        while contents is not None and contents.are_in(event):
            try:
                await contents.download(event)
            except ServerUnavailable as error:
                log.info("a large content could not be read upstream: %s", error.summary, extra=self._fields)
                if attempt == MAX_DOWNLOAD_ATTEMPTS:
                    raise ProtocolError(f"a large content of a response cannot be read: {error.summary}") from None
                await self._sleep(RETRY_BACKOFF.delay(attempt))
                attempt += 1
                # Shows whether the agent responds at all. New links replace expired ones, and those of an artifact that
                # was replaced.
                if task_id := event.task.id or self.upstream_task:
                    task = await self._get_task(task_id)
                    event = pb.StreamResponse(task=task) if event.HasField("task") else event
        return event

    async def _write(self, event: pb.StreamResponse, *, polled: bool = False) -> TurnResult | None:
        return await self.writer.apply(event, self._message.message_id, polled=polled)

    # Errors -----------------------------------------------------------------------------------------------------

    def failed(self, reason: str, text: str, error: type[A2AError] | None = None) -> TurnResult:
        log.warning("a turn upstream failed: %s: %s", reason, text, extra=self._fields)
        failure = wk.Failure(type=reason, text=f"{text} (upstream {self.connection.location})").SerializeToString()
        text = self._redact_urls(text)
        result = self.writer.failed_result(f"{reason}: {text}", failure=failure)
        return replace(result, error=error(text)) if error is not None else result

    def refused(self, refused: CallRefused) -> TurnResult:
        log.info("a message was refused upstream: %s", refused.summary, extra=self._fields)
        state = states.REJECTED if refused.reason in _MESSAGE_ERRORS else states.FAILED
        return self.writer.failed_result(f"UPSTREAM_REFUSED: {refused.summary}", state)

    def _redact_urls(self, text: str) -> str:
        contents = self.connection.linked_contents
        others = contents.addresses if contents is not None else ()
        urls = (self.connection.transport.interface.url, self.connection.location, *others)
        hosts = [url.partition("://")[2].partition("/")[0] or url for url in urls]
        for place in (*urls, *hosts):  # a host is a part of addresses
            text = text.replace(f"{place}: ", "").replace(place, "it")
        return text

    @property
    def _fields(self) -> dict[str, str]:
        return {"task": self.context.task_id, "upstream": self.connection.location, "upstream_task": self.upstream_task}


async def _next_event(events: AsyncGenerator[pb.StreamResponse, None]) -> pb.StreamResponse | None:
    """The next event; None at the end."""
    return await anext(events, None)


def _rejected_fields(refused: CallRefused) -> str:
    """The fields and text of a refusal that rejects a message; empty for other refusals."""
    remote_error = refused.remote_error
    if remote_error.reason != "INVALID_PARAMS" and remote_error.code != "INVALID_ARGUMENT":
        return ""
    fields = " ".join([*(violation.field for violation in remote_error.violations), remote_error.message])
    return fields.replace("context_id", "contextId")
