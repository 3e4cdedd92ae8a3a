"""Shell completion of agent ids and task ids, read from the server that the command line names.

Completion is silent on errors and gives up after two seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import typer

from dragoman.client import Client
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.lf.a2a.v1 import a2a_pb2 as pb

COMPLETION_TIMEOUT: Final = 2.0
"""Seconds for the server to answer."""

MAX_COMPLETED_TASKS: Final = 30
"""Task ids offered, most recently changed first."""

Completions = list[tuple[str, str]]
"""Candidates, each with a one-line description."""


def agents(ctx: typer.Context, incomplete: str) -> Completions:
    """Agent ids that begin with `incomplete`."""

    async def fetch() -> Completions:
        address, token = _server_of(ctx)
        async with Operator(address, token=token) as operator:
            response = await operator.list_agents(ops.ListAgentsRequest())
        return [(agent.id, agent.description) for agent in response.agents if agent.id.startswith(incomplete)]

    return _run_with_timeout(fetch)


def tasks(ctx: typer.Context, incomplete: str) -> Completions:
    """Ids of the agent's recently changed tasks that begin with `incomplete`."""

    async def fetch() -> Completions:
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

    return _run_with_timeout(fetch)


def _server_of(ctx: typer.Context) -> tuple[str, str]:
    """Address and token from the command line typed so far."""
    return ctx.params.get("grpc") or "127.0.0.1:50051", ctx.params.get("token") or ""


def _run_with_timeout(fetch: Callable[[], Coroutine[Any, Any, Completions]]) -> Completions:
    try:
        return asyncio.run(asyncio.wait_for(fetch(), COMPLETION_TIMEOUT))
    except Exception:  # an error message would garble the line that the user is typing
        return []
