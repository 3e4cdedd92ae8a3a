"""Upstream agents that are faulty or unavailable, and how that is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from tests.agents.upstream.agent_server import CARD, agent_server, card, json, rpc, stream
from tests.agents.upstream.conftest import Open
from tests.eventually import eventually
from tests.postgres import free_port

from dragoman.client import ClientError
from dragoman.client.calls import Client, message
from dragoman.client.operations import Operator
from dragoman.client.options import CallOptions
from dragoman.core.durations import Backoff
from dragoman.core.task import states
from dragoman.ports.extension import StartError
from dragoman.settings.settings import SettingsError
from dragoman.wiring.app import App
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

WORKING = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
DONE = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}


async def standing(app: App, agent: str) -> ops.Upstream:
    async with Operator(str(app.grpc)) as operator:
        found = (await operator.list_upstreams(ops.ListUpstreamsRequest())).upstreams
    (one,) = (one for one in found if one.agent == agent)
    return one


async def ask(app: App, agent: str = "") -> pb.Task:
    async with asyncio.timeout(60):
        async with Client(str(app.grpc), agent=agent) as client:
            return (await client.send(message("hello"))).task


def status_text(task: pb.Task) -> str:
    return "".join(part.text for part in task.status.message.parts)


# At the start -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (json(b"<html>"), "is not JSON"),
        (json([]), "is not a JSON object"),
        (json({"url": "https://x.example"}), "name: is required"),
        (json({"name": "x"}), "names no supported interface: it has neither supportedInterfaces nor url"),
        (json(card(("SMOKE", "1.0", "http://x"))), 'supportedInterfaces[0]: the binding "SMOKE" is not one of'),
        (json(card(("JSONRPC", "2.0", "http://x"))), "supportedInterfaces[0]: its version is not one of 1.x, 0.3"),
        (json(card(("JSONRPC", "1.0", "file:///etc/passwd"))), "is not a URL"),
        (json(card(("JSONRPC", "1.0", "http://10.0.0.1/"))), "names no interface that may be called: JSONRPC 1.0 at"),
        (json(card(("GRPC", "1.0", "169.254.169.254:80"))), "names no interface that may be called: GRPC 1.0 at"),
        (json(card(("JSONRPC", "1.0", "https://x.example"), name="\u4e16")), "gives no valid agent id; set one"),
        (json({}, 302, Location="http://10.0.0.1/"), "responded with a redirect (302), which is not followed"),
        (json({}, 401), "rejected the credentials, or requires some (401)"),
        (json({}, 404), "there is no card"),
        (json(b" " * 1024 * 1024 + b"x"), "the response is longer than 1048576 bytes"),
    ],
)
async def test_an_invalid_card_prevents_the_start(opened: Open, answer: Any, reason: str) -> None:
    async with agent_server() as remote:
        remote.answers[f"/a{CARD}"] = answer
        with pytest.raises(StartError) as error:
            async with opened("front", f"{remote.url}/a"):
                pass
    assert str(error.value).startswith(f"--upstream: {remote.url}/a: ")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://10.0.0.1:8080", "private"),
        ("http://169.254.169.254", "169.254.169.254"),
        ("http://127.0.0.1:PORT", "refused the connection; with an id (ID=URL) it is served as soon as it responds"),
    ],
)
async def test_an_agent_that_may_not_or_cannot_be_called_prevents_the_start(
    opened: Open, url: str, reason: str
) -> None:
    with pytest.raises(StartError) as error:
        async with opened("front", url.replace("PORT", str(free_port()))):
            pass
    assert reason in str(error.value)


async def test_a_public_server_rejects_an_agent_on_loopback(opened: Open) -> None:
    async with agent_server() as remote:
        remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        with pytest.raises(StartError, match="loopback"):
            async with opened("front", f"{remote.url}/a", http="0.0.0.0:0", insecure=True):
                pass


async def test_two_agents_with_one_name_need_ids(opened: Open) -> None:
    async with agent_server() as remote:
        one = card(("JSONRPC", "1.0", f"{remote.url}/rpc"))
        with pytest.raises(StartError, match='"words" belongs to another agent here; choose another id'):
            async with opened("front", remote.card("a", one), remote.card("b", one)):
                pass


async def test_a_missing_token_file_is_reported(opened: Open) -> None:
    with pytest.raises(SettingsError, match="token_file: nowhere cannot be read"):
        async with opened("front", {"url": "http://127.0.0.1:1", "id": "a", "token_file": "nowhere"}):
            pass


async def test_an_unavailable_agent_with_an_id_is_served_when_it_responds(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agents.upstream.registry.PROBE_BACKOFF", Backoff(0.01, 5.0))
    async with agent_server() as remote, opened("front", f"words={remote.url}/a", worker_wait=300) as app:
        one = await standing(app, "words")
        assert "there is no card" in one.last_error
        assert one.unavailable_ms
        async with Client(str(app.grpc)) as client:
            now = pb.SendMessageConfiguration(return_immediately=True)
            waits = (await client.send(message("hello"), configuration=now)).task
            (explanation,) = await app.runtime.explainer.explain(waits.id)
            assert explanation.next.startswith('It waits for agent "words", which has been unavailable for')
            assert "there is no card" in explanation.next
            remote.answers["/rpc"] = rpc({"task": DONE})
            remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities={}))
            async with asyncio.timeout(60):
                events = [event async for event in client.subscribe(waits.id)]
            assert events[-1].status_update.status.state == states.COMPLETED
        assert app.agents["words"].name == "Words"
        assert not (await standing(app, "words")).unavailable_ms


async def test_a_task_that_waits_for_room_at_its_agent_says_how_much_there_is(opened: Open) -> None:
    """After failed calls there is room for one turn, which tries the agent's next address."""
    async with agent_server() as remote:
        url, hold = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"))), asyncio.Event()
        remote.answers["/rpc"] = stream({"task": WORKING}, hold=hold)
        upstream = {"url": url, "id": "words", "turns": 1}
        async with opened("front", upstream) as app, Client(str(app.grpc)) as client:
            await eventually(lambda: app.runtime.scheduler.queues.of("words").room == 1)
            now = pb.SendMessageConfiguration(return_immediately=True)
            tasks = [(await client.send(message("hello"), configuration=now)).task for _ in range(2)]
            (explanation,) = await app.runtime.explainer.explain(tasks[1].id)
            assert explanation.next == 'It waits for agent "words", whose limit of turns is 1 (1 after failed calls).'
            hold.set()


