"""`top`: a server's numbers, as they change.

Only the options are here. What is drawn is in `watching.py`, imported when the command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.tasks import LOCAL_URL, Token


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("top")(top)


def top(
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="DRAGOMAN_URL",
            metavar="URL",
            help="The server's HTTP address, or that of its --metrics.",
        ),
    ] = LOCAL_URL,
    every: Annotated[float, typer.Option("--every", metavar="S", min=0.2, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", metavar=" ", help="Print it once, and leave.")] = False,
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            envvar="DRAGOMAN_CA",
            metavar="FILE",
            help="Who may have signed the server's certificate, in PEM. [the system's authorities]",
            show_default=False,
        ),
    ] = None,
    token: Token = "",
) -> None:
    """Watch a server: turns, queues, rates, commits, readers and pushes, from its /metrics.

    Rates are of the time between two looks. Ctrl-C leaves.

    **Examples**

    `dragoman top`  the server on this machine

    `dragoman top --url https://agents.example.com --token dgm_...`  with a key that has the grant `operator`

    `dragoman top --once`  for a script, or a look in passing
    """
    from dragoman.cli import watching

    raise typer.Exit(watching.run(watching.Given(url.rstrip("/"), every, once, ca, token)))
