"""What the commands on API keys do. A key's text goes to stdout, alone, so that it can be piped to where it belongs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli.operate import DONE, Where, settings_of
from dragoman.cli.render import json_line
from dragoman.client.operations import Operator
from dragoman.core.ages import parse_age, write_age
from dragoman.core.apikeys import PREFIX
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

_ONCE: Final = "this is the only time it is shown; send it as Authorization: Bearer KEY, or as X-API-Key: KEY"


def age(option: str, text: str) -> int:
    """Milliseconds of an age on the command line. Ends the process with a usage error."""
    try:
        return parse_age(text) if text else 0
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from error


async def create(where: Where, name: str, *, principal: str, grants: Sequence[str], lifetime: int, json: bool) -> int:
    """Makes a key and prints its text."""
    request = ops.CreateKeyRequest(name=name, principal=principal, grants=grants)
    if lifetime:
        request.lifetime.FromMilliseconds(lifetime)
    async with _keeping(where) as keeping:
        answer: ops.CreateKeyResponse = await keeping.create_key(request)
    if json:
        print(json_line(answer), flush=True)
        return DONE
    _tell(answer.key)
    _note(_ONCE)
    print(answer.text, flush=True)
    return DONE


async def list_keys(where: Where, *, all: bool, json: bool) -> int:
    """Lists keys, one line each."""
    async with _keeping(where) as keeping:
        answer: ops.ListKeysResponse = await keeping.list_keys(ops.ListKeysRequest(all=all))
    for key in answer.keys:
        print(json_line(key) if json else _line(key), flush=True)
    if not answer.keys and not json:
        _note("no keys")
    return DONE


async def rotate(where: Where, id: str, *, grace: int, lifetime: int | None, json: bool) -> int:
    """Gives a key another text and prints it."""
    request = ops.RotateKeyRequest(id=_id(id))
    request.grace.FromMilliseconds(grace)
    if lifetime is not None:
        request.lifetime.FromMilliseconds(lifetime)
    async with _keeping(where) as keeping:
        answer: ops.RotateKeyResponse = await keeping.rotate_key(request)
    if json:
        print(json_line(answer), flush=True)
        return DONE
    _tell(answer.key)
    _note(f"before     good for {write_age(grace)} more" if grace else "before     good no more")
    _note(_ONCE)
    print(answer.text, flush=True)
    return DONE


async def revoke(where: Where, id: str, *, json: bool) -> int:
    """Ends a key."""
    async with _keeping(where) as keeping:
        answer: ops.RevokeKeyResponse = await keeping.revoke_key(ops.RevokeKeyRequest(id=_id(id)))
    print(json_line(answer.key) if json else _line(answer.key), flush=True)
    return DONE


@asynccontextmanager
async def _keeping(where: Where) -> AsyncIterator[Any]:
    """What can do it: a server, or the store itself."""
    if where.store:
        from dragoman.offline import open_keys

        async with open_keys(settings_of(where.store)) as keeping:
            yield keeping
    else:
        async with Operator(where.grpc, token=where.token) as operator:
            yield operator


def _id(said: str) -> str:
    """The id of a key, also of one that is given whole: then its secret goes no further."""
    return said.removeprefix(PREFIX).partition("_")[0] if said.startswith(PREFIX) else said


def _tell(key: ops.ApiKey) -> None:
    _note(f"key        {key.id}  ({key.name})")
    _note(f"principal  {key.principal}")
    _note(f"grants     {', '.join(key.grants) or 'every agent'}")
    _note(f"expires    {_when(key.expires) if key.HasField('expires') else 'never'}")


def _line(key: ops.ApiKey) -> str:
    """One line; a key that is good says so by saying nothing."""
    words = [
        key.id,
        f"{key.name:<20}",
        f"{key.principal:<20}",
        f"{','.join(key.grants) or '-':<20}",
        f"made {_when(key.created)}",
        f"used {_when(key.last_used)}" if key.HasField("last_used") else "never used",
    ]
    words += [f"{name} {_when(getattr(key, name))}" for name in ("expires", "revoked") if key.HasField(name)]
    return "  ".join(words)


def _when(at: Timestamp) -> str:
    return f"{datetime.fromtimestamp(at.ToMilliseconds() / 1000):%Y-%m-%d %H:%M}"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
