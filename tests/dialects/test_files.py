"""Binary files of 0.3 over gRPC and REST: bytes by the proto, base64 text for callers and servers that say so."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dialects.dialect_clients import AGENT, ServerConnections, open_connections, sse
from tests.dialects.push_clients import receiver

from dragoman import Turn, agent
from dragoman.client import ClientError, connect
from dragoman.core.cards.agent_spec import BASE64_FILES_EXTENSION
from dragoman.playground import playground
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wire.dialects import json_proto
from dragoman.wire.json import protojson
from dragoman.wiring.app import open_app
from dragoman_pb.a2a.v1 import a2a_pb2 as v03_pb
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

BINARY = bytes(range(256))
AMBIGUOUS = b"test"
"""A file that is base64 itself."""


MEDIA_TYPE = r"[a-z]{1,9}/[a-z0-9.+-]{1,20}"
EXTENSION = {"X-A2A-Extensions": BASE64_FILES_EXTENSION.uri}


class V03FileClient:
    """Sends and reads files of 0.3 over gRPC. All methods return what `file_with_bytes` holds.

    `base64`: activates the extension for base64 text.
    """

    tenant = "playground"

    def __init__(self, connections: ServerConnections, *, base64: bool = False) -> None:
        self.connections = connections
        self.headers = EXTENSION if base64 else {}
        self.metadata = tuple((name.lower(), value) for name, value in self.headers.items())
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
        task: v03_pb.Task = (await self.connections.v03.SendMessage(request, metadata=self.metadata)).task
        return task

    async def stream(self, *parts: v03_pb.Part) -> list[bytes]:
        """The files of all events of a stream."""
        events = self.connections.v03.SendStreamingMessage(self.request(parts, "", ""), metadata=self.metadata)
        return [file async for event in events for file in files_in(event)]

    async def get(self, task: str) -> list[bytes]:
        """The files in a task: those of its artifacts, and of its first message."""
        request = v03_pb.GetTaskRequest(tenant=self.tenant, name=f"tasks/{task}")
        return files_in(await self.connections.v03.GetTask(request, metadata=self.metadata))

    async def subscribe(self, task: str) -> list[bytes]:
        """The files in the first event of a subscription."""
        request = v03_pb.TaskSubscriptionRequest(tenant=self.tenant, name=f"tasks/{task}")
        async for event in self.connections.v03.TaskSubscription(request, metadata=self.metadata):
            return files_in(event)
        raise AssertionError("there is no event")


class ResourceFileClient(V03FileClient):
    tenant = AGENT


class V03RestFileClient(V03FileClient):
    """The same over REST."""

    base = "/playground/v1"

    async def send_request(self, request: v03_pb.SendMessageRequest) -> v03_pb.Task:
        sent: v03_pb.SendMessageResponse = parse(v03_pb.SendMessageResponse, await self.post("/message:send", request))
        return sent.task

    async def post(self, path: str, request: v03_pb.SendMessageRequest) -> Any:
        async with self.connections.http.post(self.base + path, json=to_json(request), headers=self.headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def stream(self, *parts: v03_pb.Part) -> list[bytes]:
        body = to_json(self.request(parts, "", ""))
        async with self.connections.http.post(
            f"{self.base}/message:stream?alt=sse", json=body, headers=self.headers
        ) as answer:
            return [file async for event in sse(answer) for file in files_in(parse(v03_pb.StreamResponse, event))]

    async def get(self, task: str) -> list[bytes]:
        async with self.connections.http.get(f"{self.base}/tasks/{task}", headers=self.headers) as answer:
            return files_in(parse(v03_pb.Task, await answer.json()))

    async def subscribe(self, task: str) -> list[bytes]:
        async with self.connections.http.get(
            f"{self.base}/tasks/{task}:subscribe?alt=sse", headers=self.headers
        ) as answer:
            async for event in sse(answer):
                return files_in(parse(v03_pb.StreamResponse, event))
        raise AssertionError("there is no event")


class RootRestFileClient(V03RestFileClient):
    base = "/v1"


class GoogleFileClient(V03RestFileClient):
    tenant = AGENT
    base = f"/v1/{AGENT}/a2a/v1"


class ShortGoogleFileClient(GoogleFileClient):
    base = f"/v1/{AGENT}"


CLIENTS: dict[str, type[V03FileClient]] = {
    "gRPC": V03FileClient,
    "gRPC, resource name": ResourceFileClient,
    "REST": V03RestFileClient,
    "REST, root": RootRestFileClient,
    "Google REST": GoogleFileClient,
    "Google REST, short path": ShortGoogleFileClient,
}
EVERY_CLIENT = pytest.mark.parametrize("binding", CLIENTS)
BASE64_CLIENTS = pytest.mark.parametrize("binding", [name for name, kind in CLIENTS.items() if kind.tenant != AGENT])
EVERY_RESOURCE_CLIENT = pytest.mark.parametrize(
    "binding", [name for name, kind in CLIENTS.items() if kind.tenant == AGENT]
)


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


def file(content: bytes, media_type: str = "application/octet-stream") -> v03_pb.Part:
    return v03_pb.Part(file=v03_pb.FilePart(file_with_bytes=content, mime_type=media_type))


async def stored_files(client: V03FileClient) -> list[bytes]:
    """The files of the client's last task as 1.0 shows them: first those of its artifacts."""
    request = pb.GetTaskRequest(tenant=client.tenant, id=client.task)
    shown: pb.Task = await client.connections.v1.GetTask(request)
    parts = [*(part for artifact in shown.artifacts for part in artifact.parts), *shown.history[0].parts]
    return [part.raw for part in parts if part.HasField("raw")]


