"""A client of a long task over a flaky connection, and the comparison with the server's log."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from dragoman.client import Artifact, ClientError, Finished, Text, connect
from dragoman.client.calls import Client, message
from dragoman.fault_proxy import DropLimit, DropMode, FaultProxy

DROP_MODES: Final[dict[str, DropMode]] = {"grpc": "reset", "rest": "close", "jsonrpc": "reset", "ws": "close"}
"""How connections are dropped, for each binding."""

CHUNK_INTERVAL: Final = 0.2
"""Seconds between two chunks."""


class Mismatch(Exception):
    """The received events differ from those sent."""


@dataclass
class Followed:
    """What one client has received."""

    name: str
    proxy: FaultProxy
    task: str = ""
    chunks: list[str] = field(default_factory=list)
    cursors: list[str] = field(default_factory=list)
    """The cursor of each chunk."""
    result: str = ""
    snapshots: int = 0
    """How often a snapshot replaced the artifact."""

    def summary(self) -> str:
        """Returns one line: the chunks and the dropped connections."""
        proxy = self.proxy
        points = "; ".join(f"{count} {point}" for point, count in sorted(proxy.dropped.items()))
        drops = f"{proxy.dropped.total()} of {proxy.connections} connections dropped ({points})"
        return f"{self.name:<8} {len(self.chunks)} chunks, {drops}"


def chunks_of(seconds: float) -> list[str]:
    """Returns the chunks that the agent sends in that time."""
    return [f"{number} " for number in range(round(seconds / CHUNK_INTERVAL))]


def request_text(seconds: float) -> str:
    """Returns the message text that requests these chunks."""
    return f"{len(chunks_of(seconds))} {CHUNK_INTERVAL}"


def flaky_proxy(target: str, binding: str, *, seed: int, listen: str = "127.0.0.1:0") -> FaultProxy:
    """Returns a proxy to HOST:PORT that drops every third connection, and the others after about ten seconds."""
    mode: DropMode = DROP_MODES.get(binding, "close")
    return FaultProxy(target, listen=listen, every=3, after=DropLimit(seconds=10), how=mode, seed=seed)


async def run(url: str, binding: str, seconds: float, followed: Followed) -> None:
    """Runs the task with the high-level client. `url`: of the proxy."""
    async with connect(url, binding=binding) as client, aclosing(client.run(request_text(seconds))) as events:
        async for event in events:
            followed.task = followed.task or event.task_id
            if isinstance(event, Text):
                followed.chunks.append(event.text)
                followed.cursors.append(event.cursor)
            elif isinstance(event, Artifact) and event.replaces:
                followed.chunks.clear()
                followed.snapshots += 1
            elif isinstance(event, Finished):
                followed.result = event.result.raise_for_state().text


async def run_ws(url: str, seconds: float, followed: Followed) -> None:
    """Runs the task by single calls, which also exist over WebSocket."""
    request, key = message(request_text(seconds)), str(uuid.uuid4())
    async with Client(url, binding="ws") as client:
        while not followed.task:  # a stream that ends before its first event is repeated with the same key
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
    """Compares what a client received with the server's log, read over a direct connection.

    Returns the number of events. Raises Mismatch.
    """
    expected = chunks_of(seconds)
    if followed.snapshots:
        raise Mismatch(f"{followed.name}: the artifact was replaced {followed.snapshots} times in spite of cursors")
    _require_equal(followed.name, "chunks", followed.chunks, expected)
    logged: list[Text] = []
    count = 0
    async with connect(direct) as client, aclosing(client.follow(followed.task, after="0")) as events:
        async for event in events:
            if event.cursor and not isinstance(event, Finished):
                count = max(count, int(event.cursor.rpartition(".")[2]))
            if isinstance(event, Text):
                logged.append(event)
    _require_equal(followed.name, "chunks in the log", [event.text for event in logged], expected)
    if followed.cursors:
        _require_equal(followed.name, "cursors", followed.cursors, [event.cursor for event in logged])
    if followed.result:
        _require_equal(followed.name, "result", [followed.result], ["".join(expected)])
    return count


def _require_equal(name: str, items: str, received: list[str], expected: list[str]) -> None:
    if received != expected:
        lost, repeated = set(expected) - set(received), len(received) - len(set(received))
        raise Mismatch(
            f"{name}: {items}: {len(received)} instead of {len(expected)}; {len(lost)} lost, {repeated} repeated"
        )
