"""`signing list`, `signing rotate`, `signing withdraw`: the keys with which a server signs."""

from __future__ import annotations

from typing import Annotated, Final

from dragoman.cli.commands import Command, CommandGroup, argument, option
from dragoman.cli.options import Json, ServerTarget, age_option
from dragoman.cli.output import ConsoleOutput, format_time
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops import v1 as ops

_SIGNING_HELP = """List, rotate and withdraw the keys that sign push notifications and agent cards.

A new key is published at /.well-known/jwks.json before it signs; the previous one stays published for some time.
"""

_IDS_ARE_WORDS: Final = {"ignore_unknown_options": True, "help_option_names": ["--help"]}
"""One key id in 64 begins with a dash and would be parsed as an option."""


async def list_keys(json: Json = False, *, target: ServerTarget) -> None:
    """List the published signing keys, newest first: next, signing, former.

    **Example**: `dragoman signing list`
    """
    response = await target.call(Operator.list_signing_keys, ops.ListSigningKeysRequest())
    ConsoleOutput().messages(response.keys, _describe_key, json=json)


async def rotate(
    algorithm: Annotated[
        str, option("--algorithm", "ES256|EdDSA", "The signature algorithm. [the previous key's]")
    ] = "",
    lead: Annotated[str, option("--lead", "AGE", "How long the key is published before it signs; 0: at once.")] = "1h",
    overlap: Annotated[str, option("--keep", "AGE", "How long the previous key stays published after that.")] = "7d",
    json: Json = False,
    *,
    target: ServerTarget,
) -> None:
    """Create a new signing key.

    **Examples**

    `dragoman signing rotate`  regular rotation

    `dragoman signing rotate --lead 0 --keep 0`  the previous key is compromised: invalidate its signatures now
    """
    request = ops.RotateSigningKeyRequest(algorithm=algorithm)
    request.lead.FromMilliseconds(age_option("--lead", lead))
    request.keep.FromMilliseconds(age_option("--keep", overlap))
    response = await target.call(Operator.rotate_signing_key, request)
    ConsoleOutput().messages([response.key], _describe_key, json=json)


async def withdraw(id: Annotated[str, argument("ID", "The key's id (`kid`).")], *, target: ServerTarget) -> None:
    """Stop publishing a signing key.

    Use it to invalidate the signatures of a former key, or to discard a new key before it signs.

    **Example**: `dragoman signing withdraw k7WmYXn-0aGf4XnEhTTOnsDJRUlYfTqgT9GxUqLFbI8`
    """
    await target.call(Operator.withdraw_signing_key, ops.WithdrawSigningKeyRequest(id=id))
    ConsoleOutput().line(f"{id}  is no longer published")


def _describe_key(key: ops.SigningKey) -> tuple[str]:
    state = ops.SigningKeyState.Name(key.state).removeprefix("SIGNING_KEY_STATE_").lower()
    words = [key.id, f"{key.algorithm:<5}", f"{state:<7}"]
    created = f"created {format_time(key.created, seconds=False)}"
    words.append(created if key.HasField("created") else "created with the store")
    if key.state == ops.SIGNING_KEY_STATE_NEXT:
        words.append(f"signs from {format_time(key.signs, seconds=False)}")
    if key.HasField("until"):
        words.append(f"published until {format_time(key.until, seconds=False)}")
    return ("  ".join(words),)


COMMANDS: Final = {
    "signing": CommandGroup(
        _SIGNING_HELP,
        {
            "list": Command(list_keys),
            "rotate": Command(rotate),
            "withdraw": Command(withdraw, context_settings=_IDS_ARE_WORDS),
        },
    )
}
