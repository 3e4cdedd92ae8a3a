"""Callers that are operators, too: they use the handlers of `dragoman.ops.v1`, with their audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from tests.chaos.history import Entry
from tests.simulation.operated.readers import BULK, follow_slowly
from tests.simulation.operated.senders import QuotaCaller
from tests.simulation.operated.work_judge import LONG
from tests.simulation.plan import PlannedOperation
from tests.simulation.stage import OWNER, NoAnswer

from dragoman.bindings.admin.actions import AdminOperation, OperatorActions, OperatorCall
from dragoman.bindings.admin.task_changes import TaskChanges
from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, Unavailable
from dragoman.core.task import states
from dragoman.runtime import Runtime
from dragoman_pb.dragoman.ops import v1 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

OPERATOR: Final = OperatorCall(Identity("olga"), is_operator=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated(Entry):
    """An operator's call was answered. `name`: unique, and part of the request."""

    call: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing(Entry):
    """An operator is about to erase a task, whether or not that is answered."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased(Entry):
    """The erasure of a task was answered."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun(Entry):
    """A rerun was answered with a new task. `name`: of the request, which was perhaps sent several times."""

    task: str
    name: str
    again: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Entry):
    """A process answered that an agent is paused."""

    agent: str
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resuming(Entry):
    """An operator is about to let an agent run again."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookChanged(Entry):
    """A webhook was added to a task, or removed: `how` is `adding`, `added`, `removing` or `removed`."""

    task: str
    hook: int
    how: str


class OperatedCaller(QuotaCaller):
    """A caller that also acts as an operator."""

    async def perform(self, operations: tuple[PlannedOperation, ...]) -> None:
        for operation in operations:
            self._identity = OWNER
            await super().perform((operation,))

    async def do_erase(self, words: str) -> None:
        """A task that is erased: while it runs, while it waits, or after its end."""
        hook = self._stage.number() if self._rng.random() < 0.5 else 0
        task = await self.send(words, how="at once", hook=hook)
        if task is None:
            return
        if self._rng.random() < 0.5:
            self._follow(task.id)
        await self._pause(self._rng.choice((0.01, 1.5)))  # before its turn has read its message, or later
        self._stage.record.add(Erasing(at=self._stage.now, task=task.id))
        name = self._key()
        request = ops.EraseTasksRequest(filter=ops.ListTasksRequest(task_id=task.id), request_id=name)
        response = await self._operate("EraseTasks", request, name)
        if response is not None and response.changed:
            self._stage.record.add(Erased(at=self._stage.now, task=task.id))
            await self._get(task.id)

    async def do_rerun(self, words: str) -> None:
        """A failed task that is rerun, with a request that is perhaps sent several times."""
        task = await self.send("fail", how="blocking")
        if task is None or task.state != states.FAILED:
            return
        name = self._key()
        request = ops.RerunTaskRequest(task_id=task.id, request_id=name)
        times = self._rng.randint(1, 3)
        for response in await asyncio.gather(*(self._operate("RerunTask", request, name) for _ in range(times))):
            if response is not None:
                again = response.task.task.id
                self._stage.record.add(Rerun(at=self._stage.now, task=task.id, name=name, again=again))

    async def do_paused(self, words: str) -> None:
        """Messages to an agent that is paused. It is resumed in any case."""
        name = self._key()
        request = ops.PauseAgentRequest(agent=self._agent, reason=name)
        await self._operate("PauseAgent", request, name, note_process=True)
        for _ in range(self._rng.choice((1, 2))):
            await self.send(words, how="at once")
        await self._pause(3.0)
        self._stage.record.add(Resuming(at=self._stage.now, agent=self._agent))
        while await self._operate("ResumeAgent", ops.ResumeAgentRequest(agent=self._agent), "") is None:
            await self._pause(0.5)

    async def do_webhook_change(self, words: str) -> None:
        """A webhook that is added to a task with events, and one that is removed."""
        stage, first, second = self._stage, self._stage.number(), self._stage.number()
        task = await self.send(f"stream 10 {self._rng.randint(100, 500)}", how="at once", hook=first)
        if task is None:
            return
        await self._pause(2.0)
        config = pb.TaskPushNotificationConfig(task_id=task.id, id="second", url=stage.receivers.url(second))
        stage.record.add(HookChanged(at=stage.now, task=task.id, hook=second, how="adding"))
        if await self._push(lambda runtime, call: runtime.operations.push_configs.create(call, config)) is not None:
            stage.record.add(HookChanged(at=stage.now, task=task.id, hook=second, how="added"))
        listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await self._push(lambda runtime, call: runtime.operations.push_configs.list(call, listing))
        if listed is None:
            return
        configs = pb.ListTaskPushNotificationConfigsResponse.FromString(listed).configs
        (id,) = [one.id for one in configs if one.url == stage.receivers.url(first)]
        removal = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=id)
        stage.record.add(HookChanged(at=stage.now, task=task.id, hook=first, how="removing"))
        if await self._push(lambda runtime, call: runtime.operations.push_configs.delete(call, removal)) is not None:
            stage.record.add(HookChanged(at=stage.now, task=task.id, hook=first, how="removed"))

    async def do_slow_reader(self, words: str) -> None:
        """A task with many bytes that is followed, also by followers that stop reading."""
        task = await self.send(f"{BULK} {self._rng.randint(10, 60)}", how="at once")
        if task is not None:
            for _ in range(self._rng.choice((1, 1, 2))):
                follow_slowly(self._stage, self._agent, task.id, self._rng.random())
            self._follow(task.id)

    async def do_long(self, words: str) -> None:
        """A task with many events, whose followers connect again and again."""
        task = await self.send(f"{LONG} {self._rng.randint(5, 40)}", how="at once")
        if task is not None:
            for _ in range(self._rng.choice((1, 1, 2))):
                self._follow(task.id)

    async def _push(self, work: Callable[[Runtime, Any], Any]) -> bytes | None:
        """The response to a call about webhooks; None without one."""
        try:
            answer: bytes = await self._call(lambda runtime: work(runtime, self._call_of(runtime)))
        except (NoAnswer, Unavailable):
            return None
        return answer

    async def _operate(self, name: str, request: Message, unique: str, *, note_process: bool = False) -> Any:
        """The response to an operator's call; None without one. `unique`: a name in the request."""
        stage, server = self._stage, await self._stage.server(self._rng.randrange(2))
        process = server.name

        async def work(runtime: Runtime) -> Message:
            operation = AdminOperation(name, _handler_of(runtime, name))
            return await OperatorActions(runtime.auditor).run(operation, OPERATOR, request)

        try:
            response = await stage.call(server, work)
        except (NoAnswer, Unavailable):
            return None
        except A2AError:
            return None
        if unique:
            stage.record.add(Operated(at=stage.now, call=name, name=unique))
        if note_process:
            stage.record.add(Paused(at=stage.now, agent=self._agent, process=process))
        return response


def _handler_of(runtime: Runtime, name: str) -> Callable[[OperatorCall, Any], Any]:
    changes, pauses = TaskChanges(runtime), runtime.scheduler.pauses

    async def pause(operator: OperatorCall, request: ops.PauseAgentRequest) -> ops.PauseAgentResponse:
        await pauses.pause(request.agent, operator.identity.principal, request.reason)
        return ops.PauseAgentResponse()

    async def resume(_: OperatorCall, request: ops.ResumeAgentRequest) -> ops.ResumeAgentResponse:
        await pauses.resume(request.agent)
        return ops.ResumeAgentResponse()

    handlers: dict[str, Callable[[OperatorCall, Any], Any]] = {
        "EraseTasks": changes.erase_tasks,
        "RerunTask": changes.rerun_task,
        "PauseAgent": pause,
        "ResumeAgent": resume,
    }
    return handlers[name]
