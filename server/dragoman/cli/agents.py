"""`agents list`, `agents add`, `agents remove`: what a server serves, and which A2A agents it stands in front of.

Only the options are here. What the commands do is in `fronting.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import completing
from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, Token

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


def list_agents(json: Json = False, grpc: Grpc = LOCAL, ca: Ca = None, token: Token = "") -> None:
    """Show the agents of a server, the root agent first; and of those upstream, how it stands with them.

    **Example**: `dragoman agents list`
    """
    from dragoman.cli import fronting, operate

    operate.run(grpc, fronting.show(operate.Where(grpc, "", token), json=json))


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
    grpc: Grpc = LOCAL,
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
    from dragoman.cli import fronting, operate

    asked = fronting.asked(url, id, prefix, token_file, header or [], turns)
    operate.run(grpc, fronting.add(operate.Where(grpc, "", token), asked, json=json))


def remove(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False, autocompletion=completing.agents),
    ],
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Have a server stand in front of an agent no longer. What waits for it ends as FAILED; what it works on may end.

    **Example**: `dragoman agents remove weather`
    """
    from dragoman.cli import fronting, operate

    operate.run(grpc, fronting.remove(operate.Where(grpc, "", token), agent))
