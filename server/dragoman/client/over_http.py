"""HTTP: REST, JSON-RPC and JSON-RPC over WebSocket, in the dialects that have them."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
from google.protobuf.message import Message

from dragoman.client import trust
from dragoman.client.failure import ClientError, Invalid, Nonsense, NotAllowed, NotSupported, Unreachable
from dragoman.client.roads import Means, Stream
from dragoman.core import trace as traces
from dragoman.core.errors import A2AError
from dragoman.wire import complaints, phrases, sse
from dragoman.wire.phrases import Phrase
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SSE: Final = "text/event-stream"

EVENT_BYTES: Final = 1 << 30
"""Bytes of one event: the server decides how much is too much."""


class Said(NamedTuple):
    """What a call carries beside its request."""

    after: str = ""
    key: str = ""
    parent: str = ""
    waits: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a cursor, a key and a trace context, if there are any."""
        given = {"Last-Event-ID": self.after, "Idempotency-Key": self.key, traces.HEADER: self.parent}
        return {name: value for name, value in given.items() if value}


NOTHING: Final = Said()


class _Http:
    """What the roads over HTTP share: a session, and words for what goes wrong with it."""

    def __init__(self, url: str, dialect: str, agent: str, means: Means) -> None:
        self._base = url.rstrip("/")
        self._dialect = dialect
        self._agent = agent
        self._trace = means.trace
        # Streams last as long as their tasks; a connection that cannot be made is noticed all the same.
        extension = "A2A-Extensions" if dialect == "1.0" else "X-A2A-Extensions"
        self._waiting = aiohttp.ClientTimeout(total=None, sock_connect=10)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=means.idle)
        tls = trust.context(means.ca, means.cert) if self._base.startswith("https:") else True
        connector = aiohttp.TCPConnector(ssl=tls, socket_factory=_kept_alive)
        headers = {"A2A-Version": dialect, extension: means.extensions, **means.shown}
        self._session = aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector)

    async def close(self) -> None:
        await self._session.close()

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Any = None, accept: str = "application/json", *, said: Said = NOTHING
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else orjson.dumps(body)
        self._trace(">", f"{method} {path}")
        if data is not None:
            self._trace(">", data.decode())
        headers = {"Accept": accept, **said.headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        # What is not asked for as a stream may be answered when its task has ended.
        limit = self._waiting if said.waits else self._session.timeout
        try:
            async with self._session.request(
                method, self._base + path, data=data, headers=headers, timeout=limit, allow_redirects=False
            ) as response:
                self._trace("<", f"{response.status} {response.headers.get('Content-Type', '')}")
                if 300 <= response.status < 400:
                    to = response.headers.get("Location", "")[:500]
                    raise Nonsense(f"{self._base}: answered with a redirect ({response.status}) to {to}; call that")
                yield response
        except aiohttp.ClientError as error:
            raise away(self._base, error) from error

    async def _value(self, response: aiohttp.ClientResponse) -> Any:
        """The JSON of an answer. Raises ClientError for an answer that is none, of the kind that its status says."""
        data = await response.read()
        self._trace("<", data.decode(errors="replace"))
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if response.status >= 400:
                raise ClientError.of_answer(response.status, response.headers, None) from error
            said = data.decode(errors="replace").partition("\n")[0][:200]
            raise Nonsense(f"the answer ({response.status}) is no JSON: {said}") from error

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[Any, None]:
        parser = sse.Parser(limit=EVENT_BYTES)
        async for chunk in response.content.iter_any():
            try:
                found = parser.feed(chunk)
            except A2AError as error:
                raise Nonsense(f"{self._base}: {error.message}") from error
            for event in found:
                self._trace("<", f"data: {event.data.decode(errors='replace')}")
                try:
                    yield orjson.loads(event.data)
                except orjson.JSONDecodeError as error:
                    raise Nonsense(f"{self._base}: an event of the stream is no JSON") from error

    def _read(self, phrase: Phrase, value: Any) -> Message:
        try:
            return phrase.read(value)
        except A2AError as error:
            raise Nonsense(f"the answer is not {self._dialect}: {error.message}") from error


def _streamed(message: Message) -> pb.StreamResponse:
    assert isinstance(message, pb.StreamResponse)
    return message


class JsonRpcRoad(_Http):
    """JSON-RPC over HTTP. Implements `Road`."""

    def __init__(self, url: str, dialect: str, agent: str, means: Means, *, exact: bool = False) -> None:
        """`exact`: the URL is where to post, whatever the agent; else it is that of the server."""
        super().__init__(url, dialect, agent, means)
        self._at = "" if exact else f"/{agent}" if agent else "/"
        self._base = url if exact else self._base

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase = self._phrase(rpc)
        said = Said(key=key, parent=parent, waits=rpc == "SendMessage")
        async with self._request("POST", self._path, self._envelope(phrase, request), said=said) as response:
            value = await self._value(response)
            _check_allowed(response, value)
            return self._read(phrase, _result(value, response))

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "") -> Stream:
        phrase = self._phrase(rpc)
        body = self._envelope(phrase, request)
        said = Said(after, key, parent)
        async with self._request("POST", self._path, body, SSE, said=said) as response:
            if response.content_type != SSE:
                # A refusal, or all that there is to say in one piece.
                value = await self._value(response)
                _check_allowed(response, value)
                yield _streamed(self._read(phrase, _result(value, response)))
                return
            async with aclosing(self._events(response)) as events:
                async for value in events:
                    yield _streamed(self._read(phrase, _result(value)))

    @property
    def _path(self) -> str:
        return self._at

    def _phrase(self, rpc: str) -> Phrase:
        phrase = phrases.JSONRPC[self._dialect].get(rpc)
        if phrase is None:
            raise NotSupported("UNIMPLEMENTED", f"{self._dialect} has no {rpc} over JSON-RPC")
        return phrase

    def _envelope(self, phrase: Phrase, request: Message) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": phrase.name, "params": phrase.write(request)}


