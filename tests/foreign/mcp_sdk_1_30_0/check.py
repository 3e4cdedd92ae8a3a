"""The official Python SDK 1.30.0: MCP 2025-11-25."""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, EmbeddedResource, TextContent
from mcp_client import Answer, Json, OnProgress, Result, RpcError, Tool
from mcp_run import check_client


class McpSession:
    def __init__(self, session: ClientSession, version: str) -> None:
        self._session = session
        self.version = version

    async def tools(self) -> dict[str, Tool]:
        listed = (await self._session.list_tools()).tools
        return {
            tool.name: Tool(
                tool.description or "",
                tool.inputSchema,
                tool.outputSchema,
                tool.annotations.model_dump() if tool.annotations else {},
            )
            for tool in listed
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
            assert on_progress is not None
            on_progress(progress, message or "")

        try:
            result = await self._session.call_tool(
                tool,
                arguments,
                read_timeout_seconds=timedelta(seconds=limit) if limit else None,
                progress_callback=report if on_progress else None,
                meta=meta,
            )
        except McpError as error:
            raise RpcError(error.error.code, error.error.message) from error
        return result_of(result)


def result_of(result: CallToolResult) -> Result:
    files = {
        str(part.resource.uri): base64.b64decode(part.resource.blob)
        for part in result.content
        if isinstance(part, EmbeddedResource)
    }
    texts = tuple(part.text for part in result.content if isinstance(part, TextContent))
    return Result(texts, result.structuredContent, files, result.isError, result.meta or {})


@asynccontextmanager
async def connect(url: str, answer: Answer | None = None, *, tasks: bool = False) -> AsyncIterator[McpSession]:
    assert not tasks

    async def elicit(_: Any, params: ElicitRequestParams) -> ElicitResult:
        assert answer is not None
        return ElicitResult.model_validate(await answer(params.model_dump(by_alias=True, mode="json")))

    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, elicitation_callback=elicit if answer else None) as session,
    ):
        initialized = await session.initialize()
        yield McpSession(session, str(initialized.protocolVersion))


logging.getLogger("client").setLevel(logging.ERROR)  # warns of tools that were not listed first
finish(asyncio.run(check_client("mcp", "2025-11-25", connect, arguments(), tells_end=False)))
