"""A rolling restart: servers are drained and restarted one after the other, under load.

Who has a stream sees it break off and takes it up at the other server, exactly; what is shorter than the drain's limit
ends as ever, and nothing is run twice.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest
from tests.chaos.load.transports import BINDINGS, Place, Transports
from tests.cluster import Cluster, ServerPart
from tests.eventually import eventually
from tests.postgres import execute, needed

from dragoman.client import ClientError
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

AGENTS = """
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

WHOLE = "".join(f"{number} " for number in range(20))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    needed()
    (tmp_path / "agents.py").write_text(AGENTS)
    with Cluster(tmp_path, app="agents.py", serving=("--drain", "30", "--requests-per-second", "0")) as cluster:
        cluster.start()
        yield cluster


class Load:
    """Clients that use another server when one rejects them."""

    def __init__(self, servers: list[ServerPart]) -> None:
        self._client_transports = [Transports(server.http, server.grpc) for server in servers]
        self._numbers = count()
        self.over = asyncio.Event()
        self.seen: Counter[str] = Counter()

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
                    task = (
                        await transports.call(binding, "SendMessage", requested(key), pb.SendMessageResponse, key)
                    ).task
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
            while not (places and ends(places[-1])):
                stream = self._next(self._client_transports[at % len(self._client_transports)], binding, key, places)
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
            assert "".join(text_of(place) for place in places) == WHOLE
            self.seen["streamed"] += 1

    async def _elsewhere(self, error: ClientError) -> int:
        """Returns the offset of the next server for errors of a stopping server. Raises all other errors."""
        if error.reason not in ("", "UNAVAILABLE"):
            raise error
        self.seen["elsewhere"] += 1
        await asyncio.sleep(0.05)
        return 1

    def _next(self, transports: Transports, binding: str, key: str, places: list[Place]) -> AsyncGenerator[Place]:
        if not places:
            return transports.stream(binding, "SendStreamingMessage", requested(key, "counts"), key)
        again = pb.SubscribeToTaskRequest(id=places[0].event.task.id, tenant="counts")
        return transports.stream(binding, "SubscribeToTask", again, after=places[-1].cursor)


def requested(text: str, tenant: str = "") -> pb.SendMessageRequest:
    message = pb.Message(message_id=text, role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    return pb.SendMessageRequest(message=message, tenant=tenant)


def ends(place: Place) -> bool:
    return place.event.status_update.status.state == pb.TASK_STATE_COMPLETED


def text_of(place: Place) -> str:
    return "".join(part.text for part in place.event.artifact_update.artifact.parts)


@pytest.mark.timeout(300)
async def test_callers_notice_only_a_reconnect(cluster: Cluster) -> None:
    load = Load(cluster.servers)
    try:
        async with asyncio.TaskGroup() as callers:
            for number, binding in enumerate(BINDINGS * 2):
                callers.create_task(load.sends(number, binding))
                callers.create_task(load.streams(number, binding))
            for server in cluster.servers:
                wanted = load.seen["streamed"] + 8
                await eventually(lambda: load.seen["streamed"] >= wanted)  # noqa: B023  # so that clients are active on both
                server.send(signal.SIGTERM)
                assert await asyncio.to_thread(server.ends) == 0
                await asyncio.to_thread(server.start)
            load.over.set()
    finally:
        await load.close()
    tasks = await execute(cluster.postgres.url(), "SELECT state, attempt, count(*) FROM tasks GROUP BY 1, 2")
    assert [(row["state"], row["attempt"], row["count"]) for row in tasks] == [
        (pb.TASK_STATE_COMPLETED, 1, load.seen["sent"] + load.seen["streamed"])
    ]
    assert load.seen["taken up"] > 0
    for server in cluster.servers:
        assert '"level": "ERROR"' not in server.log.read_text()
