"""The turn context of an agent in a worker: events go to the server's stream."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from dragoman.core.exceptions import describe
from dragoman.core.limits.quotas import UsageReport
from dragoman.core.names import DEFAULT_SCOPE, Owner
from dragoman.core.task.log import ArtifactChange, StatusChange
from dragoman.core.task.steps import StepJournal
from dragoman.ids import SteadyClock
from dragoman.ports import NO_CHANGE, LeaseLost, StateUpdate, TurnResult, WorkerLost
from dragoman.ports.remote_agents import decode_step, failed_turn_end
from dragoman.runtime.lease import LeaseHold
from dragoman.runtime.turn.events import EventBatch
from dragoman.worker import frames
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.worker")

SendToServer = Callable[..., None]  # sends one frame: `send_frame(events=...)`


class RemoteTurnContext:
    """Implements `dragoman.ports.TurnContext` over a stream. Create it on the event loop."""

    def __init__(self, start: wk.TurnStart, send_frame: SendToServer, frame_bytes: int, hold: LeaseHold) -> None:
        """`frame_bytes`: the largest frame that the server accepts. `hold`: on the worker's lease."""
        self.turn_id = start.turn_id
        self.agent = start.agent_id
        self.task_id = start.task_id
        self.context_id = start.context_id
        self.owner = Owner(DEFAULT_SCOPE, start.principal)  # a worker does not learn the scope
        self.principal = start.principal
        self.shows_error_texts = start.show_error_texts
        self.message = start.message
        self.envelope = start.envelope
        self.history: Sequence[pb.Message] = tuple(start.history)
        self.question: pb.Message | None = start.question if start.HasField("question") else None
        self.references: Sequence[pb.Task] = tuple(start.references)
        self.task_state = start.task_state.encode()
        self.context_state = start.context_state.encode()
        self.task_metadata = start.task_metadata.SerializeToString()
        # The server's time: the clock of this machine may differ.
        self.now = SteadyClock(lambda: start.now.ToMilliseconds() / 1000) if start.HasField("now") else SteadyClock()
        self.attempt = start.attempt
        self.waiting_messages = 0  # only upstream agents use it, and they run at the server
        self.previous_artifacts: Sequence[pb.Artifact] = tuple(start.previous_artifacts)
        self.traceparent = start.traceparent
        self.journal = StepJournal(map(decode_step, start.steps), start.task_id, start.turn_number)
        self.stopping = False
        self.canceled = False
        self.cancel_reason = ""
        self.cancel_metadata = b""
        self.task: asyncio.Task[None] | None = None  # the asyncio task of the turn
        self.begun = False  # the asyncio task of the turn has taken its first step
        self.agent_begun = False  # whether the agent may have done anything in this turn
        self.finishing = False  # the agent has ended, and its result is on the way: a cancel comes too late
        self.is_over = False  # the server accepts no more frames of this turn
        self.lease_lapsed = False  # the worker's lease has lapsed during the turn: its server may report it as ended
        self.hold = hold
        self._send_frame = send_frame
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._batch = EventBatch(self._send_batch)
        self._last_frame_number = 0
        self._unconfirmed: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._received_messages: deque[wk.MessageArrived] = deque()
        self._message_requested = False
        self._message_received = asyncio.Event()
        self._calls: dict[int, asyncio.Future[wk.TaskCallResult]] = {}

    def refuse_cancel(self, reason: str) -> None:
        self._send_frame(cancel_refused=wk.CancelRefused(turn_id=self.turn_id, reason=reason))

    def put(self, change: StatusChange | ArtifactChange, *, state_update: StateUpdate = NO_CHANGE) -> Awaitable[None]:
        if self.hold.lost:
            raise LeaseLost("the lease of this worker has lapsed")
        return self._batch.put(change, state_update)

    def store(self, state_update: StateUpdate) -> Awaitable[None]:
        if self.hold.lost:
            raise LeaseLost("the lease of this worker has lapsed")
        return self._batch.store(state_update)

    async def flush(self) -> None:
        await self._batch.flush()

    def report_usage(self, report: UsageReport) -> None:
        self._send_frame(usage=wk.Usage(turn_id=self.turn_id, tokens=report.tokens, cost=report.cost, key=report.key))

    async def call(self, call: wk.TaskCall) -> wk.TaskCallResult:
        result: asyncio.Future[wk.TaskCallResult] = self._loop.create_future()
        self._calls[call.number], call.turn_id = result, self.turn_id  # its numbers are those of the child process
        self._send_frame(task_call=call)
        try:
            return await result
        finally:
            del self._calls[call.number]

    def on_call_result(self, result: wk.TaskCallResult) -> None:
        """Handles the answer to a call."""
        if (waiting := self._calls.get(result.number)) is not None and not waiting.done():
            waiting.set_result(result)

    async def incoming(self) -> AsyncIterator[tuple[pb.Message, pb.SendMessageRequest]]:
        while True:
            self._message_received.clear()
            while self._received_messages:
                received = self._received_messages.popleft()
                yield received.message, received.envelope
            if not self._message_requested:
                self._message_requested = True
                self._send_frame(message_request=wk.MessageRequest(turn_id=self.turn_id))
            await self._message_received.wait()

    def loses_lease(self) -> bool:
        """Notes a lapse of the lease. True, once, if the agent has to be interrupted for it."""
        if self.lease_lapsed or self.finishing or self.is_over or not self.hold.lost:
            return False
        self.lease_lapsed = True
        log.warning("the lease of this worker has lapsed; its turns stop", extra={"task": self.task_id})
        if not self.canceled:
            self.on_cancel("lease_lost", b"")
        self._batch.close(LeaseLost("the lease of this worker has lapsed"))
        return True

    def on_committed(self, number: int) -> None:
        """Handles the confirmation that all `Events` frames up to this number are on disk."""
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            _, done = self._unconfirmed.popleft()
            if not done.done():
                done.set_result(None)

    def on_cancel(self, reason: str, metadata: bytes) -> None:
        self.canceled, self.cancel_reason, self.cancel_metadata = True, reason, metadata

    def cancel(self, reason: str, metadata: bytes = b"") -> None:
        """Asks the agent to stop, unless it was asked before or has ended. Both arguments are as in TurnContext."""
        if not (self.canceled or self.finishing):
            self.on_cancel(reason, metadata)
            self.interrupt()

    def interrupt(self) -> None:
        """Cancels the asyncio task, if it has begun. Otherwise it would end without an answer to the server."""
        if self.begun and self.task is not None:
            self.task.cancel()

    def on_message(self, message: wk.MessageArrived) -> None:
        self._message_requested = False
        self._received_messages.append(message)
        self._message_received.set()

    def on_turn_over(self, reason: str) -> None:
        """Handles the end of the turn at the server: later events raise LeaseLost."""
        self.is_over = True
        if self.canceled:
            self.cancel_reason = "lease_lost"
        self._batch.close(LeaseLost(reason))

    async def finish(self, result: TurnResult | None) -> None:
        """Sends the pending events and the result. None: the agent stopped after a cancel, a lapse or in a drain.

        A result that cannot be sent makes the turn FAILED. Sends nothing after the end of the turn at the server.
        """
        self.finishing = True
        try:
            await self._send_pending()
            if result is not None:
                self._send_frame(turn_end=frames.encode_turn_end(self.turn_id, result, self._frame_bytes))
                return
        except LeaseLost:
            if self.is_over:
                return
        except Exception as error:
            if not self.is_over:
                self.fail(error)
            return
        if self.cancel_reason in ("drain", "lease_lost"):
            lapsed = "The server did not renew its lease in time."
            self._give_back(lapsed if self.lease_lapsed else "")
        else:
            self._send_frame(turn_end=wk.TurnEnd(turn_id=self.turn_id, canceled=wk.Canceled()))

    def fail(self, error: BaseException) -> None:
        """Ends the turn as FAILED, because its agent's end cannot be sent, or was none."""
        self.finishing = True
        if not self.is_over:
            text = describe(error)
            self._send_frame(turn_end=failed_turn_end(self.turn_id, text))
            log.error("agent %s: the turn failed: %s", self.agent, text, extra={"task": self.task_id})

    async def give_back(self, lost: WorkerLost) -> None:
        """Returns the turn to the server, because the child process of its executor died, or has not taken it.

        Sends pending events first if possible.
        """
        self.agent_begun = lost.may_have_started
        self.finishing = True
        try:
            await self._send_pending()
        except LeaseLost:
            return
        except Exception as error:
            log.warning("last events of a lost turn cannot be sent: %s", describe(error), extra={"task": self.task_id})
        self._give_back(str(lost))

    def _give_back(self, reason: str) -> None:
        released = wk.Released(not_begun=not self.agent_begun, reason=reason)
        self._send_frame(turn_end=wk.TurnEnd(turn_id=self.turn_id, released=released))

    async def _send_pending(self) -> None:
        changes, state_update = await self._batch.take_pending()
        if changes or state_update.steps:
            self._send_events(changes, state_update)

    def _send_batch(
        self, changes: list[StatusChange | ArtifactChange], state_update: StateUpdate
    ) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        try:
            self._send_events(changes, state_update)
        except ValueError as error:
            done.set_exception(error)
        else:
            self._unconfirmed.append((self._last_frame_number, done))
        return done

    def _send_events(self, changes: list[StatusChange | ArtifactChange], state_update: StateUpdate) -> None:
        number = self._last_frame_number + 1
        for frame in frames.encode_events(self.turn_id, number, changes, state_update, self._frame_bytes):
            self._send_frame(events=frame)
            self._last_frame_number = frame.number
