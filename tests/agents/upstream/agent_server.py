"""A web server that says what a test wants: cards at paths of their own, and answers of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

CARD = "/.well-known/agent-card.json"
OLD_CARD = "/.well-known/agent.json"


class FakeAgentServer:
    """Servers on one port, a folder for each: `answers` by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.url = ""

    def card(self, folder: str, card: Any, *, path: str = CARD) -> str:
        """Shows a card, and gives the URL of its agent."""
        self.answers[f"/{folder}{path}"] = json(card)
        return f"{self.url}/{folder}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.read()
        self.bodies.append(orjson.loads(body) if body else None)
        found = self.answers.get(request.path)
        return web.Response(status=404) if found is None else await found(request)


def json(value: Any, status: int = 200, **headers: str) -> Answer:
    """Answers with JSON; bytes are given as they are."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **headers})

    return answer


def rpc(value: Any, *, error: bool = False) -> Answer:
    """Answers a JSON-RPC call."""

    async def answer(request: web.Request) -> web.StreamResponse:
        requested_value = orjson.loads(await request.read())
        values = {"jsonrpc": "2.0", "id": requested_value["id"], "error" if error else "result": value}
        return web.Response(body=orjson.dumps(values), headers={"Content-Type": "application/json"})

    return answer


def stream(*events: Any, hold: asyncio.Event | None = None, cut: bool = False) -> Answer:
    """Answers a JSON-RPC call with a stream of these results; `hold`: and is silent until then; `cut`: breaks off."""

    async def answer(request: web.Request) -> web.StreamResponse:
        value = orjson.loads(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            data = (
                event
                if isinstance(event, bytes)
                else orjson.dumps({"jsonrpc": "2.0", "id": value["id"], "result": event})
            )
            await response.write(b"data: " + data + b"\n\n")
        if hold is not None:
            await hold.wait()
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return answer


@asynccontextmanager
async def agent_server() -> AsyncIterator[FakeAgentServer]:
    """Such a server on loopback."""
    created = FakeAgentServer()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", created.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        created.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield created
    finally:
        await runner.cleanup()


def card(*interfaces: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    """A card of 1.0 with these interfaces: binding, version, URL."""
    return {
        "name": "Words",
        "description": "Does what a message says",
        "version": "1",
        "capabilities": {"streaming": True},
        "supportedInterfaces": [
            {"protocolBinding": binding, "protocolVersion": version, "url": url} for binding, version, url in interfaces
        ],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **fields,
    }
