"""G4: repeated sends with a key run once on every binding; a key with other content is rejected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.client.test_bindings import PROTOCOLS, Server, text_of

from dragoman import Turn, agent
from dragoman.client import ClientError
from dragoman.client.calls import message
from dragoman.settings.settings import Address, Settings
from dragoman.wiring.app import open_app
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

pytestmark = pytest.mark.long

EVERY_BINDING = pytest.mark.parametrize(("dialect", "binding"), PROTOCOLS)


RUNS: dict[str, int] = {}


@agent(default=True, direct=True)
async def counting(turn: Turn) -> str | None:
    RUNS[turn.text] = RUNS.get(turn.text, 0) + 1
    match turn.text.split()[0]:
        case "reply":
            turn.reply(f"reply {RUNS[turn.text]}")
        case "ask":
            turn.ask("which?")
        case "slow":
            turn.status("working")
            await asyncio.sleep(0.2)
    return f"run {RUNS[turn.text]}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    RUNS.clear()
    any_port = Address("127.0.0.1", 0)
    settings = Settings(http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/tasks.db")
    async with open_app(settings, [counting]) as app:
        yield Server(f"http://{app.http}", str(app.grpc))


@EVERY_BINDING
async def test_concurrent_sends_with_one_key_run_once(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        task_id = "t1" if dialect == "0.1" else ""
        sends = [client.send(message("slow one", task=task_id), key="k") for _ in range(5)]
        responses = await asyncio.gather(*sends)
    assert len({response.task.id for response in responses}) == 1
    assert {text_of(response.task) for response in responses} == {"run 1"}
    assert RUNS == {"slow one": 1}


@EVERY_BINDING
async def test_a_repeated_stream_request_returns_all_events(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        task_id = "t1" if dialect == "0.1" else ""

        async def stream() -> list[str]:
            events = [event async for event in client.stream(message("slow one", task=task_id), key="k")]
            return [str(event.WhichOneof("payload")) for event in events]

        first, repeated = await stream(), await stream()
    assert first == repeated
    assert RUNS == {"slow one": 1}


async def test_a_client_of_0_1_that_lost_the_answer_gets_the_finished_task(server: Server) -> None:
    async with server.client("0.1", "jsonrpc") as client:
        first = (await client.send(message("one", task="t1"), key="a")).task
        repeated = (await client.send(message("one", task="t1"), key="b")).task
        assert (repeated.id, text_of(repeated)) == (first.id, text_of(first))
        events = [event async for event in client.stream(message("one", task="t1"), key="c")]
        assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
        assert RUNS == {"one": 1}


async def test_other_metadata_restarts_an_ended_task_of_0_1(server: Server) -> None:
    async with aiohttp.ClientSession(server.http) as http:
        texts = []
        for amount in (5, 5, 6):
            sent = {"role": "user", "parts": [{"type": "text", "text": "pay"}]}
            params = {"id": "t1", "message": sent, "metadata": {"amount": amount}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params}
            async with http.post("/", json=body) as answer:
                task = (await answer.json())["result"]
            texts.append(task["artifacts"][0]["parts"][0]["text"])
    assert texts == ["run 1", "run 1", "run 2"]


async def test_other_content_restarts_an_ended_task_of_0_1(server: Server) -> None:
    """`tasks/send`: "to create, continue, or restart a task"."""
    async with server.client("0.1", "jsonrpc") as client, server.client("1.0", "jsonrpc") as later:
        # The last one begins a third task: only the answer to the last message may have been lost.
        for text, result in (("one", "run 1"), ("two", "run 1"), ("one", "run 2")):
            task = (await client.send(message(text, task="t1"))).task
            assert (task.id, text_of(task)) == ("t1", result)
        async with aiohttp.ClientSession() as http, http.get(f"{server.http}/tasks") as answer:
            ids = [one["id"] for one in (await answer.json())["tasks"]]
        assert [id == "t1" for id in ids] == [True, False, False]
        assert [text_of(await later.get(id)) for id in ids] == ["run 2", "run 1", "run 1"]
        with pytest.raises(ClientError) as caught:  # a restart is the word of 0.1 alone
            await later.send(message("three", task="t1"))
    assert caught.value.reason == "UNSUPPORTED_OPERATION"


async def test_a_key_of_an_earlier_run_is_answered_with_the_id_of_its_client(server: Server) -> None:
    async with server.client("0.1", "jsonrpc") as client:
        await client.send(message("ask", task="t1"))
        for key, text in (("a", "one"), ("b", "two"), ("a", "one")):
            task = (await client.send(message(text, task="t1"), key=key)).task
            assert (task.id, text_of(task)) == ("t1", "run 1")
    sent = {"role": "user", "parts": [{"type": "text", "text": "one"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/sendSubscribe", "params": {"id": "t1", "message": sent}}
    async with (
        aiohttp.ClientSession(server.http, headers={"Idempotency-Key": "a"}) as http,
        http.post("/", json=body) as answer,
    ):
        events = [json.loads(line[5:])["result"] async for line in answer.content if line.startswith(b"data:")]
    assert ({event["id"] for event in events}, RUNS) == ({"t1"}, {"ask": 1, "one": 1, "two": 1})
    assert events[-1]["status"]["state"] == "completed"


async def test_an_ended_task_whose_id_is_ours_is_not_restarted(server: Server) -> None:
    """No request could reach a second task with this id, not even the next message to it."""
    async with server.client("1.0", "jsonrpc") as client, server.client("0.1", "jsonrpc") as named:
        task = (await client.send(message("one"))).task
        for text in ("ask", "two"):
            with pytest.raises(ClientError) as caught:
                await named.send(message(text, task=task.id))
            assert caught.value.reason == "INVALID_PARAMS"
        repeated = (await named.send(message("one", task=task.id))).task
        assert (repeated.id, text_of(repeated)) == (task.id, "run 1")
    assert RUNS == {"one": 1}


@EVERY_BINDING
async def test_a_key_with_other_content_is_rejected(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        await client.send(message("one", task="t1" if dialect == "0.1" else ""), key="k")
        with pytest.raises(ClientError) as caught:
            await client.send(message("two", task="t2" if dialect == "0.1" else ""), key="k")
    assert caught.value.reason in ("IDEMPOTENCY_KEY_REUSED", "INVALID_PARAMS")
    assert "new key" in caught.value.message
    assert RUNS == {"one": 1}


@pytest.mark.parametrize(("dialect", "binding"), [("1.0", "grpc"), ("1.0", "rest"), ("0.3", "jsonrpc")])
@pytest.mark.usefixtures("time_to_think")
async def test_keys_apply_to_direct_replies_and_follow_ups(server: Server, dialect: str, binding: str) -> None:
    async with server.client(dialect, binding) as client:
        replies = [await client.send(message("reply x"), key="k1") for _ in range(2)]
        assert {part.text for reply in replies for part in reply.message.parts} == {"reply 1"}
        task = (await client.send(message("ask"))).task
        assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
        follow_ups = [await client.send(message("blue", task=task.id), key="k2") for _ in range(2)]
        assert {text_of(response.task) for response in follow_ups} == {"run 1"}
    assert RUNS == {"reply x": 1, "ask": 1, "blue": 1}


async def test_a_key_that_is_too_long_is_rejected(server: Server) -> None:
    async with server.client("1.0", "grpc") as client:
        with pytest.raises(ClientError, match="at most 255"):
            await client.send(message("x"), key="k" * 256)
    assert RUNS == {}


@pytest.mark.parametrize("enabled", [True, False])
async def test_message_ids_are_keys_if_enabled(tmp_path: Path, enabled: bool) -> None:
    RUNS.clear()
    any_port = Address("127.0.0.1", 0)
    settings: Any = Settings(
        http=any_port, grpc=any_port, store=f"sqlite:///{tmp_path}/m.db", idempotent_message_ids=enabled
    )
    body = {"message": {"messageId": "same", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    async with open_app(settings, [counting]) as app, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(f"http://{app.http}/message:send", json=body) as response:
                assert response.status == 200
    assert {"x": 1 if enabled else 2} == RUNS
