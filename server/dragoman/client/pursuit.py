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
from typing import Final, cast

from dragoman.client import patience as pauses
from dragoman.client.events import Event
from dragoman.client.failure import Busy, ClientError, Conflict, Invalid, NotFound, NotSupported, Silent, Unreachable
from dragoman.client.line import Line
from dragoman.client.patience import Patience
from dragoman.client.roads import Stream
from dragoman.client.telling import Teller
from dragoman.core import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

QUIET: Final = 15.0
"""Seconds without an event after which a task is looked at, although its stream is open."""

LAST_WORDS: Final = 1.0
"""Seconds for which a stream may stay open once its task has ended."""

PAGE: Final = 50
"""Tasks, and messages of each, among which one is looked for that may have arrived."""


class Pursuit:
    """One turn. `teller` knows the task, and goes on knowing it for the next turn."""

    def __init__(
        self,
        line: Line,
        teller: Teller,
        *,
        key: str = "",
        parent: str = "",
        patience: float,
        silence: float | None,
        streams: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds for which a server that is away, or busy, is tried. `silence`: seconds for which the task
        may say nothing new, None for any. `streams`: streams are used where there are any."""
        self.line = line
        self.teller = teller
        self._key = key
        self._parent = parent
        self._patience = Patience(patience, sleep=sleep, clock=clock)
        self._silence = silence
        self._sleep = sleep
        self._clock = clock
        self._arrived = False
        """The message is known to be there."""
        self._may_stream = streams
        self._streams = line.streams and streams
        # A stream of 0.3 says nothing of what was missed, and one of its servers adds each chunk to the task once more
        # for whoever subscribes: there, a look now and then tells more, and does no harm.
        self._subscribes = line.resumes or line.interface.dialect == "1.0"
        self._was_task = False
        """What was heard last was the whole task."""
        self._broke = False
        """Something may have been missed."""
        self._pause = pauses.FIRST_PAUSE
        self._news = clock()

    async def send(self, request: pb.SendMessageRequest) -> AsyncGenerator[Event, None]:
        """Sends, and tells what comes of it until the turn is over. Raises ClientError."""
        self.teller.heard()
        if self.line.interface.dialect == "0.1":
            self.teller.task.id = request.message.task_id
        async with aclosing(self._turn(request)) as events:
            async for event in events:
                yield event

    async def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Tells of a task from where its teller stands, until it has ended or asks. Raises ClientError."""
        self.teller.task.id = task_id
        self._arrived = True
        async with aclosing(self._turn(None)) as events:
            async for event in events:
                yield event

    # The turn ---------------------------------------------------------------------------------------------------

    async def _turn(self, request: pb.SendMessageRequest | None) -> AsyncGenerator[Event, None]:
        while True:
            if self._arrived or request is None:
                heard = self._on()
            else:
                heard = self._sent(request)
            try:
                async with aclosing(heard):
                    while (raw := await self._within(heard)) is not None:
                        self._reached()
                        self._was_task = raw.HasField("task")
                        for event in self.teller.tell(raw):
                            self._news, self._pause = self._clock(), pauses.FIRST_PAUSE
                            yield event
                        if self.teller.is_over:
                            await _ended(heard)
                            break
                        if self.teller.asks and self.teller.state == states.INPUT_REQUIRED:
                            break  # one that wants credentials may go on by itself, as long as its stream is open
                if self._arrived and (self.teller.is_over or self.teller.asks):
                    break
                self._broke = True
            except ClientError as error:
                await self._failed(error, request)
                continue
            await self._rest()
        if self.teller.is_over and not self.teller.cursor and self.teller.message is None:
            async for event in self._told_by_the_rest():
                yield event

    async def _told_by_the_rest(self) -> AsyncGenerator[Event, None]:
        """What a stream left out: some servers stream that a task is done, and not what came of it."""
        if self._was_task or (not self._broke and (self.teller.has_artifacts or self.teller.state != states.COMPLETED)):
            return
        try:
            task = await self.line.get(self.teller.task.id, history=1, parent=self._parent)
        except ClientError:  # it has ended, as far as we were told
            return
        for event in self.teller.tell(pb.StreamResponse(task=task)):
            yield event

    async def _within(self, heard: Stream) -> pb.StreamResponse | None:
        """The next event; None at the end. Raises Silent when there was no news for too long."""
        if self._silence is None:
            return await anext(heard, None)
        left = self._silence - (self._clock() - self._news)
        try:
            if left > 0:
                async with asyncio.timeout(left):
                    return await anext(heard, None)
        except TimeoutError:
            pass
        raise Silent(self.teller.task.id, self._silence)

    # Asking -----------------------------------------------------------------------------------------------------

    async def _sent(self, request: pb.SendMessageRequest) -> Stream:
        """One try to send the message, and what is heard of it at once."""
        road = self.line.road
        request.tenant = self.line.interface.tenant
        if not self._streams:
            answer = await road.call("SendMessage", request, key=self._key, parent=self._parent)
            self._arrived, self.line.streams = True, self.line.streams and not self._may_stream
            assert isinstance(answer, pb.SendMessageResponse)
            if answer.HasField("message"):
                yield pb.StreamResponse(message=answer.message)
            else:
                yield pb.StreamResponse(task=answer.task)
            return
        stream = road.stream("SendStreamingMessage", request, key=self._key, parent=self._parent)
        async with aclosing(self._attended(stream, whole=True)) as events:
            async for event in events:
                self._arrived = True
                yield event

    async def _on(self) -> Stream:
        """One try to hear more of a task that is known."""
        id, cursor = self.teller.task.id, self.teller.cursor
        if not cursor:
            yield await self._look()
            if self.teller.is_over or self.teller.asks:
                return
        if self._streams and (self._subscribes or cursor):
            asked = pb.SubscribeToTaskRequest(tenant=self.line.interface.tenant, id=id)
            stream = self.line.road.stream("SubscribeToTask", asked, after=cursor, parent=self._parent)
            async with aclosing(self._attended(stream, whole=bool(cursor))) as events:
                async for event in events:
                    yield event

    async def _attended(self, stream: Stream, *, whole: bool) -> Stream:
        """The events of a stream, with looks at the task where it says too little: servers without cursors stream what
        is added and not what was missed, and some forget to say that a task was canceled.

        `whole`: it says everything from the beginning; otherwise that is so once it has shown the task, and events
        before that say only that there is something new.
        """
        step: asyncio.Task[pb.StreamResponse | None] | None = None
        try:
            while True:
                step = step or asyncio.create_task(_next(stream))
                may_look = bool(self.teller.task.id) and self._arrived and not self.teller.cursor
                await asyncio.wait([step], timeout=QUIET if may_look else None)
                if not step.done():
                    yield await self._look()
                    whole = False  # what comes may have been seen
                    continue
                event, step = step.result(), None
                if event is None:
                    return
                whole = whole or event.HasField("task")
                yield await self._look() if not whole or (may_look and _asks_nothing(event)) else event
        finally:
            if step is not None:
                step.cancel()
                await asyncio.wait([step])
            await stream.aclose()

    async def _look(self) -> pb.StreamResponse:
        # With the last message: some servers keep there what was asked, and not with the status.
        return pb.StreamResponse(task=await self.line.get(self.teller.task.id, history=1, parent=self._parent))

    # Failing ----------------------------------------------------------------------------------------------------

    def _reached(self) -> None:
        self.line.reached()
        self._patience.reached()

    async def _rest(self) -> None:
        """Waits before the next look."""
        await self._sleep(self._pause)
        self._pause = pauses.longer(self._pause)

    async def _failed(self, error: ClientError, request: pb.SendMessageRequest | None) -> None:
        """Makes ready for the next try. Raises the error when there is no use in one, or no patience."""
        self._broke = self._broke or self._arrived
        told = error.complaint
        if isinstance(error, Unreachable):
            if not self._arrived and error.arrived and not self.line.is_idempotent and request is not None:
                await self._find(request, error)
            elif not error.arrived and self.line.other():
                return
            await self._patience.wait(error)
        elif isinstance(error, Busy):
            await self._patience.wait(error)
        elif not self._arrived:
            if self._streams and told.is_unsupported:
                self._streams = False
            elif told.is_unknown_call and self.line.other():
                self._streams = self.line.streams and self._may_stream
            else:
                raise error
        elif isinstance(error, Invalid) and not self.teller.whole:
            raise error  # the cursor was the caller's
        elif self.teller.cursor and isinstance(error, Invalid):
            self.teller.cursor = ""  # of another store, or of a task that is a new one: as it is now, then
        elif self._subscribes and isinstance(error, NotSupported | Invalid | Conflict):
            self._subscribes = False  # or the task has ended, which a look will show; servers differ in what they say
            self.teller.cursor = ""
        elif not (told.is_unknown_call and self.line.other()):
            raise error

    async def _find(self, request: pb.SendMessageRequest, error: ClientError) -> None:
        """Looks for the task of a message that may have arrived, so that it is not sent twice. Raises the error when
        nobody can say."""
        said, dialect = request.message, self.line.interface.dialect
        if dialect == "0.1" or (dialect == "0.3" and said.task_id):
            try:
                task = await self.line.get(said.task_id, parent=self._parent)
            except NotFound:
                return
            except ClientError:
                raise error from None
            self._arrived = _has(task, said) or task.status.state not in states.INTERRUPTED
            return
        if dialect != "1.0":
            raise error
        asked = pb.ListTasksRequest(
            tenant=request.tenant, context_id=said.context_id, page_size=PAGE, history_length=PAGE
        )
        try:
            page = cast(pb.ListTasksResponse, await self.line.call("ListTasks", asked, parent=self._parent))
        except ClientError:
            raise error from None
        for task in page.tasks:
            if _has(task, said):
                self.teller.task.id, self._arrived = task.id, True
                return
        if page.next_page_token or any(not task.history for task in page.tasks):
            raise error


async def _ended(heard: Stream) -> None:
    """Lets a stream end by itself, which leaves its connection for the next call; but not for long."""
    with suppress(TimeoutError, ClientError):
        async with asyncio.timeout(LAST_WORDS):
            await anext(heard, None)


def _asks_nothing(event: pb.StreamResponse) -> bool:
    """Whether a task waits for its caller and does not say what for: that is among its messages, then."""
    status = event.status_update.status
    return status.state in states.INTERRUPTED and not status.HasField("message")


async def _next(stream: Stream) -> pb.StreamResponse | None:
    """The next event; None at the end."""
    return await anext(stream, None)


def _has(task: pb.Task, message: pb.Message) -> bool:
    return any(one.message_id == message.message_id for one in task.history)
