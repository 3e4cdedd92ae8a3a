"""A scripted web server: cards at chosen paths, and responses of any kind."""

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
    """Several agents on one port, by path. `answers`: handlers by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[web.Request] = []
        self.bodies: list[Any] = []
        self.url = ""

    def card(self, folder: str, card: Any, *, path: str = CARD) -> str:
        """Serves a card, and returns the URL of its agent."""
        self.answers[f"/{folder}{path}"] = json(card)
        return f"{self.url}/{folder}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.read()
        self.bodies.append(orjson.loads(body) if body else None)
        found = self.answers.get(request.path)
        return web.Response(status=404) if found is None else await found(request)


def json(value: Any, status: int = 200, **headers: str) -> Answer:
    """Responds with JSON; bytes are sent unchanged."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **headers})

    return answer


def rpc(value: Any, *, error: bool = False) -> Answer:
    """Responds to a JSON-RPC call."""

    async def answer(request: web.Request) -> web.StreamResponse:
        request_body = orjson.loads(await request.read())
        envelope = {"jsonrpc": "2.0", "id": request_body["id"], "error" if error else "result": value}
        return web.Response(body=orjson.dumps(envelope), headers={"Content-Type": "application/json"})

    return answer


def stream(*events: Any, hold: asyncio.Event | None = None, cut: bool = False) -> Answer:
    """Responds to a JSON-RPC call with a stream. `hold`: then waits for the event; `cut`: then breaks off."""

    async def answer(request: web.Request) -> web.StreamResponse:
        request_body = orjson.loads(await request.read())
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            data = (
                event
                if isinstance(event, bytes)
                else orjson.dumps({"jsonrpc": "2.0", "id": request_body["id"], "result": event})
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
    """A fake agent server on loopback."""
    server = FakeAgentServer()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


def card(*interfaces: tuple[str, str, str], **fields: Any) -> dict[str, Any]:
    """A 1.0 card with these interfaces: (binding, version, URL)."""
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
