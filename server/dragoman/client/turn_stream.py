"""One turn of a task, from its message to its end, whatever breaks on the way.

| the server | what a break is mended with |
|---|---|
| has cursors (`urn:dragoman:resume:v1`) | the stream goes on after the last event: nothing is missed or comes twice |
| has streams | a subscription, which begins with the Task; else a look at the task whenever something is said |
| has neither | a look at the task now and then |

A message is sent again under the same key if the server knows keys, or was not reached; else it is looked for among the
tasks, and not sent twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final

from dragoman.calling import recovery, retry
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

TASK_POLL_INTERVAL: Final = 15.0
"""Seconds without an event after which a task is looked at, although its stream is open."""

STREAM_CLOSE_TIMEOUT: Final = 1.0
"""Seconds for which a stream may stay open once its task has ended."""


class TurnStream:
    """One turn. `teller` knows the task, and goes on knowing it for the next turn."""

    def __init__(
        self,
        connection: AgentConnection,
        reducer: EventReducer,
        *,
        key: str = "",
        parent: str = "",
        retry_timeout: float,
        inactivity_timeout: float | None,
        may_stream: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds for which a server that is away, or busy, is tried. `silence`: seconds for which the task
        may say nothing new, None for any. `streams`: streams are used where there are any."""
        self.connection = connection
        self.reducer = reducer
        self._key = key
        self._parent = parent
        self._retry = RetryBudget(retry_timeout, sleep=sleep, clock=clock)
        self._inactivity_timeout = inactivity_timeout
        self._sleep = sleep
        self._clock = clock
        self._is_delivered = False
        """The message is known to be there."""
        self._may_stream = may_stream
        self._uses_streaming = connection.supports_streaming and may_stream
        # A stream of 0.3 says nothing of what was missed, and one of its servers adds each chunk to the task once more
        # for whoever subscribes: there, a look now and then tells more, and does no harm.
        self._uses_subscription = connection.supports_resume or connection.interface.dialect == "1.0"
        self._last_was_task = False
        """What was heard last was the whole task."""
        self._may_have_missed = False
        """Something may have been missed."""
        self._polls = 0
        self._last_event_time = clock()

    async def send(self, request: pb.SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Sends, and tells what comes of it until the turn is over. Raises ClientError."""
        self.reducer.mark_answered()
        if self.connection.interface.dialect == "0.1":
            self.reducer.task.id = request.message.task_id
        async with aclosing(self._turn(request)) as events:
            async for event in events:
                yield event

    async def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Tells of a task from where its teller stands, until it has ended or asks. Raises ClientError."""
        self.reducer.task.id = task_id
        self._is_delivered = True
        async with aclosing(self._turn(None)) as events:
            async for event in events:
                yield event

    # The turn ---------------------------------------------------------------------------------------------------

    async def _turn(self, request: pb.SendMessageRequest | None) -> AsyncGenerator[Event, None]:
        while True:
            if self._is_delivered or request is None:
                heard = self._follow_once()
            else:
                heard = self._send_once(request)
            try:
                async with aclosing(heard):
                    while (raw := await self._next_event(heard)) is not None:
                        self._on_response()
                        self._last_was_task = raw.HasField("task")
                        for event in self.reducer.reduce(raw):
                            self._last_event_time, self._polls = self._clock(), 0
                            yield event
                        if self.reducer.is_over:
                            await _drain_stream(heard)
                            break
                        if self.reducer.awaits_caller and self.reducer.state == states.INPUT_REQUIRED:
                            break  # one that wants credentials may go on by itself, as long as its stream is open
                if self._is_delivered and (self.reducer.is_over or self.reducer.awaits_caller):
                    break
                self._may_have_missed = True
            except ClientError as error:
                await self._on_error(error, request)
                continue
            await self._wait_before_poll()
        if self.reducer.is_over and not self.reducer.cursor and self.reducer.message is None:
            async for event in self._missing_events():
                yield event

    async def _missing_events(self) -> AsyncGenerator[Event, None]:
        """What a stream left out: some servers stream that a task is done, and not what came of it."""
        if self._last_was_task or (
            not self._may_have_missed and (self.reducer.has_artifacts or self.reducer.state != states.COMPLETED)
        ):
            return
        try:
            task = await self.connection.get(self.reducer.task.id, history=1, parent=self._parent)
        except ClientError:  # it has ended, as far as we were told
            return
        for event in self.reducer.reduce(pb.StreamResponse(task=task)):
            yield event

    async def _next_event(self, stream: StreamResponses) -> pb.StreamResponse | None:
        """The next event; None at the end. Raises Silent when there was no news for too long."""
        if self._inactivity_timeout is None:
            return await anext(stream, None)
        left = self._inactivity_timeout - (self._clock() - self._last_event_time)
        try:
            if left > 0:
                async with asyncio.timeout(left):
                    return await anext(stream, None)
        except TimeoutError:
            pass
        raise InactivityTimeout(self.reducer.task.id, self._inactivity_timeout)

    # Asking -----------------------------------------------------------------------------------------------------

    async def _send_once(self, request: pb.SendMessageRequest) -> StreamResponses:
        """One try to send the message, and what is heard of it at once."""
        road = self.connection.transport
        request.tenant = self.connection.interface.tenant
        if not self._uses_streaming:
            answer = await road.call("SendMessage", request, key=self._key, parent=self._parent)
            self._is_delivered, self.connection.supports_streaming = (
                True,
                self.connection.supports_streaming and not self._may_stream,
            )
            assert isinstance(answer, pb.SendMessageResponse)
            if answer.HasField("message"):
                yield pb.StreamResponse(message=answer.message)
            else:
                yield pb.StreamResponse(task=answer.task)
            return
        stream = road.stream("SendStreamingMessage", request, key=self._key, parent=self._parent)
        async with aclosing(self._stream_with_polls(stream, complete=True)) as events:
            async for event in events:
                self._is_delivered = True
                yield event

    async def _follow_once(self) -> StreamResponses:
        """One try to hear more of a task that is known."""
        id, cursor = self.reducer.task.id, self.reducer.cursor
        if not cursor:
            yield await self._poll_task()
            if self.reducer.is_over or self.reducer.awaits_caller:
                return
        if self._uses_streaming and (self._uses_subscription or cursor):
            asked = pb.SubscribeToTaskRequest(tenant=self.connection.interface.tenant, id=id)
            stream = self.connection.transport.stream("SubscribeToTask", asked, after=cursor, parent=self._parent)
            async with aclosing(self._stream_with_polls(stream, complete=bool(cursor))) as events:
                async for event in events:
                    yield event

    async def _stream_with_polls(self, stream: StreamResponses, *, complete: bool) -> StreamResponses:
        """The events of a stream, with looks at the task where it says too little: servers without cursors stream what
        is added and not what was missed, and some forget to say that a task was canceled.

        `whole`: it says everything from the beginning; otherwise that is so once it has shown the task, and events
        before that say only that there is something new.
        """
        step: asyncio.Task[pb.StreamResponse | None] | None = None
        try:
            while True:
                step = step or asyncio.create_task(_next_or_none(stream))
                may_look = bool(self.reducer.task.id) and self._is_delivered and not self.reducer.cursor
                await asyncio.wait([step], timeout=TASK_POLL_INTERVAL if may_look else None)
                if not step.done():
                    yield await self._poll_task()
                    complete = False  # what comes may have been seen
                    continue
                event, step = step.result(), None
                if event is None:
                    return
                complete = complete or event.HasField("task")
                yield await self._poll_task() if not complete or (may_look and _lacks_question(event)) else event
        finally:
            if step is not None:
                step.cancel()
                await asyncio.wait([step])
            await stream.aclose()

    async def _poll_task(self) -> pb.StreamResponse:
        # With the last message: some servers keep there what was asked, and not with the status.
        return pb.StreamResponse(task=await self.connection.get(self.reducer.task.id, history=1, parent=self._parent))

    # Failing ----------------------------------------------------------------------------------------------------

    def _on_response(self) -> None:
        self.connection.mark_reachable()
        self._retry.reset()

    async def _wait_before_poll(self) -> None:
        """Waits before the next look."""
        self._polls += 1
        await self._sleep(retry.RETRY_BACKOFF.delay(self._polls))

    async def _on_error(self, error: ClientError, request: pb.SendMessageRequest | None) -> None:
        """Makes ready for the next try. Raises the error when there is no use in one, or no patience."""
        self._may_have_missed = self._may_have_missed or self._is_delivered
        told = error.remote_error
        if isinstance(error, ServerUnavailable):
            if (
                not self._is_delivered
                and error.may_have_arrived
                and not self.connection.is_idempotent
                and request is not None
            ):
                await self._find_task(request, error)
            elif not error.may_have_arrived and self.connection.next_transport():
                return
            await self._retry.wait(error)
        elif isinstance(error, Busy):
            await self._retry.wait(error)
        elif not self._is_delivered:
            if self._uses_streaming and told.is_unsupported:
                self._uses_streaming = False
            elif told.is_unknown_method and self.connection.next_transport():
                self._uses_streaming = self.connection.supports_streaming and self._may_stream
            else:
                raise error
        elif isinstance(error, Invalid) and not self.reducer.is_complete:
            raise error  # the cursor was the caller's
        elif self.reducer.cursor and isinstance(error, Invalid):
            self.reducer.cursor = ""  # of another store, or of a task that is a new one: as it is now, then
        elif self._uses_subscription and isinstance(error, NotSupported | Invalid | Conflict):
            self._uses_subscription = (
                False  # or the task has ended, which a look will show; servers differ in what they say
            )
            self.reducer.cursor = ""
        elif not (told.is_unknown_method and self.connection.next_transport()):
            raise error

    async def _find_task(self, request: pb.SendMessageRequest, error: ClientError) -> None:
        """Looks for the task of a message that may have been delivered, so that it is not sent twice. Raises `error`
        when that cannot be known."""
        message, dialect = request.message, self.connection.interface.dialect
        if dialect == "0.1" or (dialect == "0.3" and message.task_id):
            try:
                task = await self.connection.get(message.task_id, parent=self._parent)
            except NotFound:
                return
            except ClientError:
                raise error from None
            self._is_delivered = recovery.has_accepted(task, message)
            return
        if dialect != "1.0":
            raise error
        try:
            found = await recovery.find_in_context(
                lambda query: self.connection.call("ListTasks", query, parent=self._parent),
                message,
                message.context_id,
                tenant=request.tenant,
            )
        except (ClientError, OutcomeUnknown):
            raise error from None
        if found is not None:
            self.reducer.task.id, self._is_delivered = found.id, True


async def _drain_stream(stream: StreamResponses) -> None:
    """Lets a stream end by itself, which leaves its connection for the next call; but not for long."""
    with suppress(TimeoutError, ClientError):
        async with asyncio.timeout(STREAM_CLOSE_TIMEOUT):
            await anext(stream, None)


def _lacks_question(event: pb.StreamResponse) -> bool:
    """Whether a task waits for its caller and does not say what for: that is among its messages, then."""
    status = event.status_update.status
    return status.state in states.INTERRUPTED and not status.HasField("message")


async def _next_or_none(stream: StreamResponses) -> pb.StreamResponse | None:
    """The next event; None at the end."""
    return await anext(stream, None)
