"""Runs the checks of an MCP client that apply to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from checks import Checks, started
from mcp_checks import every, gives_up
from mcp_client import Connect
from mcp_helpers import TASK_TOOLS, Place
from mcp_restart_checks import listens, repeats, restarts, resumes, task_restarts, unfinished
from mcp_server_checks import whole
from mcp_task_checks import follows, tasks

STATELESS = "2026-07-28"
KINDS = {"playground": "function", "worker": "worker", "words": "executor", "upstream": "upstream"}
"""Agents of every kind that have the commands of the playground."""


async def check_client(
    package: str,
    version: str,
    connect: Connect,
    where: argparse.Namespace,
    *,
    has_tasks: bool = False,
    has_plain_calls: bool = True,
    tells_end: bool = True,
    listens_too: bool = False,
) -> bool:
    """Runs the checks of a client that speaks this version of MCP.

    `has_tasks`: it has the extension for tasks. `has_plain_calls`: it can leave that out. `tells_end`: it tells the
    server when it gives a call up. `listens_too`: it listens for notifications.
    """
    row, good = f"MCP {version}", True
    of_agents, of_server = Checks(package), Checks(package)
    if has_plain_calls:
        of_agents.extend(every)
        of_server.extend(restarts, repeats if version == STATELESS else resumes)
        if tells_end and (where.servers == 1 or version == STATELESS):
            of_agents.extend(
                gives_up
            )  # the notification of versions with a handshake has to reach the server of the call
    if has_tasks:
        of_agents.extend(tasks)
        of_server.extend(task_restarts)
        if listens_too:
            of_agents.extend(follows)
    tools = await tools_of(connect, where.http, version)
    agents = frozenset(name.partition("_")[0] for name in tools - set(TASK_TOOLS))
    for agent, kind in KINDS.items():
        if agent in agents:
            good &= await of_agents.run(f"{version}, {kind}", connect, Place(where.http, agent, tools), row=row)
    app = str(Path(__file__).with_name("mcp_agents.py"))
    with started(where.project, app) as server:
        good &= await of_server.run(version, connect, server, row=row)
        if listens_too:
            good &= await Checks(package).extend(listens).run(version, connect, server, where.project, row=row)
    if has_plain_calls:
        good &= await Checks(package).extend(whole).run(version, connect, where.http, agents, row=row)
        with started(where.project, app, "--mcp-wait", "1") as server:
            good &= await Checks(package).extend(unfinished).run(version, connect, server, row=row)
    return good


async def tools_of(connect: Connect, http: str, version: str) -> frozenset[str]:
    """The names of all tools of a server. The client has to speak this version."""
    async with connect(f"{http}/mcp") as session:
        assert session.version == version, session.version
        return frozenset(await session.tools())
