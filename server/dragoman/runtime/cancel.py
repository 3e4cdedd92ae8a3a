"""CancelTask: cancels that survive the death of the server that received them.

The bus brings a cancel to the running agent within milliseconds. Before the caller hears that the task is being
canceled the request is also on disk, because the receiving server may die, the bus may be unavailable, and the turn may
be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import TaskNotCancelable
from dragoman.core.limits import message_limits
from dragoman.core.task import states
from dragoman.core.task.log import Append, AppendRejected, NotClaimed, StatusChange, TaskRecord, TaskRef
from dragoman.ports import WORK_ELSEWHERE, Bus, Store, TaskSignal
from dragoman.runtime.access import Call, OnAction
from dragoman.runtime.feeds import Subscriber, TaskFeeds
from dragoman.runtime.log import EventLog, read_task
from dragoman.runtime.read import find_task
from dragoman.runtime.scheduler import Scheduler
from dragoman.runtime.timings import DEFAULT_TIMINGS, Timings
from dragoman.runtime.turn.context import CANCEL_WAIT_SECONDS
from dragoman.runtime.turn.finish import OUTCOME_UNKNOWN, cancel_waits, system_status
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

log = logging.getLogger("dragoman.runtime")


@dataclass(eq=False, repr=False)
class CancelOperation:
    """Handles cancel requests received here, and those for turns that run here."""

    store: Store
    bus: Bus
    event_log: EventLog
    feeds: TaskFeeds
    scheduler: Scheduler
    agents: Mapping[str, AgentSpec]
    on_action: OnAction | None = None
    timings: Timings = DEFAULT_TIMINGS
    cancel_wait: float = CANCEL_WAIT_SECONDS

    async def cancel_task(self, call: Call, request: pb.CancelTaskRequest) -> bytes:
        """A serialized Task: CANCELED, or still active when the agent needs longer than `cancel_timeout` to stop.

        The request's metadata is for the agent; a turn that is being canceled already keeps that of the first request.
        Raises TaskNotFound; TaskNotCancelable when the task has ended, when its result came first, or when the agent
        refuses.
        """
        metadata = message_limits.checked_cancel_metadata(request.metadata)
        ref = (await find_task(self.store, call.caller, request.id)).ref
        runs_elsewhere = False
        async with self.feeds.subscribe(ref) as subscriber:
            record = (await read_task(self.store, ref, history=0)).record
            self._check_cancelable(record)
            if not record.running:
                record = await self._end_idle_task(record, metadata) or record
            if record.running:
                self._check_cancelable(record)  # it may have been claimed meanwhile
                subscriber.position = record.last_sequence
                runs_elsewhere = self.scheduler.runs.find(ref) is None
                await self._signal(ref, metadata, subscriber)
                if refusal := self._refusal(ref):
                    await self.store.cancel_requests.withdraw(ref)
                    raise TaskNotCancelable(refusal)
        current = await read_task(self.store, ref)
        # Its runner released it, or a turn came and went while its end was decided.
        if not (current.record.running or states.is_terminal(current.record.state)):
            await self._end_idle_task(current.record, metadata)
            current = await read_task(self.store, ref)
        if current.record.has_open_turn:
            runs_on = current.record.running and current.record.last_completed < record.last_received
            if runs_elsewhere and runs_on and not await self.store.cancel_requests.pending([ref]):
                raise TaskNotCancelable("its agent refuses to be canceled")  # the process that runs it has withdrawn it
            await self.store.cancel_requests.request(ref, metadata)
            if (runner := self.scheduler.runs.find(ref)) is not None and not runner.stop.requested:
                await self.poll()  # a turn ended meanwhile and the next message began another
        is_unknown = current.record.status_text.startswith(OUTCOME_UNKNOWN.reason)
        if states.is_terminal(current.record.state) and current.record.state != states.CANCELED and not is_unknown:
            raise TaskNotCancelable("the task ended before it could be canceled")
        if self.on_action is not None:
            self.on_action("task.canceled", call, request.id)
        return current.task

    def _check_cancelable(self, record: TaskRecord) -> None:
        if states.is_terminal(record.state):
            raise TaskNotCancelable
        spec = self.agents.get(record.agent)  # an operator may cancel a task whose agent is not served
        if spec is not None and not spec.cancelable and record.has_open_turn:
            raise TaskNotCancelable("this agent does not let a running task be canceled")
        if refusal := self._refusal(record.ref):
            raise TaskNotCancelable(refusal)

    def _refusal(self, ref: TaskRef) -> str:
        """Why the agent that runs the task here refuses to be canceled; empty if it does not."""
        runner = self.scheduler.runs.find(ref)
        return runner.context.cancel_refusal if runner is not None else ""

    async def _signal(self, ref: TaskRef, metadata: bytes, subscriber: Subscriber) -> None:
        """Tells the process that runs the task to stop, and waits up to `cancel_timeout`."""
        deadline = asyncio.get_running_loop().time() + self.timings.cancel_timeout
        if (runner := self.scheduler.runs.find(ref)) is not None:
            runner.cancel(metadata=metadata)
        else:  # it runs in another process, and the bus may lose the signal
            await self.store.cancel_requests.request(ref, metadata)
            self.bus.publish_signal(ref, TaskSignal.CANCEL)
        await self.feeds.until_turn_ends(subscriber, deadline)

    async def _end_idle_task(self, record: TaskRecord, metadata: bytes) -> TaskRecord | None:
        """Ends a task that is not running. If it ended or was claimed meanwhile, nothing is written.

        Work at another server is canceled first if the task waits for its caller, and by the next attempt of a turn
        that waits for that server: then nothing is written. Returns the record after that; None if it no longer exists.
        """
        end = StatusChange(states.CANCELED)
        agent, is_served = self.scheduler.called_agent(record.agent), record.agent in self.agents
        conversation = await self.store.messages(record.ref) if agent is not None or not is_served else None
        task_state = conversation.task_state if conversation is not None else b""
        if agent is not None and agent.may_have_work(task_state, record.attempt):
            if record.has_open_turn:
                is_known = await self.store.cancel_requests.pending([record.ref])
                await self.store.cancel_requests.request(record.ref, metadata)
                if not is_known:  # the status says it once
                    await self._write(record, cancel_waits(record), release=False)
                return record
            if not await agent.cancel_waiting(task_state, metadata):
                end = system_status(OUTCOME_UNKNOWN, record)
        elif agent is None and WORK_ELSEWHERE.encode() in task_state:  # nobody is left who could ask its server
            end = system_status(OUTCOME_UNKNOWN, record)
        return await self._write(record, end)

    # Turns of this process --------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """Stops the turns of this process for which the store has a cancel request."""
        for ref, metadata in (await self.store.cancel_requests.of_session(self.scheduler.session)).items():
            if self._refusal(ref):
                await self.store.cancel_requests.withdraw(ref)
            elif (runner := self.scheduler.runs.find(ref)) is not None:
                runner.cancel(metadata=metadata)

    async def end_unconfirmed(self) -> None:
        """Ends tasks as FAILED whose cancel another server has not confirmed for `cancel_wait`."""
        await self.poll()
        for ref in await self.store.cancel_requests.overdue(self.cancel_wait):
            if (runner := self.scheduler.runs.find(ref)) is not None:
                runner.end_unconfirmed()
            elif (snapshot := await self.store.read(ref, history=0)) is not None and not snapshot.record.running:
                await self._write(snapshot.record, system_status(OUTCOME_UNKNOWN, snapshot.record))

    async def _write(self, record: TaskRecord, status: StatusChange, *, release: bool = True) -> TaskRecord | None:
        """Writes a status of a task that no process runs, unless it has changed. `release`: the turn ends, too."""
        change = Append(task=record.ref, guard=NotClaimed(record.last_sequence), events=[status], release=release)
        try:
            return (await self.event_log.append(change)).record
        except AppendRejected as rejection:
            return rejection.record
