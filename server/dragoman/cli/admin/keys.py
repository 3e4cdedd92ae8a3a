"""`keys create`, `keys list`, `keys rotate`, `keys revoke`: API keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from dragoman.cli import ExitCode, print_note
from dragoman.cli.admin import AdminTarget, open_admin_client, run_admin_command
from dragoman.cli.options import DEFAULT_SERVER, Ca, Cert, Json, Key, Server
from dragoman.cli.output import ConsoleOutput, format_time, json_line
from dragoman.core.access.caller_credentials import API_KEY_PREFIX
from dragoman.core.durations import format_age, parse_age
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id, or the complete key.", show_default=False)]

_KEYS_HELP = """Create, list, rotate and revoke API keys.

For operators: callers with the grant `operator`; on a server without authentication, callers on its own machine.
"""

_keys = typer.Typer(help=_KEYS_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("create", create), ("list", list_keys), ("rotate", rotate), ("revoke", revoke)):
        _keys.command(name)(command)
    cli.add_typer(_keys, name="keys", rich_help_panel=None)


def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name that says what the key is for.", show_default=False)
    ],
    principal: Annotated[
        str,
        typer.Option(
            "--principal", metavar="WHO", help="The principal it authenticates; several keys may share one. [NAME]"
        ),
    ] = "",
    grant: Annotated[
        list[str] | None,
        typer.Option(
            "--grant",
            metavar="GRANT",
            help="operator, viewer, agent:ID, scope:NAME, worker, worker:ID; may be repeated.",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option("--expires", metavar="AGE", help="How long the key is valid: 90d, 12h. [no expiry]")
    ] = "",
    json: Json = False,
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="URL",
            help="Use this store without a server: a URL as for `serve --store`. It is created if missing.",
        ),
    ] = "",
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Create an API key and print it. It is printed only once; the store keeps a hash.

    Without grants the key may call every agent, but is not an operator. `agent:ID` restricts it to that agent,
    `scope:NAME` to that scope. `viewer` allows it to see what operators see, and to change nothing. `worker` allows it
    to run workers (`dragoman worker`) for any agent, `worker:ID` for that agent.

    **Examples**

    `dragoman keys create laptop --grant operator --store sqlite:///dragoman.db`  the first key, before the first start

    `dragoman keys create nightly-report --principal alice@example.com --grant agent:echo --expires 90d`
    """
    target, lifetime = AdminTarget(server, key, store), parse_age_option("--expires", expires)
    created = create_key(target, name, principal=principal, grants=grant or [], lifetime=lifetime, json=json)
    run_admin_command(server, created)


