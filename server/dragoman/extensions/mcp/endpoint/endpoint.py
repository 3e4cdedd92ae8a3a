"""The MCP endpoint at `/mcp`, and below the address of each agent: requests by POST, broken streams again by GET."""

from __future__ import annotations

from aiohttp import web

from dragoman.bindings.http.connections import Response
from dragoman.extensions.mcp.endpoint.exchange import McpExchange, McpResumption
from dragoman.extensions.mcp.endpoint.services import McpServices
from dragoman.wire.errors import MethodNotAllowed


class McpEndpoint:
    """Serves the endpoint of all agents and those of single ones."""

    def __init__(self, services: McpServices) -> None:
        self._services = services

    async def serve(self, request: web.BaseRequest, path: str, tenant: str) -> Response | web.StreamResponse:
        """Serves one request. `tenant`: of the one agent that the path names; empty for all agents.

        Raises MethodNotAllowed for a GET that continues no stream: the server sends nothing by itself.
        """
        if request.method == "GET":
            if "Last-Event-ID" not in request.headers:
                raise MethodNotAllowed("GET", ("POST",))
            exchange: McpExchange = McpResumption(self._services, request, path, tenant)
        else:
            exchange = McpExchange(self._services, request, path, tenant)
        return await self._services.pipeline.serve(exchange)
