"""Discovery of MCP servers: reads the list of tools, and makes an agent spec of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import mcp_types as types
from mcp.client.client import Client

from dragoman.agents.called.agent import placeholder_spec
from dragoman.calling.errors import ProtocolError
from dragoman.core.cards.agent_spec import AgentSpec, Skill
from dragoman.core.cards.skill_schemas import SkillSchemas, with_schemas
from dragoman.extensions.mcp.servers.tasks_extension import TASKS_EXTENSION
from dragoman.extensions.mcp.sources import McpSpec, mcp_agent_id
from dragoman.extensions.mcp.wire.called_server import MAX_DESCRIPTION_CHARS, OUTPUT_SCHEMA_META

MAX_TOOL_PAGES: Final = 100
MAX_TOOLS: Final = 1000
"""Limits of what is read of a server: pages and tools of its list."""

DISCOVERY_TIMEOUT: Final = 60.0
"""Seconds in which a server that is connected has to say what it offers."""


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """A server as it describes itself."""

    spec: AgentSpec
    tools: tuple[types.Tool, ...]
    left_out: tuple[str, ...]
    """The tools that cannot be read, with the reason."""
    protocol_version: str
    has_tasks: bool
    """Whether it supports the tasks extension."""
    announces_changes: bool
    """Whether it says when its list of tools changes."""


async def read_tools(client: Client) -> tuple[types.Tool, ...]:
    """All tools of a server; none for a server without tools. Raises MCPError, ProtocolError."""
    if client.server_capabilities.tools is None:
        return ()
    tools: dict[str, types.Tool] = {}
    cursors: set[str | None] = {None}
    cursor: str | None = None
    for _ in range(MAX_TOOL_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools.update((tool.name, tool) for tool in page.tools)
        cursor = page.next_cursor
        if cursor is not None and cursor in cursors:
            raise ProtocolError("its list of tools does not end: a page names itself or an earlier one as the next")
        cursors.add(cursor)
        if len(tools) > MAX_TOOLS or cursor is None:
            break
    else:
        raise ProtocolError(f"its list of tools has more than {MAX_TOOL_PAGES} pages")
    if len(tools) > MAX_TOOLS:
        raise ProtocolError(f"it has more than {MAX_TOOLS} tools")
    return tuple(tools.values())


async def discover(server: McpSpec, client: Client, left_out: list[str]) -> DiscoveredServer:
    """Reads what a server offers. `left_out`: what the connection has left out. Raises MCPError, ProtocolError."""
    left_out.clear()
    tools = await read_tools(client)
    capabilities = client.server_capabilities
    try:
        spec = spec_of(server, client.server_info, client.instructions, tools)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    return DiscoveredServer(
        spec,
        tools,
        tuple(left_out),
        client.protocol_version,
        TASKS_EXTENSION in (capabilities.extensions or {}),
        capabilities.tools is not None and bool(capabilities.tools.list_changed),
    )


def spec_of(
    server: McpSpec, info: types.Implementation | None, instructions: str | None, tools: Sequence[types.Tool]
) -> AgentSpec:
    """The agent of a server. Raises ValueError when its name gives no valid agent id."""
    name = (info.title or info.name).strip() if info is not None else ""
    id = mcp_agent_id(server, info.name if info is not None else "")
    name = name or id
    description = (info.description if info is not None else None) or instructions or f"The tools of {name}"
    spec = unread_spec(replace(server, id=id))
    spec = replace(
        spec,
        name=name[:200],
        description=description[:MAX_DESCRIPTION_CHARS],
        version=(info.version if info is not None else "") or "1",
        skills=tuple(map(_skill, tools)),
        icon_url=_icon_url(info),
        documentation_url=_http_url(info.website_url if info is not None else None),
    )
    return with_schemas(spec, {tool.name: _schemas(tool) for tool in tools})


def unread_spec(server: McpSpec) -> AgentSpec:
    """The spec of a server whose tools were not read yet."""
    return placeholder_spec(server.id, "an MCP server whose tools", server.time_limit)


def _schemas(tool: types.Tool) -> SkillSchemas:
    hints = tool.annotations
    annotations = hints.model_dump(by_alias=True, mode="json", exclude_none=True) if hints is not None else None
    return SkillSchemas(tool.input_schema, output_schema_of(tool), annotations)


def output_schema_of(tool: types.Tool) -> Mapping[str, Any] | None:
    """The output schema of a tool that was read; None without one."""
    schema = (tool.meta or {}).get(OUTPUT_SCHEMA_META)
    return schema if isinstance(schema, dict) else None


def _skill(tool: types.Tool) -> Skill:
    hints = tool.annotations
    title = tool.title or (hints.title if hints is not None else None) or tool.name
    tags = ["mcp"]
    if hints is not None and hints.read_only_hint:
        tags.append("read-only")
    if hints is not None and hints.destructive_hint and not hints.read_only_hint:
        tags.append("destructive")
    description = (tool.description or title).strip()
    return Skill(id=tool.name, name=title, description=description[:MAX_DESCRIPTION_CHARS], tags=tuple(tags))


def _icon_url(info: types.Implementation | None) -> str:
    icons = info.icons if info is not None else None
    return next((url for icon in icons or () if (url := _http_url(icon.src))), "")


def _http_url(url: str | None) -> str:
    return url if url is not None and url.startswith(("http://", "https://")) else ""
