"""The client of fastmcp 4, for its checks with and without fastmcp-tasks."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from mcp import MCPError
from mcp_client import Answer, Connect, Json, OnProgress, Result, RpcError, Tool


class McpSession:
    def __init__(self, client: Client[Any]) -> None:
        self.client = client
        self.version = client.session.protocol_version or ""

    async def tools(self) -> dict[str, Tool]:
        return {
            tool.name: Tool(
                tool.description or "",
                tool.input_schema,
                tool.output_schema,
                tool.annotations.model_dump(by_alias=True) if tool.annotations else {},
            )
            for tool in await self.client.list_tools()
        }

    async def call(
        self,
        tool: str,
        arguments: Json,
        *,
        on_progress: OnProgress | None = None,
        limit: float | None = None,
        meta: Json | None = None,
    ) -> Result:
        async def report(progress: float, _: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, message or "")

        call = self.client.call_tool(
            tool, arguments, timeout=limit, progress_handler=report, raise_on_error=False, meta=meta
        )
        return result_of(await sent(call))


async def sent(call: Any) -> Any:
    try:
        return await call
    except MCPError as error:
        raise RpcError(error.code, error.message) from error
    except ToolError as error:
        raise RpcError(0, str(error)) from error


def result_of(result: Any) -> Result:
    files = {
        str(part.resource.uri): base64.b64decode(part.resource.blob)
        for part in result.content
        if isinstance(part, mcp_types.EmbeddedResource)
    }
    texts = tuple(part.text for part in result.content if isinstance(part, mcp_types.TextContent))
    return Result(texts, result.structured_content, files, result.is_error, result.meta or {})


def connecting(mode: str, session: type[McpSession] = McpSession) -> Connect:
    """How the checks connect it. `session`: a kind with tasks, which every client has that imports fastmcp_tasks."""

    @asynccontextmanager
    async def connect(url: str, answer: Answer | None = None, *, tasks: bool = False) -> AsyncIterator[McpSession]:
        async def elicit(_: str, form: type | None, params: Any, __: Any) -> Any:
            assert answer is not None
            result = await answer(params.model_dump(by_alias=True, mode="json", exclude_none=True))
            content = result.get("content")
            return ElicitResult(action=result["action"], content=form(**content) if form and content else content)

        async with Client(url, mode=mode, elicitation_handler=elicit if answer else None) as client:
            yield session(client)

    return connect
