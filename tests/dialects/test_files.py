"""Binary files of 0.3 over gRPC and REST, as bytes and as base64 text, between clients of every kind."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from tests.dialects.dialect_clients import AGENT, ServerConnections, open_connections, sse
from tests.dialects.push_clients import receiver

from dragoman.client import connect
from dragoman.playground import playground
from dragoman.settings.settings import Address, Settings
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

BINARY = bytes(range(256))
AMBIGUOUS = b"test"
"""A file that is base64 itself."""


class Form(NamedTuple):
    """What a kind of client puts into `file_with_bytes`, and how it reads it."""

    write: Callable[[bytes], bytes]
    read: Callable[[bytes], bytes]


FORMS = {"bytes": Form(bytes, bytes), "base64": Form(b64encode, lambda data: b64decode(data, validate=True))}


class V03FileClient:
    """Sends and reads files of 0.3 over gRPC. All methods return what `file_with_bytes` holds."""

    tenant = AGENT

    def __init__(self, connections: ServerConnections) -> None:
        self.connections = connections
        self.task = ""

    async def send(self, *parts: v03_pb.Part, task: str = "", webhook: str = "") -> list[bytes]:
        """The files of the artifacts that a blocking send returns."""
        sent = await self.send_request(self.request(parts, task, webhook))
        self.task = sent.id
        return [part.file.file_with_bytes for artifact in sent.artifacts for part in artifact.parts]

    def request(self, parts: tuple[v03_pb.Part, ...], task: str, webhook: str) -> v03_pb.SendMessageRequest:
        message = v03_pb.Message(message_id="m", role=v03_pb.ROLE_USER, content=parts, task_id=task)
        request = v03_pb.SendMessageRequest(tenant=self.tenant, request=message)
        request.configuration.blocking = True
        if webhook:
            request.configuration.push_notification.url = webhook
        return request

    async def send_request(self, request: v03_pb.SendMessageRequest) -> v03_pb.Task:
        task: v03_pb.Task = (await self.connections.v03.SendMessage(request)).task
        return task

    async def stream(self, *parts: v03_pb.Part) -> list[bytes]:
        """The files of all events of a stream."""
        events = self.connections.v03.SendStreamingMessage(self.request(parts, "", ""))
        return [file async for event in events for file in files_in(event)]

    async def get(self, task: str) -> list[bytes]:
        """The files in a task: those of its artifacts, and of its first message."""
        return files_in(await self.connections.v03.GetTask(v03_pb.GetTaskRequest(tenant=AGENT, name=f"tasks/{task}")))

    async def subscribe(self, task: str) -> list[bytes]:
        """The files in the first event of a subscription."""
        request = v03_pb.TaskSubscriptionRequest(tenant=AGENT, name=f"tasks/{task}")
        async for event in self.connections.v03.TaskSubscription(request):
            return files_in(event)
        raise AssertionError("there is no event")


class V03RestFileClient(V03FileClient):
    """The same over REST."""

    tenant = "playground"
    base = "/playground/v1"

    async def send_request(self, request: v03_pb.SendMessageRequest) -> v03_pb.Task:
        sent: v03_pb.SendMessageResponse = parse(v03_pb.SendMessageResponse, await self.post("/message:send", request))
        return sent.task

    async def post(self, path: str, request: v03_pb.SendMessageRequest) -> Any:
        async with self.connections.http.post(self.base + path, json=to_json(request)) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def stream(self, *parts: v03_pb.Part) -> list[bytes]:
        body = to_json(self.request(parts, "", ""))
        async with self.connections.http.post(f"{self.base}/message:stream?alt=sse", json=body) as answer:
            return [file async for event in sse(answer) for file in files_in(parse(v03_pb.StreamResponse, event))]

    async def get(self, task: str) -> list[bytes]:
        async with self.connections.http.get(f"{self.base}/tasks/{task}") as answer:
            return files_in(parse(v03_pb.Task, await answer.json()))

    async def subscribe(self, task: str) -> list[bytes]:
        async with self.connections.http.get(f"{self.base}/tasks/{task}:subscribe?alt=sse") as answer:
            async for event in sse(answer):
                return files_in(parse(v03_pb.StreamResponse, event))
        raise AssertionError("there is no event")


class GoogleFileClient(V03RestFileClient):
    tenant = AGENT
    base = f"/v1/{AGENT}/a2a/v1"


CLIENTS: dict[str, type[V03FileClient]] = {
    "gRPC": V03FileClient,
    "REST": V03RestFileClient,
    "Google REST": GoogleFileClient,
}
EVERY_CLIENT = pytest.mark.parametrize("binding", CLIENTS)


def to_json(request: v03_pb.SendMessageRequest) -> dict[str, Any]:
    """The request as ProtoJSON, with standard base64 for `file_with_bytes`; the tenant is in the path."""
    parts = [
        {"file": {"fileWithBytes": b64encode(part.file.file_with_bytes).decode(), "mimeType": part.file.mime_type}}
        if part.HasField("file")
        else {"text": part.text}
        for part in request.request.content
    ]
    message = {"messageId": "m", "role": "ROLE_USER", "content": parts}
    message |= {"taskId": request.request.task_id} if request.request.task_id else {}
    configuration: dict[str, Any] = {"blocking": True}
    if request.configuration.HasField("push_notification"):
        configuration["pushNotification"] = {"url": request.configuration.push_notification.url}
    return {"message": message, "configuration": configuration}


def parse(message: type[Any], value: Any) -> Any:
    return protojson.compile(message, json_proto.PROTOJSON_V03).decode(value)


def files_in(message: Any) -> list[bytes]:
    """All `file_with_bytes` anywhere in a message."""
    if isinstance(message, v03_pb.FilePart):
        return [message.file_with_bytes]
    found = []
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.file.package == "a2a.v1":
            for item in value if not hasattr(value, "ListFields") else (value,):
                found += files_in(item)
    return found


def file(content: bytes) -> v03_pb.Part:
    return v03_pb.Part(file=v03_pb.FilePart(file_with_bytes=content, mime_type="application/octet-stream"))


async def stored_files(client: V03FileClient) -> list[bytes]:
    """The files of the client's last task as 1.0 shows them: first those of its artifacts."""
    request = pb.GetTaskRequest(tenant=client.tenant, id=client.task)
    shown: pb.Task = await client.connections.v1.GetTask(request)
    parts = [*(part for artifact in shown.artifacts for part in artifact.parts), *shown.history[0].parts]
    return [part.raw for part in parts if part.HasField("raw")]


