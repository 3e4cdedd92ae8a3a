"""`keys create`, `list`, `rotate`, `revoke`: API keys, and how it is said.

Only the options are here. What the commands do is in `keep.py`, imported when one of them runs.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli.admin.maintenance import EXIT_OK, AdminTarget, store_settings
from dragoman.cli.output import json_line
from dragoman.cli.tasks import DEFAULT_GRPC_ADDRESS, Ca, Cert, Grpc, Json, Token
from dragoman.client.operations import Operator
from dragoman.core.access.caller_credentials import API_KEY_PREFIX
from dragoman.core.clock import format_age, parse_age
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's id; a whole key does too.", show_default=False)]

_KEYS_HELP = """Make, list, rotate and revoke API keys.

For operators: on a server that asks nobody who they are, callers on its machine; otherwise who shows credentials
with the grant `operator`.
"""

_keys = typer.Typer(help=_KEYS_HELP, no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    """Adds the commands."""
    for name, command in (("create", create), ("list", list_keys), ("rotate", rotate), ("revoke", revoke)):
        _keys.command(name)(command)
    cli.add_typer(_keys, name="keys", rich_help_panel=None)


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
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
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
    from dragoman.cli.admin import maintenance

    where, lifetime = maintenance.AdminTarget(grpc, store, token), parse_age_option("--expires", expires)
    made = create_key(where, name, principal=principal, grants=grant or [], lifetime=lifetime, json=json)
    maintenance.run_admin_command(grpc, made)


def list_keys(
    all: Annotated[
        bool, typer.Option("--all", metavar=" ", help="Those that were revoked or have expired, too.")
    ] = False,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """List API keys, the newest first, without their secrets: nobody has those.

    **Example**: `dragoman keys list --all`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, print_keys(maintenance.AdminTarget(grpc, "", token), all=all, json=json))


def rotate(
    id: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="AGE", help="How long the old text stays good; 0: not at all.")
    ] = "24h",
    expires: Annotated[
        str, typer.Option("--expires", metavar="AGE", help="How long the key is good from now on. [as before]")
    ] = "",
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """Give a key another secret and print it. The old one stays good for a while.

    **Example**: `dragoman keys rotate qx4m2ltw7a6e --grace 1h`
    """
    from dragoman.cli.admin import maintenance

    lifetime = parse_age_option("--expires", expires) if expires else None
    rotated = rotate_key(
        maintenance.AdminTarget(grpc, "", token),
        id,
        grace=parse_age_option("--grace", grace),
        lifetime=lifetime,
        json=json,
    )
    maintenance.run_admin_command(grpc, rotated)


def revoke(
    id: KeyId,
    json: Json = False,
    grpc: Grpc = DEFAULT_GRPC_ADDRESS,
    ca: Ca = None,
    cert: Cert = None,
    token: Token = "",
) -> None:
    """End a key for good, and the streams that are open under it.

    **Example**: `dragoman keys revoke qx4m2ltw7a6e`
    """
    from dragoman.cli.admin import maintenance

    maintenance.run_admin_command(grpc, revoke_key(maintenance.AdminTarget(grpc, "", token), id, json=json))


_SHOWN_ONCE_NOTE: Final = (
    "this is the only time it is shown; send it as Authorization: Bearer KEY, or as X-API-Key: KEY"
)


def parse_age_option(option: str, text: str) -> int:
    """Milliseconds of an age on the command line. Ends the process with a usage error."""
    try:
        return parse_age(text) if text else 0
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


async def create_key(
    target: AdminTarget, name: str, *, principal: str, grants: Sequence[str], lifetime: int, json: bool
) -> int:
    """Makes a key and prints its text."""
    request = ops.CreateKeyRequest(name=name, principal=principal, grants=grants)
    if lifetime:
        request.lifetime.FromMilliseconds(lifetime)
    async with _open_key_admin(target) as keeping:
        answer: ops.CreateKeyResponse = await keeping.create_key(request)
    if json:
        print(json_line(answer), flush=True)
        return EXIT_OK
    _print_key(answer.key)
    _print_note(_SHOWN_ONCE_NOTE)
    print(answer.text, flush=True)
    return EXIT_OK


async def print_keys(target: AdminTarget, *, all: bool, json: bool) -> int:
    """Lists keys, one line each."""
    async with _open_key_admin(target) as keeping:
        answer: ops.ListKeysResponse = await keeping.list_keys(ops.ListKeysRequest(all=all))
    for key in answer.keys:
        print(json_line(key) if json else _format_key(key), flush=True)
    if not answer.keys and not json:
        _print_note("no keys")
    return EXIT_OK


async def rotate_key(target: AdminTarget, id: str, *, grace: int, lifetime: int | None, json: bool) -> int:
    """Gives a key another text and prints it."""
    request = ops.RotateKeyRequest(id=_key_id(id))
    request.grace.FromMilliseconds(grace)
    if lifetime is not None:
        request.lifetime.FromMilliseconds(lifetime)
    async with _open_key_admin(target) as keeping:
        answer: ops.RotateKeyResponse = await keeping.rotate_key(request)
    if json:
        print(json_line(answer), flush=True)
        return EXIT_OK
    _print_key(answer.key)
    _print_note(f"before     good for {format_age(grace)} more" if grace else "before     good no more")
    _print_note(_SHOWN_ONCE_NOTE)
    print(answer.text, flush=True)
    return EXIT_OK


async def revoke_key(target: AdminTarget, id: str, *, json: bool) -> int:
    """Ends a key."""
    async with _open_key_admin(target) as keeping:
        answer: ops.RevokeKeyResponse = await keeping.revoke_key(ops.RevokeKeyRequest(id=_key_id(id)))
    print(json_line(answer.key) if json else _format_key(answer.key), flush=True)
    return EXIT_OK


@asynccontextmanager
async def _open_key_admin(target: AdminTarget) -> AsyncIterator[Any]:
    """What can do it: a server, or the store itself."""
    if target.store:
        from dragoman.wiring.offline_admin import open_keys

        async with open_keys(store_settings(target.store)) as keeping:
            yield keeping
    else:
        async with Operator(target.grpc, token=target.token) as operator:
            yield operator


def _key_id(text: str) -> str:
    """The id of a key, also of one that is given whole: then its secret goes no further."""
    return text.removeprefix(API_KEY_PREFIX).partition("_")[0] if text.startswith(API_KEY_PREFIX) else text


def _print_key(key: ops.ApiKey) -> None:
    _print_note(f"key        {key.id}  ({key.name})")
    _print_note(f"principal  {key.principal}")
    _print_note(f"grants     {', '.join(key.grants) or 'every agent'}")
    _print_note(f"expires    {_format_time(key.expires) if key.HasField('expires') else 'never'}")


def _format_key(key: ops.ApiKey) -> str:
    """One line; a key that is good says so by saying nothing."""
    words = [
        key.id,
        f"{key.name:<20}",
        f"{key.principal:<20}",
        f"{','.join(key.grants) or '-':<20}",
        f"made {_format_time(key.created)}",
        f"used {_format_time(key.last_used)}" if key.HasField("last_used") else "never used",
    ]
    words += [f"{name} {_format_time(getattr(key, name))}" for name in ("expires", "revoked") if key.HasField(name)]
    return "  ".join(words)


def _format_time(time: Timestamp) -> str:
    return f"{datetime.fromtimestamp(time.ToMilliseconds() / 1000):%Y-%m-%d %H:%M}"


def _print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
