"""An MCP server without tasks, with the official SDK: `python tool_server.py PORT`. Its tools work tick by tick."""

from __future__ import annotations

import asyncio
import itertools
import sys

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from tests.chaos.actions import BEGIN, END, act
from tests.chaos.chains.agents import DONE
from tests.chaos.chains.routes import TICK, Command, chunk_text
from tests.extensions.mcp.servers.tool_server import http_server

_calls = itertools.count(1)


async def _work(text: str, context: Context) -> str:
    command, call = Command.find(text), next(_calls)
    assert command is not None, f"{text!r} is not a command"
    task, found = str(command.number), []
    act(task, call, BEGIN)
    try:
        for number in range(command.ticks):
            act(task, call, f"chunk {number}")
            await context.report_progress(number + 1, command.ticks)
            found.append(chunk_text(number))
            await asyncio.sleep(TICK)
        act(task, call, DONE)
    finally:
        act(task, call, END)
    return "".join(found)


def build() -> MCPServer:
    """The server."""
    server = MCPServer("ChainTools", description="Works for so many ticks")

    @server.tool(structured_output=False)
    async def work(command: str, context: Context) -> str:
        """Works for so many ticks; must not be repeated."""
        return await _work(command, context)

    @server.tool(structured_output=False, annotations=types.ToolAnnotations(idempotent_hint=True))
    async def work_again(command: str, context: Context) -> str:
        """Works for so many ticks; may be repeated."""
        return await _work(command, context)

    return server


async def _serve(port: int) -> None:
    async with http_server(build(), port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
