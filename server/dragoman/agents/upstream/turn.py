"""One turn of an agent upstream: a message goes there, and what comes of it is written here.

Where the agent streams, its stream is read, and taken up again when it breaks; else its task is asked after now and
then. A turn that another process had begun is gone on with, and not begun again: the task upstream is known from what
is kept with ours (memory.py), or found (finding.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from dragoman.agents.upstream import recovery, turn_writer
from dragoman.agents.upstream.recovery import FollowUpSender
from dragoman.agents.upstream.transport import UpstreamTransport
from dragoman.agents.upstream.turn_writer import TurnWriter
from dragoman.agents.values import NewId
from dragoman.calling.errors import (
    CallForbidden,
    CallRefused,
    ClientError,
    OutcomeUnknown,
    ProtocolError,
    ServerUnavailable,
)
from dragoman.core.backoff import Backoff
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.task import states
from dragoman.ports import TurnContext, TurnResult, WorkerLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

T = TypeVar("T")

UPSTREAM_RETRY_BACKOFF: Final = Backoff(0.25, 5.0)
"""Between two attempts of a call."""

UPSTREAM_POLL_BACKOFF: Final = Backoff(0.25, 5.0, factor=1.5)
"""Between two polls of a task that bring no new event."""

AUTH_REQUIRED_HOLD_SECONDS: Final = 1.0
"""Seconds for which AUTH_REQUIRED is not written yet: a stream that ends with it ends the turn."""


class UpstreamConnection(Protocol):
    """What a turn needs to know of its agent, and tells it."""

    spec: AgentSpec
    location: str
    """Where it is, for people."""
    supports_streaming: bool
    """It has streams, as far as is known."""
    idempotent: bool
    """A repeated send with the same key runs nothing."""
    required_extensions: str
    """URIs that each call has to activate, with commas."""

    @property
    def transport(self) -> UpstreamTransport: ...

    @property
    def is_unavailable(self) -> bool:
        """Nobody should try any more."""
        ...

    def record_success(self) -> None: ...

    def record_failure(self, reason: str) -> None: ...

    def next_transport(self, transport: UpstreamTransport) -> bool:
        """Takes another of its interfaces instead of one that does not know a call. False when there is none."""
        ...


class UpstreamTurn:
    """One turn at a desk."""

    def __init__(
        self,
        turn_context: TurnContext,
        connection: UpstreamConnection,
        new_id: NewId,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.turn_context = turn_context
        self.connection = connection
        self.writer = TurnWriter(turn_context, connection.location, new_id)
        self.is_sent = False
        """The message may have arrived."""
        self.chosen_task_id = ""
        """The task upstream that the message begins, where its client names it (0.1)."""
        self._sleep = sleep
        self._wakeup = asyncio.Event()
        self._message = turn_context.message
        self._envelope = turn_context.envelope

    @property
    def task_id(self) -> str:
        """The id of the task upstream, as far as it is known."""
        return self.writer.state.task or self.chosen_task_id

    def wake(self) -> None:
        """Something happened upstream: looks there at once."""
        self._wakeup.set()

    # The turn ---------------------------------------------------------------------------------------------------

    async def run(self) -> TurnResult:
        """The turn, from its message to its end. Raises ProcessLost when the agent is not there and may come back."""
        again = self.turn_context.attempt > 1 and not self.writer.state.unsent
        forwarding = FollowUpSender(self, self._extensions, self._output_modes)
        passing = asyncio.create_task(forwarding.run(), name=f"messages for {self.turn_context.task_id} upstream")
        try:
            while True:
                ending = await forwarding.run_with(self._answer(may_be_sent=again))
                if not forwarding.undelivered:
                    return replace(ending, state_update=self.writer.state_update())
                # One came too late for the task there; it begins another in the same conversation.
                await self.writer.continue_after(ending)
                self._message, self._envelope = forwarding.undelivered.pop(0)
                again = False
        except (InvalidAgentResponse, ProtocolError) as error:
            return self._failed_result(f"InvalidAgentResponse: {error.message}")
        except CallForbidden as error:
            return self._failed_result(f"UPSTREAM_FORBIDDEN: {error.message}")
        except OutcomeUnknown as error:
            return self._failed_result(str(error))
        except CallRefused as refused:
            log.info("a message was refused upstream: %s", refused.summary, extra=self._fields)
            return self.writer.statuses.refused_result(refused, self.writer.state_update())
        finally:
            passing.cancel()
            await asyncio.wait([passing])

    async def _answer(self, *, may_be_sent: bool) -> TurnResult:
        """Has one message answered. `again`: another process may have sent it."""
        if may_be_sent:
            self.is_sent = True
            found = await recovery.find_task(self, self._message)
            if found is not None:
                return await self._apply(pb.StreamResponse(task=found), polled=True) or await self._follow()
        return await self._send()

    async def _send(self) -> TurnResult:
        """Sends the message and follows what comes of it."""
        bare, streams = False, self.connection.supports_streaming
        while True:
            road, task = self.connection.transport, self.writer.state.task
            try:
                self.is_sent = True
                ending = await self._send_once(road, self._build_request(without_context=bare), streams=streams)
            except ServerUnavailable as away:
                self.is_sent = away.may_have_arrived
                await self._wait_to_retry(away)
                found = await recovery.find_task(self, self._message) if away.may_have_arrived else None
                if found is None:
                    continue
                ending = await self._apply(pb.StreamResponse(task=found), polled=True)
            except CallRefused as refused:
                self.connection.record_success()
                if refused.remote_error.is_busy:
                    self.is_sent = False
                    await self._wait_to_retry(ServerUnavailable.for_reason(refused.summary, may_have_arrived=False))
                elif streams and refused.remote_error.is_unsupported:
                    streams = False
                elif refused.remote_error.is_unknown_method and self.connection.next_transport(road):
                    streams = self.connection.supports_streaming
                elif task and await self._has_ended(refused):
                    self.writer.forget_task()
                    streams = self.connection.supports_streaming  # it may have been the task that was refused
                elif not (bare or task) and "contextId" in _rejected_fields(refused):
                    bare = True
                else:
                    raise
                continue
            if self.connection.supports_streaming and not streams:
                log.warning("%s has no streams, whatever its card says", self.connection.location, extra=self._fields)
                self.connection.supports_streaming = False
            return ending or await self._follow()

    async def _send_once(
        self, transport: UpstreamTransport, request: pb.SendMessageRequest, *, streams: bool
    ) -> TurnResult | None:
        """Sends once, and reads what is answered: None when that stopped before the turn ended."""
        key = turn_writer.idempotency_key(self.turn_context.task_id, self._message.message_id)
        extensions = self._extensions(self._message)
        self.writer.may_change_task = True
        if streams:
            events = transport.stream("SendStreamingMessage", request, key=key, extensions=extensions)
            return await self._read_stream(events, complete=True)
        answer = await transport.call("SendMessage", request, key=key, extensions=extensions)
        self.connection.record_success()
        assert isinstance(answer, pb.SendMessageResponse)
        if answer.HasField("message"):
            return await self._apply(pb.StreamResponse(message=answer.message))
        if not answer.HasField("task"):
            raise ProtocolError(
                f"{self.connection.location}: the answer to a message holds neither a task nor a message"
            )
        return await self._apply(pb.StreamResponse(task=answer.task), polled=True)

    def _build_request(self, *, without_context: bool) -> pb.SendMessageRequest:
        """The send of the message: its own parts and metadata, under the names that upstream knows. `bare`:
        without
        a conversation of our choice."""
        known = self.writer.state
        message = pb.Message()
        message.CopyFrom(self._message)
        message.ClearField("reference_task_ids")  # tasks of ours, which nobody knows there
        message.task_id = known.task
        if not known.task and self.connection.transport.interface.dialect == "0.1":
            message.task_id = self.chosen_task_id = turn_writer.upstream_task_id(
                self.turn_context.task_id, message.message_id
            )
        context = known.context or turn_writer.upstream_context_id(
            self.turn_context.owner, self.turn_context.context_id
        )
        message.context_id = "" if without_context else context
        request = pb.SendMessageRequest(message=message)
        if self._envelope.HasField("metadata"):
            request.metadata.CopyFrom(self._envelope.metadata)
        request.configuration.return_immediately = True
        request.configuration.accepted_output_modes.extend(self._output_modes(self._envelope))
        return request

    def _output_modes(self, envelope: pb.SendMessageRequest) -> Sequence[str]:
        """The output modes that a message's sender takes. 0.2 wants them said, and so do servers still."""
        if envelope.configuration.accepted_output_modes or self.connection.transport.interface.dialect != "0.3":
            return envelope.configuration.accepted_output_modes
        return self.connection.spec.output_modes

    def _extensions(self, message: pb.Message) -> str:
        named = [*filter(None, self.connection.required_extensions.split(",")), *message.extensions]
        return ",".join(dict.fromkeys(named))

    async def _has_ended(self, refused: CallRefused) -> bool:
        """Whether the task upstream takes no more messages because it is over. Raises Lost for one that is gone."""
        if refused.remote_error.is_task_not_found:
            raise OutcomeUnknown(self.task_lost_text)
        return states.is_terminal((await self.get_task()).status.state)

    # Following --------------------------------------------------------------------------------------------------

    async def _follow(self) -> TurnResult:
        """Follows the task, which is known, until the turn is over."""
        polls, subscribes = 1, True
        while True:
            before = self.writer.event_count
            if self.connection.supports_streaming and subscribes:
                try:
                    asked = pb.SubscribeToTaskRequest(id=self.task_id)
                    events = self.connection.transport.stream(
                        "SubscribeToTask", asked, extensions=self.connection.required_extensions
                    )
                    if (ending := await self._read_stream(events, complete=False)) is not None:
                        return ending
                except ServerUnavailable as away:
                    await self._wait_to_retry(away)
                except CallRefused as refused:  # it has ended, or there is no such call
                    self.connection.record_success()
                    subscribes = not refused.remote_error.is_unsupported
            task = await self.get_task()
            if (ending := await self._apply(pb.StreamResponse(task=task), polled=True)) is not None:
                return ending
            polls = 1 if self.writer.event_count > before else polls + 1
            await self._wait_for_wakeup(UPSTREAM_POLL_BACKOFF.delay(polls))

    async def _read_stream(
        self, events: AsyncGenerator[pb.StreamResponse, None], *, complete: bool
    ) -> TurnResult | None:
        """Reads a stream until the turn is over, or the stream is. `whole`: it says everything from the beginning;
        otherwise that is so once it has shown the task, and events before that say only that there is something new.
        """
        async with aclosing(events):
            nudge = asyncio.create_task(self._wakeup.wait(), name="something upstream")
            step: asyncio.Task[pb.StreamResponse | None] | None = None
            try:
                while True:
                    step = step or asyncio.create_task(_next_event(events), name="an event upstream")
                    patience = AUTH_REQUIRED_HOLD_SECONDS if self.writer.holds_status else None
                    await asyncio.wait([step, nudge], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                    if step.done():
                        event, step = step.result(), None
                        if event is None:
                            return self.writer.take_held_result()
                        self.connection.record_success()
                        complete = complete or event.HasField("task")
                    elif nudge.done():
                        # Not every server shows in a stream what came of a cancel.
                        self._wakeup.clear()
                        nudge = asyncio.create_task(self._wakeup.wait(), name="something upstream")
                        if not self.task_id:
                            continue
                        event = pb.StreamResponse(task=await self.get_task())
                        complete = False  # it may come again
                    else:  # it goes on by itself: whoever it needs was told elsewhere
                        await self.writer.flush_held()
                        continue
                    if not (complete or event.HasField("task")):
                        event = pb.StreamResponse(task=await self.get_task())
                    if (ending := await self._apply(event)) is not None:
                        return ending if event.HasField("task") else await self._with_missing_artifacts(ending)
            finally:
                for one in (step, nudge):
                    if one is not None:
                        one.cancel()
                        await asyncio.wait([one])

    async def _with_missing_artifacts(self, result: TurnResult) -> TurnResult:
        """The end of a turn whose stream showed no artifact: some servers stream that a task is done, and not what came
        of it."""
        if result.status.state == states.COMPLETED and result.reply is None and not self.writer.has_artifacts:
            with suppress(ClientError, OutcomeUnknown, WorkerLost):  # it has ended, as far as we were told
                return await self._apply(pb.StreamResponse(task=await self.get_task()), polled=True) or result
        return result

    async def get_task(self) -> pb.Task:
        """The task upstream as it is. Raises Lost when it is gone, ProcessLost when the agent is."""
        asked = pb.GetTaskRequest(id=self.task_id, history_length=0)
        try:
            task = await self.call_with_retry(
                lambda road: road.call("GetTask", asked, extensions=self.connection.required_extensions)
            )
        except CallRefused as refused:
            if refused.remote_error.is_task_not_found:
                raise OutcomeUnknown(self.task_lost_text) from None
            raise
        assert isinstance(task, pb.Task)
        return task

    async def call_with_retry(self, call: Callable[[UpstreamTransport], Awaitable[T]]) -> T:
        """Asks what may be asked twice, until there is an answer. Raises ProcessLost when there is none for too long,
        and CallFailed."""
        attempt = 1
        while True:
            try:
                answer = await call(self.connection.transport)
            except ServerUnavailable as away:
                await self._wait_to_retry(away, attempt)
            except CallRefused as refused:
                self.connection.record_success()
                if not refused.remote_error.is_busy:
                    raise
                await self._sleep(UPSTREAM_RETRY_BACKOFF.delay(attempt))
            else:
                self.connection.record_success()
                return answer
            attempt += 1

    async def _wait_to_retry(self, error: ServerUnavailable, attempt: int = 1) -> None:
        """Waits before the next try. Raises ProcessLost instead, once the agent is left alone."""
        self.connection.record_failure(error.summary)
        if self.connection.is_unavailable:
            if not self.is_sent:
                self.writer.mark_unsent()
            raise WorkerLost("The agent that has it is away.", may_have_started=self.is_sent)
        await self._sleep(UPSTREAM_RETRY_BACKOFF.delay(attempt))

    async def _wait_for_wakeup(self, seconds: float) -> None:
        """Waits so long, or until something happened."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.create_task(self._wakeup.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._wakeup.clear()

    async def _apply(self, event: pb.StreamResponse, *, polled: bool = False) -> TurnResult | None:
        return await self.writer.apply(event, self._message.message_id, polled=polled)

    # Failing ----------------------------------------------------------------------------------------------------

    def _failed_result(self, text: str) -> TurnResult:
        log.warning("a turn upstream failed: %s", text, extra=self._fields)
        return self.writer.statuses.failed_result(self._redact_urls(text), self.writer.state_update())

    def _redact_urls(self, text: str) -> str:
        """A text for callers, who need not know where the agent is."""
        for url in (self.connection.transport.interface.url, self.connection.location):
            place = url.partition("://")[2].partition("/")[0] or url
            text = text.replace(f"{url}: ", "").replace(url, "it").replace(f"{place}: ", "").replace(place, "it")
        return text

    @property
    def task_lost_text(self) -> str:
        """What is said of a task that upstream no longer knows."""
        return f"UPSTREAM_LOST: the agent no longer knows its task {self.task_id}, or lets nobody see it"

    @property
    def _fields(self) -> dict[str, str]:
        return {"task": self.turn_context.task_id, "upstream": self.connection.location, "upstream_task": self.task_id}


async def _next_event(events: AsyncGenerator[pb.StreamResponse, None]) -> pb.StreamResponse | None:
    """The next event; None at the end."""
    return await anext(events, None)


def _rejected_fields(refused: CallRefused) -> str:
    """What a refusal of a message says was wrong with it: fields and text."""
    complaint = refused.remote_error
    if complaint.reason != "INVALID_PARAMS" and complaint.code != "INVALID_ARGUMENT":
        return ""
    fields = " ".join([*(violation.field for violation in complaint.violations), complaint.message])
    return fields.replace("context_id", "contextId")