def list_keys(
    all: Annotated[bool, typer.Option("--all", metavar=" ", help="Include revoked and expired keys.")] = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """List API keys, newest first, without their secrets, which are not stored.

    **Example**: `dragoman keys list --all`
    """
    run_admin_command(server, print_keys(AdminTarget(server, key), all=all, json=json))


def rotate(
    id: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="AGE", help="How long the old secret stays valid; 0: not at all.")
    ] = "24h",
    expires: Annotated[
        str, typer.Option("--expires", metavar="AGE", help="How long the key is valid from now. [as before]")
    ] = "",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Replace a key's secret and print the new key. The old secret stays valid for the grace period.

    **Example**: `dragoman keys rotate qx4m2ltw7a6e --grace 1h`
    """
    lifetime = parse_age_option("--expires", expires) if expires else None
    rotated = rotate_key(
        AdminTarget(server, key),
        id,
        grace=parse_age_option("--grace", grace),
        lifetime=lifetime,
        json=json,
    )
    run_admin_command(server, rotated)


def revoke(
    id: KeyId,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = "",
) -> None:
    """Revoke a key permanently and close the streams opened with it.

    **Example**: `dragoman keys revoke qx4m2ltw7a6e`
    """
    run_admin_command(server, revoke_key(AdminTarget(server, key), id, json=json))


_SHOWN_ONCE_NOTE: Final = "the key is shown only once; send it as Authorization: Bearer KEY, or as X-API-Key: KEY"


def parse_age_option(option: str, text: str) -> int:
    """Parses an age into milliseconds. Ends the process with a usage error if it is invalid."""
    try:
        return parse_age(text) if text else 0
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


async def create_key(
    target: AdminTarget, name: str, *, principal: str, grants: Sequence[str], lifetime: int, json: bool
) -> ExitCode:
    """Creates a key and prints it. lifetime: milliseconds; 0: no expiry."""
    request = ops.CreateKeyRequest(name=name, principal=principal, grants=grants)
    if lifetime:
        request.lifetime.FromMilliseconds(lifetime)
    async with open_admin_client(target, create=True) as key_admin:
        response: ops.CreateKeyResponse = await key_admin.create_key(request)
    if json:
        print(json_line(response), flush=True)
        return ExitCode.OK
    _print_key(response.key)
    print_note(_SHOWN_ONCE_NOTE)
    print(response.text, flush=True)
    return ExitCode.OK


async def print_keys(target: AdminTarget, *, all: bool, json: bool) -> ExitCode:
    """Prints keys, one line each."""
    async with open_admin_client(target, create=True) as key_admin:
        response: ops.ListKeysResponse = await key_admin.list_keys(ops.ListKeysRequest(all=all))
    for key in response.keys:
        ConsoleOutput().line(json_line(key) if json else _format_key(key))
    if not response.keys and not json:
        print_note("no keys")
    return ExitCode.OK


async def rotate_key(target: AdminTarget, id: str, *, grace: int, lifetime: int | None, json: bool) -> ExitCode:
    """Replaces a key's secret and prints the key. grace, lifetime: milliseconds; lifetime None: unchanged."""
    request = ops.RotateKeyRequest(id=_key_id(id))
    request.grace.FromMilliseconds(grace)
    if lifetime is not None:
        request.lifetime.FromMilliseconds(lifetime)
    async with open_admin_client(target, create=True) as key_admin:
        response: ops.RotateKeyResponse = await key_admin.rotate_key(request)
    if json:
        print(json_line(response), flush=True)
        return ExitCode.OK
    _print_key(response.key)
    print_note(f"old secret valid for {format_age(grace)} more" if grace else "old secret no longer valid")
    print_note(_SHOWN_ONCE_NOTE)
    print(response.text, flush=True)
    return ExitCode.OK


async def revoke_key(target: AdminTarget, id: str, *, json: bool) -> ExitCode:
    """Revokes a key."""
    async with open_admin_client(target, create=True) as key_admin:
        response: ops.RevokeKeyResponse = await key_admin.revoke_key(ops.RevokeKeyRequest(id=_key_id(id)))
    ConsoleOutput().line(json_line(response.key) if json else _format_key(response.key))
    return ExitCode.OK


def _key_id(text: str) -> str:
    """Returns the id of a key given by id or completely. The secret is never sent."""
    return text.removeprefix(API_KEY_PREFIX).partition("_")[0] if text.startswith(API_KEY_PREFIX) else text


def _print_key(key: ops.ApiKey) -> None:
    print_note(f"key        {key.id}  ({key.name})")
    print_note(f"principal  {key.principal}")
    print_note(f"grants     {', '.join(key.grants) or 'every agent'}")
    print_note(f"expires    {format_time(key.expires, seconds=False) if key.HasField('expires') else 'never'}")


def _format_key(key: ops.ApiKey) -> str:
    """Formats a key as one line. Only expiring and revoked keys have further columns."""
    words = [
        key.id,
        f"{key.name:<20}",
        f"{key.principal:<20}",
        f"{','.join(key.grants) or '-':<20}",
        f"created {format_time(key.created, seconds=False)}",
        f"used {format_time(key.last_used, seconds=False)}" if key.HasField("last_used") else "never used",
    ]
    words += [
        f"{name} {format_time(getattr(key, name), seconds=False)}"
        for name in ("expires", "revoked")
        if key.HasField(name)
    ]
    return "  ".join(words)