async def test_an_agent_that_stays_unavailable_fails_waiting_tasks_and_rejects_new_ones(opened: Open) -> None:
    async with opened("front", f"words=http://127.0.0.1:{free_port()}", worker_wait=0) as app:
        with pytest.raises(ClientError, match=r'agent "words" has been unavailable for \d+ s; try again'):
            await ask(app)


# Later ------------------------------------------------------------------------------------------------------


ANSWERS = (
    (json({}, 302, Location="http://10.0.0.1/"), states.FAILED, "responded with a redirect (302)"),
    (json({}, 401), states.FAILED, "UNAUTHENTICATED"),
    (json(b"<html>"), states.FAILED, "is not JSON"),
    (json({"jsonrpc": "2.0"}), states.FAILED, "is not JSON-RPC"),
    (rpc({"task": {**WORKING, "status": {"state": []}}}), states.FAILED, "is not 1.0"),
    (rpc({}), states.FAILED, "an event is empty"),
    (rpc({"code": -32603, "message": "oh"}, error=True), states.FAILED, "INTERNAL_ERROR: oh"),
    (rpc({"code": -32602, "message": "no"}, error=True), states.REJECTED, "INVALID_PARAMS: no"),
    (stream({"task": WORKING}, b"{nonsense"), states.FAILED, "an event of the stream is not JSON"),
    (stream({"task": WORKING}, {"task": {**DONE, "id": "u"}}), states.FAILED, "it responded with task u"),
    (stream({"task": {**DONE, "artifacts": [{"artifactId": "a", "parts": [{}]}]}}), states.FAILED, "no content"),
    (stream(b'{"x": "' + b"x" * 3000 + b'"}'), states.FAILED, "larger than 2048 bytes"),
    (json(b'{"x": "' + b"x" * 3000 + b'"}'), states.FAILED, "longer than 2048 bytes"),
    (rpc({"task": {**DONE, "id": ""}}), states.FAILED, "an event has no task id"),
)
"""The response to a call, the state of the task, and a piece of its text."""
INVALID_FIRST = (0, 2, 3, 4, 5, 10, 11, 12, 13)
"""Those that are invalid before anybody has seen the task, so that the sender gets an error."""


async def test_an_invalid_response_fails_the_task(opened: Open) -> None:
    async with agent_server() as remote:
        urls = []
        for index, (answer, _, _) in enumerate(ANSWERS):
            remote.answers[f"/rpc{index}"] = answer
            url = remote.card(f"a{index}", card(("JSONRPC", "1.0", f"{remote.url}/rpc{index}")))
            urls.append(f"a{index}={url}")
        async with opened("front", *urls, upstream_bytes=2048) as app:
            for index, (_, state, reason) in enumerate(ANSWERS):
                if index in INVALID_FIRST:
                    with pytest.raises(ClientError) as raised:
                        await ask(app, f"a{index}")
                    error = raised.value
                    assert (error.code, error.reason) == ("INTERNAL", "INVALID_AGENT_RESPONSE")
                    assert (reason in error.message, "://" in error.message) == (True, False), error.message
                    async with Client(str(app.grpc), agent=f"a{index}") as client:
                        task = await client.get(error.metadata["task"])
                else:
                    task = await ask(app, f"a{index}")
                assert (task.status.state, reason in status_text(task)) == (state, True), status_text(task)
                assert "127.0.0.1" not in status_text(task)  # callers do not see its address
                assert "://" not in status_text(task)


