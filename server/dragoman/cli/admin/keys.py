"""`keys create`, `keys list`, `keys rotate`, `keys revoke`: API keys."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from dragoman.cli import print_note
from dragoman.cli.admin import open_admin_client
from dragoman.cli.commands import Command, CommandGroup, argument, flag, option
from dragoman.cli.options import Json, ServerTarget, StoreUrl, age_option
from dragoman.cli.output import ConsoleOutput, format_time, json_line
from dragoman.core.access.caller_credentials import API_KEY_PREFIX
from dragoman.core.access.identity import check_grants
from dragoman.core.durations import format_age
from dragoman_pb.dragoman.ops import v1 as ops

KeyId = Annotated[str, argument("ID", "The key's id, or the complete key.")]

_KEYS_HELP = """Create, list, rotate and revoke API keys.

For operators: callers with the grant `operator`; on a server without authentication, callers on its own machine.
"""


async def create(
    name: Annotated[str, argument("NAME", "A name that says what the key is for.")],
    principal: Annotated[
        str, option("--principal", "WHO", "The principal it authenticates; several keys may share one. [NAME]")
    ] = "",
    grant: Annotated[
        list[str] | None,
        option(
            "--grant", "GRANT", "operator, viewer, auditor, agent:ID, scope:NAME, worker, worker:ID; may be repeated."
        ),
    ] = None,
    expires: Annotated[str, option("--expires", "AGE", "How long the key is valid: 90d, 12h. [no expiry]")] = "",
    json: Json = False,
    store: StoreUrl = "",
    *,
    target: ServerTarget,
) -> None:
    """Create an API key and print it. It is printed only once; the store keeps a hash. --store creates a missing store.

    Without grants the key may call every agent, but is not an operator. `agent:ID` restricts it to that agent,
    `scope:NAME` to that scope. `viewer` allows it to see what operators see, and to change nothing, `auditor` to export
    the audit log. `worker` allows it to run workers (`dragoman worker`) for any agent, `worker:ID` for that agent.

    **Examples**

    `dragoman keys create laptop --grant operator --store sqlite:///dragoman.db`  the first key, before the first start

    `dragoman keys create nightly-report --principal alice@example.com --grant agent:echo --expires 90d`
    """
    request = ops.CreateKeyRequest(name=name, principal=principal, grants=grant or ())
    try:
        check_grants(request.grants)
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--grant") from error
    if lifetime := age_option("--expires", expires):
        request.lifetime.FromMilliseconds(lifetime)
    async with open_admin_client(target, store, create=True) as key_admin:
        _print_new_key(await key_admin.create_key(request), "", json=json)


async def list_keys(
    all: Annotated[bool, flag("--all", "Include revoked and expired keys.")] = False,
    json: Json = False,
    store: StoreUrl = "",
    *,
    target: ServerTarget,
) -> None:
    """List API keys, newest first, without their secrets, which are not stored.

    **Example**: `dragoman keys list --all`
    """
    async with open_admin_client(target, store) as key_admin:
        response = await key_admin.list_keys(ops.ListKeysRequest(all=all))
    ConsoleOutput().messages(response.keys, _describe_key, json=json)
    if not response.keys and not json:
        print_note("no keys")


async def rotate(
    id: KeyId,
    grace: Annotated[str, option("--grace", "AGE", "How long the old secret stays valid; 0: not at all.")] = "24h",
    expires: Annotated[str, option("--expires", "AGE", "How long the key is valid from now. [as before]")] = "",
    json: Json = False,
    store: StoreUrl = "",
    *,
    target: ServerTarget,
) -> None:
    """Replace a key's secret and print the new key. The old secret stays valid for the grace period.

    **Example**: `dragoman keys rotate qx4m2ltw7a6e --grace 1h`
    """
    request = ops.RotateKeyRequest(id=_key_id(id))
    request.grace.FromMilliseconds(valid := age_option("--grace", grace))
    if expires:
        request.lifetime.FromMilliseconds(age_option("--expires", expires))
    async with open_admin_client(target, store) as key_admin:
        response = await key_admin.rotate_key(request)
    old = f"old secret valid for {format_age(valid)} more" if valid else "old secret no longer valid"
    _print_new_key(response, old, json=json)


async def revoke(id: KeyId, json: Json = False, store: StoreUrl = "", *, target: ServerTarget) -> None:
    """Revoke a key permanently and close the streams opened with it.

    **Example**: `dragoman keys revoke qx4m2ltw7a6e`
    """
    async with open_admin_client(target, store) as key_admin:
        response = await key_admin.revoke_key(ops.RevokeKeyRequest(id=_key_id(id)))
    ConsoleOutput().messages([response.key], _describe_key, json=json)


def _key_id(text: str) -> str:
    """Returns the id of a key given by id or completely. The secret is never sent."""
    return text.removeprefix(API_KEY_PREFIX).partition("_")[0] if text.startswith(API_KEY_PREFIX) else text


def _print_new_key(response: ops.CreateKeyResponse | ops.RotateKeyResponse, note: str, *, json: bool) -> None:
    """Prints the key on stdout, and what is known of it, with a note, on stderr."""
    out, key = ConsoleOutput(), response.key
    if json:
        out.line(json_line(response))
        return
    print_note(f"key        {key.id}  ({key.name})")
    print_note(f"principal  {key.principal}")
    print_note(f"grants     {', '.join(key.grants) or 'every agent'}")
    print_note(f"expires    {format_time(key.expires, seconds=False) if key.HasField('expires') else 'never'}")
    if note:
        print_note(note)
    print_note("the key is shown only once; send it as Authorization: Bearer KEY, or as X-API-Key: KEY")
    out.line(response.text)


def _describe_key(key: ops.ApiKey) -> tuple[str]:
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
    return ("  ".join(words),)


COMMANDS: Final = {
    "keys": CommandGroup(
        _KEYS_HELP,
        {"create": Command(create), "list": Command(list_keys), "rotate": Command(rotate), "revoke": Command(revoke)},
    )
}
