"""`agents`: lists, pauses and resumes a server's agents, adds and removes upstream agents. `workers`: its workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import ExitCode
from dragoman.cli.admin import AdminTarget, run_admin_command
from dragoman.cli.options import DEFAULT_SERVER, Ca, Cert, Json, Key, Server, complete_agents
from dragoman.cli.output import ConsoleOutput, format_time, json_line
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as up
from dragoman_pb.dragoman.ops.v1 import workers_pb2 as workers

_agents = typer.Typer(
    name="agents",
    help="List, pause and resume the agents of a server; add and remove upstream A2A agents.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_WORKERS_HELP = """List workers; release the ids of agents without workers.

To run a worker: `dragoman worker`.
"""

_workers = typer.Typer(name="workers", help=_WORKERS_HELP, no_args_is_help=True, rich_markup_mode="markdown")

AgentId = Annotated[
    str, typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False, autocompletion=complete_agents)
]


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _agents.command("list")(list_agents)
    _agents.command("pause")(pause)
    _agents.command("resume")(resume)
    _agents.command("add")(add)
    _agents.command("remove")(remove)
    cli.add_typer(_agents)
    _workers.command("list")(list_workers)
    _workers.command("forget")(forget)
    cli.add_typer(_workers)


def list_agents(json: Json = False, server: Server = DEFAULT_SERVER, ca: Ca = None, key: Key = "") -> None:
    """List the agents of a server, root agent first, with the state of upstream agents.

    **Example**: `dragoman agents list`
    """
    run_admin_command(server, print_agents(AdminTarget(server, key), json=json))


def pause(
    agent: AgentId,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for people; at most 500 characters.")
    ] = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Pause an agent: its tasks wait until it is resumed. Running turns go on.

    It holds for all servers of the store, and after restarts.

    **Example**: `dragoman agents pause weather --reason "the model is down"`
    """
    run_admin_command(server, pause_agent(AdminTarget(server, key), agent, reason))


def resume(agent: AgentId, server: Server = DEFAULT_SERVER, ca: Ca = None, cert: Cert = None, key: Key = "") -> None:
    """Resume an agent: its waiting tasks begin.

    **Example**: `dragoman agents resume weather`
    """
    run_admin_command(server, resume_agent(AdminTarget(server, key), agent))


def add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The URL of its card, or the base of that URL.", show_default=False)
    ],
    id: Annotated[
        str,
        typer.Option("--id", metavar="ID", help="Its id on this server. [derived from its name]", show_default=False),
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Prefix of an id that is derived from its name.")
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            "--token-file", metavar="PATH", help="File with a bearer token to send to the agent; - reads stdin. [none]"
        ),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: TEXT'", help="A header to send to the agent; may be repeated."),
    ] = None,
    turns: Annotated[
        int | None, typer.Option("--turns", min=1, metavar="N", help="Concurrent turns of the agent. [100]")
    ] = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Add an upstream A2A agent, which the server then serves with a card and tasks of its own.

    The agent is saved in the store. Other servers on the same store add it at once, or within 5 s without a bus. The
    values of --token-file and --header are stored too, encrypted if the server has --secrets-keys. --key
    authenticates you to the server, not to the agent.

    **Examples**

    `dragoman agents add https://agents.example.com/weather`

    `dragoman agents add http://10.1.2.3:9999 --id desk --token-file desk.token`
    """
    request = build_add_request(url, id, prefix, token_file, header or [], turns)
    run_admin_command(server, add_upstream(AdminTarget(server, key), request, json=json))


def remove(
    agent: AgentId,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Remove an upstream agent. Its waiting tasks end as FAILED; its running tasks may finish.

    **Example**: `dragoman agents remove weather`
    """
    run_admin_command(server, remove_upstream(AdminTarget(server, key), agent))


def list_workers(
    json: Json = False, server: Server = DEFAULT_SERVER, ca: Ca = None, cert: Cert = None, key: Key = ""
) -> None:
    """List the agents of workers, their owners, and the workers connected to this server.

    An agent remains when its workers disconnect: its card and tasks stay available, and new tasks wait for some time
    (`serve --worker-wait`).

    **Example**: `dragoman workers list`
    """
    run_admin_command(server, print_workers(AdminTarget(server, key), json=json))


