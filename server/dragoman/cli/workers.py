"""`workers list` and `workers forget`: who dialled in, and whose an agent is no more.

Only the options are here. What the commands do is in `presence.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import completing
from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, Token

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


def list_workers(json: Json = False, grpc: Grpc = LOCAL, ca: Ca = None, cert: Cert = None, token: Token = "") -> None:
    """Show the agents that workers have, whose they are, and the workers that are at this server.

    An agent stays when its workers are gone: its card and its tasks are there, and new tasks wait for a while
    (`serve --worker-wait`).

    **Example**: `dragoman workers list`
    """
    from dragoman.cli import operate, presence

    operate.run(grpc, presence.show(operate.Where(grpc, "", token), json=json))


def forget(
    agent: Annotated[
        str,
        typer.Argument(metavar="AGENT", help="The agent's id.", show_default=False, autocompletion=completing.agents),
    ],
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Forget an agent whose workers are gone, so that another principal's may have its id.

    What waits for it ends as FAILED. Its other tasks are out of reach until somebody brings an agent of this id.

    **Example**: `dragoman workers forget desk`
    """
    from dragoman.cli import operate, presence

    operate.run(grpc, presence.forget(operate.Where(grpc, "", token), agent))
