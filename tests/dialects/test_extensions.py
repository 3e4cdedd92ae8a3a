"""Extensions, references and accepted media types, from the request of every dialect to the turn."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2, status_pb2
from pydantic import SecretStr
from tests.dialects.dialect_clients import ServerConnections, open_connections, sse

from dragoman import Extension, Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

CITE = "https://ext.example/cite/v1"
CLOCK = "https://ext.example/clock/v2"
UNKNOWN = "https://ext.example/unknown/v1"
NEEDED = "https://ext.example/needed/v1"
TOKEN = "open sesame"
BEARER = {"Authorization": f"Bearer {TOKEN}"}

Headers = Mapping[str, str]


@agent(default=True, extensions=[CITE, Extension(uri=CLOCK, description="Adds the time", params={"zone": "UTC"})])
async def tolerant(turn: Turn) -> dict[str, Any]:
    return {
        "extensions": turn.extensions,
        "accepts": turn.accepts,
        "references": [[task.id, task.artifacts[0].parts[0].data.struct_value["about"]] for task in turn.references],
        "about": turn.text,
    }


@agent(extensions=[{"uri": NEEDED, "required": True}, CITE])
async def strict(turn: Turn) -> dict[str, Any]:
    return {"extensions": turn.extensions}


@agent
async def other(turn: Turn) -> dict[str, Any]:
    return {"about": turn.text}


@pytest.fixture
async def connections(tmp_path: Path) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(
        http=any_port,
        grpc=any_port,
        store=f"sqlite:///{tmp_path}/tasks.db",
        token=SecretStr(TOKEN),
        public_agents=("*",),
    )
    async with (
        open_app(settings, [tolerant, strict, other]) as app,
        open_connections(str(app.http), str(app.grpc)) as opened,
    ):
        yield opened


# Sending over every binding -----------------------------------------------------------------------------------


def v1(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **fields}}


def v03(text: str = "hi", **fields: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": parts, **fields}}


def v01(text: str = "hi") -> dict[str, Any]:
    return {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": text}]}}


class Response:
    """The response to one send: the turn's data, the activated extensions by header, and the error."""

    def __init__(self, data: dict[str, Any], headers: Mapping[str, str], error: Any = None) -> None:
        self.data = data
        self.error = error
        self.activated = headers.get("A2A-Extensions", headers.get("a2a-extensions"))
        self.activated_x = headers.get("X-A2A-Extensions", headers.get("x-a2a-extensions"))


