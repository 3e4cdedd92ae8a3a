"""One task of an agent under test: what happened to it, and what its caller does next."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman.core.access.identity import Caller
from dragoman.core.task.log import Event, TaskRecord
from dragoman.testing.kit.story import Exchange, Step, Story
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

if TYPE_CHECKING:
    from dragoman.testing.kit.agent_under_test import AgentUnderTest

EVENTS_PER_READ = 256


class TaskRun(Story):
    """A task, as far as it has come. What waits gives the run itself, so that calls can be chained."""

    def __init__(self, kit: AgentUnderTest, caller: Caller, task_id: str = "") -> None:
        super().__init__(caller.agent)
        self._kit = kit
        self._caller = caller
        self._record: TaskRecord | None = None
        self._refresh_lock = asyncio.Lock()
        self._id = task_id

    # What the caller does ---------------------------------------------------------------------------------------

    async def answer(self, text: str = "", **message: Any) -> Self:
        """Answers what the agent asks, and waits until that turn has ended; `message` as for `AgentUnderTest.send`.

        Raises AssertionError when the agent asks nothing.
        """
        if not self.question:
            raise AssertionError(f"{self!r} asks nothing that could be answered")
        return await self.send(text, **message)

    async def send(self, text: str = "", **message: Any) -> Self:
        """Sends another message to the task, also while the agent works: with `wait=False` in the midst of it."""
        await self._kit.send(text, agent=self.agent, task=self.id, **message)
        return self

    async def cancel(self) -> Self:
        """Asks the agent to stop, and waits until it has. Raises TaskNotCancelable when it does not let itself."""
        request = pb.CancelTaskRequest(id=self.id)
        await self._kit.runtime.service.cancel_task(self._kit.call(self.agent), request)
        await self.refresh()
        return await self.wait()

    async def crash(self) -> Self:
        """The process that runs the agent dies, and another one starts (`AgentUnderTest.crash`)."""
        await self._kit.crash()
        return self

    async def wait(self) -> Self:
        """Waits until the agent's turn has ended: the task too, or it waits for its caller."""
        await self._follow(lambda: not self._busy, "ended its turn")
        return self

    async def until(self, condition: str | Callable[[Self], object]) -> Self:
        """Waits until the task was in a state, or has said a text (`WORKING`, `halfway`), or something holds of it.

        Raises AssertionError when the turn ends without that.
        """
        if isinstance(condition, str):
            await self._follow(lambda: self._has_shown(condition), f"come to {condition!r}", strict=True)
        else:
            await self._follow(lambda: bool(condition(self)), "come to what `until` waits for", strict=True)
        return self

    async def wait_or_text(self, text: str, clean: Callable[[str], str] = str) -> Self:
        """Waits until the turn has said a text, or has ended without. `clean`: what is said is looked at through it."""
        await self._follow(lambda: not self._busy or self._has_shown(text, clean), f"said {text!r}")
        return self

    # How it is kept up ------------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self._record is not None and (self._record.running or self._record.ready)

    def _has_shown(self, wanted: str, clean: Callable[[str], str] = str) -> bool:
        return (
            wanted in self.states
            or any(wanted in clean(step.text) for step in self.events)
            or wanted in clean("".join(self.chunks))
        )

    async def refresh(self) -> Self:
        """Reads what is on disk now."""
        async with self._refresh_lock:  # or what somebody read a moment ago would be put over what is known since
            await self._refresh()
        return self

    async def _refresh(self) -> None:
        store = self._kit.store
        head = await store.find(self._caller.owner, self._caller.agent, self._id)
        if head is None:
            return
        snapshot = await store.read(head.ref)
        if snapshot is not None:
            head = snapshot.record  # it may have gone on since it was found
        while self.events[-1:] == [] or self.events[-1].sequence < head.last_sequence:
            lot = await store.events(head.ref, len(self.events), EVENTS_PER_READ)
            if not lot:
                break
            self.events += [Step(one.sequence, pb.StreamResponse.FromString(one.data)) for one in lot]
        if snapshot is not None:  # only now, for whoever waits meanwhile has seen none of the events
            self._record = head
            self.task = pb.Task.FromString(snapshot.task)
        self.attempt = self._attempt(head)
        self.error, self.failure = self._kit.failed.get(self._id, (None, "")) if self.state == "FAILED" else (None, "")
        conversation = await store.messages(head.ref)
        self.exchange = [
            Exchange(one.number, pb.Message.FromString(one.message), pb.SendMessageRequest.FromString(one.envelope))
            for one in (conversation.messages if conversation else ())
        ]
        self.usage = await store.usage(head.ref)

    def _attempt(self, record: TaskRecord) -> int:
        """That of the last turn, also when it is over."""
        values = [step.metadata["attempt"] for step in self.events[self.turn_began :] if "attempt" in step.metadata]
        return max(record.attempt, *map(int, values), 1)

    async def _follow(self, is_done: Callable[[], bool], aim: str, *, strict: bool = False) -> None:
        """Looks after each event until there is enough; `strict`: the turn must not end before."""
        if self.reply is not None:
            return
        await self.refresh()
        deadline = asyncio.get_running_loop().time() + self._kit.turn_timeout
        while not is_done():
            if strict and not self._busy:
                raise AssertionError(f"{self!r} has ended its turn, and has not {aim}:\n{self._events_text()}")
            service, after = self._kit.runtime.service, str(len(self.events))
            request = pb.SubscribeToTaskRequest(id=self.id)
            events = service.subscribe_to_task(self._kit.call(self.agent, after), request)
            try:
                while (
                    not is_done() and (self._busy or not strict) and await self._wait_for_event(events, deadline, aim)
                ):
                    await self.refresh()
            finally:
                await events.aclose()

    async def _wait_for_event(self, events: AsyncIterator[Event], deadline: float, aim: str) -> bool:
        """Waits for an event; False when the process has died or the task has ended."""
        restarted = self._kit.restarted
        assert restarted is not None
        next_one: asyncio.Future[Event | None] = asyncio.ensure_future(anext(events, None))
        left = deadline - asyncio.get_running_loop().time()
        either: set[asyncio.Future[Any]] = {next_one, restarted}
        await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if next_one.done():
            event = next_one.result()
            await self.refresh()
            return event is not None
        next_one.cancel()
        await asyncio.wait({next_one})
        if restarted.done():
            await self.refresh()
            return False
        where = self._agent_line()
        raise AssertionError(
            f"{self!r} has not {aim} within {self._kit.turn_timeout:g} s{where}. What happened:\n{self._events_text()}"
        )

    def _events_text(self) -> str:
        return "\n".join(f"  {step.sequence}. {step}" for step in self.events)

    def _agent_line(self) -> str:
        """Where the agent's function is."""
        assert self._record is not None
        run: Any = self._kit.runtime.scheduler.find_runner(self._record.ref)
        agent: Any = next((one for one in self._kit.agents if one.spec.id == self.agent), None)
        function = getattr(agent, "__wrapped__", None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if run is None or run._task is None or code is None:
            return ""
        waiting, lines = run._task.get_coro(), list[int]()
        while waiting is not None:
            frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
            if frame is not None and frame.f_code.co_filename == code.co_filename:
                lines.append(frame.f_lineno)
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
        for thread in sys._current_frames().values() if not lines else ():
            at, found = thread, list[int]()
            while at is not None:
                if at.f_code.co_filename == code.co_filename:
                    found.append(at.f_lineno)
                if at.f_code is code:
                    lines = found[:1]
                at = at.f_back  # type: ignore[assignment]  # None at the end
        return f"; {Path(code.co_filename).name} is at line {lines[-1]}" if lines else ""
