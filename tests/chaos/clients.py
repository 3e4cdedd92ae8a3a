"""Customers: each does one thing after another, chosen by the dice of the run, and notes what it is told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos.followers import Stage, Start
from tests.chaos.history import Acknowledged, Canceled, Got, Left, Rejected, Sent
from tests.chaos.transports import BINDINGS

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOOKED: Final = 0.4
"""The chance that a new task has a receiver of pushes."""

TRIES: Final = 6
"""How often a send with a key is repeated until it is answered."""


class RandomClient:
    """One client. Numbered, so that its dice can be thrown again."""

    def __init__(self, stage: Stage, number: int, *, keys: bool) -> None:
        self._stage = stage
        self._dice = random.Random(f"{stage.seed}/customer {number}")
        self._keys = keys

    async def serve(self) -> None:
        """Acts until the run is over."""
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self._at_once: 6,
            self._blocking: 3,
            self._streaming: 4,
            self._race: 3,
            self._conversation: 3,
            self._interjection: 1,
            self._doubled: 3,
            self._cancel_for_good: 2,
        }
        while not self._stage.over.is_set():
            await self._stage.victim.up.wait()
            (act,) = self._dice.choices(list(acts), list(acts.values()))
            await act()

    # What a customer does -------------------------------------------------------------------------------------------

    async def _at_once(self) -> None:
        message, tenant = self._message(self._words()), self._tenant()
        if (task := await self.send(message, tenant, "at once")) and self._dice.random() < 0.6:
            for _ in range(self._dice.choice((1, 1, 2, 4))):
                self._stage.follow(task.id, tenant)

    async def _blocking(self) -> None:
        await self.send(self._message(self._words()), self._tenant(), "blocking")

    async def _streaming(self) -> None:
        tenant = self._tenant()
        message = self._message(self._words())
        hook = self._hook()
        start = Start(self._request(message, tenant, hook=hook), self._dice.choice(BINDINGS))
        op = self._sent(message, start.binding, "stream", hook=hook)
        self._stage.follow("", tenant, start)
        if task := await start.task:
            self._record_state(op, task)

    async def _race(self) -> None:
        """A cancel, or two at once, about when the task ends by itself."""
        words = self._dice.choice(("sleep 100", "stream 5 20", "stream 200 20", "sleep 3000", "ask"))
        tenant = self._tenant()
        task = await self.send(self._message(words), tenant, "at once")
        if task is None:
            return
        if self._dice.random() < 0.5:
            self._stage.follow(task.id, tenant)
        await self._pause(0.25)
        await asyncio.gather(*(self._cancel(task.id, tenant) for _ in range(self._dice.choice((1, 1, 2)))))
        await self._get(task.id, tenant)

    async def _conversation(self) -> None:
        """A task that asks: answered sooner or later, or left until the end of the run."""
        tenant = self._tenant()
        task = await self.send(self._message("ask"), tenant, "blocking")
        if task is None or task.status.state != states.INPUT_REQUIRED:
            return
        if self._dice.random() < 0.3:
            self._stage.follow(task.id, tenant)
        if self._dice.random() < 0.3:
            self._stage.record.add(Left(at=self._stage.now, task=task.id))
            return
        await self._pause(2)
        how = self._dice.choice(("at once", "blocking"))
        await self.send(self._message("so be it", task.id), tenant, how)

    async def _interjection(self) -> None:
        """Another message for a task that works."""
        tenant = self._tenant()
        if task := await self.send(self._message("stream 20 20"), tenant, "at once"):
            await self._pause(0.4)
            await self.send(self._message("echo", task.id), tenant, "at once")

    async def _doubled(self) -> None:
        """The same send several times at once, with one key, until one is answered."""
        if not self._keys:
            return
        tenant, key = self._tenant(), f"key-{self._stage.number()}"
        message = self._message(self._words())
        for _ in range(TRIES):
            times = self._dice.randint(2, 4)
            how = self._dice.choice(("at once", "blocking"))
            answers = await asyncio.gather(*(self.send(message, tenant, how, key) for _ in range(times)))
            if any(answers):
                return
            await self._stage.victim.up.wait()

    async def _cancel_for_good(self) -> None:
        """A task that would go on for longer than anybody waits. Whatever dies meanwhile: once a cancel is answered, it
        ends."""
        tenant = self._tenant()
        task = await self.send(self._message("sleep 90000"), tenant, "at once")
        await self._pause(0.5)
        while task is not None and not await self._cancel(task.id, tenant):
            await self._stage.victim.up.wait()
            await self._pause(0.5)

    # How ------------------------------------------------------------------------------------------------------------

    async def send(
        self, message: pb.Message, tenant: str, how: str, key: str = "", *, quietly: bool = False
    ) -> pb.Task | None:
        """Sends a message and notes the answer. None when there was none, or a refusal (noted unless `quietly`)."""
        transports = self._stage.victim.client_transports
        assert transports is not None
        binding = self._dice.choice(BINDINGS)
        hook = 0 if key or message.task_id else self._hook()
        op = self._sent(message, binding, how, key, hook)
        request = self._request(message, tenant, at_once=how == "at once", hook=hook)
        try:
            answer = await transports.call(binding, "SendMessage", request, pb.SendMessageResponse, key)
        except TimeoutError:
            return None
        except ClientError as error:
            if error.reason and error.reason != "UNAVAILABLE" and not quietly:
                self._stage.record.add(Rejected(at=self._stage.now, op=op, reason=str(error)))
            return None
        self._record_state(op, answer.task)
        return answer.task

    async def _cancel(self, task: str, tenant: str) -> bool:
        """Whether there was an answer."""
        return await self._ask("CancelTask", pb.CancelTaskRequest(tenant=tenant, id=task), Canceled)

    async def _get(self, task: str, tenant: str) -> None:
        await self._ask("GetTask", pb.GetTaskRequest(tenant=tenant, id=task), Got)

    async def _ask(
        self, rpc: str, request: pb.CancelTaskRequest | pb.GetTaskRequest, kind: type[Canceled] | type[Got]
    ) -> bool:
        transports = self._stage.victim.client_transports
        assert transports is not None
        try:
            found = await transports.call(self._dice.choice(BINDINGS), rpc, request, pb.Task)
        except TimeoutError:
            return False
        except ClientError as error:
            if reported := bool(error.reason and error.reason != "UNAVAILABLE"):
                self._stage.record.add(kind(at=self._stage.now, task=request.id, reason=error.reason))
            return reported
        self._stage.record.add(kind(at=self._stage.now, task=found.id, state=found.status.state))
        return True

    async def _pause(self, most: float) -> None:
        await asyncio.sleep(self._dice.random() * most)

    def _words(self) -> str:
        dice = self._dice
        return dice.choice(
            (
                "echo",
                f"stream {dice.randint(1, 40)} {dice.randint(0, 60)}",
                f"stream {dice.randint(1, 40)} {dice.randint(0, 60)}",
                f"sleep {dice.randint(0, 4000)}",
                f"block {dice.randint(10, 150)}",
                "ask",
                "fail",
                *self._stage.victim.words,
            )
        )

    def _tenant(self) -> str:
        return self._dice.choice(self._stage.victim.agents)

    def _message(self, words: str, task: str = "") -> pb.Message:
        number = self._stage.number()
        text = pb.Part(text=f"{words} #{number}")
        return pb.Message(message_id=f"m-{number}", role=pb.ROLE_USER, task_id=task, parts=[text])

    def _hook(self) -> int:
        """The number of a webhook for a new task, 0 for none."""
        return self._stage.number() if self._stage.hook is not None and self._dice.random() < HOOKED else 0

    def _request(
        self, message: pb.Message, tenant: str, *, at_once: bool = False, hook: int = 0
    ) -> pb.SendMessageRequest:
        configuration = pb.SendMessageConfiguration(return_immediately=at_once)
        if hook and self._stage.hook is not None:
            configuration.task_push_notification_config.url = self._stage.hook(hook)
        return pb.SendMessageRequest(tenant=tenant, message=message, configuration=configuration)

    def _sent(self, message: pb.Message, binding: str, how: str, key: str = "", hook: int = 0) -> int:
        op = self._stage.number()
        sent = Sent(
            at=self._stage.now,
            op=op,
            message=message.message_id,
            binding=binding,
            how=how,
            text=message.parts[0].text,
            key=key,
            task=message.task_id,
            hook=hook,
        )
        self._stage.record.add(sent)
        return op

    def _record_state(self, op: int, task: pb.Task) -> None:
        self._stage.record.add(Acknowledged(at=self._stage.now, op=op, task=task.id, state=task.status.state))
