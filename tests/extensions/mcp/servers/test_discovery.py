"""The agent spec of an MCP server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.client.client import Client

from dragoman.calling.errors import ProtocolError
from dragoman.core.cards.agent_spec import Skill
from dragoman.extensions.mcp.servers.discovery import discover, read_tools, spec_of, unread_spec
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.extensions.mcp.wire.called_server import OUTPUT_SCHEMA_META

SERVER = McpSpec(url="http://x", time_limit=5.0)
SCHEMA: dict[str, Any] = {"type": "object"}


def client(
    pages: list[list[str]], *, name: str = "tools", capabilities: types.ServerCapabilities | None = None
) -> Client:
    """A client whose server has these pages of tools."""

    async def list_tools(*, cursor: str | None = None) -> types.ListToolsResult:
        number = int(cursor or 0)
        tools = [types.Tool(name=one, input_schema=SCHEMA) for one in pages[number]]
        more = str(number + 1) if number + 1 < len(pages) else None
        return types.ListToolsResult(tools=tools, next_cursor=more)

    return cast(
        Client,
        SimpleNamespace(
            list_tools=list_tools,
            server_capabilities=capabilities or types.ServerCapabilities(tools=types.ToolsCapability()),
            server_info=types.Implementation(name=name, version="3"),
            instructions="Call a tool.",
            protocol_version="2026-07-28",
        ),
    )


async def test_all_pages_of_tools_are_read() -> None:
    assert [tool.name for tool in await read_tools(client([["a", "b"], [], ["c", "a"]]))] == ["a", "b", "c"]
    without = types.ServerCapabilities()
    assert await read_tools(client([["a"]], capabilities=without)) == ()


@pytest.mark.parametrize(
    ("pages", "why"),
    [([["a"]] * 101, "more than 100 pages"), ([[str(i) for i in range(1001)]], "more than 1000 tools")],
)
async def test_an_endless_list_of_tools_is_rejected(pages: list[list[str]], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        await read_tools(client(pages))


async def test_a_server_is_discovered_with_its_version_and_extensions() -> None:
    capabilities = types.ServerCapabilities(
        tools=types.ToolsCapability(), extensions={"io.modelcontextprotocol/tasks": {}}
    )
    found = await discover(SERVER, client([["a"]], capabilities=capabilities), [])
    assert (found.spec.id, found.protocol_version, found.has_tasks) == ("tools", "2026-07-28", True)
    assert (found.spec.description, found.announces_changes) == ("Call a tool.", False)
    assert (found.spec.crash_retries, found.spec.time_limit, found.spec.checks_own_modes) == (100, 5.0, True)
    with pytest.raises(ProtocolError, match="gives no valid agent id"):
        await discover(SERVER, client([["a"]], name="1"), [])


def test_a_tool_is_a_skill_with_its_schemas_in_an_extension() -> None:
    tool = types.Tool(
        name="delete",
        title="Delete it",
        description=" Deletes. ",
        input_schema=SCHEMA,
        _meta={OUTPUT_SCHEMA_META: {"type": "object", "properties": {}}},
        annotations=types.ToolAnnotations(destructive_hint=True, title="Other"),
    )
    spec = spec_of(SERVER, types.Implementation(name="x", version=""), None, [tool])
    assert spec.skills == (Skill(id="delete", name="Delete it", description="Deletes.", tags=("mcp", "destructive")),)
    (extension,) = spec.extensions
    assert extension.uri == "urn:dragoman:schemas:v1"
    assert extension.params == {
        "delete": {
            "input": SCHEMA,
            "output": {"type": "object", "properties": {}},
            "annotations": {"destructiveHint": True, "title": "Other"},
        }
    }


def test_the_card_has_what_the_server_says_of_itself() -> None:
    info = types.Implementation(
        name="tools",
        title="Tools",
        version="2",
        description="Some tools",
        website_url="https://x.example",
        icons=[types.Icon(src="data:image/png;base64,AA"), types.Icon(src="https://x.example/i.png")],
    )
    spec = spec_of(SERVER, info, "unused", [])
    assert (spec.id, spec.name, spec.version, spec.description) == ("tools", "Tools", "2", "Some tools")
    assert (spec.documentation_url, spec.icon_url) == ("https://x.example", "https://x.example/i.png")
    assert (spec.skills, spec.extensions) == ((), ())


def test_a_server_that_does_not_say_who_it_is_needs_an_id() -> None:
    named = McpSpec(url="http://x", id="my-tools")
    spec = spec_of(named, None, None, [])
    assert (spec.id, spec.name, spec.version, spec.description) == (
        "my-tools", "my-tools", "1", "The tools of my-tools",
    )  # fmt: skip
    with pytest.raises(ValueError, match="gives no valid agent id"):
        spec_of(SERVER, None, None, [])
    assert unread_spec(named).name == "My tools"
