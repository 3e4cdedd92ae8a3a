"""One task of an agent under test: its observed state, and the next calls of its caller."""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman.core.access.identity import Caller
from dragoman.core.task.log import Event, TaskRecord
from dragoman.runtime.feeds import EventStream
from dragoman.testing.kit.story import Exchange, Step, Story
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.testing.kit.agent_under_test import AgentUnderTest

EVENTS_PER_READ = 256


class TaskRun(Story):
    """A task of an agent under test. Methods return the run itself, so that calls can be chained."""

    def __init__(self, kit: AgentUnderTest, caller: Caller, task_id: str = "") -> None:
        super().__init__(caller.agent)
        self._kit = kit
        self._caller = caller
        self._record: TaskRecord | None = None
        self._refresh_lock = asyncio.Lock()
        self._id = task_id

    # Calls ------------------------------------------------------------------------------------------------------

    async def answer(self, /, text: str = "", **message: Any) -> Self:
        """Answers the agent's question and waits until the turn has ended; `message` as for `AgentUnderTest.send`.

        Raises AssertionError if the agent has no question.
        """
        if not self.question:
            raise AssertionError(f"{self!r} has no question to answer")
        return await self.send(text, **message)

    async def send(self, /, text: str = "", **message: Any) -> Self:
        """Sends a follow-up message; with `wait=False` it returns while the agent works."""
        await self._kit.send(text, agent=self.agent, task=self.id, **message)
        return self

    async def cancel(self, metadata: Mapping[str, Any] | None = None) -> Self:
        """Cancels the task and waits until the agent has stopped. Raises TaskNotCancelable.

        `metadata`: of the cancel request (`turn.cancel_metadata`).
        """
        request = pb.CancelTaskRequest(id=self.id)
        request.metadata.update(metadata or {})
        await self._kit.runtime.operations.cancel.cancel_task(self._kit.call(self.agent), request)
        await self.refresh()
        return await self.wait()

    async def crash(self) -> Self:
        """Simulates a crash of the process that runs the agent (`AgentUnderTest.crash`)."""
        await self._kit.crash()
        return self

    async def wait(self) -> Self:
        """Waits until the agent's turn has ended: the task has ended or waits for its caller."""
        await self._follow(lambda: not self._busy, "ended its turn")
        return self

    async def until(self, condition: str | Callable[[Self], object]) -> Self:
        """Waits for a state or text of the task (`WORKING`, `halfway`), or for a condition.

        Raises AssertionError if the turn ends before.
        """
        if isinstance(condition, str):
            await self._follow(lambda: self._has_shown(condition), f"reached {condition!r}", strict=True)
        else:
            await self._follow(lambda: bool(condition(self)), "reached the condition of `until`", strict=True)
        return self

    async def wait_or_text(self, text: str, clean: Callable[[str], str] = str) -> Self:
        """Waits for a text of the task or the end of the turn. `clean` is applied to the task's texts first."""
        await self._follow(lambda: not self._busy or self._has_shown(text, clean), f"produced {text!r}")
        return self

    # Following the task -----------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._record is not None and self._record.has_open_turn

    def _has_shown(self, wanted: str, clean: Callable[[str], str] = str) -> bool:
        return (
            wanted in self.states
            or any(wanted in clean(step.text) for step in self.events)
            or wanted in clean("".join(self.chunks))
        )

    async def refresh(self) -> Self:
        """Reads the current state from the store."""
        async with self._refresh_lock:  # a slower read must not overwrite newer state
            await self._refresh()
        return self

    async def _refresh(self) -> None:
        store = self._kit.store
        record = await store.find(self._caller.owner, self._caller.agent, self._id)
        if record is None:
            return
        snapshot = await store.read(record.ref)
        if snapshot is not None:
            record = snapshot.record  # the task may have changed since it was found
        while self.events[-1:] == [] or self.events[-1].sequence < record.last_sequence:
            batch = await store.events(record.ref, len(self.events), EVENTS_PER_READ)
            if not batch:
                break
            self.events += [Step(event.sequence, pb.StreamResponse.FromString(event.data)) for event in batch]
        if snapshot is not None:
            # Set after the events, so that concurrent waiters never see a state without its events.
            self._record = record
            self.task = pb.Task.FromString(snapshot.task)
        self.attempt = self._attempt(record)
        self.error, self.failure = self._kit.failed.get(self._id, (None, "")) if self.state == "FAILED" else (None, "")
        conversation = await store.messages(record.ref)
        message, request = pb.Message.FromString, pb.SendMessageRequest.FromString
        entries = conversation.messages if conversation else ()
        self.exchange = [Exchange(entry.number, message(entry.message), request(entry.envelope)) for entry in entries]
        self.usage = await store.usage(record.ref)

    def _attempt(self, record: TaskRecord) -> int:
        """The attempt number of the last turn, also if it has ended."""
        attempts = [step.metadata["attempt"] for step in self.events[self.turn_began :] if "attempt" in step.metadata]
        return max(record.attempt, *map(int, attempts), 1)

    async def _follow(self, is_done: Callable[[], bool], aim: str, *, strict: bool = False) -> None:
        """Checks `is_done` after each event until it holds. `strict`: the turn must not end before."""
        if self.reply is not None:
            return
        await self.refresh()
        deadline = asyncio.get_running_loop().time() + self._kit.turn_timeout
        while not is_done():
            if strict and not self._busy:
                raise AssertionError(f"{self!r} has ended its turn and not {aim}:\n{self._events_text()}")
            operations, restarted, after = self._kit.runtime.operations, self._kit.restarted, str(len(self.events))
            assert restarted is not None
            request = pb.SubscribeToTaskRequest(id=self.id)
            events = operations.read.subscribe_to_task(self._kit.call(self.agent, after), request)
            try:
                while (
                    not is_done()
                    and (self._busy or not strict)
                    and await self._wait_for_event(events, restarted, deadline, aim)
                ):
                    await self.refresh()
            finally:
                await events.aclose()

    async def _wait_for_event(
        self, events: EventStream, restarted: asyncio.Future[None], deadline: float, aim: str
    ) -> bool:
        """Waits for a batch of events; False if the process has crashed or the task has ended."""
        next_batch: asyncio.Future[Sequence[Event] | None] = asyncio.ensure_future(anext(events, None))
        left = deadline - asyncio.get_running_loop().time()
        either: set[asyncio.Future[Any]] = {next_batch, restarted}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if next_batch.done():
            batch = next_batch.result()
            await self.refresh()
            return batch is not None
        next_batch.cancel()
        await asyncio.wait({next_batch})
        if restarted.done():
            await self.refresh()
            return False
        where = self._agent_line()
        raise AssertionError(
            f"{self!r} has not {aim} within {self._kit.turn_timeout:g} s{where}. Its events:\n{self._events_text()}"
        )

    def _events_text(self) -> str:
        return "\n".join(f"  {step.sequence}. {step}" for step in self.events)

    def _agent_line(self) -> str:
        """Describes the current line of the agent's function."""
        assert self._record is not None
        run: Any = self._kit.runtime.scheduler.runs.find(self._record.ref)
        agent: Any = next((agent for agent in self._kit.agents if agent.spec.id == self.agent), None)
        function = getattr(agent, "__wrapped__", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if run is None or run.task is None or code is None:
            return ""
        waiting, frames = run.task.get_coro(), []
        while waiting is not None:
            frames.append(getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None))
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
        lines = [frame.f_lineno for frame in frames if frame and frame.f_code.co_filename == code.co_filename]
        for thread in sys._current_frames().values() if not lines else ():
            stack = [frame for frame, _ in traceback.walk_stack(thread)][::-1]
            if any(frame.f_code is code for frame in stack):
                lines = [frame.f_lineno for frame in stack if frame.f_code.co_filename == code.co_filename]
        return f"; {Path(code.co_filename).name} is at line {lines[-1]}" if lines else ""
