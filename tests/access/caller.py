"""One caller at one door: what it is told, in the words of the table."""

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
from tests.access.table import ABSENT, FORBIDDEN, REFUSED, SERVED
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.isolation.calls import AGENT_ID, VERSIONS, params_of, path_of
from tests.isolation.names import Names
from tests.isolation.request_fields import NAMES, fields, filled

from dragoman.bindings import method_table
from dragoman.bindings.method_table import A2AOperation, JsonRpcRow, RpcRow
from dragoman.wire.json import protojson
from dragoman.wiring.app import App
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

_BY_STATUS: Final = {401: REFUSED, 403: FORBIDDEN, 404: ABSENT}
_BY_CODE: Final = {
    grpc.StatusCode.UNAUTHENTICATED: REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: FORBIDDEN,
    grpc.StatusCode.NOT_FOUND: ABSENT,
}
_STREAMS: Final = ("Watch", "ExportTask", "Backup")
_BOTH_WAYS: Final = ("Connect", "ServerReflectionInfo")
_CONFIG: Final = "config-1"
_HELLO: Final = wk.ConnectRequest(
    hello=wk.Hello(agents=[wk.AgentRegistration(id="x", card=pb.AgentCard(name="x", description="x"))])
)
_NEW: Final = (method_table.SEND_MESSAGE, method_table.STREAM_MESSAGE, method_table.LIST_TASKS)
"""Operations that are asked without a name of a task."""
_LEFT_OUT: Final = ("page_token", "reference_task_ids", "context_id")


