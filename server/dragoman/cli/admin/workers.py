"""`workers list`, `workers forget`: connected workers and their agents."""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import completion
from dragoman.cli.admin.target import AdminTarget, run_admin_command
from dragoman.cli.options import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, Token
from dragoman.cli.output import ConsoleOutput, ExitCode, json_line
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as ops

_WORKERS_HELP = """List workers; release the ids of agents without workers.

To run a worker: `dragoman worker`.
"""

_workers = typer.Typer(name="workers", help=_WORKERS_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _workers.command("list")(list_workers)
    _workers.command("forget")(forget)
    cli.add_typer(_workers)


def list_workers(
    json: Json = False, grpc: Grpc = DEFAULT_GRPC_ADDRESS, ca: Ca = None, cert: Cert = None, token: Token = ""
) -> None:
    """List the agents of workers, their owners, and the workers connected to this server.

    An agent remains when its workers disconnect: its card and tasks stay available, and new tasks wait for some time
    (`serve --worker-wait`).

    **Example**: `dragoman workers list`
    """
    run_admin_command(grpc, print_workers(AdminTarget(grpc, token), json=json))


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
    """Remove an agent without workers, so that another principal can use its id.

    Its waiting tasks end as FAILED. Its other tasks are unavailable until an agent with this id is added again.

    **Example**: `dragoman workers forget desk`
    """
    run_admin_command(grpc, forget_agent(AdminTarget(grpc, token), agent))


async def print_workers(target: AdminTarget, *, json: bool) -> ExitCode:
    """Prints agents and their workers."""
    async with Operator(target.grpc, token=target.token) as operator:
        response = await operator.list_workers(ops.ListWorkersRequest())
    out = ConsoleOutput()
    for one in response.agents:
        if json:
            out.line(json_line(one))
            continue
        seen = "" if one.workers else f", last seen {one.seen.ToDatetime():%Y-%m-%d %H:%M:%S} UTC"
        out.line(f"{one.agent}  ({one.principal}{seen})")
        for worker in one.workers:
            draining = ", draining" if worker.draining else ""
            out.line(f"  {worker.name} ({worker.peer}): {worker.running} running, {worker.free} free{draining}")
        if not one.workers:
            out.line("  no worker connected")
    if not response.agents and not json:
        out.line("no worker has ever connected")
    return ExitCode.OK


async def forget_agent(target: AdminTarget, agent: str) -> ExitCode:
    """Removes an agent of workers."""
    async with Operator(target.grpc, token=target.token) as operator:
        response = await operator.forget_agent(ops.ForgetAgentRequest(agent=agent))
    ConsoleOutput().line(f"forgotten: {agent}; waiting tasks that ended as FAILED: {response.ended_tasks}")
    return ExitCode.OK
