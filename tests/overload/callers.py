"""Callers over every binding, in the two words that matter here: it was accepted, or it was refused, and why."""

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

from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc


@dataclass(frozen=True)
class Rejected(Exception):
    """RATE_LIMITED: by which setting, and when to try again."""

    limit: str
    after: float


@dataclass(frozen=True)
class Failed(Exception):
    """Anything else. `reason` is the protocol's word."""

    reason: str


class Caller(Protocol):
    """One principal on one binding. Every call raises Refused or Failed."""

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str: ...
    async def get(self, task: str) -> str: ...
    async def cancel(self, task: str) -> None: ...
    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        """Returns with the first event; the stream stays open as long as the stack."""
        ...


def _judge(details: Any) -> Exception:
    """What JSON details say."""
    found = {one["@type"].rpartition(".")[2]: one for one in details or [] if "@type" in one}
    info = found.get("ErrorInfo", {})
    if info.get("reason") == "RATE_LIMITED":
        return Rejected(info["metadata"]["limit"], float(found["RetryInfo"]["retryDelay"].removesuffix("s")))
    return Failed(str(info.get("reason", details)))


def _message(text: str, task: str) -> dict[str, Any]:
    message: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**message, "taskId": task} if task else message


def _request(text: str, agent: str, task: str, *, wait: bool) -> dict[str, Any]:
    values = {"message": _message(text, task), "configuration": {"returnImmediately": not wait}}
    return {**values, "tenant": agent} if agent else values


@dataclass
class OverGrpc:
    stub: Any
    who: Mapping[str, str]

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=tuple(self.who.items()))
        except grpc.aio.AioRpcError as error:
            raise self._judge(error) from None

    def _judge(self, error: grpc.aio.AioRpcError) -> Exception:
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
        call = self.stub.SubscribeToTask(pb.SubscribeToTaskRequest(id=task), metadata=tuple(self.who.items()))
        stack.callback(call.cancel)
        try:
            first = await call.read()
        except grpc.aio.AioRpcError as error:
            raise self._judge(error) from None
        assert first is not grpc.aio.EOF


@dataclass
class OverRest:
    session: aiohttp.ClientSession
    who: Mapping[str, str]

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self.session.request(method, path, json=body, headers={**self.who, "A2A-Version": "1.0"}) as answer:
            value = await answer.json()
            if answer.status != 200:
                error = _judge(value["error"]["details"])
                assert isinstance(error, Rejected) == (answer.status == 429) == ("Retry-After" in answer.headers)
                raise error
            return value

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        prefix = f"/{agent}" if agent else ""
        value = await self._ask("POST", f"{prefix}/message:send", _request(text, "", task, wait=wait))
        return str(value["task"]["id"])

    async def get(self, task: str) -> str:
        return str((await self._ask("GET", f"/tasks/{task}"))["id"])

    async def cancel(self, task: str) -> None:
        await self._ask("POST", f"/tasks/{task}:cancel", {})

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        opening = self.session.get(f"/tasks/{task}:subscribe", headers={**self.who, "A2A-Version": "1.0"})
        answer = await stack.enter_async_context(opening)
        if answer.status != 200:
            raise _judge((await answer.json())["error"]["details"])
        assert await answer.content.readline()


@dataclass
class OverJsonRpc:
    session: aiohttp.ClientSession
    who: Mapping[str, str]

    def _body(self, method: str, params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    async def _call(self, method: str, params: Any) -> Any:
        headers = {**self.who, "A2A-Version": "1.0"}
        async with self.session.post("/", json=self._body(method, params), headers=headers) as answer:
            assert answer.status == 200
            value = await answer.json()
        if "error" in value:
            error = _judge(value["error"].get("data"))
            assert isinstance(error, Rejected) == ("Retry-After" in answer.headers)
            raise error
        return value["result"]

    async def send(self, text: str, *, agent: str = "", task: str = "", wait: bool = False) -> str:
        return str((await self._call("SendMessage", _request(text, agent, task, wait=wait)))["task"]["id"])

    async def get(self, task: str) -> str:
        return str((await self._call("GetTask", {"id": task}))["id"])

    async def cancel(self, task: str) -> None:
        await self._call("CancelTask", {"id": task})

    async def follow(self, task: str, stack: AsyncExitStack) -> None:
        body, headers = self._body("SubscribeToTask", {"id": task}), {**self.who, "A2A-Version": "1.0"}
        answer = await stack.enter_async_context(self.session.post("/", json=body, headers=headers))
        if answer.content_type != "text/event-stream":
            raise _judge((await answer.json())["error"]["data"])
        assert await answer.content.readline()


@dataclass
class Everywhere:
    """Every caller of one principal, one after the other: the limits are the same wherever one asks."""

    callers: list[Caller]
    _turn: int = field(default=0)

    def next(self) -> Caller:
        self._turn += 1
        return self.callers[self._turn % len(self.callers)]


CONNECTIONS: Final = 200


@asynccontextmanager
async def everywhere(http: str, target: str, principal: str) -> AsyncIterator[Everywhere]:
    """One principal on all bindings that hold one call each."""
    who = named(principal)
    async with (
        aiohttp.ClientSession(f"http://{http}", connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session,
        grpc.aio.insecure_channel(target) as channel,
    ):
        stub = rpc.A2AServiceStub(channel)
        yield Everywhere([OverGrpc(stub, who), OverRest(session, who), OverJsonRpc(session, who)])


async def over_websocket(http: str, principal: str, calls: int, method: str, params: Any) -> list[Exception | Any]:
    """The outcomes of so many calls in the frames of one connection."""
    outcomes: list[Exception | Any] = []
    async with (
        aiohttp.ClientSession(f"http://{http}") as session,
        session.ws_connect("/ws", headers={**named(principal), "A2A-Version": "1.0"}) as socket,
    ):
        for number in range(calls):
            await socket.send_json({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            value = json.loads(await socket.receive_str())
            assert value["id"] == number
            outcomes.append(_judge(value["error"]["data"]) if "error" in value else value["result"])
    return outcomes
