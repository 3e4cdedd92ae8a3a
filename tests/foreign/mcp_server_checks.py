"""Checks of MCP clients against a server with several agents (mcp_agents.py).

Given a `Connect`, the URL of the server and the ids of its agents.
"""

from __future__ import annotations

import json

from checks import Checks
from mcp_client import Connect, Json, refuse
from mcp_helpers import TASK_TOOLS, check_unknown, handle_in, say

whole = Checks()


@whole.of("list")
async def one_endpoint_has_the_tools_of_all_agents(connect: Connect, http: str, agents: frozenset[str]) -> None:
    async with connect(f"{http}/mcp") as session:
        tools = set(await session.tools())
        assert {name.partition("_")[0] for name in tools - set(TASK_TOOLS)} == agents
        assert (await session.call("playground_echo", say("echo hello"))).text == "hello"
    async with connect(f"{http}/sum/mcp") as session:
        assert set(await session.tools()) == {"sum", *TASK_TOOLS}
        await check_unknown(session, "playground_echo")


@whole.of("list", "call")
async def declared_schemas_are_those_of_the_tool(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/sum/mcp") as session:
        tool = (await session.tools())["sum"]
        assert set(tool.input["properties"]) == {"a", "b"}, tool
        assert tool.input["required"] == ["a", "b"], tool
        assert tool.output is not None
        assert set(tool.output["properties"]) == {"total"}, tool
        assert tool.annotations["readOnlyHint"] is True, tool
        result = await session.call("sum", {"a": 2, "b": 3})
        assert (result.data, json.loads(result.text)) == ({"total": 5}, {"total": 5}), result


@whole.of("errors")
async def arguments_are_checked_against_the_declared_schema(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/sum/mcp") as session:
        for arguments, named in (({"a": 1}, "b"), ({"a": 1, "b": "x"}, "b"), ({"a": 1, "b": 2, "c": 3}, "c")):
            result = await session.call("sum", arguments)
            assert result.is_error, result
            assert named in result.text, result


@whole.of("list", "call")
async def an_array_is_a_result(connect: Connect, http: str, _: frozenset[str]) -> None:
    async with connect(f"{http}/numbers/mcp") as session:
        assert "numbers" in await session.tools()
        result = await session.call("numbers", {"count": 3})
        assert (json.loads(result.text), result.is_error) == ([0, 1, 2], False), result
        if session.version == "2026-07-28":
            assert result.data == [0, 1, 2], result


@whole.of("input")
async def a_form_has_the_fields_of_the_question(connect: Connect, http: str, _: frozenset[str]) -> None:
    questions: list[Json] = []

    async def answer(question: Json) -> Json:
        questions.append(question)
        return {"action": "accept", "content": {"size": "small", "count": 2}}

    async with connect(f"{http}/order/mcp", answer) as session:
        assert (await session.call("order", say("lunch"))).text == "2 small"
    (question,) = questions
    assert question["requestedSchema"]["properties"]["size"]["enum"] == ["small", "large"], question
    async with connect(f"{http}/order/mcp", refuse("decline")) as session:
        assert (await session.call("order", say("lunch"))).text.startswith("no order")


@whole.of("input")
async def a_second_question_is_asked_too(connect: Connect, http: str, _: frozenset[str]) -> None:
    questions: list[str] = []

    async def answer(question: Json) -> Json:
        questions.append(question["message"])
        return {"action": "accept", "content": {"answer": "blue" if len(questions) == 1 else "3"}}

    async with connect(f"{http}/twice/mcp", answer) as session:
        assert (await session.call("twice", say("go"))).text == "blue 3"
    assert questions == ["Which color?", "How many?"], questions


@whole.of("input")
async def a_user_is_sent_to_sign_in(connect: Connect, http: str, _: frozenset[str]) -> None:
    questions: list[Json] = []

    async def answer(question: Json) -> Json:
        questions.append(question)
        return {"action": "accept"}

    async with connect(f"{http}/signed/mcp", answer) as session:
        assert (await session.call("signed", say("go"))).text == "signed in"
    (question,) = questions
    assert (question["mode"], question["url"]) == ("url", "https://login.example/start"), question


@whole.of("call")
async def a_large_result_arrives(connect: Connect, http: str, _: frozenset[str]) -> None:
    length = 1_500_000  # more than the Python client reads from one event of a stream
    async with connect(f"{http}/large/mcp") as session:
        for on_progress in (None, lambda *_: None):
            result = await session.call("large", say(str(length)), on_progress=on_progress)
            if len(result.text) != length:
                result = await session.call("get_task", {"task": handle_in(result)})
            assert result.text == "x" * length, result.text[:300]
