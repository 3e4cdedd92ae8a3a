"""Error responses, rate limits, broken streams and responses that are not A2A."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.agents.upstream.agent_server import FakeAgentServer, agent_server, card, json, rpc, stream

from dragoman.client import (
    Busy,
    ClientError,
    Connection,
    Invalid,
    NotAllowed,
    NotFound,
    NotSupported,
    ProtocolError,
    ServerUnavailable,
    Text,
    connect,
)
from dragoman.core.durations import Backoff

TASK = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}
DONE = {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}}
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
ENDED = {"state": "TASK_STATE_COMPLETED"}
NO_TASK = {"code": 404, "message": "m", "details": [{"@type": INFO, "reason": "TASK_NOT_FOUND"}]}
EXHAUSTED = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m"}
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}


def chunk(text: str, *, append: bool = True) -> dict[str, Any]:
    artifact = artifacts(text)[0]
    return {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, "append": append}}


def artifacts(text: str) -> list[dict[str, Any]]:
    return [{"artifactId": "a", "parts": [{"text": text}]}]


def to(there: FakeAgentServer, folder: str, binding: str = "JSONRPC", **options: Any) -> Connection:
    url = there.card(folder, card((binding, "1.0", f"{there.url}/{folder}/at"), capabilities={"streaming": False}))
    return connect(url, retry_timeout=0.01, **options)


def by_turns(*answers: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """One response after the other; the last is repeated."""
    left = list(answers)

    async def answer(request: web.Request) -> web.StreamResponse:
        found: web.StreamResponse = await (left.pop(0) if len(left) > 1 else left[0])(request)
        return found

    return answer


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind", "wait"),
    [
        (429, b"slow down", {"Retry-After": "30"}, Busy, 30.0),
        (503, b"", {}, Busy, None),
        (429, {"error": {**EXHAUSTED, "details": [RETRY]}}, {}, Busy, 1.5),
        (502, b"<html>bad gateway</html>", {}, ServerUnavailable, None),
        (401, {"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "who?"}}, {}, NotAllowed, None),
        (403, b"no", {}, NotAllowed, None),
        (404, {"error": NO_TASK}, {}, NotFound, None),
        (422, {"detail": "x"}, {}, Invalid, None),
        (413, b"<html>too large", {}, Invalid, None),
        (501, b"", {}, NotSupported, None),
        (200, b'{"id": "t-', {}, ProtocolError, None),
        (200, b"<html>", {}, ProtocolError, None),
        (302, b"", {"Location": "https://elsewhere.example/"}, ProtocolError, None),
    ],
)  # fmt: skip
async def test_an_error_response_has_a_kind_and_a_retry_time(
    status: int, body: Any, headers: dict[str, str], kind: type[ClientError], wait: float | None
) -> None:
    async with agent_server() as there:
        for binding, path in (("HTTP+JSON", "/x/at/tasks/t-1"), ("JSONRPC", "/x/at")):
            there.answers[path] = json(body, status, **headers)
            async with to(there, "x", binding) as client:
                with pytest.raises(kind) as caught:
                    await client.get("t-1")
                assert type(caught.value) is kind
                assert caught.value.retry_after == wait


async def test_retry_after_is_respected_and_the_key_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.calling.retry.RETRY_BACKOFF", Backoff(0.01, 5.0))
    async with agent_server() as there:
        there.answers["/x/at"] = by_turns(
            json(b"later", 503), json(b"later", 429, **{"Retry-After": "0"}), rpc({"task": TASK}),
            rpc({**TASK, "status": ENDED, "artifacts": artifacts("hi")}),
        )  # fmt: skip
        url = there.card("x", card(("JSONRPC", "1.0", f"{there.url}/x/at"), capabilities={"streaming": False}))
        async with connect(url) as client:
            assert (await client.ask("go")).text == "hi"
        sends = [request for request in there.requests if request.method == "POST"][:3]
        assert len({request.headers["Idempotency-Key"] for request in sends}) == 1
        (trace,) = {request.headers["traceparent"] for request in there.requests if request.method == "POST"}
        assert len(trace) == 55


async def test_a_stream_cut_in_an_event_is_recovered_and_an_invalid_one_is_an_error() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        request_body = orjson.loads(await request.read())
        if request_body["method"] == "GetTask":
            return await rpc({**TASK, "status": ENDED, "artifacts": artifacts("onetwo")})(request)
        if request_body["method"] == "SubscribeToTask":
            return await stream({"task": {**TASK, "artifacts": artifacts("one")}}, chunk("two"), DONE)(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in ({"task": TASK}, chunk("one", append=False)):
            await response.write(b"data: " + orjson.dumps({"jsonrpc": "2.0", "result": event}) + b"\n\n")
        await response.write(b'data: {"jsonrpc": "2.0", "result": {"artifactUp')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with agent_server() as there:
        there.answers["/x/at"] = cut
        url = there.card("x", card(("JSONRPC", "1.0", f"{there.url}/x/at")))
        async with connect(url) as client:
            texts = [event.text async for event in client.run("go") if isinstance(event, Text)]
            assert texts == ["one", "two"]
            there.answers["/x/at"] = stream({"task": TASK}, b'{"artifactUp')
            with pytest.raises(ProtocolError, match="not JSON"):
                await client.ask("go")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"<html>", "not JSON"),
        ({"name": "x"}, "neither supportedInterfaces nor url"),
        (card(("GRPC", "9.0", "h:1")), "its version is not one of"),
    ],
)
async def test_an_invalid_card_is_reported(document: Any, says: str) -> None:
    async with agent_server() as there:
        url = there.card("x", document)
        with pytest.raises(ProtocolError, match=says):
            async with connect(url):
                pass


async def test_a_card_of_any_generation_is_found() -> None:
    async def picky(request: web.Request) -> web.StreamResponse:
        if "A2A-Version" in request.headers:
            return web.Response(status=400)
        return await json(old)(request)

    async with agent_server() as there:
        old = {"name": "Old", "url": f"{there.url}/old/at", "authentication": {"schemes": ["public"]}, "version": "1"}
        there.answers["/old/.well-known/agent.json"] = picky
        async with connect(f"{there.url}/old") as client:
            assert client.card.interfaces[0].dialect == "0.1"
        with pytest.raises(NotFound, match="no card"):
            async with connect(f"{there.url}/none"):
                pass
        for status, kind in ((401, NotAllowed), (503, Busy), (502, ServerUnavailable)):
            there.card("bad", b"")
            there.answers["/bad/.well-known/agent-card.json"] = json(b"", status)
            with pytest.raises(kind, match="bad"):
                async with connect(f"{there.url}/bad", retry_timeout=0.01):
                    pass


async def test_credentials_go_to_no_other_host() -> None:
    async with agent_server() as there:
        url = there.card("x", card(("JSONRPC", "1.0", "http://elsewhere.example/at")))
        with pytest.raises(ProtocolError, match="on another host"):
            async with connect(url, token="secret"):
                pass
        there.answers["/moved/.well-known/agent-card.json"] = json(
            b"", 302, Location=f"{there.url}/x/.well-known/agent-card.json"
        )
        with pytest.raises(ProtocolError, match="redirect"):
            async with connect(f"{there.url}/moved", headers={"X-Key": "secret"}):
                pass
        async with connect(f"{there.url}/moved") as client:
            assert client.card.name == "Words"
        own = there.card("own", card(("JSONRPC", "1.0", f"{there.url}/own/at")))
        there.answers["/own/at"] = rpc(TASK)
        async with connect(own, token="secret", headers={"X-Key": "k"}) as client:
            await client.get("t-1")
        last = there.requests[-1].headers
        assert (last["Authorization"], last["X-Key"]) == ("Bearer secret", "k")


@pytest.mark.parametrize("known", ["POST", "GET"])
async def test_a_subscription_uses_the_http_method_that_the_server_knows(known: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method != known:
            return web.Response(status=405)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in ({"task": TASK}, DONE):
            await response.write(b"data: " + orjson.dumps(event) + b"\n\n")
        return response

    async with agent_server() as there:
        there.answers["/x/at/tasks/t-1:subscribe"] = answer
        there.answers["/x/at/tasks/t-1"] = json(TASK | {"status": {"state": "TASK_STATE_COMPLETED"}})
        url = there.card("x", card(("HTTP+JSON", "1.0", f"{there.url}/x/at")))
        async with connect(url) as client:
            assert (await client.wait("t-1")).ok
