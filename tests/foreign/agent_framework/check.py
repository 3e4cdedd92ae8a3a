"""agent-framework-a2a: Microsoft's `A2AAgent` with a card or a URL, of a server that was started without options."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from a2a.client import A2ACardResolver
from a2a.utils.errors import TaskNotFoundError
from agent_framework import AgentSession, Content, Message
from agent_framework.a2a import A2AAgent
from checks import Checks, arguments, finish, raises, started

check = Checks("agent-framework-a2a")


@asynccontextmanager
async def remote(url: str) -> AsyncIterator[A2AAgent]:
    """The agent of the server's card."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(httpx_client=http, base_url=url).get_agent_card()
    async with A2AAgent(agent_card=card) as agent:
        yield agent


def contents(response: Any) -> list[Content]:
    return [content for message in response.messages for content in message.contents]


@check.of("card", "send")
async def it_reads_the_card_and_calls_the_agent(url: str) -> None:
    async with remote(url) as agent:
        assert agent.name == "Playground", agent.name
        assert (await agent.run("echo hello")).text == "hello"
        assert (await agent.run("reply hi")).text == "hi"


@check.of("send")
async def the_url_of_the_server_is_enough(url: str) -> None:
    async with A2AAgent(name="remote", url=url) as agent:
        assert (await agent.run("echo hello")).text == "hello"


@check.of("stream")
async def a_stream_brings_each_chunk(url: str) -> None:
    async with remote(url) as agent:
        updates = [update.text async for update in agent.run("stream 4 10", stream=True)]
    assert updates == [f"chunk-{number} " for number in range(1, 5)], updates


@check.of("send")
async def files_and_data_go_there_and_back(url: str) -> None:
    sent = Content.from_data(b"\x00\x01\xff", "application/octet-stream")
    async with remote(url) as agent:
        (file,) = contents(await agent.run(Message(role="user", contents=[sent])))
        assert (file.uri, file.media_type) == (sent.uri, sent.media_type), file
        (data,) = contents(await agent.run("data"))
        assert '"hello": "world"' in data.text, data


@check.of("follow-up")
async def a_session_answers_the_question_of_a_task_and_goes_on(url: str) -> None:
    session = AgentSession()
    async with remote(url) as agent:
        question = await agent.run("ask", session=session)
        assert question.text == "what would you like to say?", question
        waiting = dict(session.service_session_id)
        assert (await agent.run("blue", session=session)).text == "you said: blue"
        assert session.service_session_id["task_id"] == waiting["task_id"]
        assert (await agent.run("echo on", session=session)).text == "on"
        assert session.service_session_id["context_id"] == waiting["context_id"]


@check.of("non-blocking send", "get", "subscribe")
async def a_task_in_the_background_is_polled_and_followed(url: str) -> None:
    async with remote(url) as agent:
        begun = await agent.run("stream 5 100", background=True)
        token = begun.continuation_token
        assert token is not None, begun
        followed = [update async for update in agent.run(stream=True, continuation_token=token)]
        assert followed, "no events"
        ended = await agent.poll_task(token)
    assert ended.text == "".join(f"chunk-{number} " for number in range(1, 6)), ended
    assert ended.continuation_token is None


@check.of("errors")
async def a_failed_task_and_an_unknown_one_are_reported(url: str) -> None:
    async with remote(url) as agent:
        updates = [update.text async for update in agent.run("fail", stream=True)]
        assert updates == ["RuntimeError: failing, as asked"], updates
        await raises(TaskNotFoundError, agent.poll_task({"task_id": "no-such-task", "context_id": ""}))


def main() -> bool:
    with started(arguments().project, lists_grpc=False) as server:
        return asyncio.run(check.run("JSONRPC", server.addresses["http"]))


finish(main())
