"""Clients of every dialect, written by hand: requests are literal, and responses are checked for their dialect.

All clients call the agent `playground` in one scope, so they can read each other's tasks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import aiohttp
import grpc

from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

AGENT = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/playground"


class TaskView(NamedTuple):
    """A task of any dialect: its state in one spelling, and all text of its artifacts."""

    id: str
    state: str
    text: str = ""


class CallRejected(Exception):
    """The server rejected the call, with this JSON-RPC code, HTTP status or gRPC code."""


@dataclass
class ServerConnections:
    """Connections to one server."""

    http: aiohttp.ClientSession
    v1: Any
    v03: Any
    channel: grpc.aio.Channel
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)


def state_of(name: str) -> str:
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-").replace("cancelled", "canceled")


def is_shared_with_rust(task: dict[str, Any]) -> bool:
    """Whether a task read without a version is one of a2a-rust.

    Its parts have a `type` too, as those of 0.1 have, whose tasks also have a `sessionId`.
    """
    parts = [part for message in task.get("history", []) for part in message["parts"]]
    return "sessionId" not in task and any("type" in part for part in parts)


def state_word(task: dict[str, Any]) -> str:
    """Returns the state of a task read without a version, after checking its spelling."""
    state = str(task["status"]["state"])
    assert state.startswith("TASK_STATE_") == is_shared_with_rust(task)
    return state_of(state)


def text_of(artifacts: list[dict[str, Any]], text: Callable[[dict[str, Any]], str]) -> str:
    return "".join(text(part) for artifact in artifacts for part in artifact["parts"])


class DialectClient(Protocol):
    """One dialect over one binding."""

    async def send(self, connections: ServerConnections, text: str, task: str = "") -> TaskView: ...
    async def start(self, connections: ServerConnections, text: str) -> str: ...
    async def get(self, connections: ServerConnections, task: str) -> TaskView: ...
    async def cancel(self, connections: ServerConnections, task: str) -> TaskView: ...
    def follow(self, connections: ServerConnections, task: str) -> AsyncIterator[str]: ...


async def sse(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yields the data of an SSE response. Every `data:` is one non-empty line."""
    assert answer.headers["Content-Type"] == "text/event-stream", await answer.text()
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("data: "):
            yield json.loads(line[6:])


class JsonRpc:
    """JSON-RPC: subclasses define names and shapes."""

    version: str | None = None
    names = ("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe")

    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        raise NotImplementedError

    def task(self, result: dict[str, Any]) -> TaskView:
        raise NotImplementedError

    def sent(self, result: dict[str, Any]) -> TaskView:
        return self.task(result)

    def state(self, event: dict[str, Any]) -> str:
        raise NotImplementedError

    async def call(self, connections: ServerConnections, method: str, params: dict[str, Any]) -> Any:
        number = uuid.uuid4().int >> 96
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        async with connections.http.post(f"/{AGENT}", json=body, headers=self.headers) as answer:
            assert answer.status == 200
            message = await answer.json()
        assert message["jsonrpc"] == "2.0"
        assert message["id"] == number
        if "error" in message:
            raise CallRejected(message["error"]["code"])
        return message["result"]

    @property
    def headers(self) -> dict[str, str]:
        return {"A2A-Version": self.version} if self.version else {}

    async def send(self, connections: ServerConnections, text: str, task: str = "") -> TaskView:
        return self.sent(await self.call(connections, self.names[0], self.params(text, task, wait=True)))

    async def start(self, connections: ServerConnections, text: str) -> str:
        return self.sent(await self.call(connections, self.names[0], self.params(text, "", wait=False))).id

    async def get(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await self.call(connections, self.names[2], {"id": task}))

    async def cancel(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await self.call(connections, self.names[3], {"id": task}))

    async def follow(self, connections: ServerConnections, task: str) -> AsyncIterator[str]:
        async for event in self.stream(connections, self.names[4], {"id": task}):
            if state := self.state(event):
                yield state

    async def stream(
        self, connections: ServerConnections, method: str, params: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        body = {"jsonrpc": "2.0", "id": "s-1", "method": method, "params": params}
        async with connections.http.post(f"/{AGENT}", json=body, headers=self.headers) as answer:
            async for message in sse(answer):
                assert message["id"] == "s-1"
                if "error" in message:
                    raise CallRejected(message["error"]["code"])
                yield message["result"]


class V1JsonRpc(JsonRpc):
    version = "1.0"
    names = ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask")

    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **({"taskId": task} if task else {}),
        }
        return {"message": message, "configuration": {"returnImmediately": not wait}}

    def sent(self, result: dict[str, Any]) -> TaskView:
        return self.task(result["task"])

    def task(self, result: dict[str, Any]) -> TaskView:
        assert "kind" not in result
        state = result["status"]["state"]
        assert state.startswith("TASK_STATE_")
        return TaskView(result["id"], state_of(state), text_of(result.get("artifacts", []), lambda part: part["text"]))

    def state(self, event: dict[str, Any]) -> str:
        (member,) = event.values()
        return state_of(member["status"]["state"]) if "status" in member else ""


