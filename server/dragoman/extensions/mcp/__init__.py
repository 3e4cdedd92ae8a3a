"""MCP: agents as tools at `/mcp`, and MCP servers as agents. This module imports no SDK; opening servers does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.extensions.mcp import sources
from dragoman.extensions.mcp.sources import McpSpec
from dragoman.ports.extension import (
    AgentHost,
    AgentSource,
    AgentSources,
    HttpPaths,
    Option,
    ServerExtension,
    StartError,
)

if TYPE_CHECKING:
    from dragoman.bindings.cards import Cards
    from dragoman.bindings.pipeline import Pipeline
    from dragoman.extensions.mcp.endpoint.endpoint import McpEndpoint

PATH: Final = "mcp"

_TALKATIVE_LOGGERS: Final = ("client", "httpx2", "mcp")
"""Loggers of the SDK, which has a line at INFO for each request, and one with the id of a session."""


class McpSettings(BaseModel):
    """The settings of the endpoint and of the servers."""

    model_config = ConfigDict(frozen=True)

    servers: Annotated[
        tuple[McpSpec, ...],
        BeforeValidator(sources.parse_mcp_servers),
        Option(
            "mcp",
            "[ID=]URL|COMMAND",
            "Also serve this MCP server as an agent; may be repeated. Disables the playground.",
            list[str],
            in_worker=True,
            may_hold_secrets=True,
        ),
    ] = ()
    """MCP servers that are served as agents, by URL or by command."""
    endpoint: Annotated[
        bool, Option("mcp_endpoint", "--mcp-endpoint/--no-mcp-endpoint", "Serve agents as MCP tools. [on]", bool)
    ] = True
    """Serve agents as MCP tools at `/mcp`."""
    wait: Annotated[
        float, Option("mcp_wait", "S", "Seconds after which an MCP call returns its unfinished task. [50]")
    ] = Field(default=50.0, gt=0, allow_inf_nan=False)
    """Most clients give up after 60 seconds."""
    handle_after: Annotated[
        float,
        Option("mcp_handle_after", "S", "Seconds after which an MCP call of a client with tasks returns a handle. [0]"),
    ] = Field(default=0.0, ge=0, allow_inf_nan=False)
    """A call that ends earlier returns its result, which saves its client the polls. Not by default: fastmcp-tasks
    takes nothing but a handle, though SEP-2663 lets the server choose."""


@asynccontextmanager
async def open_servers(settings: McpSettings, host: AgentHost) -> AsyncIterator[AgentSource]:
    """Connects to the MCP servers. Raises ImportError without the SDK, ValueError, StartError."""
    from dragoman.extensions.mcp.servers.registry import InvalidMcpServer, McpRegistry

    for name in _TALKATIVE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        specs = [sources.with_token(server) for server in settings.servers]
    except ValueError as error:
        raise ValueError(f"--mcp: token_file: {error}") from error
    servers = McpRegistry(host.open_outbound(), host.registry, host.key_values, max_response_bytes=host.response_bytes)
    try:
        await servers.connect(specs, host.reserved_ids)
    except InvalidMcpServer as error:
        await servers.close()
        raise StartError(f"--mcp: {error}") from error
    try:
        yield servers
    finally:
        await servers.close()


def open_endpoint(settings: McpSettings, pipeline: Pipeline, cards: Cards) -> Callable[[Any, str, str], Awaitable[Any]]:
    """The function that serves requests to the endpoint, which the first of them imports: 1.6 MB."""

    @cache
    def endpoint() -> McpEndpoint:
        from dragoman.extensions.mcp.endpoint.endpoint import McpEndpoint
        from dragoman.extensions.mcp.endpoint.services import McpServices

        return McpEndpoint(McpServices(pipeline, cards, settings.wait, settings.handle_after))

    async def serve(request: Any, path: str, tenant: str) -> Any:
        return await endpoint().serve(request, path, tenant)

    return serve


def catalog_entry(spec: AgentSpec, url: str, domain: str) -> Mapping[str, Any]:
    """An agent's MCP server card in the AI catalog."""
    from dragoman.extensions.mcp.endpoint import server_card

    return {"type": server_card.MEDIA_TYPE, "data": server_card.server_card(spec, url, domain)}


def banner_lines(settings: McpSettings, url: str) -> Mapping[str, str]:
    """The address of the endpoint."""
    return {"MCP": f"{url}/{PATH}"} if settings.endpoint else {}


EXTENSION: Final = ServerExtension(
    name="mcp",
    title="MCP",
    requirement="dragoman[mcp]",
    libraries=("mcp",),
    settings=McpSettings,
    agents=AgentSources(option="--mcp", is_used=lambda settings: bool(settings.servers), open=open_servers),
    http=HttpPaths(
        name=PATH,
        methods=("POST", "GET"),
        is_on=lambda settings: settings.endpoint,
        open=open_endpoint,
        request_headers=("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id"),
        response_headers=("Mcp-Session-Id",),
        catalog=catalog_entry,
    ),
    banner=banner_lines,
)
