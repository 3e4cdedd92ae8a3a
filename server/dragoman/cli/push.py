"""`push list` and `push redeliver`: how far receivers are, and what they get once more.

Only the options are here. What the commands do is in `outbox.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import completing
from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, TaskId, Token
from dragoman.cli.upkeep import Agent, Principal, Scope

_push = typer.Typer(
    name="push",
    help="Push notifications: who is told of what, how far they are, and what to tell them again.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    _push.command("list")(list_configs)
    _push.command("redeliver")(redeliver)
    cli.add_typer(_push)


def list_configs(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="The id of a task.", show_default=False, autocompletion=completing.tasks),
    ] = "",
    agent: Agent = "",
    principal: Principal = "",
    scope: Scope = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Without TASK: so many.")] = 100,
    json: Json = False,
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Show the push configurations of a task with their last tries.

    Without a task: every configuration that has something to deliver or was given up, what fails for longest first.
    Secrets are never shown.

    **Examples**

    `dragoman push list`

    `dragoman push list 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`
    """
    from dragoman.cli import operate, outbox

    where = operate.Where(grpc, "", token)
    asked = outbox.asked(task, agent=agent, principal=principal, scope=scope, limit=limit)
    operate.run(grpc, outbox.show(where, asked, json=json))


def redeliver(
    task: TaskId,
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="The id of one configuration; else all.", show_default=False)
    ] = "",
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="Again from this event on; 1 is the first.")
    ] = None,
    agent: Agent = "",
    principal: Principal = "",
    scope: Scope = "",
    json: Json = False,
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Deliver what a receiver has not taken: at once, and also where it was given up (dead letters).

    With --from also what it has taken. A receiver knows repeats by the header `Dragoman-Event`.

    **Examples**

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de`

    `dragoman push redeliver 0199f3c2-5c1e-7000-8000-3b1f0a52c0de orders-hook --from 1`
    """
    from dragoman.cli import operate, outbox

    where = operate.Where(grpc, "", token)
    asked = outbox.again(task, config, first, agent=agent, principal=principal, scope=scope)
    operate.run(grpc, outbox.redeliver(where, asked, json=json))
