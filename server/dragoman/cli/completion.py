"""What a shell may complete a word to: ids of agents and of tasks, which are asked of the server that the line names.

Whoever presses TAB does not wait for long, and is told nothing of what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import typer

COMPLETION_TIMEOUT: Final = 2.0
"""Seconds for the server to answer."""

MAX_COMPLETED_TASKS: Final = 30
"""Tasks that are shown, those that changed last."""

Completions = list[tuple[str, str]]
"""What is possible, and a line about each."""


def agents(ctx: typer.Context, incomplete: str) -> Completions:
    """The ids of agents."""
    from dragoman.client.operations import Operator
    from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

    async def ask() -> Completions:
        address, token = _server_of(ctx)
        async with Operator(address, token=token) as operator:
            answer = await operator.list_agents(ops.ListAgentsRequest())
        return [(one.id, one.description) for one in answer.agents if one.id.startswith(incomplete)]

    return _run_with_timeout(ask)


def tasks(ctx: typer.Context, incomplete: str) -> Completions:
    """The ids of an agent's tasks that changed last."""
    from dragoman.client import Client
    from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

    async def ask() -> Completions:
        found: Completions = []
        address, token = _server_of(ctx)
        async with Client(address, agent=ctx.params.get("agent") or "", token=token) as client:
            async for task in client.list(page_size=100, artifacts=False, history=0):
                if task.id.startswith(incomplete):
                    state = pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
                    found.append((task.id, f"{state} {task.status.timestamp.ToJsonString()[:16]}"))
                    if len(found) == MAX_COMPLETED_TASKS:
                        break
        return found

    return _run_with_timeout(ask)


def _server_of(ctx: typer.Context) -> tuple[str, str]:
    """The server's address and the token, as the line so far has them."""
    return ctx.params.get("grpc") or "127.0.0.1:50051", ctx.params.get("token") or ""


def _run_with_timeout(fetch: Callable[[], Coroutine[Any, Any, Completions]]) -> Completions:
    import asyncio

    try:
        return asyncio.run(asyncio.wait_for(fetch(), COMPLETION_TIMEOUT))
    except Exception:  # a shell can do nothing with it, and its user not either, in the midst of a line
        return []
