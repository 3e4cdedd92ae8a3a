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

from dragoman.agents.upstream import finding, memory
from dragoman.agents.upstream.finding import Lost
from dragoman.agents.upstream.forwarding import Forwarding
from dragoman.agents.upstream.record import Record
from dragoman.agents.upstream.road import Away, Blocked, CallFailed, Nonsense, Refused, Road
from dragoman.agents.values import NewId
from dragoman.core import states
from dragoman.core.card import AgentSpec
from dragoman.core.errors import InvalidAgentResponse
from dragoman.ports import Desk, Ending, ProcessLost
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.upstream")

T = TypeVar("T")

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries, or two looks at a task: from the first to the longest, half as much more each time."""

HELD: Final = 1.0
"""Seconds for which AUTH_REQUIRED is not written yet: a stream that ends with it ends the turn."""


class Link(Protocol):
    """What a turn needs to know of its agent, and tells it."""

    spec: AgentSpec
    at: str
    """Where it is, for people."""
    streams: bool
    """It has streams, as far as is known."""
    idempotent: bool
    """A repeated send with the same key runs nothing."""
    extensions: str
    """URIs that each call has to activate, with commas."""

    @property
    def road(self) -> Road: ...

    @property
    def is_away(self) -> bool:
        """Nobody should try any more."""
        ...

    def reached(self) -> None: ...

    def missed(self, why: str) -> None: ...

    def other_road(self, road: Road) -> bool:
        """Takes another of its interfaces instead of one that does not know a call. False when there is none."""
        ...


class UpstreamTurn:
    """One turn at a desk."""

    def __init__(
        self, desk: Desk, link: Link, new_id: NewId, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.desk = desk
        self.link = link
        self.record = Record(desk, link.at, new_id)
        self.is_sent = False
        """The message may have arrived."""
        self.named = ""
        """The task upstream that the message begins, where its client names it (0.1)."""
        self._sleep = sleep
        self._nudged = asyncio.Event()
        self._message = desk.message
        self._envelope = desk.envelope

    @property
    def task(self) -> str:
        """The id of the task upstream, as far as it is known."""
        return self.record.memory.task or self.named

    def nudge(self) -> None:
        """Something happened upstream: looks there at once."""
        self._nudged.set()

    # The turn ---------------------------------------------------------------------------------------------------

    async def run(self) -> Ending:
        """The turn, from its message to its end. Raises ProcessLost when the agent is not there and may come back."""
        again = self.desk.attempt > 1 and not self.record.memory.unsent
        forwarding = Forwarding(self, self._extensions, self._modes)
        passing = asyncio.create_task(forwarding.run(), name=f"messages for {self.desk.task_id} upstream")
        try:
            while True:
                ending = await forwarding.during(self._answered(again=again))
                if not forwarding.left:
                    return replace(ending, notes=self.record.notes())
                # One came too late for the task there; it begins another in the same conversation.
                await self.record.go_on(ending)
                self._message, self._envelope = forwarding.left.pop(0)
                again = False
        except (InvalidAgentResponse, Nonsense) as error:
            return self._failed(f"InvalidAgentResponse: {error}")
        except Blocked as error:
            return self._failed(f"UPSTREAM_FORBIDDEN: {error}")
        except Lost as error:
            return self._failed(str(error))
        except Refused as refused:
            log.info("a message was refused upstream: %s", refused, extra=self._fields)
            return self.record.says.refused(refused, self.record.notes())
        finally:
            passing.cancel()
            await asyncio.wait([passing])

    async def _answered(self, *, again: bool) -> Ending:
        """Has one message answered. `again`: another process may have sent it."""
        if again:
            self.is_sent = True
            found = await finding.find(self, self._message)
            if found is not None:
                return await self._take(pb.StreamResponse(task=found), by_call=True) or await self._watch()
        return await self._send()

    async def _send(self) -> Ending:
        """Sends the message and follows what comes of it."""
        bare, streams = False, self.link.streams
        while True:
            road, task = self.link.road, self.record.memory.task
            try:
                self.is_sent = True
                ending = await self._sent(road, self._request(bare=bare), streams=streams)
            except Away as away:
                self.is_sent = away.arrived
                await self._missed(away)
                found = await finding.find(self, self._message) if away.arrived else None
                if found is None:
                    continue
                ending = await self._take(pb.StreamResponse(task=found), by_call=True)
            except Refused as refused:
                self.link.reached()
                if refused.is_busy:
                    self.is_sent = False
                    await self._missed(Away(str(refused), arrived=False))
                elif streams and refused.is_unsupported:
                    streams = False
                elif refused.is_unknown_call and self.link.other_road(road):
                    streams = self.link.streams
                elif task and await self._has_ended(refused):
                    self.record.forget_task()
                    streams = self.link.streams  # it may have been the task that was refused
                elif not (bare or task) and "contextId" in _blamed(refused):
                    bare = True
                else:
                    raise
                continue
            if self.link.streams and not streams:
                log.warning("%s has no streams, whatever its card says", self.link.at, extra=self._fields)
                self.link.streams = False
            return ending or await self._watch()

    async def _sent(self, road: Road, request: pb.SendMessageRequest, *, streams: bool) -> Ending | None:
        """Sends once, and reads what is answered: None when that stopped before the turn ended."""
        key = memory.key_of(self.desk.task_id, self._message.message_id)
        extensions = self._extensions(self._message)
        self.record.is_new = True
        if streams:
            events = road.stream("SendStreamingMessage", request, key=key, extensions=extensions)
            return await self._read(events, whole=True)
        answer = await road.call("SendMessage", request, key=key, extensions=extensions)
        self.link.reached()
        assert isinstance(answer, pb.SendMessageResponse)
        if answer.HasField("message"):
            return await self._take(pb.StreamResponse(message=answer.message))
        if not answer.HasField("task"):
            raise Nonsense(f"{self.link.at}: the answer to a message holds neither a task nor a message")
        return await self._take(pb.StreamResponse(task=answer.task), by_call=True)

    def _request(self, *, bare: bool) -> pb.SendMessageRequest:
        """The send of the message: its own parts and metadata, under the names that upstream knows. `bare`: without
        a conversation of our choice."""
        known = self.record.memory
        message = pb.Message()
        message.CopyFrom(self._message)
        message.ClearField("reference_task_ids")  # tasks of ours, which nobody knows there
        message.task_id = known.task
        if not known.task and self.link.road.interface.dialect == "0.1":
            message.task_id = self.named = memory.task_of(self.desk.task_id, message.message_id)
        context = known.context or memory.context_of(self.desk.owner, self.desk.context_id)
        message.context_id = "" if bare else context
        request = pb.SendMessageRequest(message=message)
        if self._envelope.HasField("metadata"):
            request.metadata.CopyFrom(self._envelope.metadata)
        request.configuration.return_immediately = True
        request.configuration.accepted_output_modes.extend(self._modes(self._envelope))
        return request

    def _modes(self, envelope: pb.SendMessageRequest) -> Sequence[str]:
        """The output modes that a message's sender takes. 0.2 wants them said, and so do servers still."""
        if envelope.configuration.accepted_output_modes or self.link.road.interface.dialect != "0.3":
            return envelope.configuration.accepted_output_modes
        return self.link.spec.output_modes

    def _extensions(self, message: pb.Message) -> str:
        named = [*filter(None, self.link.extensions.split(",")), *message.extensions]
        return ",".join(dict.fromkeys(named))

    async def _has_ended(self, refused: Refused) -> bool:
        """Whether the task upstream takes no more messages because it is over. Raises Lost for one that is gone."""
        if refused.is_no_such_task:
            raise Lost(self.gone)
        return states.is_terminal((await self.look()).status.state)

    # Following --------------------------------------------------------------------------------------------------

    async def _watch(self) -> Ending:
        """Follows the task, which is known, until the turn is over."""
        pause, subscribes = FIRST_PAUSE, True
        while True:
            before = self.record.puts
            if self.link.streams and subscribes:
                try:
                    asked = pb.SubscribeToTaskRequest(id=self.task)
                    events = self.link.road.stream("SubscribeToTask", asked, extensions=self.link.extensions)
                    if (ending := await self._read(events, whole=False)) is not None:
                        return ending
                except Away as away:
                    await self._missed(away)
                except Refused as refused:  # it has ended, or there is no such call
                    self.link.reached()
                    subscribes = not refused.is_unsupported
            task = await self.look()
            if (ending := await self._take(pb.StreamResponse(task=task), by_call=True)) is not None:
                return ending
            pause = FIRST_PAUSE if self.record.puts > before else min(pause * 1.5, LONGEST_PAUSE)
            await self._pause(pause)

    async def _read(self, events: AsyncGenerator[pb.StreamResponse, None], *, whole: bool) -> Ending | None:
        """Reads a stream until the turn is over, or the stream is. `whole`: it says everything from the beginning;
        otherwise that is so once it has shown the task, and events before that say only that there is something new.
        """
        async with aclosing(events):
            nudge = asyncio.create_task(self._nudged.wait(), name="something upstream")
            step: asyncio.Task[pb.StreamResponse | None] | None = None
            try:
                while True:
                    step = step or asyncio.create_task(_next(events), name="an event upstream")
                    patience = HELD if self.record.holds else None
                    await asyncio.wait([step, nudge], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                    if step.done():
                        event, step = step.result(), None
                        if event is None:
                            return self.record.end_held()
                        self.link.reached()
                        whole = whole or event.HasField("task")
                    elif nudge.done():
                        # Not every server shows in a stream what came of a cancel.
                        self._nudged.clear()
                        nudge = asyncio.create_task(self._nudged.wait(), name="something upstream")
                        if not self.task:
                            continue
                        event = pb.StreamResponse(task=await self.look())
                        whole = False  # it may come again
                    else:  # it goes on by itself: whoever it needs was told elsewhere
                        await self.record.put_held()
                        continue
                    if not (whole or event.HasField("task")):
                        event = pb.StreamResponse(task=await self.look())
                    if (ending := await self._take(event)) is not None:
                        return ending if event.HasField("task") else await self._with_the_rest(ending)
            finally:
                for one in (step, nudge):
                    if one is not None:
                        one.cancel()
                        await asyncio.wait([one])

    async def _with_the_rest(self, ending: Ending) -> Ending:
        """The end of a turn whose stream showed no artifact: some servers stream that a task is done, and not what came
        of it."""
        if ending.status.state == states.COMPLETED and ending.reply is None and not self.record.has_artifacts:
            with suppress(CallFailed, Lost, ProcessLost):  # it has ended, as far as we were told
                return await self._take(pb.StreamResponse(task=await self.look()), by_call=True) or ending
        return ending

    async def look(self) -> pb.Task:
        """The task upstream as it is. Raises Lost when it is gone, ProcessLost when the agent is."""
        asked = pb.GetTaskRequest(id=self.task, history_length=0)
        try:
            task = await self.insist(lambda road: road.call("GetTask", asked, extensions=self.link.extensions))
        except Refused as refused:
            if refused.is_no_such_task:
                raise Lost(self.gone) from None
            raise
        assert isinstance(task, pb.Task)
        return task

    async def insist(self, ask: Callable[[Road], Awaitable[T]]) -> T:
        """Asks what may be asked twice, until there is an answer. Raises ProcessLost when there is none for too long,
        and CallFailed."""
        pause = FIRST_PAUSE
        while True:
            try:
                answer = await ask(self.link.road)
            except Away as away:
                await self._missed(away, pause)
            except Refused as refused:
                self.link.reached()
                if not refused.is_busy:
                    raise
                await self._sleep(pause)
            else:
                self.link.reached()
                return answer
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _missed(self, away: Away, pause: float = FIRST_PAUSE) -> None:
        """Waits before the next try. Raises ProcessLost instead, once the agent is left alone."""
        self.link.missed(str(away))
        if self.link.is_away:
            if not self.is_sent:
                self.record.keep_unsent()
            raise ProcessLost("The agent that has it is away.", began=self.is_sent)
        await self._sleep(pause)

    async def _pause(self, seconds: float) -> None:
        """Waits so long, or until something happened."""
        waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.create_task(self._nudged.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._nudged.clear()

    async def _take(self, event: pb.StreamResponse, *, by_call: bool = False) -> Ending | None:
        return await self.record.take(event, self._message.message_id, by_call=by_call)

    # Failing ----------------------------------------------------------------------------------------------------

    def _failed(self, text: str) -> Ending:
        log.warning("a turn upstream failed: %s", text, extra=self._fields)
        return self.record.says.failed(self._without_places(text), self.record.notes())

    def _without_places(self, text: str) -> str:
        """A text for callers, who need not know where the agent is."""
        for url in (self.link.road.interface.url, self.link.at):
            place = url.partition("://")[2].partition("/")[0] or url
            text = text.replace(f"{url}: ", "").replace(url, "it").replace(f"{place}: ", "").replace(place, "it")
        return text

    @property
    def gone(self) -> str:
        """What is said of a task that upstream no longer knows."""
        return f"UPSTREAM_LOST: the agent no longer knows its task {self.task}, or lets nobody see it"

    @property
    def _fields(self) -> dict[str, str]:
        return {"task": self.desk.task_id, "upstream": self.link.at, "upstream_task": self.task}


async def _next(events: AsyncGenerator[pb.StreamResponse, None]) -> pb.StreamResponse | None:
    """The next event; None at the end."""
    return await anext(events, None)


def _blamed(refused: Refused) -> str:
    """What a refusal of a message says was wrong with it: fields and text."""
    complaint = refused.complaint
    if complaint.reason != "INVALID_PARAMS" and complaint.code != "INVALID_ARGUMENT":
        return ""
    fields = " ".join([*(violation.field for violation in complaint.violations), complaint.message])
    return fields.replace("context_id", "contextId")
