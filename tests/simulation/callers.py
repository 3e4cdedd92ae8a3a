"""Callers of a simulation: each performs the operations of its plan, and records the answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple, TypeVar

from tests.chaos.history import (
    Acknowledged,
    Canceled,
    Foreign,
    Got,
    Left,
    Rejected,
    Replied,
    Reused,
    Sent,
)
from tests.simulation.called.plan import CALLED_AGENTS
from tests.simulation.followers import Start, follow
from tests.simulation.plan import PlannedOperation
from tests.simulation.receivers import event_digest
from tests.simulation.server import SimulatedServer
from tests.simulation.stage import NoAnswer, Stage, call_of, reason_of

from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError, IdempotencyKeyReused, TaskEnded, TaskNotFound, Unavailable
from dragoman.core.task import states
from dragoman.runtime import Call, Runtime
from dragoman.runtime.feeds import EventStream
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

T = TypeVar("T")

TRIES: Final = 8
PERSISTENT_TRIES: Final = 60
"""Attempts of a send whose task only this caller will cancel."""
LONG: Final = 90_000
"""Milliseconds of a task that runs longer than the history."""
AGENTS: Final = ("once", "again")
STRANGER: Final = Identity("mallory")


class SendAnswer(NamedTuple):
    """What the response to a send named."""

    id: str
    state: int
    reply: str = ""
    """A digest of the Message, if it is one."""


class SimulatedCaller:
    """One caller with one connection at a time, and its followers."""

    def __init__(self, stage: Stage, agent: str = AGENTS[0]) -> None:
        self._stage = stage
        self._rng: random.Random
        """Of the operation that it performs."""
        self._server = 0
        self._agent = agent
        self._tool = ""
        """The tool that messages to an MCP server name."""

    async def perform(self, operations: tuple[PlannedOperation, ...]) -> None:
        """Performs the operations one after the other."""
        for operation in operations:
            await asyncio.sleep(operation.after)
            self._rng = random.Random(f"operation {self._stage.plan.seed} {operation.number}")
            self._server, self._agent = operation.server, self._rng.choice(AGENTS)
            self._tool = ""
            if operation.agent:
                self._agent, _, self._tool = operation.agent.partition("/")
            await getattr(self, "do_" + operation.kind.replace(" ", "_"))(operation.words)

    # Operations -------------------------------------------------------------------------------------------------------

    async def do_at_once(self, words: str) -> None:
        """A send without waiting, with followers."""
        if (task := await self.send(words, how="at once")) and self._rng.random() < 0.7:
            for _ in range(self._rng.choice((1, 1, 2))):
                self._follow(task.id)

    async def do_blocking(self, words: str) -> None:
        """A send that waits for its turn."""
        await self.send(words, how="blocking")

    async def do_stream(self, words: str) -> None:
        """A send with a stream, which its follower continues."""
        number, key = self._stage.number(), self._key() if self._rng.random() < 0.5 else ""
        text = self._text(words, number)
        op = self._sent(text, f"m-{number}", how="stream", key=key)
        start = Start(self._request(text, f"m-{number}", how="stream"), key, op)
        follow(self._stage, self._agent, "", self._rng.random(), start)

    async def do_webhook(self, words: str) -> None:
        """A send with a webhook, often of a task with many events."""
        words = self._rng.choice((words, f"stream 10 {self._rng.randint(100, 900)}"))
        await self.send(words, how="at once", hook=self._stage.number())

    async def do_burst(self, words: str) -> None:
        """More sends to one server than it has slots."""
        times = [self._rng.randint(0, 1500) for _ in range(self._rng.randint(3, 6))]
        await asyncio.gather(*(self.send(f"sleep {ms}", how="at once", to=self._server) for ms in times))

    async def do_cancel(self, words: str) -> None:
        """A task that is canceled once or twice, around the time when it ends by itself."""
        task = await self.send(words, how="at once")
        if task is None:
            return
        if self._rng.random() < 0.5:
            self._follow(task.id)
        await self._pause(0.5)
        await asyncio.gather(*(self._cancel(task.id) for _ in range(self._rng.choice((1, 1, 2)))))
        await self._get(task.id)

    async def do_conversation(self, words: str) -> None:
        """A task that asks, which is answered sooner or later, or only at the end of the history."""
        words = "ask" if self._is_called else self._rng.choice(("ask", "ask", "count 2"))
        task = await self.send(words, how="blocking", key=self._key())
        if task is None or task.state != states.INPUT_REQUIRED:
            return
        if self._rng.random() < 0.4:
            self._follow(task.id)
        if words == "ask" and not self._is_called and self._rng.random() < 0.3:
            self._stage.record.add(Left(at=self._stage.now, task=task.id))
            self._stage.left.append((task.id, self._agent))
            return
        await self._pause(1.0)
        for _ in range(2 if words.startswith("count") else 1):
            await self.send("so be it", how=self._rng.choice(("at once", "blocking")), task=task.id, key=self._key())

    async def do_interjection(self, words: str) -> None:
        """Messages to a task that works."""
        if task := await self.send("stream 6 100", how="at once"):
            for _ in range(self._rng.choice((1, 1, 2))):
                await self._pause(0.4)
                await self.send("echo", how=self._rng.choice(("at once", "blocking")), task=task.id)

    async def do_doubled(self, words: str) -> None:
        """A send that is repeated with its key, also concurrently and at several servers."""
        key, op = self._key(), self._stage.number()
        text, message = self._text(words, op), f"m-{op}"
        for _ in range(TRIES):
            times = self._rng.randint(1, 3)
            how = self._rng.choice(("at once", "blocking"))
            answers = await asyncio.gather(
                *(self._send(text, message, how=how, key=key, server=number % 2) for number in range(times))
            )
            if any(answers):
                return
            await self._pause(0.5)

    async def do_direct(self, words: str) -> None:
        """A send to an agent that answers with a Message instead of a task, if it does so in time."""
        self._agent = "direct"
        words = self._rng.choice(("reply 0", "reply 500", "reply 2500", "echo", "sleep 3000", "stream 3 100"))
        await self.do_doubled(words)

    async def do_listener(self, words: str) -> None:
        """Messages to an agent that takes them while it works."""
        count = self._rng.randint(1, 3)
        task = await self.send(f"listen {count}", how="at once", key=self._key())
        for _ in range(count + self._rng.choice((0, 0, 1)) if task is not None else 0):
            assert task is not None
            await self._pause(0.6)
            await self.send("more", how=self._rng.choice(("at once", "blocking")), task=task.id, key=self._key())

    async def do_reused(self, words: str) -> None:
        """The key of a task with another message."""
        key = self._key()
        if await self.send("echo", how="blocking", key=key) is None:
            return
        stage = self._stage
        other = self._request(f"echo other #{stage.number()}", "other", how="at once")
        try:
            await self._call(
                lambda runtime: runtime.operations.send.send_message(self._call_of(runtime, key=key), other)
            )
            stage.record.add(Reused(at=stage.now, key=key))
        except IdempotencyKeyReused as error:
            stage.record.add(Reused(at=stage.now, key=key, reason=reason_of(error)))
        except (NoAnswer, A2AError):
            return

    async def do_cancel_for_good(self, words: str) -> None:
        """Cancels a task that runs longer than the history, until there is an answer. It ends despite all faults."""
        if not self._is_called:
            words = self._rng.choice((*[f"sleep {LONG}"] * 2, "ask", "steps 4 nap"))
        key = self._key()
        task = None
        for _ in range(PERSISTENT_TRIES):
            if task := await self.send(words, how="at once", key=key, once=key):
                break
            await self._pause(0.5)
        await self._pause(0.5)
        while task is not None and not await self._cancel(task.id):
            await self._pause(1.0)

    async def do_stranger(self, words: str) -> None:
        """Another principal names a task, which does not exist for it."""
        task = await self.send(words, how="at once")
        if task is None:
            return
        operations: dict[str, Callable[[Runtime, Call], Awaitable[object]]] = {
            "GetTask": lambda runtime, call: runtime.operations.read.get_task(call, pb.GetTaskRequest(id=task.id)),
            "CancelTask": lambda runtime, call: runtime.operations.cancel.cancel_task(
                call, pb.CancelTaskRequest(id=task.id)
            ),
            "SendMessage": lambda runtime, call: runtime.operations.send.send_message(
                call, self._request(f"mine #{self._stage.number()}", "foreign", how="at once", task=task.id)
            ),
            "SubscribeToTask": lambda runtime, call: _first(
                runtime.operations.read.subscribe_to_task(call, pb.SubscribeToTaskRequest(id=task.id))
            ),
            "ListTasks": lambda runtime, call: _listed(runtime, call, task.id),
        }
        for name, operation in operations.items():
            reason = ""
            try:
                await self._call(partial(_as_stranger, operation, self._agent))
            except (NoAnswer, Unavailable):
                continue
            except A2AError as error:
                reason = reason_of(error)
            self._stage.record.add(Foreign(at=self._stage.now, task=task.id, operation=name, reason=reason))

    # Requests ---------------------------------------------------------------------------------------------------------

    async def send(
        self, words: str, *, how: str, key: str = "", task: str = "", hook: int = 0, once: str = "", to: int = -1
    ) -> SendAnswer | None:
        """Sends a message. None without a response or for a rejection. `once`: the same in all tries of one send.

        `to`: the number of a server, if it is up.
        """
        number = self._stage.number()
        text, message = self._text(words, once or number), f"m-{once or number}"
        return await self._send(text, message, how=how, key=key, task=task, hook=hook, server=to)

    async def _send(
        self, text: str, message: str, *, how: str, key: str = "", task: str = "", hook: int = 0, server: int = -1
    ) -> SendAnswer | None:
        stage = self._stage
        op = self._sent(text, message, how=how, key=key, task=task, hook=hook)
        request = self._request(text, message, how=how, task=task, hook=hook)

        async def work(runtime: Runtime) -> SendAnswer:
            data = await runtime.operations.send.send_message(self._call_of(runtime, key=key), request)
            response = pb.SendMessageResponse.FromString(data)
            if response.HasField("message"):
                return SendAnswer("", states.COMPLETED, event_digest(data))
            return SendAnswer(response.task.id, response.task.status.state)

        try:
            answer = await self._call(work, server, op)
        except (NoAnswer, Unavailable):
            return None
        except A2AError as error:
            if not (isinstance(error, TaskEnded) and task):
                self._rejected(op, error)
            return None
        if answer.reply:
            stage.record.add(Replied(at=stage.now, op=op, digest=answer.reply))
        else:
            stage.record.add(Acknowledged(at=stage.now, op=op, task=answer.id, state=answer.state))
        return answer

    def _sent(self, text: str, message: str, *, how: str, key: str = "", task: str = "", hook: int = 0) -> int:
        """Records a send. Returns its number."""
        op = self._stage.number()
        entry = Sent(
            at=self._stage.now, op=op, message=message, binding="", how=how, text=text, key=key, task=task, hook=hook
        )
        self._stage.record.add(entry)
        return op

    def _rejected(self, op: int, error: A2AError) -> None:
        """Records that a send was rejected."""
        self._stage.record.add(Rejected(at=self._stage.now, op=op, reason=reason_of(error)))

    async def _cancel(self, task: str) -> bool:
        """Whether a response arrived."""
        stage = self._stage
        request = pb.CancelTaskRequest(id=task)
        try:
            data = await self._call(
                lambda runtime: runtime.operations.cancel.cancel_task(self._call_of(runtime), request),
                self._rng.randrange(2),  # not always the server that runs the task
            )
        except (NoAnswer, Unavailable):
            return False
        except A2AError as error:
            stage.record.add(Canceled(at=stage.now, task=task, reason=reason_of(error)))
            return True
        stage.record.add(Canceled(at=stage.now, task=task, state=pb.Task.FromString(data).status.state))
        return True

    async def _get(self, task: str) -> int:
        """The state of a task; 0 without a response."""
        stage, request = self._stage, pb.GetTaskRequest(id=task)
        try:
            data = await self._call(lambda runtime: runtime.operations.read.get_task(self._call_of(runtime), request))
        except (NoAnswer, Unavailable):
            return 0
        except A2AError as error:
            stage.record.add(Got(at=stage.now, task=task, reason=reason_of(error)))
            return 0
        state = pb.Task.FromString(data).status.state
        stage.record.add(Got(at=stage.now, task=task, state=state))
        return state

    async def _call(self, work: Callable[[Runtime], Awaitable[T]], server: int = -1, op: int = 0) -> T:
        """The result of a call. `op`: the number of the send that it is, if it is one."""
        return await self._stage.call(await self._chosen(server), work)

    async def _chosen(self, server: int) -> SimulatedServer:
        """The server with this number, below 0 the usual one of this operation; another if it is not up."""
        return await self._stage.server(self._server if server < 0 else server)

    def _request(self, text: str, message: str, *, how: str, task: str = "", hook: int = 0) -> pb.SendMessageRequest:
        configuration = pb.SendMessageConfiguration(return_immediately=how == "at once")
        if hook:
            configuration.task_push_notification_config.url = self._stage.receivers.url(hook)
        parts = [pb.Part(text=text)]
        return pb.SendMessageRequest(
            message=pb.Message(message_id=message, role=pb.ROLE_USER, task_id=task, parts=parts),
            configuration=configuration,
        )

    def _call_of(self, runtime: Runtime, *, key: str = "") -> Call:
        return call_of(runtime, self._agent, key=key)

    @property
    def _is_called(self) -> bool:
        """Whether another server does the work."""
        return self._agent in CALLED_AGENTS

    def _text(self, words: str, number: int | str) -> str:
        """The text of a message, which is unique."""
        return f"{self._tool} {words} #{number}".lstrip()

    def _follow(self, task: str) -> None:
        follow(self._stage, self._agent, task, self._rng.random())

    def _key(self) -> str:
        return f"key-{self._stage.number()}"

    async def _pause(self, most: float) -> None:
        await asyncio.sleep(self._rng.random() * most)


async def _as_stranger(operation: Callable[[Runtime, Call], Awaitable[object]], agent: str, runtime: Runtime) -> object:
    return await operation(runtime, call_of(runtime, agent, STRANGER))


async def _first(stream: EventStream) -> None:
    """Reads the first batch of a stream."""
    async with aclosing(stream):
        async for _ in stream:
            return


async def _listed(runtime: Runtime, call: Call, task: str) -> None:
    """Raises TaskNotFound unless the list of tasks has this one."""
    data = await runtime.operations.read.list_tasks(call, pb.ListTasksRequest())
    if all(one.id != task for one in pb.ListTasksResponse.FromString(data).tasks):
        raise TaskNotFound


async def answer_the_left(stage: Stage) -> None:
    """Answers every task that was left with its question."""
    for task, agent in stage.left:
        await SimulatedCaller(stage, agent).send("at last", how="blocking", task=task, key=f"at-last-{task}")
