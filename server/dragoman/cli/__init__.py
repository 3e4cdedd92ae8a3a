"""The command `dragoman`: one server, and a client for trying it and for scripts."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dragoman.cli import doctor, flaky, record, tasks, top, worker
from dragoman.cli.admin import agents, audit, keys, maintenance, push, signing, workers
from dragoman.cli.serve import command as serve
from dragoman.release import version

_HELP = """Dragoman, a durable task server for the A2A protocol.

Start a server:  `dragoman serve`  (a playground agent)  or  `dragoman serve agents.py`

Run agents in processes of their own:  `dragoman worker agents.py --server HOST:PORT`

Talk to it:  `dragoman send "echo hello"`,  then  `get`,  `watch`,  `list`,  `cancel`

See how it is:  `top`,  `doctor`,  `explain`

Look after its store:  `purge`,  `export`,  `backup`,  `restore`

Stand in front of other A2A agents:  `agents add`,  `agents list`,  `agents remove`

Hold new code against what a task did:  `record`,  `replay`

Say who may call:  `keys create`,  `keys list`,  `keys rotate`,  `keys revoke`

Change the keys with which it signs:  `signing list`,  `signing rotate`,  `signing withdraw`

Ask who did what:  `audit export`,  `audit verify`

Try a client on a bad network:  `flaky`

Look after its webhooks:  `push list`,  `push redeliver`, and its workers:  `workers list`,  `workers forget`

Have the shell complete commands, options, agents and tasks:  `dragoman --install-completion`
"""

_EXIT_CODES_HELP = """**Exit codes**: 0 done, or the task waits for you; 1 the task failed, was rejected or canceled; or the
server could not start; 2 wrong usage, settings or agents; 3 no server there, or it refused the call; 130 Ctrl-C.
"""

cli = typer.Typer(
    name="dragoman",
    help=_HELP,
    epilog=_EXIT_CODES_HELP,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dragoman {version()}")
        raise typer.Exit


@cli.callback()
def _dragoman(
    version: Annotated[
        bool,
        typer.Option("--version", metavar=" ", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


serve.register(cli)
tasks.register(cli)
maintenance.register(cli)
record.register(cli)
agents.register(cli)
audit.register(cli)
keys.register(cli)
push.register(cli)
signing.register(cli)
worker.register(cli)
workers.register(cli)
doctor.register(cli)
top.register(cli)
flaky.register(cli)


def main() -> None:
    """Runs the command line; the process ends with one of the codes that `--help` lists."""
    # gRPC's core writes to stderr what it tells its callers anyway.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    cli()