@pytest.mark.parametrize("state", ["ON_FIRE", "unknown", "TASK_STATE_UNSPECIFIED"])
async def test_a_state_that_cannot_be_mapped_is_shown_as_unknown_and_the_task_goes_on(opened: Open, state: str) -> None:
    async with agent_server() as remote:
        ids = {"taskId": "t", "contextId": "c"}
        update = {"statusUpdate": {**ids, "status": {"state": state}, "metadata": {"own": 1}}}
        remote.answers["/rpc"] = stream({"task": WORKING}, update, {"statusUpdate": {**ids, "status": DONE["status"]}})
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front", url) as app, asyncio.timeout(60), Client(str(app.grpc)) as client:
            events = [event async for event in client.stream(message("hello"))]
            task = await client.get(next(event.task.id for event in events if event.HasField("task")))
    statuses = [event.status_update for event in events if event.HasField("status_update")]
    unknown = next(one for one in statuses if "upstreamState" in one.metadata)
    assert (unknown.status.state, dict(unknown.metadata)) == (states.WORKING, {"own": 1, "upstreamState": "unknown"})
    assert statuses[-1].status.state == states.COMPLETED
    assert task.metadata["upstreamState"] == "completed"


@pytest.mark.parametrize("dialect", ["0.3", "0.1"])
async def test_readers_before_1_0_see_the_state_unknown(opened: Open, dialect: str) -> None:
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if (await request.json())["method"] != "SendStreamingMessage":
            return await rpc({"code": -32004, "message": "no"}, error=True)(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        update = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "pondering"}}}
        for event in ({"task": WORKING}, update):
            await response.write(b"data: %s\n\n" % orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": event}))
        await release.wait()
        return response

    methods = {"0.3": ("message/stream", "kind"), "0.1": ("tasks/sendSubscribe", "type")}
    method, kind = methods[dialect]
    sent = {"role": "user", "messageId": "m", "parts": [{kind: "text", "text": "hello"}]}
    params = {"message": sent, **({"id": "mine"} if dialect == "0.1" else {})}
    async with agent_server() as remote:
        remote.answers["/rpc"] = answer
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))
        async with opened("front", url) as app, asyncio.timeout(60), aiohttp.ClientSession(app.http.url) as http:
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            async with http.post("/", json=call) as events:
                async for line in events.content:
                    event = orjson.loads(line[5:])["result"] if line.startswith(b"data:") else {}
                    if event.get("status", {}).get("state") == "unknown":
                        break
            task = event.get("taskId", event["id"] if dialect == "0.1" else None)
            call = {"jsonrpc": "2.0", "id": 2, "method": "tasks/get", "params": {"id": task}}
            async with http.post("/", json=call, headers={"A2A-Version": dialect}) as answered:
                assert (await answered.json())["result"]["status"]["state"] == "unknown"
            release.set()


async def test_a_broken_stream_and_a_lost_task_fail_truthfully(opened: Open) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        request_body = await request.json()
        if request_body["method"] == "SendStreamingMessage":
            return await stream({"task": WORKING}, cut=True)(request)
        return await rpc({"code": -32001, "message": "Task not found"}, error=True)(request)

    async with agent_server() as remote:
        remote.answers["/rpc"] = answer
        async with opened("front", remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc")))) as app:
            task = await ask(app)
    assert task.status.state == states.FAILED
    assert status_text(task).startswith("UPSTREAM_LOST: the agent no longer knows its task t")


async def test_credentials_go_only_to_the_host_of_the_card(opened: Open) -> None:
    async with agent_server() as remote, agent_server() as other:
        remote.answers["/rpc"] = rpc({"task": DONE})
        other_host = other.url.replace("127.0.0.1", "localhost")
        both = card(("JSONRPC", "1.0", f"{other_host}/rpc"), ("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities={})
        url = remote.card("a", both)
        async with opened("front", {"url": url, "token": "ours", "headers": {"X-Key": "k"}}) as app:
            async with Client(str(app.grpc), options=CallOptions(token="theirs")) as client:
                assert (await client.send(message("hello"))).task.status.state == states.COMPLETED
            one = await standing(app, "words")
        assert one.credentials
        assert "another host" in one.skipped_interfaces[0]
        assert not other.requests
        sent = [request.headers for request in remote.requests]
        assert {(head["Authorization"], head["X-Key"]) for head in sent} == {("Bearer ours", "k")}
        assert "ours" not in str(one)


async def test_required_extensions_are_sent_upstream_and_required_here(opened: Open) -> None:
    async with agent_server() as remote:
        remote.answers["/rpc"] = rpc({"task": DONE})
        needs = {"extensions": [{"uri": "urn:needed", "required": True}]}
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), capabilities=needs))
        async with opened("front", url) as app:
            with pytest.raises(ClientError, match="urn:needed"):
                await ask(app)
            assert app.agents["words"].extensions[0].required


async def test_input_modes_are_checked_by_the_agent(opened: Open) -> None:
    async with agent_server() as remote:
        remote.answers["/rpc"] = rpc({"task": DONE})
        modes = {"capabilities": {}, "defaultInputModes": ["application/json"]}
        url = remote.card("a", card(("JSONRPC", "1.0", f"{remote.url}/rpc"), **modes))
        async with opened("front", url) as app:
            assert (await ask(app)).status.state == states.COMPLETED
            assert app.agents["words"].input_modes == ("application/json",)
