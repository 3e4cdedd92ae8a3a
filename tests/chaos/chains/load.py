"""Clients of a chain run: each sends commands over random routes, and cancels many of them."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from tests.chaos.chains.routes import ROUTES, Command, Route
from tests.chaos.chains.target import ChainTarget
from tests.chaos.history import Acknowledged, Canceled, CancelSent, Got, Rejected, Sent
from tests.chaos.load.followers import Stage
from tests.load.requests import Request
from tests.load.transports import BINDINGS, Answer

from dragoman.client import ClientError
from dragoman.core.task import states
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PAUSE: Final = 0.2
"""Seconds between two attempts of a call, and between two reads of a task."""
ENDLESS: Final = 100_000
"""Ticks of work that only a cancel ends."""
LONGEST: Final = 40
"""Ticks of other work, at most."""
AIM: Final = 3.0
"""Seconds for which a client waits for a fault on its route before it cancels."""
TASK_TIMEOUT: Final = 6.0
"""Seconds for which a client reads a task after its cancel was acknowledged."""


class ChainClient:
    """One client. Its number seeds its random choices."""

    def __init__(self, stage: Stage, target: ChainTarget, number: int) -> None:
        self._stage = stage
        self._target = target
        self._rng = random.Random(f"{stage.seed}/client {number}")

    async def serve(self) -> None:
        """Performs operations until the run is over, the last one to its end."""
        while not self._stage.over.is_set():
            await self._one()

    async def _one(self) -> None:
        name = self._rng.choice(list(ROUTES))
        route, cancels = ROUTES[name], self._rng.random() < 0.6
        ticks = ENDLESS if cancels and self._rng.random() < 0.6 else self._rng.randint(1, LONGEST)
        task = await self._send(route, Command(ticks, name, self._stage.number()))
        if not task:
            return
        if self._rng.random() < 0.4:
            self._stage.follow(task, route.agent)
        if not cancels:
            await self._until_end(task, route, None)
            return
        await self._aim(route)
        if await self._cancel(task, route):
            await self._until_end(task, route, TASK_TIMEOUT)

    async def _aim(self, route: Route) -> None:
        """Waits for the moment of a cancel: a random one, or soon after a fault on the route has begun."""
        await asyncio.sleep(self._rng.random())
        if self._rng.random() < 0.7:
            for _ in range(round(AIM / PAUSE)):
                if self._target.troubled & route.parts:
                    break
                await asyncio.sleep(PAUSE)
        await asyncio.sleep(self._rng.choice((0.0, 0.3, 4.0)) * self._rng.random())

    # Calls ----------------------------------------------------------------------------------------------------------

    async def _send(self, route: Route, command: Command) -> str:
        """Sends a command, until there is a response. Returns the task; empty if it was rejected."""
        key = f"key-{command.number}"
        message = pb.Message(message_id=f"m-{command.number}", role=pb.ROLE_USER)
        message.parts.add(text=route.message.format(command.text))
        configuration = pb.SendMessageConfiguration(return_immediately=True)
        request = pb.SendMessageRequest(tenant=route.agent, message=message, configuration=configuration)
        while True:
            op, binding = self._stage.number(), self._rng.choice(BINDINGS)
            self._stage.record.add(
                Sent(at=self._stage.now, op=op, message=message.message_id, binding=binding, how="at once",
                     text=message.parts[0].text, key=key)
            )  # fmt: skip
            found, reason = await self._call(binding, "SendMessage", request, pb.SendMessageResponse, key)
            if found is not None:
                task = found.task
                self._stage.record.add(Acknowledged(at=self._stage.now, op=op, task=task.id, state=task.status.state))
                return task.id
            if reason:
                self._stage.record.add(Rejected(at=self._stage.now, op=op, reason=reason))
                return ""

    async def _cancel(self, task: str, route: Route) -> bool:
        """Cancels a task, until there is a response. Whether it was acknowledged."""
        while True:
            self._stage.record.add(CancelSent(at=self._stage.now, task=task))
            request = pb.CancelTaskRequest(tenant=route.agent, id=task)
            found, reason = await self._call(self._rng.choice(BINDINGS), "CancelTask", request, pb.Task)
            if found is not None or reason:
                state = found.status.state if found is not None else 0
                self._stage.record.add(Canceled(at=self._stage.now, task=task, state=state, reason=reason))
                return not reason

    async def _until_end(self, task: str, route: Route, seconds: float | None) -> None:
        """Reads a task until it has ended, for so many seconds at most. Records each state once."""
        last, request = 0, pb.GetTaskRequest(tenant=route.agent, id=task)
        try:
            async with asyncio.timeout(seconds):
                while last not in states.TERMINAL:
                    found, reason = await self._call(self._rng.choice(BINDINGS), "GetTask", request, pb.Task)
                    state = found.status.state if found is not None else 0
                    if reason or state not in (0, last):
                        self._stage.record.add(Got(at=self._stage.now, task=task, state=state, reason=reason))
                        last = state
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            return

    async def _call(
        self,
        binding: str,
        rpc: str,
        request: Request,
        answer: type[Answer],
        key: str = "",
    ) -> tuple[Answer | None, str]:
        """The response to a call, or the reason of its rejection; neither if it got lost."""
        await self._target.up.wait()
        transports = self._target.client_transports
        assert transports is not None
        try:
            return await transports.call(binding, rpc, request, answer, key), ""
        except TimeoutError:
            return None, ""
        except ClientError as error:
            if error.reason and error.reason != "UNAVAILABLE":
                return None, error.reason
        await asyncio.sleep(PAUSE)
        return None, ""