def data_of(task: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = task["artifacts"][0]["parts"][0]["data"]
    inner: dict[str, Any] = data.get("data", data)  # 0.3 over REST wraps the data in a message
    return inner


async def rest(connections: ServerConnections, path: str, body: Any, headers: Any) -> Response:
    async with connections.http.post(path, json=body, headers=headers) as answer:
        result = await answer.json()
        if answer.status != 200:
            return Response({}, answer.headers, (answer.status, result))
        return Response(data_of(result["task"]), answer.headers)


async def call(connections: ServerConnections, path: str, method: str, params: Any, headers: Any) -> Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with connections.http.post(path, json=body, headers=headers) as answer:
        message = await answer.json()
        assert answer.status == 200
        if "error" in message:
            return Response({}, answer.headers, message["error"])
        result = message["result"]
        return Response(data_of(result.get("task", result)), answer.headers)


def metadata(headers: Any) -> list[tuple[str, str]]:
    return [(key.lower(), value) for key, value in (headers.items() if isinstance(headers, Mapping) else headers)]


def details(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    trailing = dict([*(error.trailing_metadata() or ())])
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    return info


async def grpc_v1(connections: ServerConnections, tenant: str, headers: Any, text: str = "hi") -> Response:
    message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    sent = connections.v1.SendMessage(pb.SendMessageRequest(tenant=tenant, message=message), metadata=metadata(headers))
    try:
        answer = await sent
    except grpc.aio.AioRpcError as error:
        return Response({}, {}, (error.code(), details(error).reason))
    struct = answer.task.artifacts[0].parts[0].data.struct_value
    return Response(_plain(struct), dict([*await sent.initial_metadata()]))


async def grpc_v03(connections: ServerConnections, tenant: str, headers: Any, text: str = "hi") -> Response:
    message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, content=[v03_pb.Part(text=text)])
    request = v03_pb.SendMessageRequest(
        tenant=tenant, request=message, configuration=v03_pb.SendMessageConfiguration(blocking=True)
    )
    sent = connections.v03.SendMessage(request, metadata=metadata(headers))
    try:
        answer = await sent
    except grpc.aio.AioRpcError as error:
        return Response({}, {}, (error.code(), details(error).reason))
    return Response(_plain(answer.task.artifacts[0].parts[0].data.data), dict([*await sent.initial_metadata()]))


def _plain(struct: Any) -> dict[str, Any]:
    return MessageToDict(struct)


async def send_over(binding: str, connections: ServerConnections, headers: Any, agent: str = "") -> Response:
    """Sends a message over one of BINDINGS."""
    prefix = f"/{agent}" if agent else ""
    match binding:
        case "REST 1.0":
            return await rest(connections, f"{prefix}/message:send", v1(), headers)
        case "REST 0.3":
            body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}}
            return await rest(
                connections, f"{prefix}/v1/message:send", {**body, "configuration": {"blocking": True}}, headers
            )
        case "JSON-RPC 1.0":
            return await call(connections, prefix or "/", "SendMessage", v1(), headers)
        case "JSON-RPC 0.3":
            return await call(connections, prefix or "/", "message/send", v03(), headers)
        case "JSON-RPC fasta2a":
            return await call(connections, prefix or "/", "message/send", v1(), headers)
        case "JSON-RPC 0.1":
            return await call(connections, prefix or "/", "tasks/send", v01(), headers)
        case "gRPC 1.0":
            return await grpc_v1(connections, agent, headers)
        case _:
            return await grpc_v03(connections, agent, headers)


V1_BINDINGS = ("REST 1.0", "JSON-RPC 1.0", "gRPC 1.0", "JSON-RPC fasta2a")
"""Those whose clients read `A2A-Extensions`."""
V0_BINDINGS = ("REST 0.3", "JSON-RPC 0.3", "JSON-RPC 0.1", "gRPC 0.3")
BINDINGS = (*V1_BINDINGS, *V0_BINDINGS)


# Activation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["A2A-Extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_requested_and_declared_extensions_are_active_and_reported(
    connections: ServerConnections, binding: str, header: str
) -> None:
    response = await send_over(binding, connections, {header: f"{UNKNOWN}, {CLOCK} ,{CITE},, {CLOCK}"})
    assert sorted(response.data["extensions"]) == sorted([CITE, CLOCK])
    expected, other = response.activated, response.activated_x
    if header.startswith("X-"):
        expected, other = other, expected
    assert expected == f"{CLOCK}, {CITE}"
    assert other is None


@pytest.mark.parametrize("binding", BINDINGS)
async def test_all_extension_headers_are_combined(connections: ServerConnections, binding: str) -> None:
    response = await send_over(
        binding, connections, [("A2A-Extensions", CITE), ("A2A-Extensions", CLOCK), ("X-A2A-Extensions", CITE)]
    )
    assert sorted(response.data["extensions"]) == sorted([CITE, CLOCK])
    of_version, other = response.activated, response.activated_x
    if binding not in V1_BINDINGS:
        of_version, other = other, of_version
    assert (of_version, other) == (f"{CITE}, {CLOCK}", None)


@pytest.mark.parametrize("requested", [{}, {"A2A-Extensions": ""}, {"A2A-Extensions": f"{UNKNOWN},{CITE}/v9"}])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_undeclared_extensions_are_ignored(
    connections: ServerConnections, binding: str, requested: Headers
) -> None:
    response = await send_over(binding, connections, requested)
    assert response.data["extensions"] == []
    assert (response.activated, response.activated_x) == (None, None)


