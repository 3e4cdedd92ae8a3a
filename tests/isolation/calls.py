"""Calls: every row of the method table over every binding, repeatable with other names."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import grpc
from google.protobuf.message import Message
from tests.dialects.dialect_clients import AGENT as RESOURCE
from tests.isolation.names import Names
from tests.isolation.request_fields import fields, filled, naming

from dragoman.bindings import method_table
from dragoman.bindings.http import rest
from dragoman.bindings.method_table import JSONRPC_ROWS, SEND_MESSAGE, STREAM_MESSAGE, JsonRpcRow, RpcRow
from dragoman.core.cards.agent_spec import IDEMPOTENCY_EXTENSION, RESUME_EXTENSION
from dragoman.wire.dialects import Dialect, json_mixed, json_proto, json_v01, json_v03
from dragoman.wire.http import httprule
from dragoman.wire.http.httprule import Rule, Wildcard
from dragoman.wire.json import protojson
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

DEFAULT: Final = ""
TENANTS: Final = (DEFAULT, RESOURCE)
AGENT_ID: Final = "playground"

VERSIONS: Final[Mapping[Dialect, str]] = {
    Dialect.V1: "1.0",
    Dialect.V03: "0.3",
    Dialect.V01: "0.1",
    Dialect.FASTA2A: "",
    Dialect.RUST: "1.0.0",
}
JSON: Final[Mapping[Dialect, protojson.JsonDialect]] = {
    Dialect.V1: json_proto.PROTOJSON_V1,
    Dialect.V03: json_v03.JSON_V03,
    Dialect.V01: json_v01.JSON_V01,
    Dialect.FASTA2A: json_mixed.JSON_FASTA2A,
    Dialect.RUST: json_mixed.JSON_RUST,
}


@dataclass(frozen=True)
class Call:
    """One call, which can be sent with different names."""

    row: object
    """The tested row of the method table."""
    label: str
    tenant: str
    """The tenant of the tasks whose names it takes."""
    order: int
    """Position in a replay: calls that create tasks come after the others."""
    send: Callable[[Names], Awaitable[str]]


def _order(row: RpcRow | JsonRpcRow) -> int:
    return (row.op in (SEND_MESSAGE, STREAM_MESSAGE)) + getattr(row, "names_tasks", False)


def _carried(names: Names, carries: bool) -> dict[str, str]:
    return {"Last-Event-ID": names.cursor, "Idempotency-Key": names.key} if carries else {}


# gRPC ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_grpc(target: str, who: Mapping[str, str], tenants: tuple[str, ...]) -> AsyncIterator[list[Call]]:
    """All calls over gRPC."""
    async with grpc.aio.insecure_channel(target) as channel:

        def ask(row: RpcRow, tenant: str, which: frozenset[str], carries: bool) -> Call:
            async def send(names: Names) -> str:
                metadata = dict(who)
                if carries:
                    metadata |= {"dragoman-after": names.cursor, "idempotency-key": names.key}
                data = filled(row.request, names, tenant, which).SerializeToString()
                return await _rpc(channel, f"/{row.service}/{row.name}", data, metadata, row.response, row.streaming)

            return Call(row, f"{row.service}/{row.name} {tenant[:9]} {sorted(which)}", tenant, _order(row), send)

        def operators(name: str, request: type[Message], streaming: bool) -> Call:
            async def send(names: Names) -> str:
                data = request(task_id=names.task).SerializeToString()
                return await _rpc(
                    channel, f"/dragoman.ops.v1.OpsService/{name}", data, dict(who), ops.ExplainResponse, streaming
                )

            return Call(name, name, DEFAULT, 0, send)

        asks = [operators("Explain", ops.ExplainRequest, False)]
        for row in method_table.RPC_ROWS:
            for tenant in tenants:
                for which in naming(row.request):
                    asks += [ask(row, tenant, which, False), ask(row, tenant, which, True)]
        yield asks


async def _rpc(
    channel: grpc.aio.Channel, path: str, data: bytes, who: Mapping[str, str], answer: type[Message], streaming: bool
) -> str:
    metadata = tuple(who.items())
    unary: Any = channel.unary_unary(path)
    stream: Any = channel.unary_stream(path)
    try:
        if not streaming:
            values = [await unary(data, metadata=metadata)]
        else:
            values = [event async for event in stream(data, metadata=metadata)]
    except grpc.aio.AioRpcError as error:
        trailing = sorted((str(key), _text(value)) for key, value in error.trailing_metadata() or ())
        return f"{error.code()} {error.details()} {trailing}"
    return "OK " + " ".join(str(answer.FromString(one)).replace("\n", " ") for one in values)


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


# REST ---------------------------------------------------------------------------------------------------------------

_SEGMENTS: Final = {"tasks": "{task}", "pushNotificationConfigs": "{config}"} | dict(
    zip(RESOURCE.split("/")[::2], RESOURCE.split("/")[1::2], strict=True)
)
"""The value of a wildcard in a path, by the literal before it. A wildcard at the start is an agent."""


def path_of(rule: Rule) -> str:
    """The path of a rule, with placeholders for names."""
    segments = []
    for number, segment in enumerate(rule.template.segments):
        before = rule.template.segments[number - 1] if number else ""
        if isinstance(segment, Wildcard):
            segment = AGENT_ID if not number else _SEGMENTS[str(before)]
        segments.append(str(segment))
    return "/" + "/".join(segments) + (f":{rule.template.verb}" if rule.template.verb else "")


def rust_path(path: str) -> str:
    """The path that a2a-rust 0.3 uses for a 1.0 path (bindings/http/rest.py: `canonical_path`)."""
    head, colon, verb = path.rpartition(":")
    rust = f"{head}/{verb}" if colon else path.replace("pushNotificationConfigs", "pushNotificationConfig")
    has_tenant = rust.startswith((f"/{AGENT_ID}/", "/projects/"))
    return f"/tenants{rust}" if has_tenant else rust


@asynccontextmanager
async def over_rest(base: str, who: Mapping[str, str], tenants: tuple[str, ...]) -> AsyncIterator[list[Call]]:
    """All calls over REST: every HTTP rule, and the a2a-rust paths of 1.0. Paths contain the tenant."""
    async with aiohttp.ClientSession(base) as session:

        def ask(
            row: RpcRow, rule: Rule, path: str, which: frozenset[str], version: str, more: str, carries: bool
        ) -> Call:
            rust = path.startswith("/tenants/") or rest.canonical_path(rule.http_method, path)[2]
            json_of = protojson.compile(row.request, json_mixed.JSON_RUST if rust else row.json).to_dict

            async def send(names: Names) -> str:
                message = filled(row.request, names, DEFAULT, which)
                value: Any = json_of(message)
                query: dict[str, Any] = {}
                if rule.body not in ("", "*"):
                    value, query = value.pop(rule.body, {}), value
                elif not rule.body:
                    value, query = None, value
                address = f"{path.format(**{name: quote(text) for name, text in vars(names).items()})}?{more}"
                address += urlencode({key: text for key, text in query.items() if not isinstance(text, dict)})
                headers = {**who, **({"A2A-Version": version} if version else {}), **_carried(names, carries)}
                return await http_text(session, rule.http_method, address, value, headers)

            tenant = RESOURCE if "projects" in path else DEFAULT
            return Call(row, f"{rule.http_method} {path} {version} {sorted(which)}", tenant, _order(row), send)

        yield [
            *(ask(*each) for each in _rest_calls()),
            Call(
                "blobs",
                "/blobs",
                DEFAULT,
                0,
                lambda names: http_text(session, "GET", f"/blobs/{names.blob}", None, who),
            ),
        ]


def _rest_calls() -> Iterator[tuple[RpcRow, Rule, str, frozenset[str], str, str, bool]]:
    for descriptor, rows in method_table.rpc_services():
        for method, rule in httprule.rules(descriptor):
            row, path = rows[method.name], path_of(rule)
            bound = {".".join(variable.field) for variable in rule.template.variables}
            in_path = frozenset(
                field.full_name for field in fields(row.request.DESCRIPTOR) if ".".join(field.path) in bound
            )
            for which in naming(row.request, in_path):
                for version in ("", VERSIONS[row.dialect]):
                    yield row, rule, path, which, version, "", False
                yield row, rule, path, which, "", "", True
                if row.streaming and "projects" in path:
                    yield row, rule, path, which, "", "alt=json&", False
                if row.dialect is Dialect.V1 and rust_path(path) != path:
                    yield row, rule, rust_path(path), which, "", "", False


async def http_text(
    session: aiohttp.ClientSession,
    method: str,
    address: str,
    value: Any,
    headers: Mapping[str, str],
    *,
    one_event: bool = False,
) -> str:
    """The status, headers and body of a response. `one_event`: of a stream that does not end, its first event."""
    async with session.request(method, address, json=value, headers=headers) as answer:
        is_stream = one_event and answer.content_type == "text/event-stream"
        text = (await answer.content.readuntil(b"\n\n")).decode() if is_stream else await answer.text()
        # A time without milliseconds is shorter than one with them.
        changing = (*_CHANGING, "Content-Length") if answer.status == 200 else _CHANGING
        reported = sorted((key, text) for key, text in answer.headers.items() if key not in changing)
        return f"{answer.status} {reported} {text}"


_CHANGING: Final = ("Date", "X-Request-ID")


# JSON-RPC -----------------------------------------------------------------------------------------------------------


def params_of(row: JsonRpcRow, names: Names, which: frozenset[str], tenant: str = DEFAULT) -> dict[str, Any]:
    """The params of a JSON-RPC call."""
    message: Any = filled(row.op.request, names, tenant, which)
    if row.names_tasks:
        message.message.task_id = message.message.task_id or f"mine-{uuid.uuid4()}"
    return protojson.compile(row.op.request, JSON[row.dialect]).to_dict(message)


def _calls() -> Iterator[tuple[JsonRpcRow, frozenset[str], str, bool]]:
    for row in JSONRPC_ROWS:
        for which in naming(row.op.request):
            yield row, which, VERSIONS[row.dialect], False
            if row.op not in (SEND_MESSAGE, STREAM_MESSAGE) and VERSIONS[row.dialect]:
                yield row, which, "", False  # served in the dialect that created the task
            yield row, which, "", True


@asynccontextmanager
async def over_jsonrpc(base: str, who: Mapping[str, str], tenants: tuple[str, ...]) -> AsyncIterator[list[Call]]:
    """All calls over JSON-RPC, by POST."""
    async with aiohttp.ClientSession(base) as session:

        def ask(row: JsonRpcRow, which: frozenset[str], version: str, carries: bool, path: str, tenant: str) -> Call:
            async def send(names: Names) -> str:
                params = params_of(row, names, which)
                body = {"jsonrpc": "2.0", "id": 1, "method": row.name, "params": params}
                headers = {**who, **({"A2A-Version": version} if version else {}), **_carried(names, carries)}
                return await http_text(session, "POST", path, body, headers)

            label = f"{row.dialect.value} {row.name} {version or 'no version'} {path[:9]} {sorted(which)}"
            return Call(row, label, tenant, _order(row), send)

        asks = []
        for row, which, version, carries in _calls():
            asks += [ask(row, which, version, carries, f"/{tenant}", tenant) for tenant in tenants]
            if row.dialect is Dialect.RUST:
                asks += [
                    ask(row, which, version, carries, f"/tenants/{tenant}", tenant) for tenant in tenants if tenant
                ]
        yield asks


@asynccontextmanager
async def over_websocket(base: str, who: Mapping[str, str], tenants: tuple[str, ...]) -> AsyncIterator[list[Call]]:
    """All calls over WebSocket, on a few long-lived connections."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession(base))
        sockets = {}
        for version in dict.fromkeys(("", *VERSIONS.values())):
            headers = {**who, **({"A2A-Version": version} if version else {})}
            sockets[version] = await stack.enter_async_context(session.ws_connect("/ws", headers=headers))

        def ask(row: JsonRpcRow, which: frozenset[str], version: str, carries: bool, tenant: str) -> Call:
            async def send(names: Names) -> str:
                params = {**params_of(row, names, which), "tenant": tenant}
                if carries:
                    values = {
                        RESUME_EXTENSION.uri: {"after": names.cursor},
                        IDEMPOTENCY_EXTENSION.uri: {"key": names.key},
                    }
                    params["metadata"] = {**params.get("metadata", {}), **values}
                body = {"jsonrpc": "2.0", "id": 1, "method": row.name, "params": params}
                return await _frames(sockets[version], body, streaming=row.op.streaming)

            label = f"{row.dialect.value} {row.name} {version or 'no version'} {tenant[:9]} {sorted(which)}"
            return Call(row, label, tenant, _order(row), send)

        yield [ask(*call, tenant) for call in _calls() for tenant in tenants]


async def _frames(socket: aiohttp.ClientWebSocketResponse, body: Any, *, streaming: bool) -> str:
    await socket.send_json(body)
    texts = [await socket.receive_str()]
    while streaming and "error" not in json.loads(texts[-1]) and "stream_complete" not in texts[-1]:
        texts.append(await socket.receive_str())
    return " ".join(texts)
