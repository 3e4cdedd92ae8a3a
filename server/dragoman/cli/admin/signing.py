"""`signing list`, `signing rotate`, `signing withdraw`: the keys with which a server signs."""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli import ExitCode
from dragoman.cli.admin import AdminTarget, run_admin_command
from dragoman.cli.admin.keys import parse_age_option
from dragoman.cli.options import DEFAULT_SERVER, Ca, Cert, Json, Key, Server
from dragoman.cli.output import format_time, json_line
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops

_SIGNING_HELP = """List, rotate and withdraw the keys that sign push notifications and agent cards.

A new key is published at /.well-known/jwks.json before it signs; the previous one stays published for some time.
"""

_signing = typer.Typer(name="signing", help=_SIGNING_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("list", list_keys), ("rotate", rotate)):
        _signing.command(name)(command)
    # One key id in 64 begins with a dash and would be parsed as an option.
    _signing.command("withdraw", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})(
        withdraw
    )
    cli.add_typer(_signing)


def list_keys(
    json: Json = False, server: Server = DEFAULT_SERVER, ca: Ca = None, cert: Cert = None, key: Key = ""
) -> None:
    """List the published signing keys, newest first: next, signing, former.

    **Example**: `dragoman signing list`
    """
    run_admin_command(server, print_signing_keys(AdminTarget(server, key), json=json))


def rotate(
    algorithm: Annotated[
        str,
        typer.Option("--algorithm", metavar="ES256|EdDSA", help="The signature algorithm. [the previous key's]"),
    ] = "",
    lead: Annotated[
        str, typer.Option("--lead", metavar="AGE", help="How long the key is published before it signs; 0: at once.")
    ] = "1h",
    overlap: Annotated[
        str, typer.Option("--keep", metavar="AGE", help="How long the previous key stays published after that.")
    ] = "7d",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Create a new signing key.

    **Examples**

    `dragoman signing rotate`  regular rotation

    `dragoman signing rotate --lead 0 --keep 0`  the previous key is compromised: invalidate its signatures now
    """
    rotated = rotate_signing_key(
        AdminTarget(server, key),
        algorithm,
        lead=parse_age_option("--lead", lead),
        overlap=parse_age_option("--keep", overlap),
        json=json,
    )
    run_admin_command(server, rotated)


def withdraw(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key's id (`kid`).", show_default=False)],
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Stop publishing a signing key.

    Use it to invalidate the signatures of a former key, or to discard a new key before it signs.

    **Example**: `dragoman signing withdraw k7WmYXn-0aGf4XnEhTTOnsDJRUlYfTqgT9GxUqLFbI8`
    """
    run_admin_command(server, withdraw_signing_key(AdminTarget(server, key), id))


async def print_signing_keys(target: AdminTarget, *, json: bool) -> ExitCode:
    """Prints signing keys, one line each."""
    async with target.operator() as operator:
        response = await operator.list_signing_keys(ops.ListSigningKeysRequest())
    for key in response.keys:
        print(json_line(key) if json else _format_signing_key(key), flush=True)
    return ExitCode.OK


async def rotate_signing_key(target: AdminTarget, algorithm: str, *, lead: int, overlap: int, json: bool) -> ExitCode:
    """Creates a signing key and prints it. lead, overlap: milliseconds."""
    request = ops.RotateSigningKeyRequest(algorithm=algorithm)
    request.lead.FromMilliseconds(lead)
    request.keep.FromMilliseconds(overlap)
    async with target.operator() as operator:
        response = await operator.rotate_signing_key(request)
    print(json_line(response.key) if json else _format_signing_key(response.key), flush=True)
    return ExitCode.OK


async def withdraw_signing_key(target: AdminTarget, id: str) -> ExitCode:
    """Withdraws a signing key."""
    async with target.operator() as operator:
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=id))
    print(f"{id}  is no longer published", flush=True)
    return ExitCode.OK


def _format_signing_key(key: ops.SigningKey) -> str:
    state = ops.SigningKeyState.Name(key.state).removeprefix("SIGNING_KEY_STATE_").lower()
    words = [key.id, f"{key.algorithm:<5}", f"{state:<7}"]
    created = f"created {format_time(key.created, seconds=False)}"
    words.append(created if key.HasField("created") else "created with the store")
    if key.state == ops.SIGNING_KEY_STATE_NEXT:
        words.append(f"signs from {format_time(key.signs, seconds=False)}")
    if key.HasField("until"):
        words.append(f"published until {format_time(key.until, seconds=False)}")
    return "  ".join(words)
