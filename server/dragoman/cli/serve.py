"""`serve`: the command that starts a server.

Nothing heavy is imported before the command runs, so that `dragoman --help` is quick.
"""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any

import typer

from dragoman.cli.options import parameters


def register(cli: typer.Typer) -> None:
    """Adds the command, with every setting as an option."""
    signature = inspect.signature(serve, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    whole = signature.replace(parameters=[*own, *parameters()])

    def command(**said: Any) -> None:
        serve(**said)

    command.__doc__ = serve.__doc__
    command.__signature__ = whole  # type: ignore[attr-defined]  # read by typer, and unknown to the type of functions
    command.__annotations__ = {one.name: one.annotation for one in whole.parameters.values()}
    cli.command("serve")(command)


def serve(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="A .py file or a module with agents; else the playground.")
    ] = None,
    *,
    reload: Annotated[
        bool, typer.Option("--reload", metavar=" ", help="Start again when the app's files change; for development.")
    ] = False,
    supervised: Annotated[int | None, typer.Option("--supervised", hidden=True)] = None,
    **said: Any,
) -> None:
    """Serve agents over A2A: gRPC, REST and JSON-RPC, tasks on disk.

    Every option can also be set as DRAGOMAN_NAME in the environment, or as name in a TOML file; the command line
    wins, then the environment. Ctrl-C lets running turns end; a second one does not.

    Nobody is asked who they are, and only this machine can call, unless there is --api-keys, --issuers or --token.

    **Examples**

    `dragoman serve`  the playground, to try things out

    `dragoman serve agents.py --reload`

    `dragoman serve mycompany.agents --store sqlite:////var/lib/dragoman/tasks.db --log-format json`

    `dragoman serve --upstream https://agents.example.com/weather`  in front of another A2A agent

    `dragoman serve --executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python`

    `dragoman serve agents.py --tls-cert server.pem --tls-key server.key`  https and grpcs
    """
    given = {**{name: None if value == [] else value for name, value in said.items()}, "app": app}
    if reload:
        from dragoman.cli.reload import app_of, supervise

        raise typer.Exit(supervise(sys.argv[1:], app_of(given)))
    from dragoman.cli.serving import run

    raise typer.Exit(run(given, sys.argv[1:], supervised))
