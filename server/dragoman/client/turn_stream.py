"""Resilient turn: one turn of a task over connections that may break.

| the server supports | recovery after a broken connection |
|---|---|
| cursors (`urn:dragoman:resume:v1`) | the stream resumes after the last event: no event is lost or repeated |
| streams | a subscription, which begins with the Task; if the server has no subscriptions, a poll at each event |
| neither | polls of the task |

A message is sent again with its key if the server supports keys or was not reached; else `calling.retry` looks for its
task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, TypeVar

from dragoman.calling import retry
from dragoman.calling.errors import (
    Busy,
    ClientError,
    Conflict,
    InactivityTimeout,
    Invalid,
    NotFound,
    NotSupported,
    OutcomeUnknown,
    ServerUnavailable,
)
from dragoman.calling.retry import RetryBudget
from dragoman.calling.transport import StreamResponses
from dragoman.client.agent_connection import AgentConnection
from dragoman.client.event_reducer import EventReducer
from dragoman.client.events import Event
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")
TASK_POLL_INTERVAL: Final = 15.0  # seconds without an event, after which the task is polled beside its stream
STREAM_CLOSE_TIMEOUT: Final = 1.0  # seconds for which a stream may stay open once its task has ended


@dataclass(eq=False)
class TurnStream:
    """Follows the events of one turn. The reducer keeps the state of the task for the next turn."""

    connection: AgentConnection
    reducer: EventReducer
    retries: RetryBudget  # also has the clock and the sleep
    _: KW_ONLY
    key: str = ""
    parent: str = ""
    inactivity_timeout: float | None = None  # seconds without an event of the task; None for no limit
    may_stream: bool = True  # use streams if the server has them

    def __post_init__(self) -> None:
        self._is_delivered = False  # whether the server is known to have the message
        self._uses_streaming = self.connection.supports_streaming and self.may_stream
        # A subscription of 0.3 does not repeat missed events, and one 0.3 server appends each chunk to the task once
        # more for every subscriber. Polling finds missed events and has no such effect.
        self._uses_subscription = self.connection.supports_resume or self.connection.interface.dialect == "1.0"
        self._last_was_task = False  # whether the last response was the complete task
        self._may_have_missed = False  # whether events may have been missed
        self._polls = 0
        self._last_event_time = self.retries.clock()

    def send(self, request: pb.SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Sends the message, and yields the events of the turn. Raises ClientError."""
        self.reducer.mark_answered()
        if self.connection.interface.dialect == "0.1":
            self.reducer.task.id = request.message.task_id
        return self._turn(request)

    def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Yields the events of a task after those in the reducer, until it ends or asks. Raises ClientError."""
        self.reducer.task.id = task_id
        self._is_delivered = True
        return self._turn(None)

    # The turn ---------------------------------------------------------------------------------------------------

    async def _turn(self, request: pb.SendMessageRequest | None) -> AsyncGenerator[Event, None]:
        while True:
            if self._is_delivered or request is None:
                responses = self._follow_once()
            else:
                responses = self._send_once(request)
            try:
                async with aclosing(responses):
                    while (raw := await self._next_event(responses)) is not None:
                        self.connection.mark_reachable()
                        self.retries.reset()
                        self._last_was_task = raw.HasField("task")
                        for event in self.reducer.reduce(raw):
                            self._last_event_time, self._polls = self.retries.clock(), 0
                            yield event
                        if self.reducer.is_over:
                            await _drain_stream(responses)
                            break
                        if self.reducer.awaits_caller and self.reducer.state == states.INPUT_REQUIRED:
                            break  # AUTH_REQUIRED may end by itself while the stream is open
                if self._is_delivered and (self.reducer.is_over or self.reducer.awaits_caller):
                    break
                self._may_have_missed = True
            except ClientError as error:
                await self._on_error(error, request)
                continue
            self._polls += 1
            await self.retries.sleep(retry.RETRY_BACKOFF.delay(self._polls))
        if self.reducer.is_over and not self.reducer.cursor and self.reducer.message is None:
            async for event in self._missing_events():
                yield event

    async def _missing_events(self) -> AsyncGenerator[Event, None]:
        """Yields the events missing from a stream: some servers stream COMPLETED without the artifacts."""
        if self._last_was_task or (
            not self._may_have_missed and (self.reducer.has_artifacts or self.reducer.state != states.COMPLETED)
        ):
            return
        try:
            task = await self.connection.get(self.reducer.task.id, history=1, parent=self.parent)
        except ClientError:  # the task has ended in any case
            return
        for event in self.reducer.reduce(pb.StreamResponse(task=task)):
            yield event

    async def _next_event(self, stream: StreamResponses) -> pb.StreamResponse | None:
        """Returns the next response; None at the end. Raises InactivityTimeout if no event arrives in time."""
        if self.inactivity_timeout is None:
            return await anext(stream, None)
        left = self.inactivity_timeout - (self.retries.clock() - self._last_event_time)
        try:
            if left > 0:
                async with asyncio.timeout(left):
                    return await anext(stream, None)
        except TimeoutError:
            pass
        raise InactivityTimeout(self.reducer.task.id, self.inactivity_timeout)

    # Calls ------------------------------------------------------------------------------------------------------

    async def _send_once(self, request: pb.SendMessageRequest) -> StreamResponses:
        """One attempt to send the message: its first responses."""
        transport = self.connection.transport
        request.tenant = self.connection.interface.tenant
        if not self._uses_streaming:
            response = await transport.call("SendMessage", request, key=self.key, parent=self.parent)
            self._is_delivered = True
            self.connection.supports_streaming = self.connection.supports_streaming and not self.may_stream
            assert isinstance(response, pb.SendMessageResponse)
            yield first_event(response)
            return
        stream = transport.stream("SendStreamingMessage", request, key=self.key, parent=self.parent)
        async with aclosing(self._stream_with_polls(stream, complete=True)) as events:
            async for event in events:
                self._is_delivered = True
                yield event

    async def _follow_once(self) -> StreamResponses:
        id, cursor = self.reducer.task.id, self.reducer.cursor
        if not cursor:
            yield await self._poll_task()
            if self.reducer.is_over or self.reducer.awaits_caller:
                return
        if self._uses_streaming and (self._uses_subscription or cursor):
            request = pb.SubscribeToTaskRequest(tenant=self.connection.interface.tenant, id=id)
            stream = self.connection.transport.stream("SubscribeToTask", request, after=cursor, parent=self.parent)
            async with aclosing(self._stream_with_polls(stream, complete=bool(cursor))) as events:
                async for event in events:
                    yield event

    async def _stream_with_polls(self, stream: StreamResponses, *, complete: bool) -> StreamResponses:
        """Yields the events of a stream, with polls of the task in between: servers without cursors stream only new
        events, and some never stream that a task was canceled. complete: the stream contains all events from the start.
        Otherwise it does from its first Task on; earlier events only signal a change."""
        step: asyncio.Task[pb.StreamResponse | None] | None = None
        try:
            while True:
                step = step or asyncio.create_task(next_or_none(stream))
                may_poll = bool(self.reducer.task.id) and self._is_delivered and not self.reducer.cursor
                await asyncio.wait([step], timeout=TASK_POLL_INTERVAL if may_poll else None)
                if not step.done():
                    yield await self._poll_task()
                    complete = False  # later events may repeat the polled state
                    continue
                event, step = step.result(), None
                if event is None:
                    return
                complete = complete or event.HasField("task")
                yield await self._poll_task() if not complete or (may_poll and _lacks_question(event)) else event
        finally:
            if step is not None:
                step.cancel()
                await asyncio.wait([step])
            await stream.aclose()

    async def _poll_task(self) -> pb.StreamResponse:
        # With the last message: some servers store the question there instead of in the status.
        return pb.StreamResponse(task=await self.connection.get(self.reducer.task.id, history=1, parent=self.parent))

    # Errors -----------------------------------------------------------------------------------------------------

    async def _on_error(self, error: ClientError, request: pb.SendMessageRequest | None) -> None:
        """Prepares the next attempt. Raises the error if no retry can help or the time is up."""
        self._may_have_missed = self._may_have_missed or self._is_delivered
        remote_error = error.remote_error
        if isinstance(error, ServerUnavailable):
            may_repeat = self.connection.is_idempotent or not error.may_have_arrived
            if not self._is_delivered and not may_repeat and request is not None:
                await self._find_task(request, error)
            elif not error.may_have_arrived and self.connection.next_transport():
                return
            await self.retries.wait(error)
        elif isinstance(error, Busy):
            await self.retries.wait(error)
        elif not self._is_delivered:
            if self._uses_streaming and remote_error.is_unsupported:
                self._uses_streaming = False
            elif remote_error.is_unknown_method and self.connection.next_transport():
                self._uses_streaming = self.connection.supports_streaming and self.may_stream
            else:
                raise error
        elif isinstance(error, Invalid) and not self.reducer.is_complete:
            raise error  # the caller's cursor is invalid
        elif self.reducer.cursor and isinstance(error, Invalid):
            self.reducer.cursor = ""  # the store or the task was replaced: start with the current state
        elif self._uses_subscription and isinstance(error, NotSupported | Invalid | Conflict):
            # Not supported, or the task has ended, which a poll shows: servers use different errors.
            self._uses_subscription = False
            self.reducer.cursor = ""
        elif not (remote_error.is_unknown_method and self.connection.next_transport()):
            raise error

    async def _find_task(self, request: pb.SendMessageRequest, error: ClientError) -> None:
        """Looks for the task of a message that may have been delivered, so that it is not sent twice. Raises `error` if
        the outcome stays unknown."""
        message, dialect = request.message, self.connection.interface.dialect
        if dialect == "0.1" or (dialect == "0.3" and message.task_id):
            try:
                task = await self.connection.get(message.task_id, parent=self.parent)
            except NotFound:
                return
            except ClientError:
                raise error from None
            self._is_delivered = retry.has_accepted(task, message)
            return
        if dialect != "1.0":
            raise error
        list_tasks = partial(self.connection.call, "ListTasks", parent=self.parent)
        try:
            found_task = await retry.find_task_of_message(
                list_tasks, message, message.context_id, tenant=request.tenant
            )
        except (ClientError, OutcomeUnknown):
            raise error from None
        if found_task is not None:
            self.reducer.task.id, self._is_delivered = found_task.id, True


async def _drain_stream(stream: StreamResponses) -> None:
    """Waits briefly for a stream to end by itself, so that its connection can be reused."""
    with suppress(TimeoutError, ClientError):
        async with asyncio.timeout(STREAM_CLOSE_TIMEOUT):
            await anext(stream, None)


def _lacks_question(event: pb.StreamResponse) -> bool:
    """Whether a task is interrupted and its status has no message: the question is in its history."""
    status = event.status_update.status
    return status.state in states.INTERRUPTED and not status.HasField("message")


def first_event(response: pb.SendMessageResponse) -> pb.StreamResponse:
    """The response to a send, as the only event of a stream."""
    if response.HasField("message"):
        return pb.StreamResponse(message=response.message)
    return pb.StreamResponse(task=response.task)


async def next_or_none(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)
