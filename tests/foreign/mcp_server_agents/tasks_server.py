"""An MCP server of FastMCP whose tools go on as tasks (SEP-2663): `tasks_server.py PORT LOG`.

Each report appends a line to LOG.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

AS_TASK = TaskConfig(mode="required", poll_interval=timedelta(seconds=0.1))
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

mcp = FastMCP("FastTools", version="1")
mcp.add_extension(TasksExtension())


def note(line: str) -> None:
    with Path(sys.argv[2]).open("a") as log:
        log.write(f"{line}\n")


@mcp.tool(task=AS_TASK)
async def report(topic: str, seconds: float = 0.5) -> str:
    """Writes a report."""
    note(topic)
    await asyncio.sleep(seconds)
    return f"report about {topic}"


@mcp.tool(task=AS_TASK)
async def ask(context: Context) -> str | types.InputRequiredResult:
    """Asks in a task."""
    responses = context.input_responses or {}
    if "who" not in responses:
        params = types.ElicitRequestFormParams(message="Who are you?", requested_schema=NAME)
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=params)})
    answer = responses["who"]
    return f"hello {answer.content['name']}" if answer.action == "accept" else f"no name: {answer.action}"


@mcp.tool(task=AS_TASK)
async def fail() -> str:
    """Fails."""
    raise ValueError("as asked")


mcp.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="WARNING")