@dataclass
class EndpointCaller:
    """Callers at the doors of one server. `owner` are the headers of who makes the tasks."""

    app: App
    owner: Mapping[str, str]
    http: aiohttp.ClientSession
    channel: grpc.aio.Channel
    _tasks: dict[str, Names] = field(default_factory=dict)

    async def call(self, endpoint: Endpoint, who: Mapping[str, str]) -> str:
        """What a caller is told."""
        async with asyncio.timeout(60):
            match endpoint.kind:
                case "HTTP":
                    return await self._over_http(endpoint, who)
                case "JSON-RPC":
                    return await self._over_json_rpc(row_of(endpoint), who)
                case _:
                    return await self._over_grpc(endpoint, who)

    # The names of a task, which nobody has ended yet ----------------------------------------------------------------

    async def names(self, tenant: str, who: Mapping[str, str], op: A2AOperation | None) -> Names:
        """Those of a task that waits. What its owner ends is nobody's after that."""
        if tenant not in self._tasks:
            self._tasks[tenant] = await self._make(tenant)
        found = self._tasks[tenant]
        if who == self.owner and op in (method_table.CANCEL_TASK, method_table.DELETE_PUSH_CONFIG):
            del self._tasks[tenant]
        return found

    async def _make(self, tenant: str) -> Names:
        stub: Any = rpc.A2AServiceStub(self.channel)
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="ask")])
        value = await stub.SendMessage(
            pb.SendMessageRequest(tenant=tenant, message=message), metadata=tuple(self.owner.items())
        )
        config = pb.TaskPushNotificationConfig(
            tenant=tenant, task_id=value.task.id, id=_CONFIG, url="https://receiver.example/x"
        )
        await stub.CreateTaskPushNotificationConfig(config, metadata=tuple(self.owner.items()))
        return Names(value.task.id, value.task.context_id, "", "", "", _CONFIG, "0" * 64)

    # Doors ----------------------------------------------------------------------------------------------------------

    async def _over_http(self, endpoint: Endpoint, who: Mapping[str, str]) -> str:
        method, path = endpoint.name.split(" ")[:2]
        if endpoint.op is None:
            if path.endswith("/ws"):
                return await self._over_websocket(path, who)
            task = (await self.names("", who, endpoint.op)).task if "{task_id}" in path else ""
            address = path.replace("{file=**}", "console.css" if "console" in path else "").replace("{task_id}", task)
            address = address.replace("{file}", "swagger-ui.css").replace("{hash}", "0" * 64)
            address = re.sub(r"\{\w+\}", AGENT_ID, address)
            body: Any = {} if method == "POST" else None
            async with self.http.request(method, address, json=body, headers=who) as answer:
                return _BY_STATUS.get(answer.status, SERVED if answer.status == 200 else f"? {answer.status}")
        row, rule = endpoint.what
        tenant = RESOURCE if "projects" in path else ""
        names = await self.names(tenant, who, endpoint.op)
        message = _request(row, names, "")
        value: Any = protojson.compile(row.request, row.json).to_dict(message)
        query: dict[str, Any] = {}
        if rule.body not in ("", "*"):
            value, query = value.pop(rule.body, {}), value
        elif not rule.body:
            value, query = None, value
        address = path_of(rule).format(**{name: quote(text) for name, text in vars(names).items()})
        response_text = urlencode({key: text for key, text in query.items() if not isinstance(text, dict)})
        headers = {**who, "A2A-Version": VERSIONS[row.dialect]}
        async with self.http.request(method, f"{address}?{response_text}", json=value, headers=headers) as answer:
            begin = await answer.content.readline()
            return _BY_STATUS.get(answer.status, SERVED if answer.status == 200 else f"? {answer.status} {begin!r}")

    async def _over_websocket(self, path: str, who: Mapping[str, str]) -> str:
        try:
            async with self.http.ws_connect(re.sub(r"\{\w+\}", AGENT_ID, path), headers=who):
                return SERVED
        except aiohttp.WSServerHandshakeError as error:
            return _BY_STATUS[error.status]

    async def _over_json_rpc(self, row: RpcRow | JsonRpcRow, who: Mapping[str, str]) -> str:
        assert isinstance(row, JsonRpcRow)
        names = await self.names("", who, row.op)
        params = params_of(row, names, frozenset() if row.op in _NEW else _everything(row.op.request))
        body = {"jsonrpc": "2.0", "id": 1, "method": row.name, "params": params}
        version = VERSIONS[row.dialect]
        headers = {**who, **({"A2A-Version": version} if version else {})}
        async with self.http.post("/", json=body, headers=headers) as answer:
            if answer.status in _BY_STATUS:
                return _BY_STATUS[answer.status]
            data = await answer.content.readline() if row.op.streaming else await answer.read()
        if data.startswith(b"id:"):
            return SERVED  # the first line of an event, which is its cursor
        error = json.loads(data.removeprefix(b"data:")).get("error")
        if error is None:
            return SERVED
        return ABSENT if error["code"] == -32001 else f"? {error}"

    async def _over_grpc(self, endpoint: Endpoint, who: Mapping[str, str]) -> str:
        row, name = endpoint.what, endpoint.name.rpartition("/")[2]
        data = b""
        if row is not None:
            data = _request(row, await self.names("", who, row.op), "").SerializeToString()
        elif name == "Connect":
            data = _HELLO.SerializeToString()
        metadata, channel = tuple(who.items()), self.channel
        unary: Any = channel.unary_unary(endpoint.name)
        stream: Any = channel.unary_stream(endpoint.name)
        both: Any = channel.stream_stream(endpoint.name)
        try:
            if name in _BOTH_WAYS:
                await both(iter([data]), metadata=metadata).read()
            elif row.streaming if row is not None else name in _STREAMS:
                call = stream(data, metadata=metadata)
                await call.read()
                call.cancel()
            else:
                await unary(data, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if row is None and error.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                return SERVED  # an empty request is past the door, and is told what it lacks
            return _BY_CODE.get(error.code(), f"? {error.code()} {error.details()}")
        return SERVED


def _everything(request: Any) -> frozenset[str]:
    """The fields that name the task, and what is its."""
    found = [one.full_name for one in fields(request.DESCRIPTOR) if one.full_name in NAMES]
    return frozenset(name for name in found if not name.endswith(_LEFT_OUT))


def _request(row: RpcRow, names: Names, tenant: str) -> Any:
    return filled(row.request, names, tenant, frozenset() if row.op in _NEW else _everything(row.request))
