"""An MCP server for tests, with the official SDK: `python tool_server.py stdio|http modern|old [LOG]`.

`modern` speaks 2026-07-28 with the tasks extension, `old` only the versions with a handshake. Over HTTP it prints its
URL. Each call of a tool appends a line to LOG, so that tests see which calls arrived.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import mcp_types as types
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Image, MCPServer, Resolve
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from pydantic import BaseModel

READ_ONLY = types.ToolAnnotations(read_only_hint=True)


class Size(BaseModel):
    size: str
    count: int = 1


class Name(BaseModel):
    name: str


class Nothing(BaseModel):
    pass


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Tasks(Extension):
    """The tasks extension: the tools `long` and `long_question` go on as tasks, until the file GO exists."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, log: CallLog, go: Path) -> None:
        self._log = log
        self._go = go
        self.tasks: dict[str, dict[str, Any]] = {}

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("tasks/get", TaskParams, self._get),
            MethodBinding("tasks/update", TaskParams, self._update),
            MethodBinding("tasks/cancel", TaskParams, self._cancel),
        ]

    async def intercept_tool_call(
        self, params: types.CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        if not params.name.startswith("long"):
            return await call_next(ctx)
        self._log.write(params.name)
        id = uuid.uuid4().hex
        self.tasks[id] = {"tool": params.name, "status": "working"}
        return {"resultType": "task", **self._fields(id)}

    def _fields(self, id: str) -> dict[str, Any]:
        task = self.tasks[id]
        common = {"taskId": id, "status": task["status"], "createdAt": "x", "lastUpdatedAt": "x"}
        return {**common, "ttlMs": None, "pollIntervalMs": 50, "statusMessage": f"it is {task['status']}"}

    async def _get(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        if params.task_id not in self.tasks:
            raise MCPError(types.INVALID_PARAMS, "Task not found")
        task = self.tasks[params.task_id]
        self._log.write("poll")
        if task["status"] == "working" and self._go.exists():
            asks = task["tool"] == "long_question" and "answer" not in task
            fails = task["tool"] == "long_failure"
            task["status"] = "input_required" if asks else "failed" if fails else "completed"
        found = self._fields(params.task_id)
        if task["status"] == "completed":
            content = [{"type": "text", "text": f"done: {task.get('answer', 'nothing asked')}"}]
            found["result"] = {"content": content, "isError": False}
        if task["status"] == "failed":
            found["error"] = {"code": -32603, "message": "rate limit"}
        if task["status"] == "input_required":
            schema = Name.model_json_schema()
            question = {"mode": "form", "message": "Who?", "requestedSchema": schema}
            found["inputRequests"] = {"who": {"method": "elicitation/create", "params": question}}
        return found

    async def _update(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        answer = (params.input_responses or {})["who"]
        self._log.write(f"update {answer['action']}")
        task = self.tasks[params.task_id]
        task["answer"] = (answer.get("content") or {}).get("name")
        task["status"] = "working"
        return {}

    async def _cancel(self, ctx: Any, params: TaskParams) -> dict[str, Any]:
        self._log.write("cancel")
        self.tasks[params.task_id]["status"] = "cancelled"
        return {}


class CallLog:
    """Appends a line per call to a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, line: str) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{line}\n")


async def ask_size() -> Elicit[Size]:
    return Elicit("Which size?", Size)


def tool_server(era: Literal["modern", "old"] = "modern", log_path: Path | None = None) -> MCPServer:
    """The server. log_path: a file for a line per call; the file GO beside it lets long calls end."""
    log = CallLog(log_path)
    tasks = Tasks(log, (log_path or Path("log")).with_name("GO"))
    server = MCPServer(
        "TestTools",
        title="Tools for tests",
        version="7",
        description="All kinds of tools",
        website_url="https://x.example",
        extensions=[tasks] if era == "modern" else [],
    )

    async def without_discover(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "server/discover":
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        return await call_next(ctx)

    if era == "old":
        server.middleware.append(without_discover)

    @server.tool(title="Echo", annotations=READ_ONLY)
    def echo(text: str) -> types.CallToolResult:
        """Says it again."""
        log.write(f"echo {text}")
        return types.CallToolResult(content=[types.TextContent(text=text)])

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        log.write(f"add {a} {b}")
        return a + b

    @server.tool()
    def fail(text: str) -> str:
        """Fails."""
        raise ValueError(text)

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=b"\x89PNG\r\n\x1a\n", format="png")

    @server.tool()
    async def count(to: int, context: Context) -> str:
        """Counts with progress."""
        for number in range(1, to + 1):
            await context.report_progress(number, to, f"at {number}")
        return f"counted to {to}"

    @server.tool()
    async def wait(context: Context) -> str:
        """Waits until it is canceled."""
        log.write("wait")
        await context.report_progress(1, None, "waiting")
        try:
            await asyncio.Event().wait()
        finally:
            log.write("wait ended")
        return ""

    @server.tool(annotations=READ_ONLY)
    async def look(context: Context) -> str:
        """Waits until the file GO exists; may be repeated."""
        log.write("look")
        await context.report_progress(1, None, "looking")
        while not (log_path or Path("log")).with_name("GO").exists():  # noqa: ASYNC110 (other processes create it)
            await asyncio.sleep(0.02)
        return "seen"

    @server.tool()
    async def order(answer: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
        """Orders something, and asks for the size."""
        log.write("order")
        if isinstance(answer, AcceptedElicitation):
            return f"ordered {answer.data.count} of size {answer.data.size}"
        return f"not ordered: {type(answer).__name__}"

    @server.tool(annotations=READ_ONLY)
    async def greet(context: Context) -> str:
        """Asks for a name during the call, before 2026-07-28."""
        log.write("greet")
        answer = await context.elicit("Who are you?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else f"no name: {answer.action}"

    @server.tool()
    async def greet_once(context: Context) -> str:
        """As greet, but not to be repeated."""
        log.write("greet_once")
        answer = await context.elicit("Who are you?", Name)
        return f"hello {answer.data.name}" if answer.action == "accept" else f"no name: {answer.action}"

    @server.tool()
    async def visit(context: Context) -> str:
        """Asks to visit a URL during the call, before 2026-07-28."""
        answer = await context.elicit_url("Please sign in", "https://x.example/sign-in", "e-1")
        return f"visited: {answer.action}"

    signed_in: list[bool] = []

    @server.tool()
    async def locked() -> str:
        """Asks to visit a URL with an error."""
        if signed_in:
            return "unlocked"
        signed_in.append(True)
        params = types.ElicitRequestURLParams(message="Please sign in", url="https://x.example/in", elicitation_id="e")
        raise UrlElicitationRequiredError([params])

    @server.tool()
    async def grow(context: Context) -> str:
        """Adds a tool."""

        def grown() -> str:
            """Was added."""
            return "grown"

        server.add_tool(grown)
        await context.notify_tools_changed()
        if era == "old":
            await context.session.send_tool_list_changed()
        return "added"

    @server.tool()
    def die() -> str:
        """Ends the process."""
        log.write("die")
        os._exit(3)

    if era == "modern":

        @server.tool()
        def long() -> str:
            """Goes on as a task."""
            raise NotImplementedError

        @server.tool()
        def long_question() -> str:
            """Goes on as a task that asks."""
            raise NotImplementedError

        @server.tool()
        def long_failure() -> str:
            """Goes on as a task that fails."""
            raise NotImplementedError

    return server


@asynccontextmanager
async def http_server(server: MCPServer, port: int = 0) -> AsyncIterator[str]:
    """Serves it over HTTP while the block runs. Yields its URL."""
    config = uvicorn.Config(server.streamable_http_app(), port=port, log_level="error", access_log=False)
    web = uvicorn.Server(config)
    web.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    config.load()
    running = asyncio.create_task(web.serve())
    while not web.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        web.should_exit = web.force_exit = True
        await running


async def _serve_old_stdio(server: MCPServer) -> None:
    """Serves over stdio as the SDK did before 2026-07-28: whatever the first request is, it speaks with a handshake."""
    async with stdio_server() as (read, write):
        lowlevel = server._lowlevel_server  # the SDK offers no other way to serve only older versions
        await serve_loop(lowlevel, read, write, lifespan_state={})


async def _serve(server: MCPServer, port: int) -> None:
    async with http_server(server, port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    built = tool_server(sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)  # type: ignore[arg-type]
    if sys.argv[1] == "http":
        asyncio.run(_serve(built, int(sys.argv[4]) if len(sys.argv) > 4 else 0))
    else:
        print("started", file=sys.stderr, flush=True)
        asyncio.run(_serve_old_stdio(built)) if sys.argv[2] == "old" else built.run("stdio")
