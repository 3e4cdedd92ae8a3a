"""Invalid input to a real server: each binding returns the error of the table with its field, and stores nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiohttp
import grpc
import pytest
from pydantic import ByteSize
from tests.bindings.fake_service import details

from dragoman import Turn, agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.a2a.v1 import a2a_pb2_grpc as v03_rpc
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2_grpc as rpc

pytestmark = pytest.mark.long

LIMIT = 64 * 1024
"""The message limit of the server below: small, so a message over it is cheap to send."""

SCOPE = "projects/p/locations/l/collections/c/engines/e/assistants/a"
JSON = {"Content-Type": "application/json"}


@agent(
    id="echo", name="Echo", description="Returns the text", default=True, input_modes=("text/plain", "application/json")
)
async def echo(turn: Turn) -> str:
    return turn.text


@agent(id="other", name="Other", description="Another one")
async def other(turn: Turn) -> str:
    return turn.text


class Server(NamedTuple):
    http: aiohttp.ClientSession
    v1: Any
    v03: Any

    async def total(self) -> int:
        """Returns the number of tasks in every scope of this test."""
        tenants = ("", "other", f"{SCOPE}/agents/echo")
        return sum([(await self.v1.ListTasks(pb.ListTasksRequest(tenant=tenant))).total_size for tenant in tenants])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    settings = Settings(
        http=Address("127.0.0.1", 0),
        grpc=Address("127.0.0.1", 0),
        store=f"sqlite:///{tmp_path}/tasks.db",
        message_bytes=ByteSize(LIMIT),
    )
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(open_app(settings, [echo, other]))
        http = await stack.enter_async_context(aiohttp.ClientSession(f"http://{app.http}"))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(str(app.grpc)))
        yield Server(http, rpc.A2AServiceStub(channel), v03_rpc.A2AServiceStub(channel))


def v1_send(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": list(parts), **fields}}


def v03_send(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "content": list(parts), **fields}}


def message(**fields: Any) -> pb.SendMessageRequest:
    arguments = {"message_id": "m1", "role": pb.ROLE_USER, "parts": [pb.Part(text="x")], **fields}
    return pb.SendMessageRequest(message=pb.Message(**arguments))


def v03_message(*parts: v03_pb.Part, **fields: Any) -> v03_pb.SendMessageRequest:
    arguments = {"message_id": "m1", "role": v03_pb.ROLE_USER, "content": parts, **fields}
    return v03_pb.SendMessageRequest(request=v03_pb.Message(**arguments))


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = {"a": value}
    return value


def data_part(value: Any) -> pb.Part:
    part = pb.Part()
    part.data.struct_value.update(value)
    return part


class InvalidInput(NamedTuple):
    """One invalid input, over each binding that can express it, and its error."""

    name: str
    reason: str
    message: str
    v1_rest: tuple[str, str, Any] | None = None
    v03_rest: tuple[str, str, Any] | None = None
    v1_grpc: Callable[[Server], Any] | None = None
    v03_grpc: Callable[[Server], Any] | None = None
    field: str = ""


SEND, SEND03 = ("POST", "/message:send"), ("POST", "/v1/message:send")
BIG = "x" * (LIMIT + 1)

TABLE = [
    InvalidInput(
        "unknown task",
        "TASK_NOT_FOUND",
        "Task not found",
        ("GET", "/tasks/nothing", None),
        ("GET", "/v1/tasks/nothing", None),
        lambda server: server.v1.GetTask(pb.GetTaskRequest(id="nothing")),
        lambda server: server.v03.GetTask(v03_pb.GetTaskRequest(name="tasks/nothing")),
    ),
    InvalidInput(
        "message to an unknown task",
        "TASK_NOT_FOUND",
        "Task not found",
        (*SEND, v1_send({"text": "x"}, taskId="nothing")),
        (*SEND03, v03_send({"text": "x"}, taskId="nothing")),
        lambda server: server.v1.SendMessage(message(task_id="nothing")),
        lambda server: server.v03.SendMessage(v03_message(v03_pb.Part(text="x"), task_id="nothing")),
    ),
    InvalidInput(
        "unknown agent",
        "AGENT_NOT_FOUND",
        "use one of echo, other",
        ("POST", "/unknown/message:send", v1_send({"text": "x"})),
        ("POST", "/unknown/v1/message:send", v03_send({"text": "x"})),
        lambda server: server.v1.GetTask(pb.GetTaskRequest(tenant="unknown", id="x")),
        lambda server: server.v03.GetTask(v03_pb.GetTaskRequest(tenant="unknown", name="tasks/x")),
    ),
    InvalidInput(
        "empty parts",
        "INVALID_PARAMS",
        "at least one part",
        (*SEND, v1_send()),
        (*SEND03, v03_send()),
        lambda server: server.v1.SendMessage(message(parts=[])),
        lambda server: server.v03.SendMessage(v03_message()),
        "message.parts",
    ),
    InvalidInput(
        "part without content",
        "INVALID_PARAMS",
        "must have exactly one of text, ",
        (*SEND, v1_send({"metadata": {}})),
        (*SEND03, v03_send({"metadata": {}})),
        lambda server: server.v1.SendMessage(message(parts=[pb.Part()])),
        lambda server: server.v03.SendMessage(v03_message(v03_pb.Part())),
        "message.parts[0]",
    ),
    InvalidInput(
        "two contents",
        "INVALID_PARAMS",
        "text",
        (*SEND, v1_send({"text": "x", "url": "http://x.test"})),
        (*SEND03, v03_send({"text": "x", "data": {"data": {}}})),
        field="[0]",
    ),
    InvalidInput(
        "undeclared media type",
        "CONTENT_TYPE_NOT_SUPPORTED",
        "use one of text/plain, application/json",
        (*SEND, v1_send({"text": "x", "mediaType": "application/x-unknown"})),
        (*SEND03, v03_send({"file": {"fileWithBytes": "eA==", "mimeType": "application/x-unknown"}})),
        lambda server: server.v1.SendMessage(message(parts=[pb.Part(text="x", media_type="application/x-unknown")])),
        lambda server: server.v03.SendMessage(
            v03_message(v03_pb.Part(file=v03_pb.FilePart(file_with_bytes=b"x", mime_type="application/x-unknown")))
        ),
    ),
    InvalidInput(
        "message over the limit",
        "PAYLOAD_TOO_LARGE",
        f"at most {LIMIT}",
        (*SEND, v1_send({"text": BIG})),
        (*SEND03, v03_send({"text": BIG})),
        lambda server: server.v1.SendMessage(message(parts=[pb.Part(text=BIG)])),
        lambda server: server.v03.SendMessage(v03_message(v03_pb.Part(text=BIG))),
    ),
    InvalidInput(
        "data too deep",
        "INVALID_PARAMS",
        "more than 24 levels",
        (*SEND, v1_send({"data": nested(25)})),
        (*SEND03, v03_send({"data": {"data": nested(25)}})),
        lambda server: server.v1.SendMessage(message(parts=[data_part(nested(25))])),
        field="message.parts[0].data",
    ),
    InvalidInput(
        "duplicate key",
        "INVALID_PARAMS",
        "given twice",
        (*SEND, b'{"message": {"messageId": "a", "messageId": "b", "role": "ROLE_USER", "parts": [{"text": "x"}]}}'),
        (
            *SEND03,
            b'{"message": {"messageId": "a", "messageId": "b", "role": "ROLE_USER", "content": [{"text": "x"}]}}',
        ),
        field="message.messageId",
    ),
    InvalidInput(
        "integer beyond 2^53",
        "INVALID_PARAMS",
        str(2**53),
        (*SEND, v1_send({"data": {"n": 2**53 + 1}})),
        (*SEND03, v03_send({"data": {"data": {"n": 2**53 + 1}}})),
        field="n",
    ),
    InvalidInput(
        "unknown role",
        "INVALID_PARAMS",
        "ROLE_USER",
        (*SEND, v1_send({"text": "x"}, role="ROLE_UNKNOWN")),
        (*SEND03, v03_send({"text": "x"}, role="ROLE_UNKNOWN")),
        lambda server: server.v1.SendMessage(message(role=99)),
        lambda server: server.v03.SendMessage(v03_message(v03_pb.Part(text="x"), role=99)),
        "message.role",
    ),
    InvalidInput(
        "unknown state",
        "INVALID_PARAMS",
        "TASK_STATE_WORKING",
        ("GET", "/tasks?status=TASK_STATE_LOST", None),
        ("GET", "/v1/tasks?status=TASK_STATE_LOST", None),
        lambda server: server.v1.ListTasks(pb.ListTasksRequest(status=cast(pb.TaskState, 99))),
        lambda server: server.v03.ListTasks(v03_pb.ListTasksRequest(status=cast(v03_pb.TaskState, 99))),
        "status",
    ),
    InvalidInput(
        "bad base64",
        "INVALID_PARAMS",
        "base64",
        (*SEND, v1_send({"raw": "no base64!", "mediaType": "text/plain"})),
        (*SEND03, v03_send({"file": {"fileWithBytes": "no base64!"}})),
        field="[0]",
    ),
    InvalidInput(
        "bad page token",
        "INVALID_PARAMS",
        "pageToken",
        ("GET", "/tasks?pageToken=nonsense", None),
        ("GET", "/v1/tasks?pageToken=nonsense", None),
        lambda server: server.v1.ListTasks(pb.ListTasksRequest(page_token="nonsense")),
        lambda server: server.v03.ListTasks(v03_pb.ListTasksRequest(page_token="nonsense")),
        "pageToken",
    ),
    InvalidInput(
        "page too large",
        "INVALID_PARAMS",
        "must be 1 to 100",
        ("GET", "/tasks?pageSize=101", None),
        ("GET", "/v1/tasks?pageSize=101", None),
        lambda server: server.v1.ListTasks(pb.ListTasksRequest(page_size=101)),
        lambda server: server.v03.ListTasks(v03_pb.ListTasksRequest(page_size=101)),
        "pageSize",
    ),
    InvalidInput(
        "page too small",
        "INVALID_PARAMS",
        "must be 1 to 100",
        ("GET", "/tasks?pageSize=0", None),
        ("GET", "/v1/tasks?pageSize=-1", None),
        lambda server: server.v1.ListTasks(pb.ListTasksRequest(page_size=0)),
        lambda server: server.v03.ListTasks(v03_pb.ListTasksRequest(page_size=-1)),
        "pageSize",
    ),
    InvalidInput(
        "negative history length",
        "INVALID_PARAMS",
        "must be 0 or more",
        ("GET", "/tasks/x?historyLength=-1", None),
        ("GET", "/v1/tasks/x?historyLength=-1", None),
        lambda server: server.v1.GetTask(pb.GetTaskRequest(id="x", history_length=-1)),
        lambda server: server.v03.GetTask(v03_pb.GetTaskRequest(name="tasks/x", history_length=-1)),
        "historyLength",
    ),
    InvalidInput(
        "history length is not a number",
        "INVALID_PARAMS",
        "historyLength",
        ("GET", "/tasks/x?historyLength=many", None),
        ("GET", "/v1/tasks/x?historyLength=many", None),
        field="historyLength",
    ),
    InvalidInput(
        "name is not a task name",
        "INVALID_PARAMS",
        "must be tasks/ID",
        v03_grpc=lambda server: server.v03.GetTask(v03_pb.GetTaskRequest(name="else/x")),
        field="name",
    ),
    InvalidInput("invalid JSON", "INVALID_REQUEST", "Invalid JSON payload", (*SEND, b"{"), (*SEND03, b"{")),
    InvalidInput("not an object", "INVALID_PARAMS", "object", (*SEND, b"[]"), (*SEND03, b"7"), field="body"),
]


BINDINGS = ("v1_rest", "v03_rest", "v1_grpc", "v03_grpc")


def rows(binding: str) -> list[Any]:
    """The inputs that a binding can carry."""
    inputs = [bad for bad in TABLE if getattr(bad, binding) is not None]
    return [pytest.param(binding, bad, id=f"{binding}-{bad.name}") for bad in inputs]


async def rejected_over_http(server: Server, bad: InvalidInput, request: tuple[str, str, Any]) -> dict[str, Any]:
    method, path, body = request
    data = body if isinstance(body, bytes) or body is None else json.dumps(body)
    before = await server.total()
    async with server.http.request(method, path, data=data, headers=JSON) as answer:
        assert 400 <= answer.status < 500
        response: dict[str, Any] = await answer.json()
    error = response["error"]
    assert error["code"] == answer.status
    assert error["details"][0]["reason"] == bad.reason
    assert bad.message in error["message"]
    if bad.field:
        field = bad.field.replace("message.parts", "message.content") if "/v1/" in path else bad.field
        assert field in error["details"][1]["fieldViolations"][0]["field"]
    assert await server.total() == before
    return response


V03_FIELDS = {
    "message.parts": "request.content",
    "message.parts[0]": "request.content[0]",
    "message.parts[0].data": "request.content[0].data",
    "message.role": "request.role",
    "message.messageId": "request.messageId",
}
"""Names of fields in `a2a.v1` over gRPC."""


async def rejected_over_grpc(server: Server, bad: InvalidInput, call: Callable[[Server], Any]) -> None:
    before = await server.total()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(server)
    info, violations = details(caught.value)
    assert info.reason == bad.reason
    assert bad.message in str(caught.value.details())
    if bad.field:
        fields = {bad.field} if call is bad.v1_grpc else {bad.field, V03_FIELDS.get(bad.field, "")}
        assert any(field and field in violations.field_violations[0].field for field in fields)
    assert await server.total() == before


MEMBERS = {"v1_rest": {"error"}, "v03_rest": {"code", "type", "message", "error"}}
"""The members of an error over HTTP."""


@pytest.mark.parametrize(("binding", "bad"), [row for name in BINDINGS for row in rows(name)])
async def test_invalid_input_is_rejected_over_every_binding(server: Server, binding: str, bad: InvalidInput) -> None:
    call = getattr(bad, binding)
    if binding in MEMBERS:
        assert set(await rejected_over_http(server, bad, call)) == MEMBERS[binding]
    else:
        await rejected_over_grpc(server, bad, call)


@pytest.mark.parametrize("tenant", ["other", f"{SCOPE}/agents/echo"])
async def test_a_task_of_another_agent_or_scope_is_not_found(server: Server, tenant: str) -> None:
    sent = await server.v1.SendMessage(message())
    for call in (
        server.v1.GetTask(pb.GetTaskRequest(tenant=tenant, id=sent.task.id)),
        server.v1.CancelTask(pb.CancelTaskRequest(tenant=tenant, id=sent.task.id)),
        server.v03.GetTask(v03_pb.GetTaskRequest(tenant=tenant, name=f"tasks/{sent.task.id}")),
        server.v1.SubscribeToTask(pb.SubscribeToTaskRequest(tenant=tenant, id=sent.task.id)).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert details(caught.value)[0].reason == "TASK_NOT_FOUND"
    async with server.http.get(f"/{tenant}/tasks/{sent.task.id}") as answer:
        assert answer.status == 404
    assert (await server.v1.ListTasks(pb.ListTasksRequest(tenant=tenant))).total_size == 0


async def test_a_message_below_the_limit_is_accepted(server: Server) -> None:
    size = LIMIT - 1024
    assert (await server.v1.SendMessage(message(parts=[pb.Part(text="x" * size)]))).task.id
    raw = base64.b64encode(b"x" * size).decode()
    body = v1_send({"raw": raw, "mediaType": "text/plain"})
    async with server.http.post("/message:send", json=body) as answer:
        assert answer.status == 200
    assert await server.total() == 2


async def test_an_unknown_query_parameter_is_ignored(server: Server) -> None:
    async with server.http.get("/tasks?colour=red&alt=json&key=1&fields=a&%24.xgafv=2&upload_protocol=raw") as answer:
        assert answer.status == 200


async def test_an_unknown_field_is_ignored(server: Server) -> None:
    body = {**v1_send({"text": "x", "kind": "text"}, kind="message"), "colour": "red"}
    async with server.http.post("/message:send", json=body) as answer:
        assert answer.status == 200


RESOURCE = f"{SCOPE}/agents/echo"
_PUSH = "configuration.pushNotification"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (v03_send(), "message.content"),
        (v03_send({}), "message.content[0]"),
        (v03_send({"file": {"mimeType": "a/b"}}), "message.content[0]"),
        (v03_send({"text": "x", "metadata": nested(30)}), "message.content[0].metadata"),
        (v03_send({"data": {"data": nested(30)}}), "message.content[0].data"),
        (v03_send(*[{"text": "x"}] * 10_001), "message.content"),
        ({**v03_send({"text": "x"}), "configuration": {"historyLength": -1}}, "configuration.historyLength"),
        ({**v03_send({"text": "x"}), "configuration": {"pushNotification": {"url": "x"}}}, f"{_PUSH}.url"),
        (
            {
                **v03_send({"text": "x"}),
                "configuration": {
                    "pushNotification": {"url": "https://h.example", "authentication": {"schemes": ["a b"]}}
                },
            },
            f"{_PUSH}.authentication.schemes",
        ),
        ({**v03_send({"text": "x"}), "tenant": "other"}, "tenant"),
    ],
)
@pytest.mark.parametrize("verb", ["send", "stream"])
async def test_errors_of_google_s_form_name_the_field_as_it_was_sent(
    server: Server, verb: str, body: Any, field: str
) -> None:
    async with server.http.post(f"/{RESOURCE}/message:{verb}", json=body) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
    assert error["details"][1]["fieldViolations"][0]["field"] == field
    assert error["message"].startswith(f"{field}: ")
    assert await server.total() == 0


async def test_an_unaccepted_media_type_is_named_by_its_part_in_google_s_form(server: Server) -> None:
    body = v03_send({"file": {"mimeType": "image/png", "fileWithUri": "https://h.example/a"}})
    async with server.http.post(f"/{RESOURCE}/message:send", json=body) as answer:
        error = (await answer.json())["error"]
    assert error["message"].startswith('message.content[0]: "image/png" is not accepted')
    assert error["details"][0]["metadata"]["field"] == "message.content[0]"
