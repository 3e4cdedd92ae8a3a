"""One caller of a long task over a flaky connection, and the comparison with the server's log."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from dragoman.client import Artifact, Client, ClientError, Finished, Text, connect, message
from dragoman.fault_proxy import DropLimit, DropMode, FaultProxy

HOWS: Final[dict[str, DropMode]] = {"grpc": "reset", "rest": "close", "jsonrpc": "reset", "ws": "close"}
"""How connections are dropped, for each binding."""

PAUSE: Final = 0.2
"""Seconds between two chunks."""


class Mismatch(Exception):
    """The received events differ from those sent."""


@dataclass
class Followed:
    """What one caller has received."""

    name: str
    proxy: FaultProxy
    task: str = ""
    chunks: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    """The cursor of each chunk."""
    result: str = ""
    again: int = 0
    """How often the artifact was replaced, as a client does on a snapshot."""

    def line(self) -> str:
        """A summary for people."""
        proxy = self.proxy
        moments = "; ".join(f"{count} {moment}" for moment, count in sorted(proxy.dropped.items()))
        drops = f"{proxy.dropped.total()} of {proxy.connections} connections dropped ({moments})"
        return f"{self.name:<8} {len(self.chunks)} chunks, {drops}"


def chunks_of(seconds: float) -> list[str]:
    """The chunks of the agent in that time."""
    return [f"{number} " for number in range(round(seconds / PAUSE))]


def words(seconds: float) -> str:
    """The message that requests these chunks."""
    return f"{len(chunks_of(seconds))} {PAUSE}"


def breaking(to: str, binding: str, *, seed: int, listen: str = "127.0.0.1:0") -> FaultProxy:
    """A proxy to `to` (HOST:PORT) that drops every third connection, and the others after about ten seconds."""
    how: DropMode = HOWS.get(binding, "close")
    return FaultProxy(to, listen=listen, every=3, after=DropLimit(seconds=10), how=how, seed=seed)


async def run(url: str, binding: str, seconds: float, followed: Followed) -> None:
    """Runs the task with `connect` and `run`. `url`: of the proxy."""
    async with connect(url, binding=binding) as client, aclosing(client.run(words(seconds))) as events:
        async for event in events:
            followed.task = followed.task or event.task_id
            if isinstance(event, Text):
                followed.chunks.append(event.text)
                followed.places.append(event.cursor)
            elif isinstance(event, Artifact) and event.replaces:
                followed.chunks.clear()
                followed.again += 1
            elif isinstance(event, Finished):
                followed.result = event.result.raise_for_state().text


async def run_ws(url: str, seconds: float, followed: Followed) -> None:
    """Runs the task with the low-level client, which has WebSocket."""
    request, key = message(words(seconds)), str(uuid.uuid4())
    async with Client(url, binding="ws") as client:
        while not followed.task:  # a stream without an event is not resumed but repeated under its key
            try:
                async with aclosing(client.stream(request, key=key)) as events:
                    async for event in events:
                        followed.task = followed.task or event.task.id
                        text = "".join(part.text for part in event.artifact_update.artifact.parts)
                        if text:
                            followed.chunks.append(text)
            except ClientError:
                if followed.task:
                    raise


async def compare(direct: str, followed: Followed, seconds: float) -> int:
    """Compares what a caller received with the server's log, read over a reliable connection. Returns the number of
    events. Raises Mismatch."""
    whole = chunks_of(seconds)
    if followed.again:
        raise Mismatch(f"{followed.name}: the artifact was replaced {followed.again} times although there are cursors")
    _same(followed.name, "chunks", followed.chunks, whole)
    logged: list[Text] = []
    count = 0
    async with connect(direct) as client, aclosing(client.follow(followed.task, after="0")) as events:
        async for event in events:
            if event.cursor and not isinstance(event, Finished):
                count = max(count, int(event.cursor.rpartition(".")[2]))
            if isinstance(event, Text):
                logged.append(event)
    _same(followed.name, "chunks in the log", [event.text for event in logged], whole)
    if followed.places:
        _same(followed.name, "cursors", followed.places, [event.cursor for event in logged])
    if followed.result:
        _same(followed.name, "result", [followed.result], ["".join(whole)])
    return count


def _same(name: str, what: str, received: list[str], wanted: list[str]) -> None:
    if received != wanted:
        lost, more = set(wanted) - set(received), len(received) - len(set(received))
        raise Mismatch(f"{name}: {what}: {len(received)} and not {len(wanted)}; {len(lost)} lost, {more} twice")