@asynccontextmanager
async def serving(
    folder: Path, v03_files: Literal["bytes", "base64"] = "bytes", served: Agent = playground
) -> AsyncIterator[ServerConnections]:
    any_port = Address("127.0.0.1", 0)
    options = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{folder}/tasks.db", v03_files=v03_files)
    async with open_app(options, [served]) as app, open_connections(str(app.http), str(app.grpc)) as connections:
        yield connections


@agent(id="playground", input_modes=["*/*"])
async def echo(turn: Turn) -> list[pb.Part]:
    return list(turn.message.parts)


PNG = b"\x89PNG\r\n\x1a\n\0\0"
files_of_any_kind = st.builds(
    file,
    st.binary(max_size=40) | st.binary(max_size=40).map(b64encode) | st.sampled_from([b"test", PNG, b64encode(PNG)]),
    st.sampled_from(["", "text/plain", "image/png", "application/octet-stream"])
    | st.from_regex(MEDIA_TYPE, fullmatch=True),
)


@EVERY_CLIENT
async def test_what_a_caller_sends_by_the_proto_is_what_the_agent_and_the_caller_get(
    tmp_path: Path, binding: str
) -> None:
    async with serving(tmp_path, served=echo) as connections:
        await asyncio.to_thread(exchange_files, CLIENTS[binding](connections), asyncio.get_running_loop())


def exchange_files(client: V03FileClient, loop: asyncio.AbstractEventLoop) -> None:
    @settings(max_examples=100, deadline=None)
    @given(parts=st.lists(files_of_any_kind, min_size=1, max_size=3))
    def exchange(parts: list[v03_pb.Part]) -> None:
        asyncio.run_coroutine_threadsafe(check(parts), loop).result()

    async def check(parts: list[v03_pb.Part]) -> None:
        contents = [part.file.file_with_bytes for part in parts]
        assert await client.send(*parts) == contents
        assert await stored_files(client) == contents * 2
        assert await client.get(client.task) == contents * 2
        assert await client.stream(*parts) == contents * 2

    exchange()


@BASE64_CLIENTS
async def test_a_client_of_base64_text_activates_the_extension_and_has_it_both_ways(
    connections: ServerConnections, binding: str
) -> None:
    client = CLIENTS[binding](connections, base64=True)
    files = await client.send(file(b64encode(BINARY)), file(b""), file(b64encode(b"plain text")))
    assert [b64decode(item, validate=True) for item in files] == [BINARY, b"", b"plain text"]
    assert await stored_files(client) == [BINARY, b"", b"plain text"] * 2
    for again in (await client.get(client.task), await client.subscribe(client.task)):
        assert [b64decode(item, validate=True) for item in again] == [BINARY, b"", b"plain text"] * 2
    assert await client.stream(file(b64encode(BINARY))) == [b64encode(BINARY)] * 2
    assert await client.send(v03_pb.Part(text="file")) == [b64encode(b"hello from the playground\n")]


@EVERY_RESOURCE_CLIENT
async def test_resource_paths_have_bytes_whatever_is_set(tmp_path: Path, binding: str) -> None:
    async with serving(tmp_path, "base64") as connections:
        client = CLIENTS[binding](connections, base64=True)
        assert await client.send(file(AMBIGUOUS), file(BINARY)) == [AMBIGUOUS, BINARY]
        assert await stored_files(client) == [AMBIGUOUS, BINARY] * 2
        assert await client.get(client.task) == [AMBIGUOUS, BINARY] * 2


