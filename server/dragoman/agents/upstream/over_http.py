"""JSON-RPC and REST to an agent upstream, through the one way out."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import orjson
from google.protobuf.message import Message

from dragoman.agents.upstream.road import BOUNDS, Away, Blocked, Bounds, Nonsense, Refused, Stream
from dragoman.core.errors import A2AError
from dragoman.core.trace import CURRENT, HEADER
from dragoman.ports import Forbidden, NobodyThere, Opened, Outlet, Unreachable
from dragoman.wire import complaints, phrases, sse
from dragoman.wire.card_reading import Interface
from dragoman.wire.phrases import Phrase
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

SSE: Final = "text/event-stream"

_WAITS: Final = frozenset({"SendMessage"})
"""Calls that some agents answer only when the task has ended, whatever they are asked."""


class HttpRoad:
    """Implements `Road` over JSON-RPC or REST, as the interface says."""

    def __init__(
        self, interface: Interface, outlet: Outlet, headers: Mapping[str, str], bounds: Bounds = BOUNDS
    ) -> None:
        """`headers` are sent with each call: they show who calls."""
        self.interface = interface
        self._outlet = outlet
        self._headers = dict(headers)
        self._bounds = bounds
        self._swapped = False
        """Subscriptions over REST are asked for with the other method."""

    async def call(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Message:
        phrase, method, path, body = self._say(rpc, request)
        silence = self._bounds.silence if rpc in _WAITS else self._bounds.reply
        async with self._open(method, path, body, "application/json", key, extensions, silence) as answer:
            value = await self._value(answer)
            return self._read(phrase, self._result(answer.status, value))

    async def stream(self, rpc: str, request: Message, *, key: str = "", extensions: str = "") -> Stream:
        phrase, method, path, body = self._say(rpc, request)
        if self._swapped and rpc == "SubscribeToTask" and self._is_rest:
            method = _other(method)
        try:
            async with aclosing(self._events(phrase, method, path, body, key, extensions)) as events:
                async for event in events:
                    yield event
        except Refused as refused:
            # The proto says GET and the prose POST, and servers follow one or the other.
            wrong = refused.is_unknown_call and rpc == "SubscribeToTask" and self._is_rest and not self._swapped
            if not wrong:
                raise
            self._swapped = True
            async with aclosing(self._events(phrase, _other(method), path, body, key, extensions)) as events:
                async for event in events:
                    yield event

    async def close(self) -> None:
        """The connections are the outlet's."""

    @property
    def _is_rest(self) -> bool:
        return self.interface.binding == "HTTP+JSON"

    def _say(self, rpc: str, request: Any) -> tuple[Phrase, str, str, Any]:
        """The words of a call: how to read the answer, the method, the path behind the interface's URL, the body."""
        sent = type(request)()
        sent.CopyFrom(request)
        if "tenant" in sent.DESCRIPTOR.fields_by_name:
            sent.tenant = self.interface.tenant
        if self._is_rest:
            tenant = self.interface.tenant if self.interface.dialect == "1.0" else ""
            return tuple(phrases.rest(self.interface.dialect, rpc, sent, tenant))
        phrase = phrases.JSONRPC[self.interface.dialect].get(rpc)
        if phrase is None:
            raise Refused(complaints.Complaint("UNIMPLEMENTED", f"{self.interface.dialect} has no {rpc}"))
        envelope = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": phrase.name, "params": phrase.write(sent)}
        return phrase, "POST", "", envelope

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, body: Any, accept: str, key: str, extensions: str, silence: float
    ) -> AsyncIterator[Opened]:
        url = self.interface.url.rstrip("/") + path if self._is_rest else self.interface.url
        headers = {**self._headers, "Accept": accept, **self._said(key, extensions)}
        data = None if body is None else orjson.dumps(body)
        if data is not None:
            headers["Content-Type"] = "application/json"
        if context := CURRENT.get():
            headers[HEADER] = context
        try:
            async with self._outlet.open(method, url, headers, data, silence=silence) as answer:
                if 300 <= answer.status < 400:
                    raise Nonsense(f"{self._place}: answered with a redirect ({answer.status}), which is not followed")
                yield answer
        except Forbidden as error:
            raise Blocked(str(error)) from None
        except Unreachable as error:
            raise Away(str(error), arrived=not isinstance(error, NobodyThere)) from None

    def _said(self, key: str, extensions: str) -> dict[str, str]:
        old = self.interface.dialect != "1.0"
        given = {
            "A2A-Version": "" if self.interface.dialect == "0.1" else self.interface.dialect,
            "X-A2A-Extensions" if old else "A2A-Extensions": extensions,
            "Idempotency-Key": key,
        }
        return {name: value for name, value in given.items() if value}

    async def _events(
        self, phrase: Phrase, method: str, path: str, body: Any, key: str, extensions: str
    ) -> AsyncGenerator[pb.StreamResponse, None]:
        async with self._open(method, path, body, SSE, key, extensions, self._bounds.silence) as answer:
            if answer.headers.get("content-type", "").partition(";")[0].strip().lower() != SSE:
                # A refusal, or all that there is to say in one piece.
                result = self._result(answer.status, await self._value(answer))
                yield self._event(phrase, result)
                return
            parser, taken = sse.Parser(limit=self._bounds.answer), 0
            async for chunk in answer.chunks():
                taken += len(chunk)
                if taken > self._bounds.total:
                    raise Nonsense(f"{self._place}: the stream is longer than {self._bounds.total} bytes")
                try:
                    found = parser.feed(chunk)
                except A2AError as error:
                    raise Nonsense(f"{self._place}: {error.message}") from None
                for one in found:
                    value = self._json(one.data)
                    yield self._event(phrase, self._result(200, value, stream=True))

    async def _value(self, answer: Opened) -> Any:
        data, limit = bytearray(), time.monotonic() + self._bounds.silence
        async for chunk in answer.chunks():
            data += chunk
            if len(data) > self._bounds.answer:
                raise Nonsense(f"{self._place}: the answer is longer than {self._bounds.answer} bytes")
            if time.monotonic() > limit:  # a byte now and then is no silence
                raise Away(f"{self._place}: the answer was not there within {self._bounds.silence:g} s")
        if answer.status in (502, 503, 504):
            raise Away(f"{self._place}: answered with status {answer.status}", arrived=answer.status != 503)
        try:
            return orjson.loads(bytes(data))
        except orjson.JSONDecodeError:
            if answer.status >= 400:
                return None
            raise Nonsense(f"{self._place}: the answer ({answer.status}) is no JSON") from None

    def _json(self, data: bytes) -> Any:
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            raise Nonsense(f"{self._place}: an event of the stream is no JSON") from None

    def _result(self, status: int, value: Any, *, stream: bool = False) -> Any:
        """What a call gave. Raises Refused, Nonsense."""
        if self._is_rest:
            if status >= 400 or (stream and isinstance(value, dict) and _is_error(value)):
                raise Refused(complaints.of_body(status, value))
            return value
        if isinstance(value, dict) and value.get("error") is not None:
            raise Refused(complaints.of_json(value["error"]))
        if status >= 400:
            raise Refused(complaints.of_body(status, value))
        if not isinstance(value, dict) or "result" not in value:
            raise Nonsense(f"{self._place}: the answer is no JSON-RPC")
        return value["result"]

    def _read(self, phrase: Phrase, value: Any) -> Message:
        try:
            return phrase.read(value)
        except A2AError as error:
            said = f"{self._place}: the answer to {phrase.name} is not {self.interface.dialect}: {error.message[:300]}"
            raise Nonsense(said) from None

    def _event(self, phrase: Phrase, value: Any) -> pb.StreamResponse:
        event = self._read(phrase, value)
        assert isinstance(event, pb.StreamResponse)
        return event

    @property
    def _place(self) -> str:
        return self.interface.url.partition("://")[2].partition("/")[0]


def _other(method: str) -> str:
    return "POST" if method == "GET" else "GET"


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether an event of a REST stream is an error: of AIP-193, or of 0.3's servers."""
    return "error" in value or ("message" in value and ("code" in value or "type" in value))