class V03JsonRpc(JsonRpc):
    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}]}
        message |= {"taskId": task} if task else {}
        return {"message": message, "configuration": {"blocking": wait}}

    def task(self, result: dict[str, Any]) -> TaskView:
        assert result["kind"] == "task"
        assert result["contextId"]
        roles = ("ROLE_USER", "ROLE_AGENT") if is_shared_with_rust(result) else ("user", "agent")
        for message in result.get("history", []):
            assert message["kind"] == "message"
            assert message["role"] in roles
        return TaskView(result["id"], state_word(result), text_of(result.get("artifacts", []), self.part))

    def part(self, part: dict[str, Any]) -> str:
        assert part["kind"] == "text"
        return str(part["text"])

    def state(self, event: dict[str, Any]) -> str:
        assert event["kind"] in ("task", "status-update", "artifact-update")
        assert ("final" in event) == (event["kind"] == "status-update")
        return str(event["status"]["state"]) if "status" in event else ""


class V01JsonRpc(JsonRpc):
    version = "0.1"
    names = ("tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel", "tasks/resubscribe")

    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {"role": "user", "parts": [{"type": "text", "text": text}]}
        return {"id": task or f"mine-{uuid.uuid4()}", "message": message}

    async def start(self, connections: ServerConnections, text: str) -> str:
        # tasks/send blocks, so a 0.1 client that does not want to wait opens a stream and closes it.
        params = self.params(text, "", wait=False)
        events = self.stream(connections, self.names[1], params)
        first = await anext(events)
        await events.aclose()  # type: ignore[attr-defined]  # an async generator
        assert first["id"] == params["id"]
        return str(first["id"])

    def task(self, result: dict[str, Any]) -> TaskView:
        assert "kind" not in result
        assert result["sessionId"]
        for index, artifact in enumerate(result.get("artifacts", [])):
            assert artifact["index"] == index
            assert "artifactId" not in artifact
        for message in result.get("history", []):
            assert "messageId" not in message
        return TaskView(result["id"], result["status"]["state"], text_of(result.get("artifacts", []), self.part))

    def part(self, part: dict[str, Any]) -> str:
        assert part["type"] == "text"
        return str(part["text"])

    def state(self, event: dict[str, Any]) -> str:
        assert ("status" in event) != ("artifact" in event)
        return str(event["status"]["state"]) if "status" in event else ""


class Fasta2a(JsonRpc):
    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {"messageId": "m", "role": "user", "parts": [{"text": text}], **({"taskId": task} if task else {})}
        return {"message": message, "configuration": {"acceptedOutputModes": [], "blocking": wait}}

    def sent(self, result: dict[str, Any]) -> TaskView:
        return self.task(result["task"])

    def task(self, result: dict[str, Any]) -> TaskView:
        # It ignores the `kind` of a 0.3 task, and reads text in both forms.
        return TaskView(
            result["id"], state_word(result), text_of(result.get("artifacts", []), lambda part: part["text"])
        )

    def state(self, event: dict[str, Any]) -> str:
        member = event if "kind" in event or "status" in event else next(iter(event.values()))
        return str(member["status"]["state"]) if "status" in member else ""


