"""The list of tools: of the agents that a caller may call, in one order."""

from __future__ import annotations

import aiohttp
from tests.callers import named
from tests.extensions.mcp.endpoint.mcp_client import McpCaller, calling, serving

from dragoman import Skill, Turn, agent
from dragoman.playground import playground


@agent(
    default=True,
    skills=[
        Skill(id="add", name="Add", description="Adds numbers", examples=("1 + 1",)),
        Skill(id="multiply", name="Multiply", description="Multiplies numbers"),
    ],
    extended_skills=[Skill(id="divide", name="Divide", description="Divides numbers")],
    icon_url="https://example.com/icon.png",
)
async def calculator(turn: Turn) -> str:
    """Calculates."""
    return f"{turn.skill}: {turn.text}"


@agent
async def plain(turn: Turn) -> str:
    """Has no skills."""
    return turn.text


async def test_skills_are_tools_and_an_agent_without_any_is_one_itself() -> None:
    async with calling(plain, calculator) as caller:
        listed = (await caller.request("tools/list")).result
        called = await caller.call("calculator_add", message="1 + 2")
    names = [tool["name"] for tool in listed["tools"]]
    assert names == ["calculator_add", "calculator_multiply", "plain", "get_task", "answer_task", "cancel_task"]
    add = listed["tools"][0]
    assert add["title"] == "Calculator: Add"
    assert add["description"] == "Adds numbers\nExamples: 1 + 1"
    assert add["icons"] == [{"src": "https://example.com/icon.png"}]
    assert add["inputSchema"]["properties"].keys() == {"message", "data", "contextId"}
    assert called.text_content == "add: 1 + 2", "the agent knows which skill was called"


async def test_skills_for_authenticated_callers_are_hidden_from_others() -> None:
    async with (
        serving(calculator, plain, api_keys=True, public_agents=("calculator",)) as app,
        aiohttp.ClientSession() as session,
    ):
        url = f"{app.http.url}/mcp"
        anonymous, alice = McpCaller(session, url), McpCaller(session, url, headers=named("alice"))
        public = (await anonymous.request("tools/list")).result
        private = (await alice.request("tools/list")).result
        hidden = await anonymous.call("calculator_divide", message="4 / 2")
        shown = await alice.call("calculator_divide", message="4 / 2")
    names = [tool["name"] for tool in public["tools"]]
    assert names == ["calculator_add", "calculator_multiply", "get_task", "answer_task", "cancel_task"]
    assert {tool["name"] for tool in private["tools"]} - set(names) == {"calculator_divide", "plain"}
    assert public["cacheScope"] == "private"
    assert hidden.error["code"] == -32602
    assert shown.text_content == "divide: 4 / 2"


async def test_older_revisions_see_output_schemas_of_objects_only() -> None:
    @agent(id="list", output={"type": "array"}, default=True)
    async def lister(turn: Turn) -> list[int]:
        """Returns a list."""
        return [1]

    async with calling(lister) as caller:
        new = (await caller.request("tools/list")).result["tools"][0]
        caller.version = "2025-11-25"
        old = (await caller.request("tools/list")).result
    assert new["outputSchema"] == {"type": "array"}
    assert "outputSchema" not in old["tools"][0]
    assert "ttlMs" not in old


async def test_the_commands_of_the_playground_are_tools() -> None:
    async with calling(playground) as caller:
        echoed = await caller.call("playground_echo", message="hello there")
        streamed = await caller.call("playground_stream", message="2")
        whole = await caller.call("playground_stream", message="stream 1")
    assert [one.text_content for one in (echoed, streamed, whole)] == ["hello there", "chunk-1 chunk-2 ", "chunk-1 "]


async def test_the_address_of_an_agent_has_its_name_and_version() -> None:
    async with calling(plain, path="/plain/mcp") as caller:
        info = (await caller.request("server/discover")).result["_meta"]["io.modelcontextprotocol/serverInfo"]
        caller.version = "2025-11-25"
        assert (await caller.initialize()).result["serverInfo"] == info
    assert info == {"name": "plain", "title": "Plain", "version": "1.0.0"}


async def test_a_list_has_one_page() -> None:
    async with calling(plain) as caller:
        answer = await caller.request("tools/list", {"cursor": "x"})
    assert answer.error["message"] == "cursor: must be absent: the list has one page"
