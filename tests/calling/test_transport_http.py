"""REST and JSON-RPC transports on scripted HTTP responses, and card discovery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from dragoman.calling.errors import CallRefused, ClientError, NotFound, NotSupported, ProtocolError, ResponseErrors
from dragoman.calling.transport import TransportLimits, TransportOptions
from dragoman.calling.transport_http import (
    CardResponse,
    HttpTransport,
    JsonRpcTransport,
    RestTransport,
    fetch_card,
)
from dragoman.wire.cards.remote_card import Interface
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

ADDRESS = "http://server"
GET = pb.GetTaskRequest(id="t")
SUBSCRIBE = pb.SubscribeToTaskRequest(id="t")
TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
ERROR = {"error": {"code": 404, "status": "NOT_FOUND", "message": "no task"}}


class ScriptedResponse:
    def __init__(self, status: int, content_type: str, body: bytes) -> None:
        self.status = status
        self.headers = {"content-type": content_type, "location": "http://other"}
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), 7):
            yield self._body[at : at + 7]


class ScriptedHttp:
    """Implements `HttpClient`: records requests, and responds with the scripted responses in order."""

    def __init__(self, *responses: ScriptedResponse) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: dict[str, str] = {}
        self._responses = list(responses)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        idle_timeout: float | None,
    ) -> AsyncIterator[ScriptedResponse]:
        del idle_timeout
        self.headers = dict(headers)
        self.requests.append((method, url, orjson.loads(body) if body else None))
        yield self._responses.pop(0)

    async def close(self) -> None: ...


def json(value: Any, status: int = 200) -> ScriptedResponse:
    return ScriptedResponse(status, "application/json", orjson.dumps(value))


def events(*values: Any) -> ScriptedResponse:
    return ScriptedResponse(
        200, "text/event-stream", b"".join(b"data: %s\n\n" % orjson.dumps(value) for value in values)
    )


def transport(binding: str, http: ScriptedHttp, **limits: int) -> HttpTransport:
    options = TransportOptions(errors=ResponseErrors(ADDRESS), limits=TransportLimits(**limits), headers={"X-Key": "k"})
    kind = RestTransport if binding == "HTTP+JSON" else JsonRpcTransport
    return kind(Interface(ADDRESS, binding, "1.0"), http, options)


async def states(stream: AsyncIterator[pb.StreamResponse]) -> list[int]:
    return [(event.task if event.HasField("task") else event.status_update).status.state async for event in stream]


async def test_a_rest_call_has_the_path_of_its_method() -> None:
    http = ScriptedHttp(json(TASK))
    task = await transport("HTTP+JSON", http).call("GetTask", GET)
    assert isinstance(task, pb.Task)
    assert task.id == "t"
    assert http.requests == [("GET", f"{ADDRESS}/tasks/t", None)]
    assert http.headers["X-Key"] == "k"


async def test_a_jsonrpc_call_has_an_envelope() -> None:
    http = ScriptedHttp(json({"jsonrpc": "2.0", "id": 1, "result": TASK}))
    task = await transport("JSONRPC", http).call("GetTask", GET)
    assert isinstance(task, pb.Task)
    ((method, url, envelope),) = http.requests
    assert (method, url, envelope["method"], envelope["params"]) == ("POST", ADDRESS, "GetTask", {"id": "t"})


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
@pytest.mark.parametrize(
    ("response", "error", "text"),
    [
        (json(ERROR, 404), NotFound, "no task"),
        (ScriptedResponse(200, "text/html", b"<html>"), ProtocolError, "is not JSON: <html>"),
        (ScriptedResponse(302, "text/html", b""), ProtocolError, "redirect .302. to http://other"),
        (json({"result": {"status": 7}, "status": 7}), ProtocolError, "the response to .* is not 1.0"),
        (json({"text": "x" * 2000}), ProtocolError, "longer than 1000 bytes"),
    ],
)
async def test_error_responses_and_invalid_responses_raise_errors(
    binding: str, response: ScriptedResponse, error: type[ClientError], text: str
) -> None:
    http = ScriptedHttp(ScriptedResponse(response.status, response.headers["content-type"], response._body))
    with pytest.raises(error, match=text):
        await transport(binding, http, max_response_bytes=1000).call("GetTask", GET)


async def test_a_stream_yields_each_event() -> None:
    update = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}
    stream = transport("HTTP+JSON", ScriptedHttp(events({"task": TASK}, update))).stream("SubscribeToTask", SUBSCRIBE)
    assert await states(stream) == [pb.TASK_STATE_WORKING, pb.TASK_STATE_COMPLETED]


async def test_a_stream_with_a_json_response_has_one_event() -> None:
    stream = transport("HTTP+JSON", ScriptedHttp(json({"task": TASK}))).stream("SubscribeToTask", SUBSCRIBE)
    assert await states(stream) == [pb.TASK_STATE_WORKING]


async def test_an_error_event_raises_its_error() -> None:
    failure = {"error": {"code": 500, "status": "INTERNAL", "message": "broken"}}
    stream = transport("HTTP+JSON", ScriptedHttp(events({"task": TASK}, failure))).stream("SubscribeToTask", SUBSCRIBE)
    with pytest.raises(CallRefused, match="broken"):
        await states(stream)


HEARTBEATS = (
    *(b": ping\n\n", b"event: ping\ndata: 10:00:00\n\n", b"event: ping\ndata: {}\n\n"),
    *(b"data:\n\n", b"data\n\n"),
)


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_heartbeats_of_a_stream_are_skipped_and_responses_under_any_name_are_read(binding: str) -> None:
    task = orjson.dumps({"task": TASK} if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "result": {"task": TASK}})
    body = b"".join(beat + b"event: status-update\ndata: %s\n\n" % task for beat in HEARTBEATS)
    http = ScriptedHttp(ScriptedResponse(200, "text/event-stream", body))
    assert len(await states(transport(binding, http).stream("SubscribeToTask", SUBSCRIBE))) == len(HEARTBEATS)


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_an_error_under_a_name_of_its_own_is_raised(binding: str) -> None:
    data = b"event: error\ndata: %s\n\n" % orjson.dumps({"error": {"code": 500, "message": "broken"}})
    http = ScriptedHttp(ScriptedResponse(200, "text/event-stream", data))
    with pytest.raises(ClientError, match="broken"):
        await states(transport(binding, http).stream("SubscribeToTask", SUBSCRIBE))


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
async def test_an_integer_that_would_be_rounded_is_text(binding: str) -> None:
    task = {**TASK, "artifacts": [{"artifactId": "a", "parts": [{"data": {"id": 2**53 + 1}}]}]}
    answer = task if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "result": task}
    event = {"task": task} if binding == "HTTP+JSON" else {"jsonrpc": "2.0", "result": {"task": task}}
    called = cast(pb.Task, await transport(binding, ScriptedHttp(json(answer))).call("GetTask", GET))
    stream = transport(binding, ScriptedHttp(events(event))).stream("SubscribeToTask", SUBSCRIBE)
    streamed = [response.task async for response in stream]
    for found in (called, *streamed):
        assert found.artifacts[0].parts[0].data.struct_value.fields["id"].string_value == "9007199254740993"


async def test_a_stream_without_content_has_no_events() -> None:
    http = ScriptedHttp(ScriptedResponse(204, "", b""))
    assert await states(transport("HTTP+JSON", http).stream("SubscribeToTask", SUBSCRIBE)) == []


async def test_a_stream_has_a_limit() -> None:
    http = ScriptedHttp(events(*[{"task": TASK}] * 100))
    with pytest.raises(ProtocolError, match="the stream is longer than 500 bytes"):
        await states(transport("HTTP+JSON", http, max_stream_bytes=500).stream("SubscribeToTask", SUBSCRIBE))


async def test_a_subscription_is_a_post() -> None:
    http = ScriptedHttp(events({"task": TASK}), events({"task": TASK}))
    rest = transport("HTTP+JSON", http)
    for _ in range(2):
        assert await states(rest.stream("SubscribeToTask", SUBSCRIBE)) == [pb.TASK_STATE_WORKING]
    assert [(method, body) for method, _, body in http.requests] == [("POST", None), ("POST", None)]


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_subscription_is_a_get_for_a_server_that_knows_no_post(status: int) -> None:
    unknown = {"error": {"code": status, "message": "no", "details": []}}
    http = ScriptedHttp(json(unknown, status), events({"task": TASK}), events({"task": TASK}))
    rest = transport("HTTP+JSON", http)
    for _ in range(2):
        assert await states(rest.stream("SubscribeToTask", SUBSCRIBE)) == [pb.TASK_STATE_WORKING]
    assert [method for method, _, _ in http.requests] == ["POST", "GET", "GET"]


async def test_a_subscription_stays_a_post_if_a_get_fails_too() -> None:
    missing = {"error": {"code": 404, "message": "no such task", "details": []}}
    http = ScriptedHttp(json(missing, 404), json(missing, 404), events({"task": TASK}))
    rest = transport("HTTP+JSON", http)
    with pytest.raises(CallRefused):
        await states(rest.stream("SubscribeToTask", SUBSCRIBE))
    assert await states(rest.stream("SubscribeToTask", SUBSCRIBE)) == [pb.TASK_STATE_WORKING]
    assert [method for method, _, _ in http.requests] == ["POST", "GET", "POST"]


async def test_a_rejected_subscription_is_not_repeated() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND"}]
    http = ScriptedHttp(json({"error": {"code": 404, "status": "NOT_FOUND", "message": "no", "details": details}}, 404))
    with pytest.raises(CallRefused):
        await states(transport("HTTP+JSON", http).stream("SubscribeToTask", SUBSCRIBE))
    assert [method for method, _, _ in http.requests] == ["POST"]


def redirect(location: str, status: int = 307) -> ScriptedResponse:
    response = ScriptedResponse(status, "text/html", b"")
    response.headers["location"] = location
    return response


@pytest.mark.parametrize("location", ["/rpc/", f"{ADDRESS}/rpc/"])
async def test_a_redirect_within_the_server_is_followed_once_with_method_and_body(location: str) -> None:
    http = ScriptedHttp(redirect(location), json({"jsonrpc": "2.0", "result": TASK}))
    await transport("JSONRPC", http).call("GetTask", GET)
    (first, second) = http.requests
    assert (second[1], first[0], first[2]) == (f"{ADDRESS}/rpc/", second[0], second[2])

    endless = ScriptedHttp(redirect("/a"), redirect("/b"))
    with pytest.raises(ProtocolError, match=r"redirect .307. to /b"):
        await transport("JSONRPC", endless).call("GetTask", GET)


@pytest.mark.parametrize(
    ("location", "status"),
    [
        *(("http://other/rpc", 307), ("https://server/rpc", 307), ("//other/rpc", 308), ("http://[/", 307)),
        *(("", 307), ("/rpc/", 302), ("/rpc/", 303)),
    ],
)
async def test_no_other_redirect_gets_the_credentials_or_another_method(location: str, status: int) -> None:
    http = ScriptedHttp(redirect(location, status))
    with pytest.raises(ProtocolError, match="redirect"):
        await transport("JSONRPC", http).call("GetTask", GET)
    assert len(http.requests) == 1


async def test_a_call_that_jsonrpc_lacks_is_not_supported() -> None:
    with pytest.raises(NotSupported):
        await transport("JSONRPC", ScriptedHttp()).call("NoSuchCall", GET)


# Card discovery ------------------------------------------------------------------------------------------------------


async def requested_urls(statuses: Mapping[str, int]) -> tuple[list[str], list[CardResponse]]:
    requests: list[str] = []

    async def get(url: str, headers: Mapping[str, str]) -> CardResponse:
        requests.append(f"{url} {headers.get('A2A-Version', '')}".strip())
        return CardResponse(url, statuses.get(url, 404), {}, b"")

    return requests, await fetch_card("http://server", get)


async def test_card_urls_are_requested_up_to_the_first_card() -> None:
    requests, responses = await requested_urls({"http://server/.well-known/agent-card.json": 200})
    assert requests == ["http://server/.well-known/agent-card.json 1.0"]
    assert [response.status for response in responses] == [200]


@pytest.mark.parametrize("status", [302, 401, 403, 429, 503])
async def test_an_error_of_the_entire_server_ends_the_discovery(status: int) -> None:
    requests, _ = await requested_urls({"http://server/.well-known/agent-card.json": status})
    assert len(requests) == 1


async def test_a_server_that_rejects_the_version_header_is_requested_without_it() -> None:
    url = "http://server/.well-known/agent-card.json"
    requests, _ = await requested_urls({url: 400})
    assert requests[:2] == [f"{url} 1.0", url]


async def test_all_urls_are_requested_if_none_has_a_card() -> None:
    requests, responses = await requested_urls({})
    assert len(requests) == len(responses) > 1
    assert not responses[-1].is_conclusive