class Rust(JsonRpc):
    names = V1JsonRpc.names
    version = "1.0.0"

    def params(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": text}]}
        message |= {"taskId": task} if task else {}
        return {"message": message, "configuration": {"acceptedOutputModes": [], "returnImmediately": not wait}}

    def task(self, result: dict[str, Any]) -> TaskView:
        assert "kind" not in result
        state = state_of(result["status"]["state"])
        return TaskView(result["id"], state, text_of(result.get("artifacts", []), lambda part: part["text"]))

    def state(self, event: dict[str, Any]) -> str:
        (member,) = event.values()
        return state_of(member["status"]["state"]) if "status" in member else ""


class WebSocket(V1JsonRpc):
    """1.0 in text frames, with a connection for each call."""

    @asynccontextmanager
    async def connected(self, connections: ServerConnections) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with connections.http.ws_connect("/ws", headers=self.headers) as socket:
            yield socket

    async def call(self, connections: ServerConnections, method: str, params: dict[str, Any]) -> Any:
        async with self.connected(connections) as socket:
            params = {**params, "tenant": AGENT}
            await socket.send_json({"jsonrpc": "2.0", "id": "w", "method": method, "params": params})
            message = await socket.receive_json()
        assert message["id"] == "w"
        if "error" in message:
            raise CallRejected(message["error"]["code"])
        return message["result"]

    async def stream(
        self, connections: ServerConnections, method: str, params: dict[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        async with self.connected(connections) as socket:
            params = {**params, "tenant": AGENT}
            await socket.send_json({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
            while True:
                message = await socket.receive_json()
                assert message["id"] == 7
                if "error" in message:
                    raise CallRejected(message["error"]["code"])
                if message["result"] == {"status": "stream_complete"}:
                    return
                yield message["result"]


class Rest:
    """REST: subclasses define paths and shapes."""

    headers: Mapping[str, str] = MappingProxyType({"A2A-Version": "1.0"})
    base = f"/{AGENT}"
    parts = "parts"

    def body(self, text: str, task: str, *, wait: bool) -> dict[str, Any]:
        message = {"messageId": "m", "role": "ROLE_USER", self.parts: [{"text": text}]}
        message |= {"taskId": task} if task else {}
        return {"message": message, "configuration": self.configuration(wait=wait)}

    def configuration(self, *, wait: bool) -> dict[str, Any]:
        return {"returnImmediately": not wait}

    async def call(self, connections: ServerConnections, method: str, path: str, body: Any = None) -> Any:
        async with connections.http.request(method, self.base + path, json=body, headers=self.headers) as answer:
            if answer.status != 200:
                raise CallRejected(answer.status)
            return await answer.json()

    def task(self, result: dict[str, Any]) -> TaskView:
        state = result["status"]["state"]
        assert state.startswith("TASK_STATE_")
        return TaskView(result["id"], state_of(state), text_of(result.get("artifacts", []), lambda part: part["text"]))

    async def send(self, connections: ServerConnections, text: str, task: str = "") -> TaskView:
        return self.task(
            (await self.call(connections, "POST", "/message:send", self.body(text, task, wait=True)))["task"]
        )

    async def start(self, connections: ServerConnections, text: str) -> str:
        result = await self.call(connections, "POST", "/message:send", self.body(text, "", wait=False))
        return self.task(result["task"]).id

    async def get(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await self.call(connections, "GET", f"/tasks/{task}"))

    async def cancel(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await self.call(connections, "POST", f"/tasks/{task}:cancel"))

    async def follow(self, connections: ServerConnections, task: str) -> AsyncIterator[str]:
        path = f"{self.base}/tasks/{task}:subscribe?alt=sse"
        async with connections.http.get(path, headers=self.headers) as answer:
            async for event in sse(answer):
                (member,) = event.values()
                if "status" in member:
                    yield state_of(member["status"]["state"])


class V03Rest(Rest):
    headers = MappingProxyType({})
    base = f"/v1/{AGENT}/a2a/v1"
    parts = "content"

    def configuration(self, *, wait: bool) -> dict[str, Any]:
        return {"blocking": wait}


class V1Grpc:
    async def send(self, connections: ServerConnections, text: str, task: str = "") -> TaskView:
        return self.task((await connections.v1.SendMessage(self.request(text, task, wait=True))).task)

    async def start(self, connections: ServerConnections, text: str) -> str:
        return str((await connections.v1.SendMessage(self.request(text, "", wait=False))).task.id)

    def request(self, text: str, task: str, *, wait: bool) -> pb.SendMessageRequest:
        message = pb.Message(message_id="m", role=pb.ROLE_USER, task_id=task, parts=[pb.Part(text=text)])
        configuration = pb.SendMessageConfiguration(return_immediately=not wait)
        return pb.SendMessageRequest(tenant=AGENT, message=message, configuration=configuration)

    def task(self, task: pb.Task) -> TaskView:
        text = "".join(part.text for artifact in task.artifacts for part in artifact.parts)
        return TaskView(task.id, state_of(pb.TaskState.Name(task.status.state)), text)

    async def get(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await connections.v1.GetTask(pb.GetTaskRequest(tenant=AGENT, id=task)))

    async def cancel(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await connections.v1.CancelTask(pb.CancelTaskRequest(tenant=AGENT, id=task)))

    async def follow(self, connections: ServerConnections, task: str) -> AsyncIterator[str]:
        async for event in connections.v1.SubscribeToTask(pb.SubscribeToTaskRequest(tenant=AGENT, id=task)):
            member = getattr(event, event.WhichOneof("payload"))
            if hasattr(member, "status"):
                yield state_of(pb.TaskState.Name(member.status.state))


class V03Grpc:
    async def send(self, connections: ServerConnections, text: str, task: str = "") -> TaskView:
        return self.task((await connections.v03.SendMessage(self.request(text, task, wait=True))).task)

    async def start(self, connections: ServerConnections, text: str) -> str:
        return str((await connections.v03.SendMessage(self.request(text, "", wait=False))).task.id)

    def request(self, text: str, task: str, *, wait: bool) -> v03_pb.SendMessageRequest:
        message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, task_id=task, content=[v03_pb.Part(text=text)])
        configuration = v03_pb.SendMessageConfiguration(blocking=wait)
        return v03_pb.SendMessageRequest(tenant=AGENT, request=message, configuration=configuration)

    def task(self, task: v03_pb.Task) -> TaskView:
        text = "".join(part.text for artifact in task.artifacts for part in artifact.parts)
        return TaskView(task.id, state_of(v03_pb.TaskState.Name(task.status.state)), text)

    async def get(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await connections.v03.GetTask(v03_pb.GetTaskRequest(tenant=AGENT, name=f"tasks/{task}")))

    async def cancel(self, connections: ServerConnections, task: str) -> TaskView:
        return self.task(await connections.v03.CancelTask(v03_pb.CancelTaskRequest(tenant=AGENT, name=f"tasks/{task}")))

    async def follow(self, connections: ServerConnections, task: str) -> AsyncIterator[str]:
        request = v03_pb.TaskSubscriptionRequest(tenant=AGENT, name=f"tasks/{task}")
        async for event in connections.v03.TaskSubscription(request):
            member = getattr(event, event.WhichOneof("payload"))
            if hasattr(member, "status"):
                yield state_of(v03_pb.TaskState.Name(member.status.state))


DIALECT_CLIENTS: dict[str, DialectClient] = {
    "0.1": V01JsonRpc(),
    "0.3 JSON-RPC": V03JsonRpc(),
    "0.3 gRPC": V03Grpc(),
    "Google REST": V03Rest(),
    "fasta2a 2": Fasta2a(),
    "a2a-rust": Rust(),
    "1.0 JSON-RPC": V1JsonRpc(),
    "1.0 WebSocket": WebSocket(),
    "1.0 REST": Rest(),
    "1.0 gRPC": V1Grpc(),
}


@asynccontextmanager
async def open_connections(http: str, target: str) -> AsyncIterator[ServerConnections]:
    """Opens connections to the server at these addresses."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(f"http://{http}"))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        yield ServerConnections(session, rpc.A2AServiceStub(channel), v03_rpc.A2AServiceStub(channel), channel, stack)
