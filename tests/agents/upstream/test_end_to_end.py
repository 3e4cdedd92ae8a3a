"""One server with another as upstream, in every dialect over every binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf.json_format import MessageToDict
from tests.agents.upstream.agent_server import CARD, OLD_CARD, agent_server, card
from tests.agents.upstream.conftest import Open
from tests.listing import list_tasks

from dragoman.client.calls import Client, message
from dragoman.core.task import states
from dragoman.wiring.app import App
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

NOW = pb.SendMessageConfiguration(return_immediately=True)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("time_to_think", "time_to_stop")]

AGENT_IDS = ("jsonrpc-1", "rest-1", "grpc-1", "jsonrpc-03", "rest-03", "grpc-03", "jsonrpc-01", "polled")


class Pair:
    """Two servers: `behind` runs the agent, `front` has it as upstream."""

    def __init__(self, behind: App, front: App) -> None:
        self.behind = behind
        self.front = front


@pytest.fixture
async def pair(opened: Open) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(opened("behind"))
        remote = await stack.enter_async_context(agent_server())
        url, at = behind.http.url, str(behind.grpc)
        cards = {
            "jsonrpc-1": card(("JSONRPC", "1.0", url)),
            "rest-1": card(("HTTP+JSON", "1.0", url)),
            "grpc-1": card(("GRPC", "1.0", at)),
            "jsonrpc-03": {**card(), "url": url, "protocolVersion": "0.3.0"},
            "rest-03": {**card(), "url": url, "preferredTransport": "HTTP+JSON", "protocolVersion": "0.3.0"},
            "grpc-03": {**card(), "url": f"dns:///{at}", "preferredTransport": "GRPC", "protocolVersion": "0.3.0"},
            "polled": card(("JSONRPC", "1.0", url), capabilities={}),
        }
        old = {"name": "Words", "url": url, "version": "1", "capabilities": {"streaming": True}, "skills": []}
        urls = [f"{name}={remote.card(name, one)}" for name, one in cards.items()]
        urls.append(f"jsonrpc-01={remote.card('old', {**old, 'authentication': {'schemes': []}}, path=OLD_CARD)}")
        yield Pair(behind, await stack.enter_async_context(opened("front", *urls)))


def status_text(task: pb.Task) -> str:
    return "".join(part.text for part in task.status.message.parts)


def texts(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


async def test_the_playground_works_through_an_upstream_connection(pair: Pair) -> None:
    await asyncio.gather(*(check_agent(pair, agent_id) for agent_id in AGENT_IDS))


async def check_agent(pair: Pair, agent_id: str) -> None:
    async with Client(str(pair.front.grpc), agent=agent_id) as client:
        task = (await client.send(message("echo hello"))).task
        assert (task.status.state, texts(task)) == (states.COMPLETED, "hello"), agent_id
        task = (await client.send(message("data"))).task
        expected = {"hello": "world", "numbers": [1.0, 2.0, 3.0], "nested": {"true": True, "nothing": None}}
        assert MessageToDict(task.artifacts[0].parts[0].data) == expected, agent_id
        task = (await client.send(message("file"))).task
        part = task.artifacts[0].parts[0]
        assert (part.filename, part.raw) == ("hello.txt", b"hello from the playground\n"), agent_id
        events = [event async for event in client.stream(message("stream 4 1"))]
        task = await client.get(events[0].task.id)
        assert texts(task) == "chunk-1 chunk-2 chunk-3 chunk-4 ", agent_id
        task = (await client.send(message("fail"))).task
        assert (task.status.state, status_text(task)) == (states.FAILED, "RuntimeError: failing, as asked"), agent_id
        task = (await client.send(message("reject"))).task
        # 0.1 has no such state
        assert task.status.state == (states.FAILED if agent_id == "jsonrpc-01" else states.REJECTED), agent_id
        answer = await client.send(message("reply hello"))
        if agent_id == "jsonrpc-01":  # nor responses without a task
            assert (answer.task.status.state, status_text(answer.task)) == (states.COMPLETED, "hello")
        else:
            assert answer.message.parts[0].text == "hello", agent_id
        interrupted = (await client.send(message("ask"))).task
        assert (interrupted.status.state, status_text(interrupted)) == (
            states.INPUT_REQUIRED,
            "what would you like to say?",
        ), agent_id
        done = (await client.send(message("blue", task=interrupted.id))).task
        assert (done.id, done.status.state, texts(done)) == (interrupted.id, states.COMPLETED, "you said: blue"), (
            agent_id
        )
        interrupted = (await client.send(message("auth"))).task
        expected_state = states.INPUT_REQUIRED if agent_id == "jsonrpc-01" else states.AUTH_REQUIRED
        assert interrupted.status.state == expected_state, agent_id
        assert texts((await client.send(message("done", task=interrupted.id))).task) == "you said: done", agent_id
        await check_cancel(client, agent_id)


async def check_cancel(client: Client, agent_id: str) -> None:
    running = (await client.send(message("sleep 600"), configuration=NOW)).task.id
    async for event in client.subscribe(running):
        if "sleeping" in status_text(event.task) or "sleeping" in status_text(
            pb.Task(status=event.status_update.status)
        ):
            await client.cancel(running)
    assert (await client.get(running)).status.state == states.CANCELED, agent_id


async def test_a_cancel_ends_the_upstream_task(pair: Pair) -> None:
    async with Client(str(pair.front.grpc), agent="grpc-1") as client, Client(str(pair.behind.grpc)) as remote:
        await check_cancel(client, "grpc-1")
        assert [task.status.state async for task in list_tasks(remote)] == [states.CANCELED]


async def test_canceling_a_waiting_task_cancels_the_upstream_task(pair: Pair) -> None:
    async with Client(str(pair.front.grpc), agent="jsonrpc-1") as client, Client(str(pair.behind.grpc)) as remote:
        interrupted = (await client.send(message("ask"))).task
        (waiting,) = [task async for task in list_tasks(remote)]
        async with asyncio.TaskGroup() as group:
            result = group.create_task(wait_for_end(remote, waiting.id))
            await client.cancel(interrupted.id)
        assert result.result() == states.CANCELED


async def wait_for_end(client: Client, task: str) -> int:
    async with asyncio.timeout(60):
        last = 0
        async for event in client.subscribe(task):
            last = event.status_update.status.state or last
    return last


async def test_the_agent_receives_the_callers_message_unchanged(pair: Pair) -> None:
    parts = [pb.Part(text="echo  as it is "), pb.Part(url="https://x.example/y", filename="y", media_type="text/plain")]
    parts[0].metadata.update({"nested": {"list": [1.0, None, "x"]}})
    sent = message(parts=parts)
    sent.metadata.update({"key": "value"})
    sent.reference_task_ids.append("one-of-ours")
    async with Client(str(pair.front.grpc), agent="jsonrpc-1") as client, Client(str(pair.behind.grpc)) as remote:
        task = (await client.send(sent, metadata={"of": "the request"})).task
        (other,) = [task async for task in list_tasks(remote, history=10)]
        (received, *_) = (await remote.get(other.id)).history
        assert (list(received.parts), received.metadata, received.message_id) == (parts, sent.metadata, sent.message_id)
        assert not received.reference_task_ids
        assert {other.id, other.context_id}.isdisjoint({task.id, task.context_id})


async def test_tasks_of_one_context_share_one_upstream_context(pair: Pair) -> None:
    async with Client(str(pair.front.grpc), agent="jsonrpc-1") as client, Client(str(pair.behind.grpc)) as remote:
        first = (await client.send(message("echo 1"))).task
        await client.send(message("echo 2", context=first.context_id))
        await client.send(message("echo 3"))
        contexts = [task.context_id async for task in list_tasks(remote)]
        assert len(set(contexts)) == 2
        assert contexts[1] == contexts[2]


async def test_a_message_to_a_running_task_goes_to_the_upstream_task(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()

    async def wait_for_release(_: float) -> None:
        await go.wait()

    monkeypatch.setattr("dragoman.playground.asyncio", SimpleNamespace(sleep=wait_for_release))
    async with Client(str(pair.front.grpc), agent="grpc-1") as client, Client(str(pair.behind.grpc)) as remote:
        running = (await client.send(message("sleep 1"), configuration=NOW)).task.id
        await client.send(message("echo meanwhile", task=running), configuration=NOW)
        async with asyncio.timeout(60):
            while "meanwhile" not in str([task async for task in list_tasks(remote, history=10)]):  # noqa: ASYNC110 - no event signals it
                await asyncio.sleep(0.005)
        go.set()
        events = [event async for event in client.subscribe(running)]
        assert events[-1].status_update.status.state == states.COMPLETED
        assert texts(await client.get(running)) == "meanwhile"
        assert len([task async for task in list_tasks(remote)]) == 1


async def test_the_served_card_has_the_upstream_skills_and_our_urls(pair: Pair, opened: Open) -> None:
    async with opened("second", f"copy={pair.behind.http.url}") as front:
        spec = front.agents["copy"]
        assert (spec.name, front.root) == ("Playground", "copy")
        assert [skill.id for skill in spec.skills] == [skill.id for skill in pair.behind.agents["playground"].skills]
        import aiohttp

        async with aiohttp.ClientSession() as web, web.get(front.http.url + CARD) as response:
            result = await response.json()
        assert {one["url"] for one in result["supportedInterfaces"]} & {pair.behind.http.url} == set()
        assert front.http.url in {one["url"] for one in result["supportedInterfaces"]}


async def test_explain_names_the_upstream_task(pair: Pair, tmp_path: Path) -> None:
    async with Client(str(pair.front.grpc), agent="rest-1") as client:
        running = (await client.send(message("sleep 600"), configuration=NOW)).task.id
        async for event in client.subscribe(running):
            if "sleeping" in status_text(event.task) or "sleeping" in status_text(
                pb.Task(status=event.status_update.status)
            ):
                break
        (result,) = await pair.front.runtime.explainer.explain(running)
        assert result.worker.startswith(f"upstream HTTP+JSON 1.0 at {pair.behind.http.url} as its task ")
        await client.cancel(running)
