"""The messages of the tasks extension, against a server of the SDK that has it."""

from __future__ import annotations

from pathlib import Path

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from tests.extensions.mcp.servers.tool_server import tool_server

from dragoman.extensions.mcp.servers.tasks_extension import (
    CreateTaskResult,
    McpTask,
    TasksExtension,
    cancel_task,
    get_task,
    update_task,
)


async def test_a_task_is_created_polled_answered_and_canceled(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Client(tool_server("modern", log), extensions=[TasksExtension()]) as client:
        created = await client.session.call_tool("long_question", {}, allow_input_required=True, allow_claimed=True)
        assert isinstance(created, CreateTaskResult)
        task = await get_task(client, created.task_id)
        assert (task.status, task.status_message, task.poll_seconds) == ("working", "it is working", 0.05)
        log.with_name("GO").touch()
        task = await get_task(client, created.task_id)
        assert task.status == "input_required"
        assert task.input_requests is not None
        assert isinstance(task.input_requests["who"], types.ElicitRequest)
        await update_task(client, created.task_id, {"who": {"action": "accept", "content": {"name": "Ann"}}})
        task = await get_task(client, created.task_id)
        assert task.result == {"content": [{"type": "text", "text": "done: Ann"}], "isError": False}
        await cancel_task(client, created.task_id)
        assert (await get_task(client, created.task_id)).status == "cancelled"
        with pytest.raises(MCPError, match="Task not found"):
            await get_task(client, "other")


@pytest.mark.parametrize(("interval", "seconds"), [(None, 1.0), (0, 0.05), (2500, 2.5), (10**9, 60.0)])
def test_the_suggested_interval_has_bounds(interval: float | None, seconds: float) -> None:
    assert McpTask(task_id="t", status="working", poll_interval_ms=interval).poll_seconds == seconds
