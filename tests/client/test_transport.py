"""Contents that the server leaves out of its responses: the client's results are whole, or it raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web
from tests.eventually import EVENTUALLY_TIMEOUT
from tests.listing import list_tasks

from dragoman import Turn, agent, types
from dragoman.calling.errors import ClientError, ServerUnavailable
from dragoman.client import Artifact, Finished, Text, connect
from dragoman.client import sync as blocking
from dragoman.client.calls import Client, message
from dragoman.client.http_client import AiohttpClient
from dragoman.core.task.blob_references import LARGE_PART_BYTES, blob_link_query
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

CHUNKS = [f"{number:07d} " + "é" * 32_000 + "\n" for number in range(6)]
TEXT = "".join(CHUNKS)
FILE = bytes(range(256)) * 1200
FOREIGN = f"https://elsewhere.example/blobs/{'ab' * 32}?{blob_link_query(b'x', 'ab' * 32, 1, 'a.bin', '')}"
assert min(len(TEXT.encode()), len(FILE)) > LARGE_PART_BYTES, "contents of this size become links"

PROTOCOLS = [("1.0", "grpc"), ("1.0", "rest"), ("1.0", "jsonrpc"), ("0.3", "rest"), ("0.3", "jsonrpc")]
EVERY = pytest.mark.parametrize(("dialect", "binding"), PROTOCOLS)


class Server(NamedTuple):
    http: str
    grpc: str
    go_on: asyncio.Event
    """Lets the agent `paused` continue."""


async def chunks(turn: Turn) -> AsyncGenerator[str, None]:
    for chunk in CHUNKS:
        yield chunk


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    go_on = asyncio.Event()

    @agent(description="Stops before its last chunk")
    async def paused(turn: Turn) -> AsyncGenerator[str, None]:
        for chunk in CHUNKS[:-1]:
            yield chunk
        await go_on.wait()
        yield CHUNKS[-1]

    @agent(description="Files, texts and links")
    async def mixed(turn: Turn) -> list[types.Part]:
        return [
            types.text(TEXT),
            types.file(FILE, name="a.bin", media_type="application/x-a"),
            types.link(FOREIGN, media_type="application/x-b"),
            types.text("end"),
        ]

    @agent(description="Replies without a task")
    async def replies(turn: Turn) -> None:
        turn.reply(TEXT)

    @agent(description="Asks")
    async def asks(turn: Turn) -> None:
        turn.ask(TEXT)

    agents: list[Agent] = [
        agent(id="streams", description="Streams")(chunks),
        agent(id="waits", description="Does not stream", streaming=False)(chunks),
        paused,
        mixed,
        asks,
        replies,
    ]
    anywhere = Address("127.0.0.1", 0)
    settings = Settings(http=anywhere, grpc=anywhere, store=f"sqlite:///{tmp_path}/tasks.db", inline_bytes=1000)
    async with open_app(settings, agents) as app:
        yield Server(f"http://{app.http}", f"grpc://{app.grpc}", go_on)
        go_on.set()


@EVERY
@pytest.mark.parametrize("name", ["streams", "waits"])
async def test_every_call_returns_the_complete_text(server: Server, dialect: str, binding: str, name: str) -> None:
    async with connect(f"{server.http}/{name}", dialect=dialect, binding=binding) as client:
        result = await client.ask("x")
        assert (result.text == TEXT, result.files) == (True, [])
        events = [event async for event in client.run("x")]
        assert "".join(event.text for event in events if isinstance(event, Text)) == TEXT
        assert isinstance(events[-1], Finished)
        assert events[-1].result.text == TEXT
        for read in (await client.get(result.task_id), await client.wait(result.task_id)):
            assert (read.text == TEXT, read.files) == (True, [])


@pytest.mark.parametrize("binding", ["grpc", "rest", "jsonrpc"])
async def test_every_task_of_a_list_is_complete(server: Server, binding: str) -> None:
    async with Client(server.grpc if binding == "grpc" else server.http, agent="streams", binding=binding) as client:
        await client.send(message("x"))
        tasks = [task async for task in list_tasks(client, artifacts=True)]
    assert [[part.text == TEXT for part in task.artifacts[0].parts] for task in tasks] == [[True]]


async def test_a_long_status_message_is_complete_in_lists(server: Server) -> None:
    async with connect(f"{server.http}/asks") as client:
        assert (await client.ask("x")).question == TEXT
        assert [task.question == TEXT async for task in client.list()] == [True]


@EVERY
async def test_a_running_task_is_followed_from_its_first_byte(server: Server, dialect: str, binding: str) -> None:
    async with connect(f"{server.http}/paused", dialect=dialect, binding=binding) as client:
        task = (await client.start("x")).task_id
        snapshot = ""
        async with asyncio.timeout(EVENTUALLY_TIMEOUT):
            while snapshot != "".join(CHUNKS[:-1]):
                snapshot = (await client.get(task)).text
        texts, artifacts = [], 0
        async with aclosing(client.follow(task)) as events:
            async for event in events:
                artifacts += isinstance(event, Artifact)
                if isinstance(event, Text):
                    texts.append(event.text)
                    server.go_on.set()
        assert isinstance(event, Finished)
    assert "".join(texts) == event.result.text == TEXT
    assert (texts[0], artifacts) == (snapshot, 1)


async def test_a_grpc_address_without_a_card_reads_contents_over_http(server: Server) -> None:
    async with connect(f"{server.grpc}/streams") as client:
        assert (await client.ask("x")).text == TEXT
        assert (await client.wait((await client.start("x")).task_id)).text == TEXT


@pytest.mark.parametrize(
    ("dialect", "binding"), [*PROTOCOLS, ("0.3", "grpc"), ("1.0", "ws"), ("0.1", "jsonrpc"), ("0.1", "ws")]
)
async def test_the_low_level_client_restores_contents_in_order(server: Server, dialect: str, binding: str) -> None:
    address = server.grpc if binding == "grpc" else server.http
    async with Client(address, agent="mixed", dialect=dialect, binding=binding) as client:
        sent = (await client.send(message("x"))).task
        for task in (sent, await client.get(sent.id)):
            parts = list(task.artifacts[0].parts)
            assert [part.WhichOneof("content") for part in parts] == ["text", "raw", "url", "text"]
            assert (parts[0].text == TEXT, parts[0].media_type, parts[3].text) == (True, "", "end")
            assert (parts[1].raw == FILE, parts[1].filename, parts[1].media_type) == (True, "a.bin", "application/x-a")
            assert parts[2].url == FOREIGN


async def test_a_link_to_another_server_stays_a_link(server: Server) -> None:
    async with connect(f"{server.http}/mixed") as client:
        files = (await client.ask("x")).files
    assert [(file.name, file.content, file.url) for file in files] == [("a.bin", FILE, ""), ("", None, FOREIGN)]


async def test_a_reply_without_a_task_is_complete(server: Server) -> None:
    async with connect(f"{server.http}/replies") as client:
        assert (await client.ask("x")).text == TEXT


async def test_the_blocking_client_returns_complete_results(server: Server) -> None:
    def calls() -> list[bool]:
        with blocking.connect(f"{server.http}/waits") as client:
            result = client.ask("x")
            events = list(client.follow(result.task_id))
            followed = "".join(event.text for event in events if isinstance(event, Text))
            return [result.text == TEXT, followed == TEXT, client.get(result.task_id).text == TEXT]

    assert await asyncio.to_thread(calls) == [True, True, True]


# Contents that cannot be read -------------------------------------------------------------------------------------


class ScriptedServer:
    """A server of one completed task, whose artifact is a link of its own; answers for contents are scripted."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[web.Request] = []
        self.answers: list[web.Response] = []
        self.reads = 0

    async def card(self, request: web.Request) -> web.Response:
        interface = {"url": self.url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        return web.json_response({"name": "a", "description": "a", "version": "1", "supportedInterfaces": [interface]})

    async def task(self, request: web.Request) -> web.Response:
        self.reads += 1
        name = "ab" * 32
        link = f"{self.url}/blobs/{name}?{blob_link_query(b'x', name, 1, '', 'text/plain; charset=utf-8')}"
        artifact = {"artifactId": "o", "parts": [{"url": link, "mediaType": "text/plain"}]}
        status = {"state": "TASK_STATE_COMPLETED"}
        return web.json_response({"id": "t", "contextId": "c", "status": status, "artifacts": [artifact]})

    async def content(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return self.answers.pop(0)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    script, app = ScriptedServer(), web.Application()
    app.router.add_get("/.well-known/agent-card.json", script.card)
    app.router.add_get("/tasks/t", script.task)
    app.router.add_get("/blobs/{name}", script.content)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield script
    await runner.cleanup()


async def test_credentials_are_not_sent_with_a_link(scripted: ScriptedServer) -> None:
    scripted.answers = [web.Response(text="whole")]
    async with connect(scripted.url, token="secret", headers={"X-Key": "secret"}) as client:
        assert (await client.get("t")).text == "whole"
    assert "secret" not in str(scripted.requests[0].headers)


async def test_an_expired_link_raises_what_the_server_said(scripted: ScriptedServer) -> None:
    scripted.answers = [web.Response(status=403, text="it has expired\n") for _ in range(3)]
    async with connect(scripted.url) as client:
        with pytest.raises(ClientError, match=r"/blobs/abab.* responded with 403: it has expired$"):
            await client.get("t")
    assert (scripted.reads, scripted.answers) == (3, [])


async def test_a_task_whose_content_was_replaced_is_read_again(scripted: ScriptedServer) -> None:
    scripted.answers = [web.Response(status=404, text="replaced"), web.Response(text="new")]
    async with connect(scripted.url) as client:
        assert (await client.get("t")).text == "new"


async def test_an_unavailable_content_is_retried_and_then_raises(scripted: ScriptedServer) -> None:
    scripted.answers = [web.Response(status=503, text="busy"), web.Response(text="whole")]
    async with connect(scripted.url) as client:
        assert (await client.get("t")).text == "whole"
    scripted.answers = [web.Response(status=503, text="busy")]
    async with connect(scripted.url, retry_timeout=0) as client:
        with pytest.raises(ServerUnavailable, match="responded with 503: busy"):
            await client.get("t")


async def test_a_grpc_client_that_cannot_reach_http_raises_and_shows_no_signature(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(f"{server.grpc}/streams", retry_timeout=0) as client:
        task = (await client.ask("x")).task_id

        def no_http(self: AiohttpClient, *_: object, **__: object) -> None:
            raise ServerUnavailable.for_address(self._url, "no route", may_have_arrived=False)

        monkeypatch.setattr(AiohttpClient, "open", no_http)
        with pytest.raises(
            ServerUnavailable, match=f"read from {server.http}/blobs/.*: {server.http}: no route"
        ) as raised:
            await client.get(task)
    assert "signature" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "responded with 302"),
        (web.Response(body=b"\xff"), "is not UTF-8"),
    ],
)
async def test_another_answer_raises(scripted: ScriptedServer, answer: web.Response, problem: str) -> None:
    scripted.answers = [answer]
    async with connect(scripted.url) as client:
        with pytest.raises(ClientError, match=problem):
            await client.get("t")
