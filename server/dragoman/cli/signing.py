"""`signing list`, `rotate`, `withdraw`: the keys with which a server signs, and how it is said.

Only the options are here. What the commands do is in `seals.py`, imported when one of them runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli.tasks import LOCAL, Ca, Cert, Grpc, Json, Token

_HELP = """The keys with which a server signs push notifications and cards.

A new one is shown at /.well-known/jwks.json before it signs, and the one before stays there for a while after.
"""

_signing = typer.Typer(name="signing", help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("list", list_keys), ("rotate", rotate)):
        _signing.command(name)(command)
    # One id in 64 begins with a dash, and would be taken for an option.
    _signing.command("withdraw", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})(
        withdraw
    )
    cli.add_typer(_signing)


def list_keys(json: Json = False, grpc: Grpc = LOCAL, ca: Ca = None, cert: Cert = None, token: Token = "") -> None:
    """List the signing keys that are shown, the newest first: next, signing, former.

    **Example**: `dragoman signing list`
    """
    from dragoman.cli import operate, seals

    operate.run(grpc, seals.show(operate.Where(grpc, "", token), json=json))


def rotate(
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="ES256|EdDSA", help="How it signs. [as the one before]")
    ] = "",
    lead: Annotated[
        str, typer.Option("--lead", metavar="AGE", help="How long it is shown before it signs; 0: it signs at once.")
    ] = "1h",
    keep: Annotated[
        str, typer.Option("--keep", metavar="AGE", help="How long the one before is shown after that.")
    ] = "7d",
    json: Json = False,
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Make another signing key.

    **Examples**

    `dragoman signing rotate`  once in a while

    `dragoman signing rotate --lead 0 --keep 0`  the one before is in wrong hands: what it signed counts no more
    """
    from dragoman.cli import keep as ages
    from dragoman.cli import operate, seals

    rotated = seals.rotate(
        operate.Where(grpc, "", token),
        algorithm,
        lead=ages.age("--lead", lead),
        keep=ages.age("--keep", keep),
        json=json,
    )
    operate.run(grpc, rotated)


def withdraw(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key's id (`kid`).", show_default=False)],
    grpc: Grpc = LOCAL,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Show a signing key no more: a former one whose signatures are to count no more, or a new one that is not wanted.

    **Example**: `dragoman signing withdraw k7WmYXn-0aGf4XnEhTTOnsDJRUlYfTqgT9GxUqLFbI8`
    """
    from dragoman.cli import operate, seals

    operate.run(grpc, seals.withdraw(operate.Where(grpc, "", token), id))
