"""`signing list`, `rotate`, `withdraw`: the keys with which a server signs, and how it is said.

Only the options are here. What the commands do is in `seals.py`, imported when one of them runs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli.admin.maintenance import EXIT_OK, AdminTarget
from dragoman.cli.output import json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, Token
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops

_SIGNING_HELP = """The keys with which a server signs push notifications and cards.

A new one is shown at /.well-known/jwks.json before it signs, and the one before stays there for a while after.
"""

_signing = typer.Typer(name="signing", help=_SIGNING_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("list", list_keys), ("rotate", rotate)):
        _signing.command(name)(command)
    # One id in 64 begins with a dash, and would be taken for an option.
    _signing.command("withdraw", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})(
        withdraw
    )
    cli.add_typer(_signing)


def list_keys(
    json: Json = False, grpc: Grpc = DEFAULT_GRPC_ADDRESS, ca: Ca = None, cert: Cert = None, token: Token = ""
) -> None:
    """List the signing keys that are shown, the newest first: next, signing, former.

    **Example**: `dragoman signing list`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, print_signing_keys(maintenance.AdminTarget(grpc, "", token), json=json))


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
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Make another signing key.

    **Examples**

    `dragoman signing rotate`  once in a while

    `dragoman signing rotate --lead 0 --keep 0`  the one before is in wrong hands: what it signed counts no more
    """
    from dragoman.cli.admin import keys as ages
    from dragoman.cli.admin import maintenance

    rotated = rotate_signing_key(
        maintenance.AdminTarget(grpc, "", token),
        algorithm,
        lead=ages.parse_age_option("--lead", lead),
        keep=ages.parse_age_option("--keep", keep),
        json=json,
    )
    maintenance.run_admin_command(grpc, rotated)


def withdraw(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key's id (`kid`).", show_default=False)],
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Show a signing key no more: a former one whose signatures are to count no more, or a new one that is not wanted.

    **Example**: `dragoman signing withdraw k7WmYXn-0aGf4XnEhTTOnsDJRUlYfTqgT9GxUqLFbI8`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, withdraw_signing_key(maintenance.AdminTarget(grpc, "", token), id))


async def print_signing_keys(target: AdminTarget, *, json: bool) -> int:
    """Lists keys, one line each."""
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.list_signing_keys(ops.ListSigningKeysRequest())
    for key in answer.keys:
        print(json_line(key) if json else _format_signing_key(key), flush=True)
    return EXIT_OK


async def rotate_signing_key(target: AdminTarget, algorithm: str, *, lead: int, keep: int, json: bool) -> int:
    """Makes a key and prints it."""
    request = ops.RotateSigningKeyRequest(algorithm=algorithm)
    request.lead.FromMilliseconds(lead)
    request.keep.FromMilliseconds(keep)
    async with Operator(target.grpc, token=target.token) as operator:
        answer = await operator.rotate_signing_key(request)
    print(json_line(answer.key) if json else _format_signing_key(answer.key), flush=True)
    return EXIT_OK


async def withdraw_signing_key(target: AdminTarget, id: str) -> int:
    """Takes a key away."""
    async with Operator(target.grpc, token=target.token) as operator:
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=id))
    print(f"{id}  is shown no more", flush=True)
    return EXIT_OK


def _format_signing_key(key: ops.SigningKey) -> str:
    state = ops.SigningKeyState.Name(key.state).removeprefix("SIGNING_KEY_STATE_").lower()
    words = [key.id, f"{key.algorithm:<5}", f"{state:<7}"]
    words.append(f"made {_format_time(key.created)}" if key.HasField("created") else "from the store's beginning")
    if key.state == ops.SIGNING_KEY_STATE_NEXT:
        words.append(f"signs from {_format_time(key.signs)}")
    if key.HasField("until"):
        words.append(f"shown until {_format_time(key.until)}")
    return "  ".join(words)


def _format_time(time: Timestamp) -> str:
    return f"{datetime.fromtimestamp(time.ToMilliseconds() / 1000):%Y-%m-%d %H:%M}"
