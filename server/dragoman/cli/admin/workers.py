"""`workers list` and `workers forget`: who dialled in, and whose an agent is no more.

Only the options are here. What the commands do is in `presence.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import completion
from dragoman.cli.admin.maintenance import EXIT_OK, AdminTarget
from dragoman.cli.output import ConsoleOutput, json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, Token
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops

_workers = typer.Typer(
    name="workers",
    help="Workers that dialled in to a server, and their agents. To run one: `dragoman worker`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _workers.command("list")(list_workers)
    _workers.command("forget")(forget)
    cli.add_typer(_workers)


def list_workers(
    json: Json = False, grpc: Grpc = DEFAULT_GRPC_ADDRESS, ca: Ca = None, cert: Cert = None, token: Token = ""
) -> None:
    """Show the agents that workers have, whose they are, and the workers that are at this server.

    An agent stays when its workers are gone: its card and its tasks are there, and new tasks wait for a while
    (`serve --worker-wait`).

    **Example**: `dragoman workers list`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, print_workers(maintenance.AdminTarget(grpc, "", token), json=json))


def forget(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False, autocompletion=completion.agents),
    ],
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Forget an agent whose workers are gone, so that another principal's may have its id.

    What waits for it ends as FAILED. Its other tasks are out of reach until somebody brings an agent of this id.

    **Example**: `dragoman workers forget desk`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, forget_agent(maintenance.AdminTarget(grpc, "", token), agent))


async def print_workers(target: AdminTarget, *, json: bool) -> int:
    """Prints agents and their workers."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.list_workers(ops.ListWorkersRequest())
    out = ConsoleOutput()
    for one in answer.agents:
        if json:
            out.line(json_line(one))
            continue
        seen = "" if one.workers else f", seen {one.seen.ToDatetime():%Y-%m-%d %H:%M:%S} UTC"
        out.line(f"{one.agent}  ({one.principal}{seen})")
        for worker in one.workers:
            drains = ", drains" if worker.draining else ""
            out.line(f"  {worker.name} ({worker.peer}): {worker.running} running, {worker.free} free{drains}")
        if not one.workers:
            out.line("  no worker is here")
    if not answer.agents and not json:
        out.line("no worker ever came")
    return EXIT_OK


async def forget_agent(target: AdminTarget, agent: str) -> int:
    """Has an agent forgotten."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.forget_agent(ops.ForgetAgentRequest(agent=agent))
    ConsoleOutput().line(f"forgotten: {agent}; tasks that waited for it and ended as FAILED: {answer.ended_tasks}")
    return EXIT_OK
