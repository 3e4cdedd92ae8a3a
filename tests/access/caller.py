"""Calls one endpoint as one caller and returns the result in the terms of the table."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import grpc
from tests.access.endpoints import Endpoint, row_of
from tests.access.table import ABSENT, FORBIDDEN, REJECTED, SERVED
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.extensions.mcp.endpoint.mcp_client import TASKS, McpCaller
from tests.isolation.calls import AGENT_ID, VERSIONS, params_of, path_of
from tests.isolation.names import Names
from tests.isolation.request_fields import NAMES, fields, filled

from dragoman.bindings import method_table
from dragoman.bindings.http.server import RESOURCE_TEMPLATE
from dragoman.bindings.method_table import A2AOperation, JsonRpcRow, RpcRow
from dragoman.wire.json import protojson
from dragoman.wiring.app import App
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

_BY_STATUS: Final = {401: REJECTED, 403: FORBIDDEN, 404: ABSENT}
_BY_CODE: Final = {
    grpc.StatusCode.UNAUTHENTICATED: REJECTED,
    grpc.StatusCode.PERMISSION_DENIED: FORBIDDEN,
    grpc.StatusCode.NOT_FOUND: ABSENT,
}
_STREAMS: Final = ("Watch", "WatchTasks", "ExportTask", "Backup", "ExportAudit")
_BIDIRECTIONAL: Final = ("Connect", "ServerReflectionInfo")
_CONFIG: Final = "config-1"
_HELLO: Final = wk.ConnectRequest(
    hello=wk.Hello(agents=[wk.AgentRegistration(id="x", card=pb.AgentCard(name="x", description="x"))])
)
_WITHOUT_TASK: Final = (method_table.SEND_MESSAGE, method_table.STREAM_MESSAGE, method_table.LIST_TASKS)
"""Operations that are called without a task id."""
_OMITTED_FIELDS: Final = ("page_token", "reference_task_ids", "context_id")


@dataclass
class EndpointCaller:
    """Calls the endpoints of one server. `owner`: the headers of the caller that creates the tasks."""

    app: App
    owner: Mapping[str, str]
    http: aiohttp.ClientSession
    channel: grpc.aio.Channel
    _tasks: dict[str, Names] = field(default_factory=dict)

    async def call(self, endpoint: Endpoint, headers: Mapping[str, str]) -> str:
        """Calls an endpoint with the headers of a caller and returns the result."""
        async with asyncio.timeout(60):
            match endpoint.kind:
                case "HTTP":
                    return await self._over_http(endpoint, headers)
                case "JSON-RPC":
                    return await self._over_json_rpc(row_of(endpoint), headers)
                case "MCP":
                    return await self._over_mcp(endpoint.name, headers)
                case _:
                    return await self._over_grpc(endpoint, headers)

    async def names(self, tenant: str, headers: Mapping[str, str], op: A2AOperation | None) -> Names:
        """Returns the names of a waiting task; a task that its owner is about to end is not used for other calls."""
        if tenant not in self._tasks:
            self._tasks[tenant] = await self._create_task(tenant)
        names = self._tasks[tenant]
        if headers == self.owner and op in (method_table.CANCEL_TASK, method_table.DELETE_PUSH_CONFIG):
            del self._tasks[tenant]
        return names

    async def _create_task(self, tenant: str) -> Names:
        stub: Any = rpc.A2AServiceStub(self.channel)
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="ask")])
        response = await stub.SendMessage(
            pb.SendMessageRequest(tenant=tenant, message=message), metadata=tuple(self.owner.items())
        )
        config = pb.TaskPushNotificationConfig(
            tenant=tenant, task_id=response.task.id, id=_CONFIG, url="https://receiver.example/x"
        )
        await stub.CreateTaskPushNotificationConfig(config, metadata=tuple(self.owner.items()))
        return Names(response.task.id, response.task.context_id, "", "", "", _CONFIG, "0" * 64)

    async def _end_task(self, tenant: str) -> None:
        """Ends the waiting task, and uses it for no other calls."""
        stub: Any = rpc.A2AServiceStub(self.channel)
        request = pb.CancelTaskRequest(tenant=tenant, id=self._tasks.pop(tenant).task)
        await stub.CancelTask(request, metadata=tuple(self.owner.items()))

    async def _over_http(self, endpoint: Endpoint, headers: Mapping[str, str]) -> str:
        method, path = endpoint.name.split(" ")[:2]
        if endpoint.op is None:
            if path.endswith("/ws"):
                return await self._over_websocket(path, headers)
            task = (await self.names("", headers, endpoint.op)).task if "{task_id}" in path else ""
            address = path.replace("{file=**}", "console.css" if "console" in path else "").replace("{task_id}", task)
            address = address.replace("{file}", "swagger-ui.css").replace("{name}", "0" * 64)
            address = re.sub(r"\{\w+\}", AGENT_ID, address.replace(RESOURCE_TEMPLATE, RESOURCE))
            body: Any = {} if method == "POST" else None
            if "/tasks:" in path and body is not None:
                body = {"filter": {"taskId": "none"}, "dryRun": True}
            elif path.endswith(":cancel"):  # an operator is about to end it
                self._tasks.pop("", None)
            elif path.endswith(":rerun"):
                await self._end_task("")
            async with self.http.request(method, address, json=body, headers=headers) as response:
                if path == "/console/token" and response.status == 400:
                    return SERVED  # there is no code to exchange
                if path.endswith("/mcp") and response.status in (204, 400, 405):
                    return SERVED  # a session that needs no end, a message without a method, and no stream to continue
                return _BY_STATUS.get(response.status, SERVED if response.status == 200 else f"? {response.status}")
        row, rule = endpoint.route
        tenant = RESOURCE if "projects" in path else ""
        names = await self.names(tenant, headers, endpoint.op)
        message = _request(row, names, "")
        request_body: Any = protojson.compile(row.request, row.json).to_dict(message)
        query: dict[str, Any] = {}
        if rule.body not in ("", "*"):
            request_body, query = request_body.pop(rule.body, {}), request_body
        elif not rule.body:
            request_body, query = None, request_body
        address = path_of(rule).format(**{name: quote(text) for name, text in vars(names).items()})
        query_string = urlencode({key: text for key, text in query.items() if not isinstance(text, dict)})
        versioned = {**headers, "A2A-Version": VERSIONS[row.dialect]}
        async with self.http.request(
            method, f"{address}?{query_string}", json=request_body, headers=versioned
        ) as response:
            begin = await response.content.readany()  # a streamed JSON array has no line breaks
            served = SERVED if response.status == 200 else f"? {response.status} {begin!r}"
            return _BY_STATUS.get(response.status, served)

    async def _over_websocket(self, path: str, headers: Mapping[str, str]) -> str:
        try:
            async with self.http.ws_connect(re.sub(r"\{\w+\}", AGENT_ID, path), headers=headers):
                return SERVED
        except aiohttp.WSServerHandshakeError as error:
            return _BY_STATUS[error.status]

    async def _over_json_rpc(self, row: RpcRow | JsonRpcRow, headers: Mapping[str, str]) -> str:
        assert isinstance(row, JsonRpcRow)
        names = await self.names("", headers, row.op)
        params = params_of(row, names, frozenset() if row.op in _WITHOUT_TASK else _task_fields(row.op.request))
        body = {"jsonrpc": "2.0", "id": 1, "method": row.name, "params": params}
        version = VERSIONS[row.dialect]
        versioned = {**headers, **({"A2A-Version": version} if version else {})}
        async with self.http.post("/", json=body, headers=versioned) as response:
            if response.status in _BY_STATUS:
                return _BY_STATUS[response.status]
            data = await response.content.readline() if row.op.streaming else await response.read()
        if data.startswith(b"id:"):
            return SERVED  # the first line of an event, which is its cursor
        error = json.loads(data.removeprefix(b"data:")).get("error")
        if error is None:
            return SERVED
        return ABSENT if error["code"] == -32001 else f"? {error}"

    async def _over_mcp(self, method: str, headers: Mapping[str, str]) -> str:
        params: dict[str, Any] = {}
        if method == "tools/call":
            params = {"name": "get_task", "arguments": {"task": await self._handle(headers, None)}}
        elif method.startswith("tasks/"):
            op = method_table.CANCEL_TASK if method == "tasks/cancel" else None
            params = {"taskId": await self._handle(headers, op), "inputResponses": {}}
        caller = McpCaller(self.http, "/mcp", headers=headers, capabilities=TASKS)
        if method == "subscriptions/listen":
            body, sent = caller.envelope(method, {"notifications": {}}, {})
            async with self.http.post("/mcp", json=body, headers=sent) as response:
                return _BY_STATUS.get(response.status, SERVED)
        answer = await caller.request(method, params)
        if answer.status in _BY_STATUS:
            return _BY_STATUS[answer.status]
        if not answer.messages or "result" in answer.last:
            is_absent = bool(answer.messages) and answer.result.get("isError") is True
            return ABSENT if is_absent else SERVED
        return ABSENT if answer.error["data"]["reason"] == "TASK_NOT_FOUND" else f"? {answer.error}"

    async def _handle(self, headers: Mapping[str, str], op: A2AOperation | None) -> str:
        return f"{self.app.root}/{(await self.names('', headers, op)).task}"

    async def _over_grpc(self, endpoint: Endpoint, headers: Mapping[str, str]) -> str:
        row, name = endpoint.route, endpoint.name.rpartition("/")[2]
        data = b""
        if row is not None:
            data = _request(row, await self.names("", headers, row.op), "").SerializeToString()
        elif name == "Connect":
            data = _HELLO.SerializeToString()
        metadata, channel = tuple(headers.items()), self.channel
        unary: Any = channel.unary_unary(endpoint.name)
        stream: Any = channel.unary_stream(endpoint.name)
        bidirectional: Any = channel.stream_stream(endpoint.name)
        try:
            if name in _BIDIRECTIONAL:
                await bidirectional(iter([data]), metadata=metadata).read()
            elif row.streaming if row is not None else name in _STREAMS:
                call = stream(data, metadata=metadata)
                await call.read()
                call.cancel()
            else:
                await unary(data, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if row is None and error.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                return SERVED  # authorized; the empty request fails validation
            return _BY_CODE.get(error.code(), f"? {error.code()} {error.details()}")
        return SERVED


def _task_fields(request: Any) -> frozenset[str]:
    """Returns the request fields that name the task or its parts."""
    field_names = [field.full_name for field in fields(request.DESCRIPTOR) if field.full_name in NAMES]
    return frozenset(name for name in field_names if not name.endswith(_OMITTED_FIELDS))


def _request(row: RpcRow, names: Names, tenant: str) -> Any:
    return filled(row.request, names, tenant, frozenset() if row.op in _WITHOUT_TASK else _task_fields(row.request))