async def test_readers_of_other_dialects_get_the_file(connections: ServerConnections) -> None:
    client = V03RestFileClient(connections, base64=True)
    await client.send(file(b64encode(BINARY)))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": client.task}}
    async with connections.http.post("/playground", json=call) as answer:
        part = (await answer.json())["result"]["artifacts"][0]["parts"][0]
    assert b64decode(part["file"]["bytes"]) == BINARY


@BASE64_CLIENTS
async def test_a_setting_of_base64_applies_to_all_clients(tmp_path: Path, binding: str) -> None:
    async with serving(tmp_path, "base64") as connections:
        client = CLIENTS[binding](connections)
        assert await client.send(file(b64encode(BINARY))) == [b64encode(BINARY)]
        assert await stored_files(client) == [BINARY] * 2
        assert await client.send(v03_pb.Part(text="file")) == [b64encode(b"hello from the playground\n")]
        assert await client.get(client.task) == [b64encode(b"hello from the playground\n")]


async def test_a_setting_of_base64_rejects_bytes(tmp_path: Path) -> None:
    async with serving(tmp_path, "base64") as connections:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"file": {"fileWithBytes": "AAH/"}}]}}
        async with connections.http.post("/playground/v1/message:send", json=body) as answer:
            assert answer.status == 422
            assert "message.content[0].file.fileWithBytes: must be base64 text" in await answer.text()


@pytest.mark.parametrize("form", ["bytes", "base64"])
@pytest.mark.parametrize("binding", ["grpc", "rest"])
async def test_our_client_exchanges_files_with_a_server_of_either_form(
    tmp_path: Path, binding: str, form: Literal["bytes", "base64"]
) -> None:
    async with serving(tmp_path, form) as connections:
        address = str(connections.http._base_url)
        async with connect(address, dialect="0.3", binding=binding, v03_files=form) as client:
            for content in (BINARY, AMBIGUOUS):
                assert [file.content for file in (await client.ask(files=[("a.bin", content)])).files] == [content]
            [shown] = (await client.ask("file")).files
            assert shown.content == b"hello from the playground\n"


@asynccontextmanager
async def v03_card(transport: str, address: str) -> AsyncIterator[str]:
    """Serves a card of 0.3 that names one interface and no extension, as SDKs of 0.3 do. Yields its address."""

    async def show(request: web.BaseRequest) -> web.Response:
        modes = {"defaultInputModes": ["*/*"], "defaultOutputModes": ["*/*"]}
        about = {"name": "Echo", "description": "-", "version": "1", "skills": [], "capabilities": {}, **modes}
        return web.json_response({**about, "protocolVersion": "0.3.0", "preferredTransport": transport, "url": address})

    runner = web.ServerRunner(web.Server(show))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("transport", ["GRPC", "HTTP+JSON"])
async def test_an_agent_of_0_3_without_jsonrpc_is_sent_base64_text_unless_it_is_set_to_bytes(
    tmp_path: Path, transport: str
) -> None:
    any_port = Address("127.0.0.1", 0)
    options = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/tasks.db", v03_files="base64")
    async with open_app(options, [playground]) as behind:
        address = str(behind.grpc) if transport == "GRPC" else behind.http.url
        async with v03_card(transport, address) as url:
            async with connect(url) as client:
                assert [file.content for file in (await client.ask(files=[("a.bin", BINARY)])).files] == [BINARY]
            with pytest.raises(ClientError, match="must be base64 text"):
                async with connect(url, v03_files="bytes") as client:
                    await client.ask(files=[("a.bin", BINARY)])
            front = Settings(
                http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/front.db", upstream=f"echo={url}"
            )
            async with open_app(front, []) as app, connect(app.http.url) as client:
                assert [file.content for file in (await client.ask(files=[("a.bin", BINARY)])).files] == [BINARY]


async def test_googles_webhooks_have_the_file(connections: ServerConnections) -> None:
    client = GoogleFileClient(connections)
    async with receiver() as hook:
        await client.send(file(AMBIGUOUS), webhook=hook.url)
        await hook.wait_for(lambda body: body["status"]["state"] == "TASK_STATE_COMPLETED")
        [last] = [body for _, body in hook.requests if body["status"]["state"] == "TASK_STATE_COMPLETED"]
    assert json.dumps(b64encode(AMBIGUOUS).decode()) in json.dumps(last["artifacts"])
