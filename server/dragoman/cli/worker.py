"""`worker`: the agents of an app, in a process of their own, at a server elsewhere.

Only the options are here. What the command does is in `working.py`, imported when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("worker")(worker)


def worker(
    app: Annotated[
        str, typer.Argument(metavar="APP", help="A .py file or a module with agents.", show_default=False)
    ] = "",
    executor: Annotated[
        list[str] | None,
        typer.Option(
            "--executor",
            envvar="DRAGOMAN_EXECUTOR",
            metavar="MODULE:CLASS",
            help="An AgentExecutor of a2a-sdk or Worker of fasta2a, in a process of its own; may be repeated.",
            show_default=False,
        ),
    ] = None,
    executor_python: Annotated[
        str,
        typer.Option(
            "--executor-python",
            envvar="DRAGOMAN_EXECUTOR_PYTHON",
            metavar="PATH",
            help="The Python of the environment that has it. [this one]",
            show_default=False,
        ),
    ] = "",
    executor_retries: Annotated[
        int,
        typer.Option(
            "--executor-retries",
            envvar="DRAGOMAN_EXECUTOR_RETRIES",
            metavar="N",
            min=0,
            max=100,
            help="Times a turn of it begins again whose process was lost.",
        ),
    ] = 0,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="DRAGOMAN_SERVER",
            metavar="HOST:PORT",
            help="The server's gRPC address; grpcs://HOST:PORT where it is encrypted.",
        ),
    ] = "127.0.0.1:50051",
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            envvar="DRAGOMAN_KEY_FILE",
            metavar="FILE",
            help="A file with the worker's API key or token. It is read again each time the worker dials. [none]",
            show_default=False,
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca",
            "--ca",
            envvar="DRAGOMAN_CA",
            metavar="FILE",
            help="Who may have signed the server's certificate, in PEM. [the system's authorities]",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            "--cert",
            envvar="DRAGOMAN_CERT",
            metavar="FILE",
            help="The worker's certificate and its key, in one file, where the server asks for one. [none]",
            show_default=False,
        ),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", metavar="N", min=1, max=10_000, help="Turns of each agent at the same time.")
    ] = 100,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="S", min=0, help="Seconds that turns get to end when the worker stops."),
    ] = 300.0,
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="For people and logs. [host and process id]")
    ] = "",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="How log lines look, on stderr.")
    ] = "text",
    otlp: Annotated[
        str,
        typer.Option(
            "--otlp",
            envvar="DRAGOMAN_OTLP",
            metavar="URL",
            help="Who collects traces: http://HOST:4318, grpc://HOST:4317. [nobody]",
            show_default=False,
        ),
    ] = "",
    otlp_headers: Annotated[
        str,
        typer.Option(
            "--otlp-headers",
            envvar="DRAGOMAN_OTLP_HEADERS",
            metavar="NAME=VALUE,...",
            help="What the collector is shown. [nothing]",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run the agents of APP in this process, for a server that they dial in to.

    The functions are those that `dragoman serve APP` would run, unchanged. The server keeps the tasks, speaks with
    callers and shows the agents' cards; this process only works. Start as many as you need: a server gives each turn
    to a worker with room, in turn. When the line breaks, what ran is FAILED, or begins again where the agent says
    `on_crash=retry(n)`, and the worker dials again.

    Ctrl-C (SIGTERM) lets running turns end; a second one gives them back at once.

    On a server that asks callers who they are, a worker needs a key: `dragoman keys create box1 --grant worker` for
    any agent, `--grant worker:echo` for that one. Agents belong to the key's principal, and nobody else may have them.
    Other servers take workers from their own machine only.

    **Examples**

    `dragoman worker agents.py`  at a server on this machine

    `dragoman worker agents.py --server grpcs://agents.example.com:50051 --key-file /run/secrets/worker-key`

    `dragoman worker --executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python`

    `dragoman worker mycompany.agents --turns 4 --log-format json`  four turns of each agent at a time

    **Exit codes**: 0 stopped; 2 wrong usage or agents; 3 the server refused the worker.
    """
    from dragoman.cli import working
    from dragoman.core import executors
    from dragoman.hosting import Hosting
    from dragoman.setting_types import collector, headers_of

    if log_format not in ("text", "json"):
        raise typer.BadParameter("--log-format: must be text or json")
    try:
        hosting = Hosting(executors.read(executor or ()), executor_python, turns, executor_retries)
    except ValueError as error:
        raise typer.BadParameter(f"--executor: {error}") from error
    if not app and not hosting.executors:
        raise typer.BadParameter("name an APP, or an --executor")
    try:
        collector(otlp)
        headers_of(otlp_headers)
    except ValueError as error:
        raise typer.BadParameter(f"--otlp, --otlp-headers: {error}") from error
    given = working.Given(
        app, hosting, server, key_file, tls_ca, tls_cert, turns, drain, name, log_format, otlp, otlp_headers
    )
    raise typer.Exit(working.run(given))
