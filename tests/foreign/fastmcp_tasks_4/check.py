"""fastmcp-tasks 4.1.4: tasks of MCP 2026-07-28.

It needs fastmcp 4.1.4. Importing it makes every client declare the extension for tasks.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checks import arguments, finish
from fastmcp_client import McpSession, connecting, result_of, sent
from fastmcp_tasks.client import ToolTask, call_tool_task
from fastmcp_tasks.client_models import ClientCreateTaskResult
from mcp_client import Json, Result
from mcp_run import check_client


class TaskHandle:
    def __init__(self, task: ToolTask) -> None:
        self._task = task
        self.id = task.task_id

    async def get(self) -> Json:
        return (await sent(self._task.status())).model_dump(by_alias=True, mode="json")

    async def cancel(self) -> None:
        await sent(self._task.cancel())

    async def result(self) -> Result:
        return result_of(await sent(self._task.result()))


class TaskSession(McpSession):
    async def start(self, tool: str, arguments: Json) -> TaskHandle:
        return TaskHandle(await sent(call_tool_task(self.client, tool, arguments, raise_on_error=False)))

    def handle(self, id: str) -> TaskHandle:
        fields = {"taskId": id, "status": "working", "createdAt": "2026-07-28T00:00:00Z", "ttlMs": None}
        created = {"resultType": "task", "lastUpdatedAt": fields["createdAt"], **fields}
        return TaskHandle(
            ToolTask(self.client, "", ClientCreateTaskResult.model_validate(created), raise_on_error=False)
        )


async def main() -> bool:
    connect = connecting("auto", TaskSession)
    return await check_client(
        "fastmcp-tasks", "2026-07-28", connect, arguments(), has_tasks=True, has_plain_calls=False
    )


finish(asyncio.run(main()))