def forget(
    agent: AgentId,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Remove an agent without workers, so that another principal can use its id.

    Its waiting tasks end as FAILED. Its other tasks are unavailable until an agent with this id is added again.

    **Example**: `dragoman workers forget desk`
    """
    run_admin_command(server, forget_agent(AdminTarget(server, key), agent))


def build_add_request(
    url: str, id: str, prefix: str, token_file: str, headers: Sequence[str], turns: int | None
) -> up.AddUpstreamRequest:
    """Builds the request of the command line. Raises typer.BadParameter."""
    request = up.AddUpstreamRequest(url=url, id=id, prefix=prefix, turns=turns or 0)
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("must be NAME: TEXT, such as 'X-Api-Key: abc'", param_hint="--header")
        request.headers[name.strip()] = value.strip()
    if token_file:
        try:
            text = sys.stdin.read() if token_file == "-" else Path(token_file).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{token_file} cannot be read: {error}", param_hint="--token-file") from error
        request.headers["Authorization"] = f"Bearer {text.strip()}"
    return request


async def print_agents(target: AdminTarget, *, json: bool) -> ExitCode:
    """Prints agents, and the state of upstream agents."""
    async with target.operator() as operator:
        agents = (await operator.list_agents(ops.ListAgentsRequest())).agents
        upstream = (await operator.list_upstreams(up.ListUpstreamsRequest())).upstreams
    out, upstream_by_agent = ConsoleOutput(), {one.agent: one for one in upstream}
    for agent in agents:
        if json:
            out.line(json_line(agent))
            continue
        out.line(f"{agent.id}{'  (root)' if agent.root else ''}  {agent.name}: {agent.description}")
        if agent.HasField("pause"):
            out.line(f"  {_describe_pause(agent.pause)}")
        if agent.id in upstream_by_agent:
            _print_upstream(out, upstream_by_agent[agent.id])
    for one in upstream:
        if json:
            out.line(json_line(one))
        elif not one.agent:  # it has no id yet
            out.line(f"not served: {one.url}")
            _print_upstream(out, one)
    return ExitCode.OK


async def pause_agent(target: AdminTarget, agent: str, reason: str) -> ExitCode:
    """Pauses an agent."""
    async with target.operator() as operator:
        response = await operator.pause_agent(ops.PauseAgentRequest(agent=agent, reason=reason))
    ConsoleOutput().line(f"{agent}: {_describe_pause(response.pause)}")
    return ExitCode.OK


async def resume_agent(target: AdminTarget, agent: str) -> ExitCode:
    """Resumes an agent."""
    async with target.operator() as operator:
        await operator.resume_agent(ops.ResumeAgentRequest(agent=agent))
    ConsoleOutput().line(f"resumed: {agent}")
    return ExitCode.OK


def _describe_pause(pause: ops.AgentPause) -> str:
    reason = f": {pause.reason}" if pause.reason else ""
    return f"paused by {pause.principal} since {format_time(pause.since)}{reason}"


async def add_upstream(target: AdminTarget, request: up.AddUpstreamRequest, *, json: bool) -> ExitCode:
    """Adds an upstream agent and prints it."""
    async with target.operator() as operator:
        added = (await operator.add_upstream(request)).upstream
    out = ConsoleOutput()
    out.line(json_line(added) if json else f"added: {added.agent}")
    if not json:
        _print_upstream(out, added)
    return ExitCode.OK


async def remove_upstream(target: AdminTarget, agent: str) -> ExitCode:
    """Removes an upstream agent."""
    async with target.operator() as operator:
        response = await operator.remove_upstream(up.RemoveUpstreamRequest(agent=agent))
    ConsoleOutput().line(f"removed: {agent}; waiting tasks that ended as FAILED: {response.ended_tasks}")
    return ExitCode.OK


def _print_upstream(out: ConsoleOutput, upstream: up.Upstream) -> None:
    source = "from the settings" if upstream.settings else "added"
    credentials = ", with credentials" if upstream.credentials else ""
    out.line(f"  upstream {upstream.url} ({source}{credentials}): {upstream.running} of {upstream.turns} turns")
    for index, interface in enumerate(upstream.interfaces):
        out.line(f"  {'uses' if not index else 'also'} {interface}")
    for reason in upstream.skipped_interfaces:
        out.line(f"  not used: {reason}")
    if upstream.unavailable_ms:
        out.line(f"  unavailable for {upstream.unavailable_ms // 1000} s: {upstream.last_error}")
    elif upstream.last_error:
        out.line(f"  last call failed: {upstream.last_error}")


async def print_workers(target: AdminTarget, *, json: bool) -> ExitCode:
    """Prints agents and their workers."""
    async with target.operator() as operator:
        response = await operator.list_workers(workers.ListWorkersRequest())
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
    async with target.operator() as operator:
        response = await operator.forget_agent(workers.ForgetAgentRequest(agent=agent))
    ConsoleOutput().line(f"forgotten: {agent}; waiting tasks that ended as FAILED: {response.ended_tasks}")
    return ExitCode.OK