@pytest.mark.parametrize(
    ("path", "body", "header"),
    [
        ("/message:stream", v1(), "A2A-Extensions"),
        ("/v1/message:stream", {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}},
         "X-A2A-Extensions"),
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": v1()}, "A2A-Extensions"),
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": v03()}, "X-A2A-Extensions"),
        ("/", {"jsonrpc": "2.0", "id": 1, "method": "tasks/sendSubscribe", "params": v01()}, "X-A2A-Extensions"),
    ],
)  # fmt: skip
async def test_a_stream_reports_activated_extensions_in_its_headers(
    connections: ServerConnections, path: str, body: Any, header: str
) -> None:
    async with connections.http.post(path, json=body, headers={header: f"{CITE},{UNKNOWN}"}) as answer:
        assert answer.headers[header] == CITE
        assert [event async for event in sse(answer)]


@pytest.mark.parametrize("is_v03", [False, True])
async def test_a_grpc_stream_reports_activated_extensions_in_its_metadata(
    connections: ServerConnections, is_v03: bool
) -> None:
    if is_v03:
        part = v03_pb.Part(text="hi")
        message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, content=[part])
        events = connections.v03.SendStreamingMessage(
            v03_pb.SendMessageRequest(request=message), metadata=[("x-a2a-extensions", CITE)]
        )
    else:
        sent = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="hi")])
        events = connections.v1.SendStreamingMessage(
            pb.SendMessageRequest(message=sent), metadata=[("a2a-extensions", CITE)]
        )
    assert dict([*await events.initial_metadata()])["x-a2a-extensions" if is_v03 else "a2a-extensions"] == CITE
    assert [event async for event in events]


async def test_each_agent_activates_the_extensions_that_it_declares(connections: ServerConnections) -> None:
    headers = {"A2A-Extensions": f"{CITE},{CLOCK},{NEEDED}"}
    assert (await send_over("REST 1.0", connections, headers)).activated == f"{CITE}, {CLOCK}"
    response = await send_over("REST 1.0", connections, headers, "strict")
    assert (response.activated, sorted(response.data["extensions"])) == (f"{CITE}, {NEEDED}", sorted([CITE, NEEDED]))
    body = {**v1(), "tenant": "strict"}
    response = await rest(connections, "/message:send", body, headers)
    assert response.activated == f"{CITE}, {NEEDED}"


# Required --------------------------------------------------------------------------------------------------


async def tasks_of(connections: ServerConnections, agent: str) -> int:
    async with connections.http.get(f"/{agent}/tasks", headers={"A2A-Version": "1.0"}) as answer:
        return int((await answer.json())["totalSize"])


@pytest.mark.parametrize("requested", [{}, {"A2A-Extensions": CITE}])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_send_without_a_required_extension_is_rejected(
    connections: ServerConnections, binding: str, requested: Headers
) -> None:
    response = await send_over(binding, connections, requested, "strict")
    match binding.split()[0]:
        case "REST":
            status, body = response.error
            assert status == 400
            assert NEEDED in json.dumps(body)
        case "JSON-RPC":
            assert response.error["code"] == (-32008 if binding != "JSON-RPC 0.1" else -32600)  # 0.1 has no code for it
            assert NEEDED in json.dumps(response.error)
        case _:
            assert response.error == (grpc.StatusCode.FAILED_PRECONDITION, "EXTENSION_SUPPORT_REQUIRED")
    assert await tasks_of(connections, "strict") == 0
    # With the extension the task is created.
    response = await send_over(binding, connections, {"A2A-Extensions": NEEDED}, "strict")
    assert response.data["extensions"] == [NEEDED]
    assert await tasks_of(connections, "strict") == 1


