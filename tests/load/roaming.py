"""Clients that send and stream without a pause, and use another server when one stops. None of their calls may fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Final

from tests.cluster import END, START, ServerPart
from tests.load.transports import Place, Transports

from dragoman.client import ClientError, connect
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

AGENTS: Final = """
import asyncio
from dragoman import Turn, agent

@agent(default=True)
async def echo(turn: Turn) -> str:
    return turn.text

@agent
async def counts(turn: Turn):
    for number in range(20):
        yield f"{number} "
        await asyncio.sleep(0.1)
"""
"""The module of agents that they call."""

WHOLE: Final = "".join(f"{number} " for number in range(20))


class RoamingClients:
    """Clients that use another server when one rejects them."""

    def __init__(self, servers: Sequence[ServerPart]) -> None:
        self._urls = [server.http for server in servers]
        self._client_transports = [Transports(server.http, server.grpc) for server in servers]
        self._numbers = count()
        self.over = asyncio.Event()
        """Ends all clients, each after its task."""
        self.seen: Counter[str] = Counter()
        """Tasks that were `sent`, `streamed`, or sent after a client `connected`; streams that were `taken up`,
        and calls made `elsewhere`."""

    async def close(self) -> None:
        for transports in self._client_transports:
            await transports.close()

    async def sends(self, at: int, binding: str) -> None:
        """Sends blocking messages."""
        while not self.over.is_set():
            key = f"send-{next(self._numbers)}"
            task = pb.Task()
            while task.status.state != pb.TASK_STATE_COMPLETED:
                transports = self._client_transports[at % len(self._client_transports)]
                try:
                    request = send_request(key)
                    task = (await transports.call(binding, "SendMessage", request, pb.SendMessageResponse, key)).task
                except ClientError as error:
                    at += await self._elsewhere(error)
                else:  # the unfinished task, if another server runs it and this one stops
                    at += task.status.state != pb.TASK_STATE_COMPLETED
            assert [part.text for artifact in task.artifacts for part in artifact.parts] == [key]
            self.seen["sent"] += 1

    async def streams(self, at: int, binding: str) -> None:
        """Streams messages, and resumes each after a break."""
        while not self.over.is_set():
            key = f"stream-{next(self._numbers)}"
            places: list[Place] = []
            while not (places and is_end(places[-1])):
                stream = self._events(self._client_transports[at % len(self._client_transports)], binding, key, places)
                begins = not places
                try:
                    async with aclosing(stream):
                        async for place in stream:
                            places.append(place)
                            if begins and len(places) == 3:  # and continues at a server that does not run the turn
                                at += 1
                                break
                except ClientError as error:
                    at += await self._elsewhere(error)
                    self.seen["taken up"] += bool(places)
            assert [place.sequence for place in places] == list(range(1, len(places) + 1))
            assert "".join(chunk_text(place) for place in places) == WHOLE
            self.seen["streamed"] += 1

    async def connects(self, at: int) -> None:
        """Connects anew for each call, in turn to both servers, and waits for one that restarts."""
        while not self.over.is_set():
            key = f"connect-{next(self._numbers)}"
            async with connect(self._urls[at % len(self._urls)], retry_timeout=START + END) as client:
                assert (await client.ask(key)).text == key
            self.seen["connected"] += 1
            at += 1

    async def _elsewhere(self, error: ClientError) -> int:
        """Returns the offset of the next server for errors of a stopping server. Raises all other errors."""
        if error.reason not in ("", "UNAVAILABLE"):
            raise error
        self.seen["elsewhere"] += 1
        await asyncio.sleep(0.05)
        return 1

    def _events(self, transports: Transports, binding: str, key: str, places: list[Place]) -> AsyncGenerator[Place]:
        if not places:
            return transports.stream(binding, "SendStreamingMessage", send_request(key, "counts"), key)
        request = pb.SubscribeToTaskRequest(id=places[0].event.task.id, tenant="counts")
        return transports.stream(binding, "SubscribeToTask", request, after=places[-1].cursor)


def send_request(text: str, tenant: str = "") -> pb.SendMessageRequest:
    """A message whose text is its id."""
    message = pb.Message(message_id=text, role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    return pb.SendMessageRequest(message=message, tenant=tenant)


def is_end(place: Place) -> bool:
    """Whether the event ends its task."""
    return place.event.status_update.status.state == pb.TASK_STATE_COMPLETED


def chunk_text(place: Place) -> str:
    """The text of a chunk; empty for other events."""
    return "".join(part.text for part in place.event.artifact_update.artifact.parts)
