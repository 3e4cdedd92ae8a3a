"""Callers over every binding. Each call is accepted, or raises Rejected or Failed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import aiohttp
import grpc
from google.rpc import error_details_pb2, status_pb2
from tests.callers import named
from tests.extensions.mcp.endpoint.mcp_client import STATELESS, TASKS, McpCaller

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc


@dataclass(frozen=True)
class Rejected(Exception):
    """RATE_LIMITED, with the exceeded setting and the seconds to wait."""

    limit: str
    retry_after: float


@dataclass(frozen=True)
class Failed(Exception):
    """Any other error, with the reason of its ErrorInfo."""

    reason: str


class Caller(Protocol):
    """One principal on one binding. Every call raises Rejected or Failed."""

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str: ...
    async def get(self, task: str) -> str: ...
    async def cancel(self, task: str) -> None: ...
    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        """Returns after the first event. The stream stays open until the stack closes."""
        ...


def _error_of(details: Any) -> Exception:
    """Returns the exception for the details of a JSON error."""
    by_type = {detail["@type"].rpartition(".")[2]: detail for detail in details or [] if "@type" in detail}
    info = by_type.get("ErrorInfo", {})
    if info.get("reason") == "RATE_LIMITED":
        return Rejected(info["metadata"]["limit"], float(by_type["RetryInfo"]["retryDelay"].removesuffix("s")))
    return Failed(str(info.get("reason", details)))


def _message(text: str, task: str) -> dict[str, Any]:
    message: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**message, "taskId": task} if task else message


def _request(text: str, agent: str, task: str, *, wait: bool) -> dict[str, Any]:
    request = {"message": _message(text, task), "configuration": {"returnImmediately": not wait}}
    return {**request, "tenant": agent} if agent else request


@dataclass
class GrpcCaller:
    stub: Any
    headers: Mapping[str, str]

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=tuple(self.headers.items()))
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None

    def _error_of(self, error: grpc.aio.AioRpcError) -> Exception:
        status = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
        if not isinstance(status, bytes):
            return Failed(f"{error.code().name} {error.details()}")
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        for detail in status_pb2.Status.FromString(status).details:
            if detail.Is(info.DESCRIPTOR):
                detail.Unpack(info)
            elif detail.Is(retry.DESCRIPTOR):
                detail.Unpack(retry)
        if info.reason == "RATE_LIMITED":
            return Rejected(info.metadata["limit"], retry.retry_delay.ToMilliseconds() / 1000)
        return Failed(info.reason)

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)], task_id=task)
        configuration = pb.SendMessageConfiguration(return_immediately=not wait)
        request = pb.SendMessageRequest(message=message, configuration=configuration, tenant=agent)
        return str((await self._call(self.stub.SendMessage, request)).task.id)

    async def get(self, task: str) -> str:
        return str((await self._call(self.stub.GetTask, pb.GetTaskRequest(id=task))).id)

    async def cancel(self, task: str) -> None:
        await self._call(self.stub.CancelTask, pb.CancelTaskRequest(id=task))

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        call = self.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task), metadata=tuple(self.headers.items()))
        stack.callback(call.cancel)
        try:
            first = await call.read()
        except grpc.aio.AioRpcError as error:
            raise self._error_of(error) from None
        assert first is not grpc.aio.EOF


@dataclass
class RestCaller:
    session: aiohttp.ClientSession
    headers: Mapping[str, str]

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {**self.headers, "A2A-Version": "1.0"}
        async with self.session.request(method, path, json=body, headers=headers) as response:
            result = await response.json()
            if response.status != 200:
                error = _error_of(result["error"]["details"])
                assert isinstance(error, Rejected) == (response.status == 429) == ("Retry-After" in response.headers)
                raise error
            return result

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        prefix = f"/{agent}" if agent else ""
        result = await self._call("POST", f"{prefix}/message:send", _request(text, "", task, wait=wait))
        return str(result["task"]["id"])

    async def get(self, task: str) -> str:
        return str((await self._call("GET", f"/tasks/{task}"))["id"])

    async def cancel(self, task: str) -> None:
        await self._call("POST", f"/tasks/{task}:cancel", {})

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        request = self.session.get(f"/tasks/{task}:subscribe", headers={**self.headers, "A2A-Version": "1.0"})
        response = await stack.enter_async_context(request)
        if response.status != 200:
            raise _error_of((await response.json())["error"]["details"])
        assert await response.content.readline()


@dataclass
class JsonRpcCaller:
    session: aiohttp.ClientSession
    headers: Mapping[str, str]

    def _body(self, method: str, params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    async def _call(self, method: str, params: Any) -> Any:
        headers = {**self.headers, "A2A-Version": "1.0"}
        async with self.session.post("/", json=self._body(method, params), headers=headers) as response:
            assert response.status == 200
            message = await response.json()
        if "error" in message:
            error = _error_of(message["error"].get("data"))
            assert isinstance(error, Rejected) == ("Retry-After" in response.headers)
            raise error
        return message["result"]

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        return str((await self._call("SendMessage", _request(text, agent, task, wait=wait)))["task"]["id"])

    async def get(self, task: str) -> str:
        return str((await self._call("GetTask", {"id": task}))["id"])

    async def cancel(self, task: str) -> None:
        await self._call("CancelTask", {"id": task})

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        body, headers = self._body("SubscribeToTask", {"id": task}), {**self.headers, "A2A-Version": "1.0"}
        response = await stack.enter_async_context(self.session.post("/", json=body, headers=headers))
        if response.content_type != "text/event-stream":
            raise _error_of((await response.json())["error"]["data"])
        assert await response.content.readline()


@dataclass
class McpCallers:
    """MCP of 2026-07-28: with task handles, or waiting. Its handles are those of tasks of `hold` and `quick`."""

    session: aiohttp.ClientSession
    headers: Mapping[str, str]

    def _caller(self, *, waits: bool = False) -> McpCaller:
        return McpCaller(self.session, "/mcp", STATELESS, {} if waits else TASKS, self.headers)

    async def _call(self, method: str, params: Mapping[str, Any], *, waits: bool = False) -> Any:
        answer = await self._caller(waits=waits).request(method, params)
        assert answer.status == 200
        if "error" in answer.last:
            error = _mcp_error_of(answer.error)
            assert isinstance(error, Rejected) == ("Retry-After" in answer.headers)
            raise error
        if answer.result.get("isError"):
            raise Failed(answer.text_content)
        return answer.result

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        if task:  # there are no messages to a task that asks nothing
            return await JsonRpcCaller(self.session, self.headers).send(text, task=task)
        params = {"name": agent or "hold", "arguments": {"message": text}}
        result = await self._call("tools/call", params, waits=wait)
        return str(result["_meta"]["dragoman/task"].rpartition("/")[2])

    async def get(self, task: str) -> str:
        return str((await self._call("tasks/get", {"taskId": f"hold/{task}"}))["taskId"].rpartition("/")[2])

    async def cancel(self, task: str) -> None:
        await self._call("tasks/cancel", {"taskId": f"hold/{task}"})

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        """A call of get_task, which waits as a stream does."""
        params = {"name": "get_task", "arguments": {"task": f"hold/{task}"}}
        body, headers = self._caller().envelope("tools/call", params, {"progressToken": 1})
        response = await stack.enter_async_context(self.session.post("/mcp", json=body, headers=headers))
        if response.content_type != "text/event-stream":
            raise _mcp_error_of((await response.json())["error"])
        assert await response.content.readline()


def _mcp_error_of(error: Mapping[str, Any]) -> Exception:
    data = error.get("data", {})
    if data.get("reason") == "RATE_LIMITED":
        return Rejected(data["limit"], data["retryAfterSeconds"])
    return Failed(str(data.get("reason", error)))


@dataclass
class AllBindings:
    """The callers of one principal in turn: limits apply to all bindings together."""

    callers: list[Caller]
    _turn: int = field(default=0)

    def next(self) -> Caller:
        self._turn += 1
        return self.callers[self._turn % len(self.callers)]


CONNECTIONS: Final = 200


@asynccontextmanager
async def over_all_bindings(http: str, target: str, principal: str) -> AsyncIterator[AllBindings]:
    """One principal on every binding except WebSocket."""
    headers = named(principal)
    async with (
        aiohttp.ClientSession(f"http://{http}", connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session,
        grpc.aio.insecure_channel(target) as channel,
    ):
        stub = rpc.A2AServiceStub(channel)
        http_callers = (kind(session, headers) for kind in (RestCaller, JsonRpcCaller, McpCallers))
        yield AllBindings([GrpcCaller(stub, headers), *http_callers])


async def over_websocket(http: str, principal: str, calls: int, method: str, params: Any) -> list[Exception | Any]:
    """Makes `calls` calls over one connection. Returns their results and errors."""
    outcomes: list[Exception | Any] = []
    async with (
        aiohttp.ClientSession(f"http://{http}") as session,
        session.ws_connect("/ws", headers={**named(principal), "A2A-Version": "1.0"}) as socket,
    ):
        for number in range(calls):
            await socket.send_json({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            message = json.loads(await socket.receive_str())
            assert message["id"] == number
            outcomes.append(_error_of(message["error"]["data"]) if "error" in message else message["result"])
    return outcomes
