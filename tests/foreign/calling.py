"""Checks of our client library on a foreign agent with the playground's commands (`Completions`).

    calling.py --url URL --title TITLE [--without stream,message,...] [--files base64]

Runs in the project's environment; `called` starts it from the agent's. The second half uses a proxy that cuts each
connection after a while: these servers have no cursors, and the client finds missed events by polling the task.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from checks import Checks, raises

HERE = Path(__file__).resolve().parent

CUT_SECONDS, ENOUGH_BYTES = 0.25, 500
"""A connection is cut when it has carried its answer for so long, and more bytes than a client needs to get further."""

check = Checks()
"""Checks over a working connection."""

broken = Checks()
"""Checks over connections that break."""


def called(project: str, url: str, title: str, *without: str, files: str = "bytes") -> bool:
    """Runs this file in the project's environment against the agent at `url`. Returns whether all checks passed.

    `files`: the form in which the agent has files in 0.3 over gRPC and HTTP+JSON.
    """
    command = [f"{project}/.venv/bin/python", str(HERE / "calling.py"), "--url", url, "--title", title]
    command += ["--files", files]
    sys.stdout.flush()
    return subprocess.call([*command, *(["--without", ",".join(without)] if without else [])]) == 0


class Agent:
    """The agent, and the features that it lacks."""

    def __init__(self, client, without):
        self.client = client
        self.without = without


@check
async def echo(agent: Agent) -> None:
    result = await agent.client.ask("echo hello")
    assert (result.text, result.state) == ("hello", "COMPLETED"), result


@check
async def each_chunk_comes_once(agent: Agent) -> None:
    chunks = []
    async for event in agent.client.run("stream 5 20"):
        chunks += [event.text] if type(event).__name__ == "Text" and event.artifact_id else []
    assert "".join(chunks) == "chunk-1 chunk-2 chunk-3 chunk-4 chunk-5 ", chunks
    assert "stream" in agent.without or len(chunks) == 5, chunks
    assert event.ok
    assert event.result.text == "".join(chunks), event.result.text


@check
async def a_question_is_answered_in_the_same_task(agent: Agent) -> None:
    if "ask" in agent.without:
        return
    result = await agent.client.ask("ask", answer=lambda question: f"not {question.text}")
    assert result.text == "you said: not what would you like to say?", result
    paused = await agent.client.ask("ask")
    assert paused.question == "what would you like to say?", paused
    assert (await agent.client.ask("blue", task=paused.task_id)).text == "you said: blue"


@check
async def a_failure_is_raised(agent: Agent) -> None:
    from dragoman.client import TaskFailed

    await raises(TaskFailed, agent.client.ask("fail"))


@check
async def a_message_alone_is_an_answer(agent: Agent) -> None:
    if "message" not in agent.without:
        result = await agent.client.ask("reply hello")
        assert (result.text, result.task_id) == ("hello", ""), result


@check
async def a_file_and_a_value_come_whole(agent: Agent) -> None:
    (file,) = (await agent.client.ask("file")).files
    if "names" not in agent.without:
        assert (file.name, file.media_type) == ("hello.txt", "text/plain"), file
    assert file.content == b"hello from the playground\n", file.content
    assert (await agent.client.ask("data")).data["numbers"] == [1, 2, 3]


@check
async def a_binary_file_goes_there_and_back(agent: Agent) -> None:
    if "upload" in agent.without:
        return
    content = bytes(range(256))
    result = await agent.client.ask(files=[("x.txt", content)])
    assert [file.content for file in result.files] == [content], result


@check
async def a_task_is_left_and_canceled(agent: Agent) -> None:
    from dragoman.client import NotFound, TaskFailed

    await raises(NotFound, agent.client.get("none"))
    if "cancel" in agent.without:
        return
    begun = await agent.client.start("sleep 600")
    assert not begun.is_over, begun
    async with aclosing(agent.client.follow(begun.task_id)) as events:
        async for event in events:
            if event.raw.task.status.state == 2 or getattr(event, "state", "") == "WORKING":
                break
    await agent.client.cancel(begun.task_id)
    failed = None
    try:
        await agent.client.wait(begun.task_id)
    except TaskFailed as error:
        failed = error.result.state
    assert failed == "CANCELED", failed


@broken
async def a_broken_stream_is_resumed(agent: Agent) -> None:
    chunks = []
    async for event in agent.client.run("stream 40 20"):
        chunks += [event.text] if type(event).__name__ == "Text" and event.artifact_id else []
        if getattr(
            event, "replaces", False
        ):  # a subscription of a2a-sdk may stream a chunk that its first Task contains
            chunks.clear()
    assert "".join(chunks) == "".join(f"chunk-{n} " for n in range(1, 41)), chunks
    assert event.result.text == "".join(chunks)


class Flaky:
    """A TCP proxy that cuts each connection after a while, when it has brought the client further."""

    def __init__(self, host: str, port: int) -> None:
        self.to = (host, port)
        self.cut = 0
        self.tasks = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        there, back = await asyncio.open_connection(*self.to)
        asking = asyncio.create_task(self.carry(reader, back))
        answering = asyncio.create_task(self.carry(there, writer, break_after=CUT_SECONDS))
        try:
            await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
            self.cut += answering.done() and answering.exception() is not None
        finally:
            asking.cancel()
            answering.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)
            writer.transport.abort()
            back.transport.abort()

    @staticmethod
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, break_after: float = math.inf) -> None:
        """break_after: seconds since the first bytes, after which ConnectionError is raised if enough were carried."""
        loop, begun, carried = asyncio.get_running_loop(), 0.0, 0
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
            begun, carried = begun or loop.time(), carried + len(data)
            if carried > ENOUGH_BYTES and loop.time() - begun > break_after:
                raise ConnectionResetError


@asynccontextmanager
async def through_a_bad_connection(url: str) -> AsyncIterator[tuple[str, Flaky]]:
    """The URL of the agent's card through the proxy."""
    import aiohttp
    from aiohttp import web

    async with aiohttp.ClientSession() as session:
        headers = {"A2A-Version": "1.0"}
        async with session.get(f"{url}/.well-known/agent-card.json", headers=headers) as answer:
            card = await answer.text()
            if answer.status != 200:
                async with session.get(f"{url}/.well-known/agent-card.json") as again:
                    card = await again.text()
    from dragoman.wire.cards import remote_card

    interface = remote_card.parse_card(card.encode(), url).interfaces[0]
    place = urlsplit(interface.url if "://" in interface.url else f"//{interface.url}")
    proxy = Flaky(place.hostname, place.port)
    server = await asyncio.start_server(proxy.take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    document = card.replace(f"127.0.0.1:{place.port}", f"127.0.0.1:{port}")

    async def shown(request: web.Request) -> web.Response:
        return web.Response(text=document, content_type="application/json")

    application = web.Application()
    application.router.add_get("/.well-known/agent-card.json", shown)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", proxy
    finally:
        server.close()
        for task in proxy.tasks:
            task.cancel()
        await runner.cleanup()


async def main() -> bool:
    from dragoman.client import connect

    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--title", required=True)
    parser.add_argument("--without", default="")
    parser.add_argument("--files", default="bytes")
    given = parser.parse_args()
    without = given.without.split(",")
    async with connect(given.url, v03_files=given.files) as client:
        good = await check.run(f"dragoman.client, {given.title}", Agent(client, without))
    if "restart" not in without:
        async with through_a_bad_connection(given.url) as (url, proxy), connect(url, v03_files=given.files) as client:
            good &= await broken.run(f"dragoman.client, {given.title}", Agent(client, without))
            print("ok" if proxy.cut else "FAIL", f" dragoman.client, {given.title}: it was cut {proxy.cut} times")
            good &= bool(proxy.cut)
    return good


if __name__ == "__main__":
    sys.exit(not asyncio.run(main()))
