"""A server with raw HTTP requests, for tests of the protocol pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
from tests.dialects.dialect_clients import ServerConnections, open_connections, sse

from dragoman import Turn, agent
from dragoman.playground import playground
from dragoman.ports import Agent
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app

DOCS: Final = Path(__file__).parents[2] / "docs"
TENANT: Final = "projects/p/locations/l/collections/c/engines/e/assistants/a/agents/playground"
JSON: Final = {"Content-Type": "application/json"}


@agent(streaming=False)
async def still(turn: Turn) -> str:
    return turn.text


@agent(extensions=[{"uri": "https://x.example/needed", "required": True}])
async def strict(turn: Turn) -> str:
    return turn.text


class Page:
    """A page of docs/reference/protocol."""

    def __init__(self, name: str) -> None:
        self.text = " ".join((DOCS / "reference" / "protocol" / name).read_text("utf-8").split())

    def says(self, sentence: str) -> None:
        assert " ".join(sentence.split()) in self.text, f"the page does not have: {sentence}"


class Answer(NamedTuple):
    status: int
    headers: Any
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        return str(self.json["error"]["details"][0]["reason"])


class ProtocolClient:
    """Sends raw requests to a server."""

    def __init__(self, server_connections: ServerConnections) -> None:
        self.http: aiohttp.ClientSession = server_connections.http

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers={**JSON, **headers}) as answer:
            return Answer(answer.status, answer.headers, await answer.text())

    async def call(self, method: str, params: Any = None, path: str = "/", **headers: str) -> Any:
        """Returns the response body of a JSON-RPC call, whose status is always 200."""
        answer = await self.ask(
            "POST", path, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, **headers
        )
        assert answer.status == 200
        return answer.json

    async def code(self, method: str, params: Any = None, path: str = "/", **headers: str) -> int:
        return int((await self.call(method, params, path, **headers))["error"]["code"])

    async def events(self, method: str, path: str, body: Any = None) -> list[Any]:
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, path, data=data, headers=JSON) as answer:
            return [event async for event in sse(answer)]

    async def stream(self, method: str, params: Any, path: str = "/") -> list[Any]:
        return await self.events("POST", path, {"jsonrpc": "2.0", "id": 7, "method": method, "params": params})

    async def task(self, text: str = "hello", **message: Any) -> Any:
        return (await self.call("SendMessage", {"message": v1(text, **message)}))["result"]["task"]


@asynccontextmanager
async def served(tmp_path: Path, **settings: Any) -> AsyncIterator[ProtocolClient]:
    anywhere = Address("127.0.0.1", 0)
    store = f"sqlite:///{tmp_path}/tasks.db"
    agents: list[Agent] = [playground, still, strict]
    serving = open_app(Settings(http=anywhere, grpc=anywhere, store=store, **settings), agents)
    async with serving as app, open_connections(str(app.http), str(app.grpc)) as server_connections:
        yield ProtocolClient(server_connections)


def v1(text: str, **more: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **more}


def v03(text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}], **more}


def c(text: str, **more: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}], **more}


def v01(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "text": text}]}