@asynccontextmanager
async def serving(folder: Path, v03_files: Literal["auto", "bytes", "base64"]) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{folder}/tasks.db", v03_files=v03_files)
    async with open_app(settings, [playground]) as app, open_connections(str(app.http), str(app.grpc)) as connections:
        yield connections


@EVERY_CLIENT
@pytest.mark.parametrize("form", FORMS)
async def test_a_file_reaches_the_agent_and_comes_back_in_the_form_of_its_client(
    connections: ServerConnections, binding: str, form: str
) -> None:
    client, (write, read) = CLIENTS[binding](connections), FORMS[form]
    files = await client.send(file(write(BINARY)), file(b""), file(write(b"plain text")))
    assert [read(item) for item in files] == [BINARY, b"", b"plain text"]
    assert await stored_files(client) == [BINARY, b"", b"plain text"] * 2
    for again in (await client.get(client.task), await client.subscribe(client.task)):
        assert [read(item) for item in again] == [BINARY, b"", b"plain text"] * 2
    streamed = [read(item) for item in await client.stream(file(write(BINARY)))]
    assert streamed.count(BINARY) == len(streamed) == 2


@EVERY_CLIENT
async def test_a_client_that_sent_no_file_gets_bytes(connections: ServerConnections, binding: str) -> None:
    client = CLIENTS[binding](connections)
    assert await client.send(v03_pb.Part(text="file")) == [b"hello from the playground\n"]
    assert await client.get(client.task) == [b"hello from the playground\n"]


