"""Callers of one principal over every binding. Each call is accepted, or raises Rejected or Failed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from tests.callers import named
from tests.load.requests import HEADERS, Request
from tests.load.transports import Answer, Transports

from dragoman.client import ClientError
from dragoman.wire.remote_errors import parse_json_error
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BINDINGS: Final = ("grpc", "rest", "jsonrpc", "mcp")
CONNECTIONS: Final = 200
"""The most HTTP connections of a principal at once."""


@dataclass(frozen=True)
class Rejected(Exception):
    """RATE_LIMITED, with the exceeded setting and the seconds to wait."""

    limit: str
    retry_after: float


@dataclass(frozen=True)
class Failed(Exception):
    """Any other error, with the reason of its ErrorInfo."""

    reason: str


def _exception_of(error: ClientError) -> Exception:
    if error.reason != "RATE_LIMITED":
        return Failed(error.reason or str(error))
    assert error.retry_after is not None
    return Rejected(error.metadata["limit"], error.retry_after)


@dataclass
class Caller:
    """One principal on one binding. Over MCP the agent without a name is `hold`."""

    transports: Transports
    binding: str

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        """Sends a message. Returns its task."""
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)], task_id=task)
        configuration = pb.SendMessageConfiguration(return_immediately=not wait)
        request = pb.SendMessageRequest(message=message, configuration=configuration, tenant=agent)
        binding = self.binding
        if binding == "mcp":  # there are no messages to a task that asks nothing, and no handles for a call that waits
            binding = "jsonrpc" if task else "mcp-2025" if wait else "mcp"
        return str((await self._call(binding, "SendMessage", request, pb.SendMessageResponse)).task.id)

    async def get(self, task: str) -> None:
        await self._call(self.binding, "GetTask", pb.GetTaskRequest(id=task), pb.Task)

    async def cancel(self, task: str) -> None:
        await self._call(self.binding, "CancelTask", pb.CancelTaskRequest(id=task), pb.Task)

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        """Returns after the first event. The stream stays open until the stack closes."""
        try:
            if self.binding == "mcp":
                await stack.enter_async_context(self.transports.mcp.waiting(task))
                return
            events = self.transports.stream(self.binding, "SubscribeToTask", pb.SubscribeToTaskRequest(id=task))
            stack.push_async_callback(events.aclose)
            await anext(events)
        except ClientError as error:
            raise _exception_of(error) from None

    async def _call(self, binding: str, rpc: str, request: Request, answer: type[Answer]) -> Answer:
        try:
            return await self.transports.call(binding, rpc, request, answer)
        except ClientError as error:
            raise _exception_of(error) from None


@dataclass
class AllBindings:
    """The callers of one principal in turn: limits apply to all bindings together."""

    callers: list[Caller]
    _turn: int = field(default=0)

    def next(self) -> Caller:
        self._turn += 1
        return self.callers[self._turn % len(self.callers)]


@asynccontextmanager
async def over_all_bindings(http: str, target: str, principal: str) -> AsyncIterator[AllBindings]:
    """One principal on every binding except WebSocket."""
    transports = Transports(
        f"http://{http}",
        target,
        caller=named(principal),
        connections=CONNECTIONS,
        root_agent="hold",
        call_timeout=600.0,
    )
    try:
        yield AllBindings([Caller(transports, binding) for binding in BINDINGS])
    finally:
        await transports.close()


async def over_websocket(http: str, principal: str, calls: int, method: str, params: Any) -> list[Exception | Any]:
    """Makes `calls` calls over one connection. Returns their results and errors."""
    outcomes: list[Exception | Any] = []
    async with (
        aiohttp.ClientSession(f"http://{http}") as session,
        session.ws_connect("/ws", headers={**named(principal), **HEADERS}) as socket,
    ):
        for number in range(calls):
            await socket.send_json({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            message = json.loads(await socket.receive_str())
            assert message["id"] == number
            if "error" in message:
                error = ClientError.from_remote_error(parse_json_error(message["error"]))
                outcomes.append(_exception_of(error))
            else:
                outcomes.append(message["result"])
    return outcomes
