"""One turn that a worker runs: what it says goes to the desk, what the desk says goes to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from dragoman.agents.dialled import events
from dragoman.agents.values import NewId
from dragoman.core.errors import InvalidAgentResponse
from dragoman.core.log import Refused
from dragoman.core.trace import CURRENT
from dragoman.core.usage import KEY_LENGTH, MOST, Used
from dragoman.ports import BufferFull, Desk, Ending, ProcessLost, TurnOver
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.workers")

Send = Callable[[wk.ConnectResponse], None]


class Stopped(Exception):
    """The agent stopped because it was asked to."""


class RemoteTurn:
    """One turn of an agent at a worker. `result` is how it ended, and raises what `DialledAgent.take_turn` tells."""

    def __init__(self, id: str, agent: str, desk: Desk, send: Send, new_id: NewId) -> None:
        self.id = id
        self.agent = agent
        self.desk = desk
        self.result: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._send = send
        self._new_id = new_id
        self._said = 0
        self._committed = 0
        self._committing: asyncio.Task[None] | None = None
        self._incoming: AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]] | None = None
        self._pulling: asyncio.Task[None] | None = None
        self._told_to_stop = False

    # What the worker says ---------------------------------------------------------------------------------------

    def take(self, frame: wk.ConnectRequest) -> None:
        """One frame of this turn."""
        try:
            match frame.WhichOneof("frame"):
                case "events":
                    self._put(frame.events)
                case "message_wanted":
                    self._want_message()
                case "cancel_refused":
                    if not frame.cancel_refused.reason:
                        raise InvalidAgentResponse("cancel_refused.reason is required: clients read it")
                    self.desk.refuse_cancel(frame.cancel_refused.reason)
                case "usage":
                    self._spend(frame.usage)
                case "turn_end":
                    self._end(frame.turn_end)
        except (TurnOver, Refused) as error:
            self.drop(error)
        except (InvalidAgentResponse, BufferFull, ValueError) as error:
            text = str(error) if isinstance(error, InvalidAgentResponse) else f"{type(error).__name__}: {error}"
            self._break(text)
        except Exception as error:  # what made a commit fail: the run tells it
            self.drop(error)

    def _put(self, frame: wk.Events) -> None:
        if not frame.events:
            raise InvalidAgentResponse("events.events is empty; send one or more")
        if frame.number <= self._said:
            raise InvalidAgentResponse(f"events.number: {frame.number} comes after {self._said}; count upwards from 1")
        changes = [events.change(event, self.desk, self._new_id) for event in frame.events]
        kept = events.notes(frame.notes) if frame.HasField("notes") else None
        for change in changes[:-1]:
            self.desk.put(change)
        if kept is None:
            self.desk.put(changes[-1])
        else:
            self.desk.put(changes[-1], notes=kept)
        self._said = frame.number
        if self._committing is None or self._committing.done():
            self._committing = self._spawn(self._commit(), "commits")

    async def _commit(self) -> None:
        """Tells the worker what is on disk, until that is everything."""
        while self._committed < self._said:
            number = self._said
            await self.desk.flush()
            self._committed = number
            self._send(wk.ConnectResponse(committed=wk.Committed(turn_id=self.id, number=number)))

    def _spend(self, frame: wk.Usage) -> None:
        if frame.tokens > MOST or frame.cost > MOST or len(frame.key) > KEY_LENGTH:
            raise InvalidAgentResponse(f"usage: at most {MOST} tokens, {MOST} of cost, {KEY_LENGTH} characters of key")
        self.desk.spend(Used(frame.tokens, frame.cost, frame.key))

    def _want_message(self) -> None:
        if self._pulling is None or self._pulling.done():
            self._pulling = self._spawn(self._pull(), "messages")

    async def _pull(self) -> None:
        if self._incoming is None:
            self._incoming = self.desk.incoming()
        message, envelope = await anext(self._incoming)
        arrived = wk.MessageArrived(turn_id=self.id, message=message, envelope=envelope)
        self._send(wk.ConnectResponse(message_arrived=arrived))

    def _end(self, frame: wk.TurnEnd) -> None:
        match frame.WhichOneof("outcome"):
            case "canceled" if self.desk.cancelled:
                self._fail(Stopped())
            case "canceled":
                raise InvalidAgentResponse("turn_end.canceled, though nobody asked the turn to stop")
            case "given_back":
                self._fail(ProcessLost("The worker was stopped."))
            case _:
                self._close(events.ending(frame, self.desk, self._new_id))

    # What the server says ---------------------------------------------------------------------------------------

    def start(self, history_length: int | None, time_limit: float) -> None:
        """Begins the turn at the worker."""
        desk = self.desk
        history = desk.history
        if history_length is not None:
            history = history[max(len(history) - history_length, 0) :]
        start = wk.TurnStart(
            turn_id=self.id,
            agent_id=self.agent,
            task_id=desk.task_id,
            context_id=desk.context_id,
            principal=desk.principal,
            message=desk.message,
            envelope=desk.envelope,
            history=history,
            turns_before=sum(message.role == pb.ROLE_USER for message in desk.history),
            references=desk.references,
            task_state=desk.memory.decode(),
            context_state=desk.context_memory.decode(),
            attempt=desk.attempt,
            previous_artifacts=desk.previous_artifacts,
            traceparent=CURRENT.get(),
        )
        if desk.asked is not None:
            start.asked.CopyFrom(desk.asked)
        if time_limit:
            start.time_limit.FromNanoseconds(round(time_limit * 1e9))
        self._send(wk.ConnectResponse(turn_start=start))

    def cancel(self, reason: str) -> None:
        """Asks the agent to stop."""
        self._send(wk.ConnectResponse(cancel=wk.Cancel(turn_id=self.id, reason=reason)))

    def look(self) -> None:
        """Tells the worker, once, when the desk says that the server is about to stop."""
        if self.desk.stopping and not self._told_to_stop:
            self._told_to_stop = True
            self._send(wk.ConnectResponse(stopping=wk.Stopping(turn_id=self.id)))

    def drop(self, error: BaseException) -> None:
        """Ends the turn here, and tells the worker that nothing more is taken."""
        if not self.result.done():
            self._send(wk.ConnectResponse(turn_over=wk.TurnOver(turn_id=self.id, reason=str(error))))
            self._fail(error)

    def lose(self) -> None:
        """The worker is gone."""
        self._fail(ProcessLost)

    def _break(self, text: str) -> None:
        """Ends the turn as FAILED, because what the worker said of it breaks a rule."""
        text = f"InvalidAgentResponse: agent {self.agent}: {text}"
        fields = {"agent": self.agent, "task": self.desk.task_id}
        log.error("a worker's turn breaks a rule: %s", text, extra=fields)
        self._send(wk.ConnectResponse(turn_over=wk.TurnOver(turn_id=self.id, reason=text)))
        self._close(events.failure(text, self.desk, self._new_id))

    # The end ----------------------------------------------------------------------------------------------------

    def _close(self, ending: Ending) -> None:
        if not self.result.done():
            self.result.set_result(ending)
        self._stop()

    def _fail(self, error: BaseException | type[BaseException]) -> None:
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # nobody may be there any more to look
        self._stop()

    def _stop(self) -> None:
        for task in (self._committing, self._pulling):
            if task is not None:
                task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{name} of turn {self.id}")
        task.add_done_callback(self._worked)
        return task

    def _worked(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.drop(error)


PATIENCE: Final = 12.0
"""Seconds that a turn which was asked to stop may still take; the run has ended its task by then."""
