"""Random clients: each performs operations chosen by the seed of the run, and records the responses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tests.chaos.history import Acknowledged, Canceled, Got, Left, Rejected, Sent
from tests.chaos.load.followers import Stage, Start
from tests.chaos.targets.target import Target
from tests.load.mcp_transport import MCP_BINDINGS
from tests.load.transports import BINDINGS, UNARY_BINDINGS

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

HOOKED: Final = 0.4
"""Probability that a new task has a webhook."""

TRIES: Final = 6
"""Maximum attempts of a send with a key."""


class RandomClient:
    """One client. Its number seeds its random choices, so that a run can be repeated."""

    def __init__(self, stage: Stage, number: int, *, keys: bool) -> None:
        self._stage = stage
        self._rng = random.Random(f"{stage.seed}/customer {number}")
        self._keys = keys

    async def serve(self) -> None:
        """Performs operations until the run is over."""
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
            (act,) = self._rng.choices(list(acts), list(acts.values()))
            await act()

    # Operations -----------------------------------------------------------------------------------------------------

    async def _at_once(self) -> None:
        message, tenant = self._message(self._words()), self._tenant()
        if (task := await self.send(message, tenant, "at once")) and self._rng.random() < 0.6:
            for _ in range(self._rng.choice((1, 1, 2, 4))):
                self._stage.follow(task.id, tenant)

    async def _blocking(self) -> None:
        await self.send(self._message(self._words()), self._tenant(), "blocking")

    async def _streaming(self) -> None:
        tenant = self._tenant()
        message = self._message(self._words())
        hook = self._hook()
        start = Start(self._request(message, tenant, hook=hook), self._rng.choice(BINDINGS))
        op = self._sent(message, start.binding, "stream", hook=hook)
        self._stage.follow("", tenant, start)
        if task := await start.task:
            self._record_state(op, task)

    async def _race(self) -> None:
        """Cancels a task once or twice, around the time when it ends by itself."""
        words = self._rng.choice(("sleep 100", "stream 5 20", "stream 200 20", "sleep 3000", "ask", "steps 4"))
        tenant = self._tenant()
        task = await self.send(self._message(words), tenant, "at once")
        if task is None:
            return
        if self._rng.random() < 0.5:
            self._stage.follow(task.id, tenant)
        await self._pause(0.25)
        await asyncio.gather(*(self._cancel(task.id, tenant) for _ in range(self._rng.choice((1, 1, 2)))))
        await self._get(task.id, tenant)

    async def _conversation(self) -> None:
        """Creates a task that asks, and answers it sooner or later, or leaves it until the end of the run."""
        tenant = self._tenant()
        words = self._rng.choice(("ask", "steps 5 ask"))
        task = await self.send(self._message(words), tenant, "blocking")
        if task is None or task.status.state != states.INPUT_REQUIRED:
            return
        if self._rng.random() < 0.3:
            self._stage.follow(task.id, tenant)
        if self._rng.random() < 0.3:
            self._stage.record.add(Left(at=self._stage.now, task=task.id))
            return
        await self._pause(2)
        how = self._rng.choice(("at once", "blocking"))
        await self.send(self._message("so be it", task.id), tenant, how)

    async def _interjection(self) -> None:
        """Sends a follow-up message to a working task."""
        tenant = self._tenant()
        if task := await self.send(self._message("stream 20 20"), tenant, "at once"):
            await self._pause(0.4)
            await self.send(self._message("echo", task.id), tenant, "at once", bindings=BINDINGS)

    async def _doubled(self) -> None:
        """Repeats a send concurrently with one key, until it has a response."""
        if not self._keys:
            return
        tenant, key = self._tenant(), f"key-{self._stage.number()}"
        message = self._message(self._words())
        bindings = self._rng.choice((BINDINGS, MCP_BINDINGS))  # a call of MCP is not the same request as a send of A2A
        for _ in range(TRIES):
            times = self._rng.randint(2, 4)
            how = self._rng.choice(("at once", "blocking"))
            sends = (self.send(message, tenant, how, key, bindings=bindings) for _ in range(times))
            answers = await asyncio.gather(*sends)
            if any(answers):
                return
            await self._stage.victim.up.wait()

    async def _cancel_for_good(self) -> None:
        """Cancels a task that runs longer than the chaos run. After a response to the cancel it has to end, despite all
        faults."""
        if not self._keys:  # a task whose response is lost could not be canceled
            return
        tenant, key, message = self._tenant(), f"key-{self._stage.number()}", self._message("sleep 90000")
        bindings = self._rng.choice((BINDINGS, MCP_BINDINGS))
        for _ in range(TRIES):
            if task := await self.send(message, tenant, "at once", key, bindings=bindings):
                break
            await self._stage.victim.up.wait()
        await self._pause(0.5)
        while task is not None and not await self._cancel(task.id, tenant):
            await self._stage.victim.up.wait()
            await self._pause(0.5)

    # Requests -------------------------------------------------------------------------------------------------------

    async def send(
        self,
        message: pb.Message,
        tenant: str,
        how: str,
        key: str = "",
        *,
        quietly: bool = False,
        bindings: Sequence[str] = UNARY_BINDINGS,
    ) -> pb.Task | None:
        """Sends a message and records the response. None without a response or for a rejection (see `quietly`)."""
        transports = self._stage.victim.client_transports
        assert transports is not None
        hook = 0 if key or message.task_id else self._hook()
        if hook:  # MCP has no webhooks
            bindings = BINDINGS
        if how == "at once":  # a call of 2025-11-25 always waits
            bindings = [binding for binding in bindings if binding != "mcp-2025"]
        binding = self._rng.choice(bindings)
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
        """Whether a response arrived."""
        return await self._ask("CancelTask", pb.CancelTaskRequest(tenant=tenant, id=task), Canceled)

    async def _get(self, task: str, tenant: str) -> None:
        await self._ask("GetTask", pb.GetTaskRequest(tenant=tenant, id=task), Got)

    async def _ask(
        self, rpc: str, request: pb.CancelTaskRequest | pb.GetTaskRequest, kind: type[Canceled] | type[Got]
    ) -> bool:
        transports = self._stage.victim.client_transports
        assert transports is not None
        try:
            found = await transports.call(self._rng.choice(UNARY_BINDINGS), rpc, request, pb.Task)
        except TimeoutError:
            return False
        except ClientError as error:
            if reported := bool(error.reason and error.reason != "UNAVAILABLE"):
                self._stage.record.add(kind(at=self._stage.now, task=request.id, reason=error.reason))
            return reported
        self._stage.record.add(kind(at=self._stage.now, task=found.id, state=found.status.state))
        return True

    async def _pause(self, most: float) -> None:
        await asyncio.sleep(self._rng.random() * most)

    def _words(self) -> str:
        return random_words(self._rng, self._stage.victim)

    def _tenant(self) -> str:
        return self._rng.choice(self._stage.victim.agents)

    def _message(self, words: str, task: str = "") -> pb.Message:
        number = self._stage.number()
        text = pb.Part(text=f"{words} #{number}")
        return pb.Message(message_id=f"m-{number}", role=pb.ROLE_USER, task_id=task, parts=[text])

    def _hook(self) -> int:
        """Returns the number of a webhook for a new task, 0 for none."""
        return self._stage.number() if self._stage.hook is not None and self._rng.random() < HOOKED else 0

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
            message="" if binding in MCP_BINDINGS else message.message_id,
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


def random_words(rng: random.Random, target: Target) -> str:
    """Returns a command for an agent."""
    return rng.choice(
        (
            "echo",
            f"stream {rng.randint(1, 40)} {rng.randint(0, 60)}",
            f"stream {rng.randint(1, 40)} {rng.randint(0, 60)}",
            f"sleep {rng.randint(0, 4000)}",
            f"block {rng.randint(10, 150)}",
            "ask",
            "fail",
            f"steps {rng.randint(1, 6)}",
            f"steps {rng.randint(3, 6)}",
            *target.words,
        )
    )
