"""MCP clients of Node for the checks in Python: the other end of mcp_bridge.mjs."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp_client import Answer, Connect, EndOfNotices, Json, OnProgress, Result, RpcError, Tool

LINE_LIMIT = 2**26


class Bridge:
    """A process of Node with the client, in the folder of its environment."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._reports: dict[int, OnProgress] = {}
        self._users: dict[str, Answer] = {}
        self.notices: dict[int, asyncio.Queue[Json | None]] = defaultdict(asyncio.Queue)
        """Of each `listen`, by its id; None for the end."""
        self._answering: set[asyncio.Task[None]] = set()

    async def request(self, op: str, *, on_progress: OnProgress | None = None, **fields: Any) -> Any:
        """Runs an operation. Raises RpcError."""
        id = next(self._ids)
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[id] = found
        if on_progress is not None:
            self._reports[id] = on_progress
        self._write({"id": id, "op": op, **fields})
        return await found

    def _write(self, line: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def read(self) -> None:
        """Reads what the client says, until its end."""
        assert self._process.stdout is not None
        async for text in self._process.stdout:
            line = json.loads(text)
            if "question" in line:
                task = asyncio.ensure_future(self._answer(line))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            elif "notice" in line:
                self.notices[line["id"]].put_nowait(line["notice"])
            elif "progress" in line:
                self._reports[line["id"]](line["progress"], line["message"])
            elif "error" in line:
                error = RpcError(line["error"]["code"], line["error"]["message"])
                self._calls.pop(line["id"]).set_exception(error)
            else:
                self._calls.pop(line["id"]).set_result(line["result"])
        for call in self._calls.values():
            call.set_exception(RpcError(0, "the client's process ended"))

    async def _answer(self, line: Json) -> None:
        result = await self._users[line["session"]](line["params"])
        self._write({"op": "answer", "question": line["question"], "result": result})

    async def connect(self, url: str, answer: Answer | None, **options: Any) -> NodeSession:
        connected = await self.request("connect", url=url, answers=answer is not None, **options)
        if answer is not None:
            self._users[connected["session"]] = answer
        return NodeSession(self, connected["session"], connected["version"])


class NodeNotices:
    def __init__(self, queue: asyncio.Queue[Json | None]) -> None:
        self._queue = queue

    async def wait(self) -> Json:
        notice = await self._queue.get()
        if notice is None:
            raise EndOfNotices
        return notice


class NodeTask:
    def __init__(self, bridge: Bridge, session: str, id: str) -> None:
        self._request = bridge.request
        self._fields = {"session": session, "task": id}
        self.id = id

    async def get(self) -> Json:
        return await self._request("get", **self._fields)

    async def cancel(self) -> None:
        await self._request("cancel", **self._fields)

    async def result(self) -> Result:
        return result_of(await self._request("result", **self._fields))


class NodeSession:
    def __init__(self, bridge: Bridge, session: str, version: str) -> None:
        self._bridge = bridge
        self._session = session
        self.version = version

    async def tools(self) -> dict[str, Tool]:
        listed = await self._bridge.request("tools", session=self._session)
        return {
            tool["name"]: Tool(
                tool.get("description", ""), tool["inputSchema"], tool.get("outputSchema"), tool.get("annotations", {})
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
        fields = {"session": self._session, "tool": tool, "args": arguments, "limit": limit, "meta": meta}
        reports = on_progress is not None
        return result_of(await self._bridge.request("call", on_progress=on_progress, reports=reports, **fields))

    async def start(self, tool: str, arguments: Json) -> NodeTask:
        return self.handle(await self._bridge.request("start", session=self._session, tool=tool, args=arguments))

    def handle(self, id: str) -> NodeTask:
        return NodeTask(self._bridge, self._session, id)

    @asynccontextmanager
    async def listen(self, *tasks: str) -> AsyncIterator[NodeNotices]:
        subscription = await self._bridge.request("listen", session=self._session, handles=tasks)
        try:
            yield NodeNotices(self._bridge.notices[subscription])
        finally:
            await self._bridge.request("unlisten", subscription=subscription)

    async def close(self) -> None:
        await self._bridge.request("close", session=self._session)


def result_of(result: Json) -> Result:
    content = result["content"]
    files = {
        part["resource"]["uri"]: base64.b64decode(part["resource"]["blob"])
        for part in content
        if part["type"] == "resource"
    }
    texts = tuple(part["text"] for part in content if part["type"] == "text")
    meta = result.get("_meta", {})
    return Result(texts, result.get("structuredContent"), files, result.get("isError", False), meta)


@asynccontextmanager
async def bridge(folder: str) -> AsyncIterator[Bridge]:
    """Starts the client in the folder of its environment."""
    process = await asyncio.create_subprocess_exec(
        "node",
        "mcp_bridge.mjs",
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    found = Bridge(process)
    reading = asyncio.ensure_future(found.read())
    try:
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await reading


def connecting(client: Bridge, **options: Any) -> Connect:
    """How the checks connect it. `options`: of the adapter."""

    @asynccontextmanager
    async def connect(url: str, answer: Answer | None = None, *, tasks: bool = False) -> AsyncIterator[NodeSession]:
        session = await client.connect(url, answer, tasks=tasks, **options)
        try:
            yield session
        finally:
            await session.close()

    return connect
