"""What holds on every binding, with a fake service: a table of bindings, and each rule once.

A binding makes calls by their short names: `get`, the four of push configurations, and the streams `send` and
`subscribe`. Requests are literal, and events are returned as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import aiohttp
import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from tests.bindings.fake_service import (
    RESOURCE,
    TASK,
    FakeService,
    details,
    over_grpc,
    over_http,
    status_event,
    task_event,
)
from tests.dialects.dialect_clients import sse

from dragoman.core.task import states
from dragoman.wire.remote_errors import parse_json_error
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

PUSH: Final = ("create", "list", "read", "delete")
"""The operations of push configurations."""


class Outcome(NamedTuple):
    """The reason of an error, empty for a success; the HTTP status, 0 over gRPC; everything that the caller sees."""

    reason: str
    status: int
    text: str


@dataclass
class Connections:
    """Connections to both servers of one service."""

    http: aiohttp.ClientSession
    channel: grpc.aio.Channel


@asynccontextmanager
async def connected(service: FakeService) -> AsyncIterator[Connections]:
    """Serves over gRPC and HTTP."""
    async with over_grpc(service) as (channel, _), over_http(service) as http:
        yield Connections(http, channel)


class Binding(Protocol):
    """One dialect over one binding."""

    async def call(self, to: Connections, name: str, version: str = "") -> Outcome: ...
    def stream(self, to: Connections, name: str) -> AsyncGenerator[dict[str, Any], None]: ...


@dataclass(frozen=True)
class Grpc:
    """gRPC of one package: method and request by the short name."""

    package: Any
    methods: Mapping[str, tuple[str, Any]]

    def _method(self, name: str) -> tuple[str, bytes, Any]:
        """Path, encoded request, and the decoder of responses."""
        method, request = self.methods[name]
        service = self.package.DESCRIPTOR.services_by_name["A2AService"]
        response = service.methods_by_name[method].output_type._concrete_class
        return f"/{service.full_name}/{method}", request.SerializeToString(), response.FromString

    async def call(self, to: Connections, name: str, version: str = "") -> Outcome:
        path, data, decode = self._method(name)
        unary: Any = to.channel.unary_unary(path, response_deserializer=decode)
        try:
            return Outcome("", 0, str(await unary(data, metadata=[("a2a-version", version)])))
        except grpc.aio.AioRpcError as error:
            return Outcome(details(error)[0].reason, 0, str(error))

    async def stream(self, to: Connections, name: str) -> AsyncGenerator[dict[str, Any], None]:
        path, data, decode = self._method(name)
        stream: Any = to.channel.unary_stream(path, response_deserializer=decode)
        events = stream(data)
        try:
            async for event in events:
                yield MessageToDict(event)
        finally:
            events.cancel()


def _outcome(status: int, text: str) -> Outcome:
    value = json.loads(text) if text else {}
    return Outcome(parse_json_error(value["error"]).reason if "error" in value else "", status, text)


REST_CALLS: Final = {
    "get": ("GET", "/tasks/t1"),
    "create": ("POST", "/tasks/t1/pushNotificationConfigs"),
    "list": ("GET", "/tasks/t1/pushNotificationConfigs"),
    "read": ("GET", "/tasks/t1/pushNotificationConfigs/1"),
    "delete": ("DELETE", "/tasks/t1/pushNotificationConfigs/1"),
    "send": ("POST", "/message:stream?alt=sse"),
    "subscribe": ("GET", "/tasks/t1:subscribe?alt=sse"),
}
"""HTTP method and path."""


@dataclass(frozen=True)
class Rest:
    """HTTP+JSON below a prefix."""

    prefix: str

    def _request(self, to: Connections, name: str, version: str = "") -> Any:
        method, path = REST_CALLS[name]
        parts = {"content" if self.prefix else "parts": [{"text": "x"}]}
        body = {"message": {"messageId": "m", "role": "ROLE_USER", **parts}} if name == "send" else None
        return to.http.request(method, self.prefix + path, json=body, headers={"A2A-Version": version})

    async def call(self, to: Connections, name: str, version: str = "") -> Outcome:
        async with self._request(to, name, version) as response:
            return _outcome(response.status, await response.text())

    async def stream(self, to: Connections, name: str) -> AsyncGenerator[dict[str, Any], None]:
        async with self._request(to, name) as response:
            async for event in sse(response):
                yield event


@dataclass(frozen=True)
class JsonRpc:
    """JSON-RPC by POST, with the method names of a dialect."""

    methods: Mapping[str, str]

    def _body(self, name: str) -> dict[str, Any]:
        message = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}
        params = {"message": message} if name == "send" else {"id": "t1"}
        return {"jsonrpc": "2.0", "id": 1, "method": self.methods[name], "params": params}

    async def call(self, to: Connections, name: str, version: str = "") -> Outcome:
        async with to.http.post("/", json=self._body(name), headers={"A2A-Version": version}) as response:
            return _outcome(response.status, await response.text())

    async def stream(self, to: Connections, name: str) -> AsyncGenerator[dict[str, Any], None]:
        async with to.http.post("/", json=self._body(name)) as response:
            async for event in sse(response):
                yield event["result"]


class WebSocket(JsonRpc):
    """The same over WebSocket, a connection for each call."""

    async def call(self, to: Connections, name: str, version: str = "") -> Outcome:
        async with to.http.ws_connect("/ws", headers={"A2A-Version": version}) as socket:
            await socket.send_json(self._body(name))
            return _outcome(200, await socket.receive_str())

    async def stream(self, to: Connections, name: str) -> AsyncGenerator[dict[str, Any], None]:
        async with to.http.ws_connect("/ws") as socket:
            await socket.send_json(self._body(name))
            while (event := (await socket.receive_json())["result"]) != {"status": "stream_complete"}:
                yield event


V1_METHODS: Final = {
    "get": "GetTask",
    "create": "CreateTaskPushNotificationConfig",
    "list": "ListTaskPushNotificationConfigs",
    "read": "GetTaskPushNotificationConfig",
    "delete": "DeleteTaskPushNotificationConfig",
    "send": "SendStreamingMessage",
    "subscribe": "SubscribeToTask",
}
V03_METHODS: Final = {
    "get": "tasks/get",
    "create": "tasks/pushNotificationConfig/set",
    "list": "tasks/pushNotificationConfig/list",
    "read": "tasks/pushNotificationConfig/get",
    "delete": "tasks/pushNotificationConfig/delete",
    "send": "message/stream",
    "subscribe": "tasks/resubscribe",
}
V1_RPCS: Final = {
    "get": ("GetTask", pb.GetTaskRequest(id="t1")),
    "create": ("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig()),
    "list": ("ListTaskPushNotificationConfigs", pb.ListTaskPushNotificationConfigsRequest()),
    "read": ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest()),
    "delete": ("DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest()),
    "send": ("SendStreamingMessage", pb.SendMessageRequest()),
    "subscribe": ("SubscribeToTask", pb.SubscribeToTaskRequest(id="t1")),
}
V03_RPCS: Final = {
    "get": ("GetTask", v03_pb.GetTaskRequest(name="tasks/t1")),
    "create": ("CreateTaskPushNotificationConfig", v03_pb.CreateTaskPushNotificationConfigRequest()),
    "list": ("ListTaskPushNotificationConfig", v03_pb.ListTaskPushNotificationConfigRequest()),
    "read": ("GetTaskPushNotificationConfig", v03_pb.GetTaskPushNotificationConfigRequest()),
    "delete": ("DeleteTaskPushNotificationConfig", v03_pb.DeleteTaskPushNotificationConfigRequest()),
    "send": ("SendStreamingMessage", v03_pb.SendMessageRequest()),
    "subscribe": ("TaskSubscription", v03_pb.TaskSubscriptionRequest(name="tasks/t1")),
}
BINDINGS: Final[Mapping[str, Binding]] = {
    "gRPC 1.0": Grpc(pb, V1_RPCS),
    "gRPC 0.3": Grpc(v03_pb, V03_RPCS),
    "REST 1.0": Rest(""),
    "REST 0.3": Rest("/v1"),
    "REST of a resource": Rest(f"/{RESOURCE}"),
    "JSON-RPC 1.0": JsonRpc(V1_METHODS),
    "JSON-RPC 0.3": JsonRpc(V03_METHODS),
    "WebSocket 1.0": WebSocket(V1_METHODS),
    "WebSocket 0.3": WebSocket(V03_METHODS),
}
EVERY = pytest.mark.parametrize("name", BINDINGS)


@EVERY
async def test_unexpected_errors_are_logged_but_not_returned(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(FakeService(RuntimeError("a secret"))) as to:
        outcome = await BINDINGS[name].call(to, "get")
    assert outcome.reason == "INTERNAL_ERROR"
    assert "secret" not in outcome.text
    (record,) = (record for record in caplog.records if record.exc_info)
    assert "a secret" in str(record.exc_info)


@EVERY
@pytest.mark.parametrize("version", ["", "0.3", "1", "1.0", "1.0.1", "1.1"])
async def test_a_call_is_served_by_its_shape_with_any_supported_version(name: str, version: str) -> None:
    async with connected(FakeService(TASK)) as to:
        assert (await BINDINGS[name].call(to, "get", version)).reason == ""


@EVERY
@pytest.mark.parametrize("version", ["99.0", "2.0", "x", "99.0, 1.0"])
async def test_an_unsupported_version_is_rejected_with_the_supported_ones(name: str, version: str) -> None:
    service = FakeService(TASK)
    async with connected(service) as to:
        outcome = await BINDINGS[name].call(to, "get", version)
    assert outcome.reason == "VERSION_NOT_SUPPORTED"
    assert "1.0, 0.3, 0.2, 0.1" in outcome.text
    assert service.received == []


PUSH_STATUS: Final = {"gRPC 1.0": 0, "gRPC 0.3": 0, "REST 1.0": 400, "REST 0.3": 501, "REST of a resource": 400}
"""The HTTP status of a server without push; 200 for JSON-RPC."""


@EVERY
async def test_push_operations_are_rejected_without_push(name: str) -> None:
    service = FakeService()
    async with connected(service) as to:
        outcomes = [await BINDINGS[name].call(to, operation) for operation in PUSH]
    expected = ("PUSH_NOTIFICATION_NOT_SUPPORTED", PUSH_STATUS.get(name, 200))
    assert [(outcome.reason, outcome.status) for outcome in outcomes] == [expected] * len(PUSH)
    assert service.received == []


@EVERY
async def test_a_disconnected_client_ends_only_its_own_stream(name: str) -> None:
    binding, service = BINDINGS[name], FakeService(TASK, events=[task_event(), asyncio.Event()])
    async with connected(service) as to:
        async with aclosing(binding.stream(to, "subscribe")) as events:
            assert "t1" in str(await anext(events))
            await service.waiting.wait()
        await service.abandoned.wait()
        assert (await binding.call(to, "get")).reason == ""


FINAL: Final = {
    "gRPC 0.3": (True, False),
    "REST 0.3": (True, False),
    "JSON-RPC 0.3": (True, True),
    "WebSocket 0.3": (True, True),
}
"""Whether the last status is final: of a send, and of a subscription, which ends with the turn over JSON-RPC alone."""


@pytest.mark.parametrize("name", FINAL)
async def test_0_3_marks_the_last_status_of_a_turn_as_final(name: str) -> None:
    service = FakeService(events=[task_event(), status_event(2, states.INPUT_REQUIRED, ends=True)])
    finals = []
    async with connected(service) as to:
        for stream in ("send", "subscribe"):
            *_, last = [event async for event in BINDINGS[name].stream(to, stream)]
            finals.append(bool(last.get("statusUpdate", last).get("final")))
    assert tuple(finals) == FINAL[name]
    assert [call.shows_finished for _, call, _ in service.received] == [not final for final in finals]


RESOURCE_TASK: Final = (
    "GET /{tenant=projects/*/locations/*/collections/*/engines/*/assistants/*/agents/*}/{name=tasks/*}"
)
ACCESS: Final = {
    "gRPC 1.0": ("lf.a2a.v1.A2AService/GetTask", "1.0", "OK"),
    "gRPC 0.3": ("a2a.v1.A2AService/GetTask", "0.3", "OK"),
    "REST 1.0": ("GET /tasks/{id}", "1.0", "200"),
    "REST 0.3": ("GET /v1/{name=tasks/*}", "0.3", "200"),
    "REST of a resource": (RESOURCE_TASK, "google", "200"),
    "JSON-RPC 1.0": ("GetTask", "1.0", "OK"),
    "JSON-RPC 0.3": ("tasks/get", "0.3", "OK"),
    "WebSocket 1.0": ("GetTask", "1.0", "OK"),
    "WebSocket 0.3": ("tasks/get", "0.3", "OK"),
}
"""Method, dialect and status in the access log."""


@EVERY
async def test_a_call_writes_one_line_to_the_access_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with connected(FakeService(TASK)) as to:
        await BINDINGS[name].call(to, "get")
    records: list[Any] = [record for record in caplog.records if record.name == "dragoman.access"]
    (call,) = (record for record in records if hasattr(record, "dialect"))  # without the upgrade to WebSocket
    assert (call.method, call.dialect, call.status) == ACCESS[name]
    assert (call.agent, call.task) == ("echo", "t1")