@EVERY_CLIENT
async def test_a_follow_up_is_answered_in_its_own_form_or_that_of_its_task(
    connections: ServerConnections, binding: str
) -> None:
    client = CLIENTS[binding](connections)
    await client.send(v03_pb.Part(text="ask"), file(b64encode(BINARY)))
    task = client.task
    assert await client.get(task) == [b64encode(BINARY)]
    await client.send(v03_pb.Part(text="go on"), task=task)
    assert await client.get(task) == [b64encode(BINARY)]
    assert await stored_files(client) == [BINARY]


async def test_readers_of_other_dialects_get_the_file(connections: ServerConnections) -> None:
    client = V03RestFileClient(connections)
    await client.send(file(b64encode(BINARY)))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": client.task}}
    async with connections.http.post("/playground", json=call) as answer:
        part = (await answer.json())["result"]["artifacts"][0]["parts"][0]
    assert b64decode(part["file"]["bytes"]) == BINARY


async def test_a_file_that_is_base64_itself_is_text_unless_a_setting_says_bytes(
    connections: ServerConnections, tmp_path: Path
) -> None:
    client = V03FileClient(connections)
    await client.send(file(AMBIGUOUS))
    assert await stored_files(client) == [b64decode(AMBIGUOUS)] * 2
    (tmp_path / "bytes").mkdir()
    async with serving(tmp_path / "bytes", "bytes") as other:
        client = V03FileClient(other)
        assert await client.send(file(AMBIGUOUS), file(b64encode(BINARY))) == [AMBIGUOUS, b64encode(BINARY)]
        assert await stored_files(client) == [AMBIGUOUS, b64encode(BINARY)] * 2


@EVERY_CLIENT
async def test_a_setting_of_base64_applies_to_clients_that_sent_no_file(tmp_path: Path, binding: str) -> None:
    async with serving(tmp_path, "base64") as connections:
        client = CLIENTS[binding](connections)
        assert await client.send(v03_pb.Part(text="file")) == [b64encode(b"hello from the playground\n")]
        assert await client.get(client.task) == [b64encode(b"hello from the playground\n")]


async def test_a_setting_of_base64_rejects_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path, "base64") as connections:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"file": {"fileWithBytes": "AAH/"}}]}}
        async with connections.http.post("/playground/v1/message:send", json=body) as answer:
            assert answer.status == 422
            assert "message.parts[0].file.fileWithBytes: must be base64 text" in await answer.text()


@pytest.mark.parametrize("form", ["auto", "bytes", "base64"])
@pytest.mark.parametrize("binding", ["grpc", "rest"])
async def test_our_client_exchanges_files_with_a_server_of_either_form(
    tmp_path: Path, binding: str, form: Literal["auto", "bytes", "base64"]
) -> None:
    async with serving(tmp_path, form) as connections:
        address = str(connections.http._base_url)
        async with connect(address, dialect="0.3", binding=binding, v03_files=form) as client:
            assert [file.content for file in (await client.ask(files=[("a.bin", BINARY)])).files] == [BINARY]
        async with connect(address, dialect="0.3", binding=binding) as client:
            [shown] = (await client.ask("file")).files  # shows the form of the server
            assert shown.content == b"hello from the playground\n"
            assert [file.content for file in (await client.ask(files=[("a.bin", BINARY)])).files] == [BINARY]


@pytest.mark.parametrize("form", FORMS)
async def test_googles_webhooks_have_the_form_of_their_client(connections: ServerConnections, form: str) -> None:
    client, write = GoogleFileClient(connections), FORMS[form].write
    async with receiver() as hook:
        await client.send(file(write(BINARY)), webhook=hook.url)
        await hook.wait_for(lambda body: body["status"]["state"] == "TASK_STATE_COMPLETED")
        [last] = [body for _, body in hook.requests if body["status"]["state"] == "TASK_STATE_COMPLETED"]
    assert json.dumps(b64encode(write(BINARY)).decode()) in json.dumps(last["artifacts"])
