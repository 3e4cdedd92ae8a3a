"""What the checks of MCP clients share: agents and their tools, tasks as A2A shows them, and errors."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp_client import Handle, Json, Result, RpcError, Session

DATA = {"hello": "world", "numbers": [1, 2, 3], "nested": {"true": True, "nothing": None}}
TASK_TOOLS = ("get_task", "answer_task", "cancel_task")
INVALID_PARAMS = -32602


@dataclass(frozen=True)
class Place:
    """An agent. `http`: of its server. `tools`: names of all tools there."""

    http: str
    agent: str
    tools: frozenset[str] = frozenset()

    @property
    def endpoint(self) -> str:
        """The endpoint that has the tools of this agent only."""
        return f"{self.http}/{self.agent}/mcp"

    def tool(self, skill: str) -> str:
        """Its tool for a skill: an agent without skills is one tool."""
        name = f"{self.agent}_{skill}"
        return name if name in self.tools else self.agent


def say(text: str, **more: Any) -> Json:
    return {"message": text, **more}


async def tasks_of(place: Place, context: str) -> list[Json]:
    """The tasks of a conversation, as A2A lists them."""
    url = f"{place.http}/{place.agent}/tasks?contextId={context}"
    return json.loads(await asyncio.to_thread(_get, url))["tasks"]


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Repeats `look` until it returns something; the timeout of the check limits the wait."""
    while not (found := await look()):
        await asyncio.sleep(0.05)
    return found


def handle_in(result: Result) -> str:
    """The task that a result names, which its text has to name as well."""
    handle = result.meta["dragoman/task"]
    assert handle in result.text, (handle, result)
    return handle


async def state_of(place: Place, handle: str) -> str:
    task = json.loads(await asyncio.to_thread(_get, f"{place.http}/{place.agent}/tasks/{handle.rpartition('/')[2]}"))
    return task["status"]["state"]


async def error_of(call: Awaitable[Any]) -> RpcError:
    """The error of a call, which has to have one."""
    try:
        result = await call
    except RpcError as error:
        return error
    raise AssertionError(f"no error, but {result}")


async def check_unknown(session: Session, tool: str) -> None:
    error = await error_of(session.call(tool, {}))
    assert error.code == INVALID_PARAMS, error
    assert tool in str(error), error


async def until_status(handle: Handle, status: str) -> Json:
    async def look() -> Json | None:
        task = await handle.get()
        return task if task["status"] == status else None

    return await until(look)
