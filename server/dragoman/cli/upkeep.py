"""`purge`, `export`, `backup`, `restore`: what operators do to a store, and how it is said.

Only the options are here. What the commands do is in `operate.py`, imported when one of them runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli import completing
from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, State, TaskId, Token

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        help="This store, without a server: sqlite:///PATH (no server may hold it), postgresql://...",
    ),
]
Agent = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="Only of this agent.", autocompletion=completing.agents)
]
Principal = Annotated[str, typer.Option("--principal", metavar="NAME", help="Only of this principal.")]
Scope = Annotated[str, typer.Option("--scope", metavar="NAME", help="Only in this scope.")]


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("purge", purge), ("export", export), ("backup", backup), ("restore", restore)):
        cli.command(name)(command)


def purge(
    task: Annotated[str, typer.Option("--task", metavar="ID", help="This task.")] = "",
    context: Annotated[str, typer.Option("--context", metavar="ID", help="The tasks of this conversation.")] = "",
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="The tasks of this principal.")] = "",
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Tasks that ended longer ago: 30d, 12h, 90m.")
    ] = "",
    scope: Scope = "",
    state: Annotated[State | None, typer.Option("--state", help="Only in this state.")] = None,
    agent: Agent = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=" ", help="Remove nothing; tell what would be removed.")
    ] = False,
    json: Json = False,
    store: StoreUrl = "",
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Erase tasks with all that belongs to them: events, messages, artifacts.

    All that is said must hold of a task; say one of --task, --context, --principal, --older-than at least. Running
    tasks are erased, too, and their agents stopped; --older-than alone takes only tasks that have ended. What is left
    is a receipt that names nobody.

    **Examples**

    `dragoman purge --older-than 30d --state failed --dry-run`

    `dragoman purge --principal alice@example.com`

    `dragoman purge --store sqlite:///dragoman.db --task 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    from dragoman.cli import operate

    selection = operate.selection(
        task=task, context=context, principal=principal, older=older_than, scope=scope, state=state, agent=agent
    )
    operate.run(grpc, operate.purge(operate.Where(grpc, store, token), selection, dry_run=dry_run, json=json))


def export(
    task: TaskId,
    agent: Agent = "",
    principal: Principal = "",
    scope: Scope = "",
    store: StoreUrl = "",
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Write out everything that is kept of a task, as lines of JSON on stdout.

    A header, the task, its events, its messages, and an end; without the end it is not complete.

    **Example**: `dragoman export 0199f3c2-5c1e-7000-8000-3b1f0a52c0de > task.jsonl`
    """
    from dragoman.cli import operate

    where = operate.Where(grpc, store, token)
    operate.run(grpc, operate.export(where, task, agent=agent, principal=principal, scope=scope))


def backup(
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="A folder to make.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="This store, whether or not a server runs on it.")
    ] = "",
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Copy the store, as it is at this moment, while it is in use, and check the copy.

    Over gRPC the server writes the copy, on its own machine. DEST must not be there yet.

    **Example**: `dragoman backup /var/backups/dragoman-$(date +%F)`
    """
    from dragoman.cli import operate

    operate.run(grpc, operate.backup(operate.Where(grpc, store, token), destination.absolute()))


def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="What `backup` made.", show_default=False)],
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="The store to make; it must not be there yet.")
    ] = "sqlite:///dragoman.db",
) -> None:
    """Make a store of a backup, check it, and tell what became of what came after the backup.

    **Example**: `dragoman restore /var/backups/dragoman-2026-11-20 --store sqlite:////var/lib/dragoman/tasks.db`
    """
    from dragoman.cli import operate

    operate.run("", operate.restore(source, store))