class WebSocketRoad(JsonRpcRoad):
    """JSON-RPC over WebSocket, a connection for each call. Implements `Road`."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase = self._phrase(rpc)
        async with aclosing(self._answers(self._envelope(phrase, request), Said(key=key, parent=parent))) as answers:
            async for value in answers:
                return self._read(phrase, _result(value))
        raise Unreachable.at(self._base, "the connection closed without an answer")

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "") -> Stream:
        phrase = self._phrase(rpc)
        async with aclosing(self._answers(self._envelope(phrase, request), Said(after, key, parent))) as answers:
            async for value in answers:
                result = _result(value)
                if result == {"status": "stream_complete"}:
                    return
                yield _streamed(self._read(phrase, result))

    async def _answers(self, envelope: dict[str, Any], said: Said) -> AsyncGenerator[Any, None]:
        path = f"{self._path.rstrip('/')}/ws"
        self._trace(">", f"WebSocket {path}")
        try:
            async with self._session.ws_connect(self._base + path, max_msg_size=0, headers=said.headers) as socket:
                text = orjson.dumps(envelope).decode()
                self._trace(">", text)
                await socket.send_str(text)
                async for frame in socket:
                    if frame.type is aiohttp.WSMsgType.TEXT:
                        self._trace("<", frame.data)
                        yield orjson.loads(frame.data)
        except aiohttp.WSServerHandshakeError as error:
            if refused := _REFUSALS.get(error.status):
                raise NotAllowed(refused, "the server refused these credentials, or none", reason=refused) from error
            raise ClientError.of_answer(error.status, error.headers or {}, None) from error
        except aiohttp.ClientError as error:
            raise away(self._base, error) from error


_REFUSALS: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
"""What a status says of who calls; 0.x has no numbers for it."""


def _check_allowed(response: aiohttp.ClientResponse, value: Any) -> None:
    if refused := _REFUSALS.get(response.status):
        error = value.get("error") if isinstance(value, dict) else None
        said = error.get("message") if isinstance(error, dict) else None
        raise NotAllowed(refused, str(said or "no reason given"), reason=refused)


def _result(value: Any, response: aiohttp.ClientResponse | None = None) -> Any:
    """What a call gave. Raises ClientError for a refusal."""
    if isinstance(value, dict) and value.get("error") is not None:
        raise ClientError.of_json(value["error"])
    if response is not None and response.status >= 400:
        raise ClientError.of_answer(response.status, response.headers, value)
    if not isinstance(value, dict) or "result" not in value:
        raise Nonsense("the answer is no JSON-RPC")
    return value["result"]


# REST ------------------------------------------------------------------------------------------------------


class RestRoad(_Http):
    """REST. Implements `Road`."""

    _swapped = False
    """Subscriptions are asked for with the other method."""

    async def call(self, rpc: str, request: Message, *, key: str = "", parent: str = "") -> Message:
        phrase, method, path, body = self._plan(rpc, request)
        said = Said(key=key, parent=parent, waits=rpc == "SendMessage")
        async with self._request(method, path, body, said=said) as response:
            value = await self._value(response)
            if response.status >= 400:
                raise ClientError.of_answer(response.status, response.headers, value)
        return self._read(phrase, value)

    async def stream(self, rpc: str, request: Message, *, after: str = "", key: str = "", parent: str = "") -> Stream:
        phrase, method, path, body = self._plan(rpc, request)
        may_swap = rpc == "SubscribeToTask"
        if may_swap and self._swapped:
            method = _other(method)
        said = Said(after, key, parent)
        try:
            async with aclosing(self._told(phrase, method, path, body, said)) as events:
                async for event in events:
                    yield event
        except ClientError as error:
            # The proto says GET and the prose POST, and servers follow one or the other.
            if not (may_swap and not self._swapped and error.complaint.is_unknown_call):
                raise
            self._swapped = True
            async with aclosing(self._told(phrase, _other(method), path, body, said)) as events:
                async for event in events:
                    yield event

    async def _told(self, phrase: Phrase, method: str, path: str, body: Any, said: Said) -> Stream:
        async with self._request(method, path, body, SSE, said=said) as response:
            if response.content_type != SSE:
                value = await self._value(response)
                if response.status >= 400:
                    raise ClientError.of_answer(response.status, response.headers, value)
                yield _streamed(self._read(phrase, value))
                return
            async with aclosing(self._events(response)) as events:
                async for value in events:
                    if isinstance(value, dict) and _is_error(value):
                        raise ClientError.told(complaints.of_body(500, value))
                    yield _streamed(self._read(phrase, value))

    def _plan(self, rpc: str, request: Message) -> phrases.RestCall:
        return phrases.rest(self._dialect, rpc, request, self._agent)


def _other(method: str) -> str:
    return "POST" if method == "GET" else "GET"


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether an event of a REST stream is an error: of AIP-193, or of 0.3's servers."""
    return "error" in value or ("message" in value and ("code" in value or "type" in value))


def away(place: str, error: aiohttp.ClientError) -> ClientError:
    """The failure that there was no answer, or only half of one."""
    if isinstance(error, aiohttp.InvalidURL):
        return Invalid("INVALID_ARGUMENT", f"{place}: is no URL that can be called")
    never = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return Unreachable.at(place, error, arrived=not never)


def _kept_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose system looks now and then whether the other side is still there: some answers take long."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system lets a program say how often
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence before the first question, seconds between two, and how many may stay unanswered."""
