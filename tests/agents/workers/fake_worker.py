"""A worker that the test controls frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc

from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

CONNECT_METHOD: Final = "/dragoman.worker.v1.WorkerService/Connect"
FRAME_TIMEOUT: Final = 60.0
"""Seconds after which a test gives up waiting for a frame."""


class FakeWorker:
    """A stream to a server."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, **frame: Any) -> None:
        """Sends a frame: `send(credit=wk.Credit(...))`. Ignores a closed stream; `status` has its error."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._call.write(wk.ConnectRequest(**frame))

    async def receive(self, kind: str) -> Any:
        """Returns the next frame, of this kind. Skips heartbeats; fails for any other frame."""
        async with asyncio.timeout(FRAME_TIMEOUT):
            while True:
                frame = await self._call.read()
                assert frame is not grpc.aio.EOF, f"the stream ended before {kind}: {await self.status()}"
                found = frame.WhichOneof("frame")
                if found == kind:
                    return getattr(frame, kind)
                assert found == "heartbeat", f"{found} before {kind}: {frame}"

    async def status(self) -> tuple[str, str]:
        """The code and text with which the server ended the stream."""
        async with asyncio.timeout(FRAME_TIMEOUT):
            while (await self._rest()) is not grpc.aio.EOF:
                pass
            return (await self._call.code()).name, await self._call.details()

    async def _rest(self) -> Any:
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError:
            return grpc.aio.EOF

    async def half_close(self) -> None:
        """Ends the client side of the stream."""
        await self._call.done_writing()

    def cancel(self) -> None:
        """Aborts the stream."""
        self._call.cancel()

    async def register(self, *agents: wk.AgentRegistration, credit: int = 1, name: str = "test") -> wk.Welcome:
        """Sends hello with these agents and `credit` turns each. Returns the welcome."""
        for agent in agents:
            agent.turns = credit
        await self.send(hello=wk.Hello(name=name, agents=agents))
        welcome: wk.Welcome = await self.receive("welcome")
        return welcome

    async def put_text(self, turn: str, number: int, *texts: str, append: bool = True) -> None:
        """Sends text chunks of the artifact `output` in one frame."""
        events = [wk.Event(text=wk.TextChunk(artifact_id="output", text=text, append=append)) for text in texts]
        await self.send(events=wk.Events(turn_id=turn, number=number, events=events))

    async def end(self, turn: str, state: pb.TaskState = pb.TASK_STATE_COMPLETED, text: str = "") -> None:
        """Ends a turn."""
        status = wk.StatusChange(state=state)
        if text:
            status.message.parts.add(text=text)
        await self.send(turn_end=wk.TurnEnd(turn_id=turn, status=status))


def registration(id: str = "desk", **fields: Any) -> wk.AgentRegistration:
    """A registration with a minimal card."""
    card = fields.pop("card", None) or pb.AgentCard(name=id.capitalize(), description="A remote agent")
    return wk.AgentRegistration(id=id, card=card, **fields)


@asynccontextmanager
async def connected_worker(address: str, metadata: Mapping[str, str] | None = None) -> AsyncIterator[FakeWorker]:
    """Opens a stream to the server at HOST:PORT."""
    async with grpc.aio.insecure_channel(address) as channel:
        connect = channel.stream_stream(
            CONNECT_METHOD, wk.ConnectRequest.SerializeToString, wk.ConnectResponse.FromString
        )
        call = connect(metadata=tuple((metadata or {}).items()))
        try:
            yield FakeWorker(call)
        finally:
            call.cancel()
