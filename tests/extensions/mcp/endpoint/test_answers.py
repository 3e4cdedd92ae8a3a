"""Answers to questions of tasks: only to the open question, and once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.extensions.mcp.endpoint.mcp_client import (
    FORMS,
    STATELESS,
    TASKS,
    McpCaller,
    asker,
    calling,
    ended,
    question_of,
)

from dragoman import Turn, agent, types

BOTH = TASKS | FORMS


@agent(id="form", default=True)
async def form(turn: Turn) -> object:
    """Asks for an object, then tells what it got."""
    if turn.question is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
        turn.ask([types.text("Who are you?"), types.data({"schema": {**schema, "required": ["name"]}})])
    return {"text": turn.text, "data": turn.data, "refused": dict(turn.message.metadata)}


@agent(id="twice", default=True)
async def twice(turn: Turn) -> str:
    """Asks two questions."""
    answers = [*turn.state.get("answers", []), *([turn.text] if turn.question else [])]
    turn.state["answers"] = answers
    if len(answers) < 2:
        turn.ask(f"question {len(answers) + 1}?")
    return ", ".join(answers)


async def begin(caller: McpCaller, tool: str) -> tuple[str, str]:
    """Begins a task that asks. Returns its handle and the key of its question."""
    handle = (await caller.call(tool, message="hello")).result["taskId"]
    return handle, await question_of(caller, handle)


async def answer(caller: McpCaller, handle: str, **responses: Any) -> dict[str, Any]:
    """Updates a task, and returns the acknowledgment."""
    return (await caller.request("tasks/update", {"taskId": handle, "inputResponses": responses})).result


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def test_an_object_is_answered_as_data() -> None:
    async with calling(form, capabilities=BOTH) as caller:
        handle, key = await begin(caller, "form")
        request = (await caller.request("tasks/get", {"taskId": handle})).result["inputRequests"][key]
        acknowledged = await answer(caller, handle, **{key: accept(name="Ada", age=36)})
        task = await ended(caller, handle)
    assert request["params"]["requestedSchema"]["required"] == ["name"]
    assert acknowledged == {"resultType": "complete"}
    assert task["result"]["structuredContent"]["data"] == [{"name": "Ada", "age": 36}]


async def test_an_answer_that_lacks_a_required_field_changes_nothing() -> None:
    async with calling(form, capabilities=BOTH) as caller:
        handle, key = await begin(caller, "form")
        params = {"taskId": handle, "inputResponses": {key: accept(age=36)}}
        rejected = (await caller.request("tasks/update", params)).error
        same = await question_of(caller, handle)
    assert rejected["message"] == "content.name: is required"
    assert same == key


async def test_a_user_that_declines_is_told_to_the_agent() -> None:
    async with calling(form, capabilities=BOTH) as caller:
        handle, key = await begin(caller, "form")
        await answer(caller, handle, **{key: {"action": "decline"}})
        task = await ended(caller, handle)
    content = task["result"]["structuredContent"]
    assert (content["text"], content["refused"]) == ("The user declined to answer.", {"elicitation": "decline"})


async def test_each_question_has_a_key_of_its_own_and_other_answers_are_ignored() -> None:
    async with calling(twice, capabilities=BOTH) as caller:
        handle, first = await begin(caller, "twice")
        await answer(caller, handle, unknown=accept(answer="x"), **{first: accept(answer="a")})
        second = await question_of(caller, handle)
        while second == first:
            second = await question_of(caller, handle)
        await answer(caller, handle, **{first: accept(answer="late")})
        await answer(caller, handle, **{second: accept(answer="b")})
        task = await ended(caller, handle)
    assert task["result"]["content"] == [{"type": "text", "text": "a, b"}]


async def test_answers_at_the_same_time_count_once() -> None:
    async with calling(asker, capabilities=BOTH) as caller:
        handle, key = await begin(caller, "asker")
        sizes = ("small", "large") * 8
        await asyncio.gather(*(answer(caller, handle, **{key: accept(answer=size)}) for size in sizes))
        task = await ended(caller, handle)
        async with caller.session.get(
            f"{caller.url.removesuffix('/mcp')}/asker/tasks/{handle.partition('/')[2]}", headers={"A2A-Version": "1.0"}
        ) as response:
            history = (await response.json())["history"]
    assert task["result"]["content"][0]["text"] in ("chosen: small", "chosen: large")
    assert [one["role"] for one in history].count("ROLE_USER") == 2, "the call, and one answer"


async def test_a_client_without_elicitation_gets_the_question_as_a_text() -> None:
    async with calling(asker, capabilities=TASKS) as caller:
        handle = (await caller.call("asker", message="hello")).result["taskId"]
        task: dict[str, Any] = {"status": "working"}
        while task["status"] == "working":
            task = (await caller.request("tasks/get", {"taskId": handle})).result
    assert task["inputRequests"] == {}
    assert task["statusMessage"].startswith("Which size?")
    assert "answer_task" in task["statusMessage"]


async def test_a_sign_in_is_asked_with_its_url() -> None:
    @agent(id="signin", default=True)
    async def signin(turn: Turn) -> str:
        """Needs a sign-in."""
        if turn.question is None:
            turn.need_auth([types.text("Sign in at"), types.link("https://login.example/start")])
        return f"signed in: {turn.text}"

    urls = {**TASKS, "elicitation": {"url": {}}}
    async with calling(signin, capabilities=urls) as caller:
        handle, key = await begin(caller, "signin")
        request = (await caller.request("tasks/get", {"taskId": handle})).result["inputRequests"][key]
        await answer(caller, handle, **{key: {"action": "accept"}})
        task = await ended(caller, handle)
    assert request["params"]["mode"] == "url"
    assert request["params"]["url"] == "https://login.example/start"
    assert task["result"]["content"][0]["text"] == "signed in: done"
    assert caller.version == STATELESS


async def test_an_object_can_be_answered_as_json_with_the_tool() -> None:
    async with calling(form) as caller:
        question = await caller.call("form", message="hello")
        result = await caller.call(
            "answer_task", task=question.result["_meta"]["dragoman/task"], answer='{"name": "Ada", "age": 36}'
        )
    assert '"required":["name"]' in question.text_content, "the text tells the form of the answer"
    assert result.result["structuredContent"]["data"] == [{"name": "Ada", "age": 36}]


async def test_a_sign_in_during_a_turn_sends_the_agent_no_message() -> None:
    signed_in, waiting = asyncio.Event(), asyncio.Event()

    @agent(id="signin", default=True)
    async def signin(turn: Turn) -> str:
        """Waits for a sign-in elsewhere, while its turn goes on."""
        turn.status([types.text("Sign in at"), types.link("https://login.example")], types.AUTH_REQUIRED)
        await turn.flush()
        waiting.set()
        await signed_in.wait()
        return "signed in"

    async with calling(signin, capabilities={**TASKS, "elicitation": {"url": {}}}) as caller:
        handle = (await caller.call("signin", message="hello")).result["taskId"]
        await waiting.wait()
        await answer(caller, handle, **{await question_of(caller, handle): {"action": "accept"}})
        signed_in.set()
        task = await ended(caller, handle)
        url = f"{caller.url.removesuffix('/mcp')}/signin/tasks/{handle.partition('/')[2]}"
        async with caller.session.get(url, headers={"A2A-Version": "1.0"}) as response:
            history = (await response.json())["history"]
    assert task["status"] == "completed"
    assert [one["role"] for one in history].count("ROLE_USER") == 1
