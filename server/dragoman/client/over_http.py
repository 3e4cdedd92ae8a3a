"""HTTP: REST, JSON-RPC and JSON-RPC over WebSocket, in the dialects that have them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
from google.protobuf.message import Message

from dragoman.client import trust
from dragoman.client.failure import ClientError
from dragoman.client.roads import Stream, Trace
from dragoman.core.errors import A2AError
from dragoman.core.extensions import RESUME
from dragoman.wire import phrases, sse
from dragoman.wire.phrases import Phrase
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


class _Http:
    """What the roads over HTTP share: a session, and words for what goes wrong with it."""

    def __init__(
        self,
        url: str,
        dialect: str,
        agent: str,
        token: str,
        trace: Trace,
        ca: Path | None = None,
        cert: Path | None = None,
    ) -> None:
        self._base = url.rstrip("/")
        self._dialect = dialect
        self._agent = agent
        self._trace = trace
        # Streams last as long as their tasks; a connection that cannot be made is noticed all the same.
        extension = "A2A-Extensions" if dialect == "1.0" else "X-A2A-Extensions"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        encrypted = aiohttp.TCPConnector(ssl=trust.context(ca, cert)) if self._base.startswith("https:") else None
        headers = {"A2A-Version": dialect, extension: RESUME.uri}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._session = aiohttp.ClientSession(timeout=timeout, headers=headers, connector=encrypted)

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        accept: str = "application/json",
        *,
        after: str = "",
        key: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else orjson.dumps(body)
        self._trace(">", f"{method} {path}")
        if data is not None:
            self._trace(">", data.decode())
        headers = {"Accept": accept, **_carried(after, key)}
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with self._session.request(method, self._base + path, data=data, headers=headers) as response:
                self._trace("<", f"{response.status} {response.headers.get('Content-Type', '')}")
                yield response
        except aiohttp.ClientError as error:
            raise ClientError("UNAVAILABLE", f"{self._base}: {error}") from error

    async def _value(self, response: aiohttp.ClientResponse) -> Any:
        data = await response.read()
        self._trace("<", data.decode(errors="replace"))
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            said = data.decode(errors="replace").partition("\n")[0][:200]
            raise ClientError("INTERNAL", f"the answer ({response.status}) is no JSON: {said}") from error

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[Any, None]:
        parser = sse.Parser()
        async for chunk in response.content.iter_any():
            for event in parser.feed(chunk):
                self._trace("<", f"data: {event.data.decode(errors='replace')}")
                yield orjson.loads(event.data)

    def _read(self, phrase: Phrase, value: Any) -> Message:
        try:
            return phrase.read(value)
        except A2AError as error:
            raise ClientError("INTERNAL", f"the answer is not {self._dialect}: {error.message}") from error


def _carried(after: str, key: str) -> dict[str, str]:
    """The headers of a cursor and a key, if there are any."""
    given = {"Last-Event-ID": after, "Idempotency-Key": key}
    return {name: value for name, value in given.items() if value}


def _streamed(message: Message) -> pb.StreamResponse:
    assert isinstance(message, pb.StreamResponse)
    return message


class JsonRpcRoad(_Http):
    """JSON-RPC over HTTP. Implements `Road`."""

    async def call(self, rpc: str, request: Message, *, key: str = "") -> Message:
        phrase = self._phrase(rpc)
        async with self._request("POST", self._path, self._envelope(phrase, request), key=key) as response:
            value = await self._value(response)
            _check_allowed(response, value)
        return self._read(phrase, _result(value))

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "") -> Stream:
        phrase = self._phrase(rpc)
        body = self._envelope(phrase, request)
        async with self._request(
            "POST", self._path, body, accept="text/event-stream", after=after, key=key
        ) as response:
            if response.content_type != "text/event-stream":
                value = await self._value(response)
                _check_allowed(response, value)
                _result(value)
                raise ClientError("INTERNAL", "the answer is no stream")
            async for value in self._events(response):
                yield _streamed(self._read(phrase, _result(value)))

    @property
    def _path(self) -> str:
        return f"/{self._agent}" if self._agent else "/"

    def _phrase(self, rpc: str) -> Phrase:
        phrase = phrases.JSONRPC[self._dialect].get(rpc)
        if phrase is None:
            raise ClientError("UNIMPLEMENTED", f"{self._dialect} has no {rpc} over JSON-RPC")
        return phrase

    def _envelope(self, phrase: Phrase, request: Message) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": phrase.name, "params": phrase.write(request)}


class WebSocketRoad(JsonRpcRoad):
    """JSON-RPC over WebSocket, a connection for each call. Implements `Road`."""

    async def call(self, rpc: str, request: Message, *, key: str = "") -> Message:
        phrase = self._phrase(rpc)
        async for value in self._answers(self._envelope(phrase, request), key=key):
            return self._read(phrase, _result(value))
        raise ClientError("UNAVAILABLE", "the connection closed without an answer")

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "") -> Stream:
        phrase = self._phrase(rpc)
        async for value in self._answers(self._envelope(phrase, request), after=after, key=key):
            result = _result(value)
            if result == {"status": "stream_complete"}:
                return
            yield _streamed(self._read(phrase, result))

    async def _answers(self, envelope: dict[str, Any], *, after: str = "", key: str = "") -> AsyncGenerator[Any, None]:
        path = f"{self._path.rstrip('/')}/ws"
        self._trace(">", f"WebSocket {path}")
        try:
            async with self._session.ws_connect(
                self._base + path, max_msg_size=0, headers=_carried(after, key)
            ) as socket:
                text = orjson.dumps(envelope).decode()
                self._trace(">", text)
                await socket.send_str(text)
                async for frame in socket:
                    if frame.type is aiohttp.WSMsgType.TEXT:
                        self._trace("<", frame.data)
                        yield orjson.loads(frame.data)
        except aiohttp.WSServerHandshakeError as error:
            if refused := _REFUSALS.get(error.status):
                raise ClientError(refused, "the server refused these credentials, or none", reason=refused) from error
            raise ClientError("UNAVAILABLE", f"{self._base}: {error}") from error
        except aiohttp.ClientError as error:
            raise ClientError("UNAVAILABLE", f"{self._base}: {error}") from error


_REFUSALS: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
"""What a status says of who calls; 0.x has no numbers for it."""


def _check_allowed(response: aiohttp.ClientResponse, value: Any) -> None:
    if refused := _REFUSALS.get(response.status):
        error = value.get("error") if isinstance(value, dict) else None
        said = error.get("message") if isinstance(error, dict) else None
        raise ClientError(refused, str(said or "no reason given"), reason=refused)


def _result(value: Any) -> Any:
    if isinstance(value, dict) and "error" in value:
        raise ClientError.of_json(value["error"])
    if not isinstance(value, dict) or "result" not in value:
        raise ClientError("INTERNAL", "the answer is no JSON-RPC")
    return value["result"]


# REST ------------------------------------------------------------------------------------------------------


class RestRoad(_Http):
    """REST. Implements `Road`."""

    async def call(self, rpc: str, request: Message, *, key: str = "") -> Message:
        phrase, method, path, body = self._plan(rpc, request)
        async with self._request(method, path, body, key=key) as response:
            value = await self._value(response)
            if response.status >= 400:
                raise ClientError.of_json(value.get("error", {}) if isinstance(value, dict) else {})
        return self._read(phrase, value)

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "") -> Stream:
        phrase, method, path, body = self._plan(rpc, request)
        async with self._request(method, path, body, accept="text/event-stream", after=after, key=key) as response:
            if response.content_type != "text/event-stream":
                value = await self._value(response)
                raise ClientError.of_json(value.get("error", {}) if isinstance(value, dict) else {})
            async for value in self._events(response):
                if isinstance(value, dict) and "error" in value:
                    raise ClientError.of_json(value["error"])
                yield _streamed(self._read(phrase, value))

    def _plan(self, rpc: str, request: Message) -> phrases.RestCall:
        return phrases.rest(self._dialect, rpc, request, self._agent)
