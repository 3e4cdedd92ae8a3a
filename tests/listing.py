"""ListTasks of one agent, page by page, for tests whose client makes single calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

from dragoman.client.calls import Client
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb


async def list_tasks(
    client: Client, *, page_size: int | None = None, history: int | None = None, artifacts: bool = False
) -> AsyncGenerator[pb.Task, None]:
    """Yields the agent's tasks, newest status first, with their contents."""
    request = pb.ListTasksRequest(
        tenant=client._agent.interface.tenant, page_size=page_size, history_length=history, include_artifacts=artifacts
    )
    while True:
        page = cast(pb.ListTasksResponse, await client._call("ListTasks", request))
        for task in page.tasks:
            await client._agent.transport.restore(task)
            yield task
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