@pytest.mark.parametrize("method", ["SendStreamingMessage", "message/stream", "tasks/sendSubscribe"])
async def test_a_stream_without_a_required_extension_is_rejected(connections: ServerConnections, method: str) -> None:
    params = {"SendStreamingMessage": v1(), "message/stream": v03()}.get(method, v01())
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with connections.http.post("/strict", json=body) as answer:
        reported = await answer.json() if method[0].isupper() else await anext(sse(answer))
    assert reported["error"]["code"] == (-32008 if method != "tasks/sendSubscribe" else -32603)
    async with connections.http.post("/strict/message:stream", json=v1()) as answer:
        assert (answer.status, answer.content_type) == (400, "application/json")
        assert (await answer.json())["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
    assert await tasks_of(connections, "strict") == 0


async def test_websocket_calls_use_the_extensions_of_the_upgrade_request(connections: ServerConnections) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": v1()}
    async with connections.http.ws_connect("/strict/ws") as socket:
        await socket.send_json(call)
        assert (await socket.receive_json())["error"]["code"] == -32008
    async with connections.http.ws_connect("/strict/ws", headers={"A2A-Extensions": NEEDED}) as socket:
        await socket.send_json(call)
        assert data_of((await socket.receive_json())["result"]["task"]) == {"extensions": [NEEDED]}
    assert await tasks_of(connections, "strict") == 1


# References ------------------------------------------------------------------------------------------------


async def send(
    connections: ServerConnections, text: str, agent: str = "", headers: Headers | None = None, **fields: Any
) -> Any:
    path = f"/{agent}/message:send" if agent else "/message:send"
    async with connections.http.post(path, json=v1(text, **fields), headers=headers) as answer:
        assert answer.status == 200
        return (await answer.json())["task"]


async def test_a_turn_has_the_referenced_tasks_of_its_caller_and_agent(connections: ServerConnections) -> None:
    first, second = await send(connections, "one"), await send(connections, "two")
    other = await send(connections, "of another agent", "other")
    secret = await send(connections, "of another caller", headers=BEARER)
    references = [second["id"], other["id"], "none", secret["id"], first["id"], second["id"]]
    data = data_of(await send(connections, "three", referenceTaskIds=references))
    assert data["references"] == [[second["id"], "two"], [first["id"], "one"]]
    # The other caller sees only its own task.
    data = data_of(await send(connections, "four", headers=BEARER, referenceTaskIds=references))
    assert data["references"] == [[secret["id"], "of another caller"]]


async def test_at_most_sixteen_references_are_resolved(connections: ServerConnections) -> None:
    tasks = [(await send(connections, f"task {number}"))["id"] for number in range(18)]
    data = data_of(await send(connections, "all", referenceTaskIds=tasks))
    assert [task for task, _ in data["references"]] == tasks[:16]


@pytest.mark.parametrize("binding", ["JSON-RPC 0.3", "gRPC 1.0", "gRPC 0.3"])
async def test_references_of_other_dialects_are_resolved(connections: ServerConnections, binding: str) -> None:
    first = (await send(connections, "one"))["id"]
    match binding:
        case "JSON-RPC 0.3":
            data = (await call(connections, "/", "message/send", v03(referenceTaskIds=[first]), {})).data
        case "gRPC 1.0":
            message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="x")])
            message.reference_task_ids.append(first)
            task = (await connections.v1.SendMessage(pb.SendMessageRequest(message=message))).task
            data = _plain(task.artifacts[0].parts[0].data.struct_value)
        case _:
            v03_message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, content=[v03_pb.Part(text="x")])
            v03_message.reference_task_ids.append(first)
            configuration = v03_pb.SendMessageConfiguration(blocking=True)
            answer = await connections.v03.SendMessage(
                v03_pb.SendMessageRequest(request=v03_message, configuration=configuration)
            )
            data = _plain(answer.task.artifacts[0].parts[0].data.data)
    assert data["references"] == [[first, "one"]]


# Accepted media types --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {**v1(), "configuration": {"acceptedOutputModes": ["text/html", "text/*"]}}),
        ("message/send", {**v03(), "configuration": {"acceptedOutputModes": ["text/html", "text/*"]}}),
        ("tasks/send", {**v01(), "acceptedOutputModes": ["text/html", "text/*"]}),
    ],
)
async def test_a_turn_has_the_media_types_that_its_caller_accepts(
    connections: ServerConnections, method: str, params: Any
) -> None:
    response = await call(connections, "/", method, params, {})
    assert response.data["accepts"] == ["text/html", "text/*"]
    response = await call(
        connections, "/", method, {**params, "id": "other", "configuration": {}, "acceptedOutputModes": []}, {}
    )
    assert response.data["accepts"] == []
