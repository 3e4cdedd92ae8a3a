"""`agents list`, `agents add`, `agents remove`: what a server serves, and which A2A agents it stands in front of.

Only the options are here. What the commands do is in `fronting.py`, imported when one of them runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import completion
from dragoman.cli.admin.maintenance import EXIT_OK, AdminTarget
from dragoman.cli.output import ConsoleOutput, json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, Token
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import upstreams_pb2 as up

_agents = typer.Typer(
    name="agents",
    help="The agents of a server, and other A2A agents for it to stand in front of.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _agents.command("list")(list_agents)
    _agents.command("add")(add)
    _agents.command("remove")(remove)
    cli.add_typer(_agents)


def list_agents(json: Json = False, grpc: Grpc = DEFAULT_GRPC_ADDRESS, ca: Ca = None, token: Token = "") -> None:
    """Show the agents of a server, the root agent first; and of those upstream, how it stands with them.

    **Example**: `dragoman agents list`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, print_agents(maintenance.AdminTarget(grpc, "", token), json=json))


def add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where its card is, or the base of that.", show_default=False)
    ],
    id: Annotated[
        str, typer.Option("--id", metavar="ID", help="What to call it here. [made of its name]", show_default=False)
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="What an id begins with that is made of its name.")
    ] = "",
    token_file: Annotated[
        str,
        typer.Option("--token-file", metavar="PATH", help="A bearer token to show to it; - reads stdin. [none]"),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: TEXT'", help="Another header to send to it; may be repeated."),
    ] = None,
    turns: Annotated[
        int | None, typer.Option("--turns", min=1, metavar="N", help="Turns that it may have at a time. [100]")
    ] = None,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Have a server stand in front of an A2A agent: its card, its tasks and its callers are the server's then.

    It is kept in the store, and other servers of that follow at once, or within 5 s without a bus. What is said with
    --token-file and --header is kept there, too, sealed where the server has --secrets-keys; --token is for the
    server itself.

    **Examples**

    `dragoman agents add https://agents.example.com/weather`

    `dragoman agents add http://10.1.2.3:9999 --id desk --token-file desk.token`
    """
    from dragoman.cli.admin import maintenance

    asked = build_add_request(url, id, prefix, token_file, header or [], turns)
    maintenance.run_admin_command(grpc, add_upstream(maintenance.AdminTarget(grpc, "", token), asked, json=json))


def remove(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False, autocompletion=completion.agents),
    ],
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Have a server stand in front of an agent no longer. What waits for it ends as FAILED; what it works on may end.

    **Example**: `dragoman agents remove weather`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, remove_upstream(maintenance.AdminTarget(grpc, "", token), agent))


def build_add_request(
    url: str, id: str, prefix: str, token_file: str, headers: Sequence[str], turns: int | None
) -> up.AddUpstreamRequest:
    """The request that options mean. Raises typer.BadParameter."""
    request = up.AddUpstreamRequest(url=url, id=id, prefix=prefix, turns=turns or 0)
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("is NAME: TEXT, such as 'X-Api-Key: abc'", param_hint="--header")
        request.headers[name.strip()] = value.strip()
    if token_file:
        try:
            text = sys.stdin.read() if token_file == "-" else Path(token_file).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{token_file} cannot be read: {error}", param_hint="--token-file") from error
        request.headers["Authorization"] = f"Bearer {text.strip()}"
    return request


async def print_agents(target: AdminTarget, *, json: bool) -> int:
    """Prints agents, and what is known of those upstream."""
    async with Operator(target.grpc, token=target.token) as operator:
        agents = (await operator.list_agents(ops.ListAgentsRequest())).agents
        upstream = (await operator.list_upstreams(up.ListUpstreamsRequest())).upstreams
    out, known = ConsoleOutput(), {one.agent: one for one in upstream}
    for agent in agents:
        if json:
            out.line(json_line(agent))
            continue
        out.line(f"{agent.id}{'  (root)' if agent.root else ''}  {agent.name}: {agent.description}")
        if agent.id in known:
            _print_upstream(out, known[agent.id])
    if json:
        for one in upstream:
            out.line(json_line(one))
    return EXIT_OK


async def add_upstream(target: AdminTarget, request: up.AddUpstreamRequest, *, json: bool) -> int:
    """Has an agent added."""
    async with Operator(target.grpc, token=target.token) as operator:
        added = (await operator.add_upstream(request)).upstream
    out = ConsoleOutput()
    out.line(json_line(added) if json else f"added: {added.agent}")
    if not json:
        _print_upstream(out, added)
    return EXIT_OK


async def remove_upstream(target: AdminTarget, agent: str) -> int:
    """Has an agent removed."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.remove_upstream(up.RemoveUpstreamRequest(agent=agent))
    ConsoleOutput().line(f"removed: {agent}; tasks that waited for it and ended as FAILED: {answer.ended_tasks}")
    return EXIT_OK


def _print_upstream(out: ConsoleOutput, upstream: up.Upstream) -> None:
    source = "in the settings" if upstream.settings else "added"
    shown = ", with credentials" if upstream.credentials else ""
    out.line(f"  upstream {upstream.url} ({source}{shown}): {upstream.running} of {upstream.turns} turns")
    for index, interface in enumerate(upstream.interfaces):
        out.line(f"  {'uses' if not index else 'also'} {interface}")
    for why in upstream.left_out:
        out.line(f"  left out: {why}")
    if upstream.away:
        out.line(f"  away for {upstream.away // 1000} s: {upstream.trouble}")
    elif upstream.trouble:
        out.line(f"  not reached just now: {upstream.trouble}")
