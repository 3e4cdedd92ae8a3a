"""`keys create`, `list`, `rotate`, `revoke`: API keys, and how it is said.

Only the options are here. What the commands do is in `keep.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, Token

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id; a whole key does too.", show_default=False)]

_HELP = """Make, list, rotate and revoke API keys.

For operators: on a server that asks nobody who they are, callers on its machine; otherwise who shows credentials
with the grant `operator`.
"""

keys = typer.Typer(help=_HELP, no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("create", create), ("list", list_keys), ("rotate", rotate), ("revoke", revoke)):
        keys.command(name)(command)
    cli.add_typer(keys, name="keys", rich_help_panel=None)


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="For people: what the key is for.", show_default=False)],
    principal: Annotated[
        str,
        typer.Option("--principal", metavar="WHO", help="Whose tasks it reaches; keys may share one. [NAME]"),
    ] = "",
    grant: Annotated[
        list[str] | None,
        typer.Option(
            "--grant", metavar="GRANT", help="operator, agent:ID, scope:NAME, worker or worker:ID; may be repeated."
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="AGE", help="How long it is good: 90d, 12h. [for ever]")
    ] = "",
    json: Json = False,
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            help="In this store, without a server: sqlite:///PATH or postgresql://... It is made if need be.",
        ),
    ] = "",
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Make an API key and print it. It is shown this once, and kept nowhere.

    Without a grant it may call every agent, and is no operator. `agent:ID` narrows it to that agent, `scope:NAME` to
    that scope. `worker` lets it run agents that dial in (`dragoman worker`), `worker:ID` that one.

    **Examples**

    `dragoman keys create laptop --grant operator --store sqlite:///dragoman.db`  the first one, before the server

    `dragoman keys create nightly-report --principal alice@example.com --grant agent:echo --expires 90d`
    """
    from dragoman.cli import keep, operate

    where, lifetime = operate.Where(grpc, store, token), keep.age("--expires", expires)
    made = keep.create(where, name, principal=principal, grants=grant or [], lifetime=lifetime, json=json)
    operate.run(grpc, made)


def list_keys(
    all: Annotated[
        bool, typer.Option("--all", metavar=" ", help="Those that were revoked or have expired, too.")
    ] = False,
    json: Json = False,
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """List API keys, the newest first, without their secrets: nobody has those.

    **Example**: `dragoman keys list --all`
    """
    from dragoman.cli import keep, operate

    operate.run(grpc, keep.list_keys(operate.Where(grpc, "", token), all=all, json=json))


def rotate(
    id: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="AGE", help="How long the old text stays good; 0: not at all.")
    ] = "24h",
    expires: Annotated[
        str, typer.Option("--expires", metavar="AGE", help="How long the key is good from now on. [as before]")
    ] = "",
    json: Json = False,
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Give a key another secret and print it. The old one stays good for a while.

    **Example**: `dragoman keys rotate qx4m2ltw7a6e --grace 1h`
    """
    from dragoman.cli import keep, operate

    lifetime = keep.age("--expires", expires) if expires else None
    rotated = keep.rotate(
        operate.Where(grpc, "", token), id, grace=keep.age("--grace", grace), lifetime=lifetime, json=json
    )
    operate.run(grpc, rotated)


def revoke(
    id: KeyId, json: Json = False, grpc: Grpc = LOCAL, ca: Ca = None, cert: Cert = None, token: Token = ""
) -> None:
    """End a key for good, and the streams that are open under it.

    **Example**: `dragoman keys revoke qx4m2ltw7a6e`
    """
    from dragoman.cli import keep, operate

    operate.run(grpc, keep.revoke(operate.Where(grpc, "", token), id, json=json))
