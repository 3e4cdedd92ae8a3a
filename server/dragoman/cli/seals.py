"""What the commands on signing keys do: calls of `dragoman.ops.v1`, answers on stdout."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from dragoman.cli.operate import DONE, Where
from dragoman.cli.render import json_line
from dragoman.client.operations import Operator
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops


async def show(where: Where, *, json: bool) -> int:
    """Lists keys, one line each."""
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.list_signing_keys(ops.ListSigningKeysRequest())
    for key in answer.keys:
        print(json_line(key) if json else _line(key), flush=True)
    return DONE


async def rotate(where: Where, algorithm: str, *, lead: int, keep: int, json: bool) -> int:
    """Makes a key and prints it."""
    request = ops.RotateSigningKeyRequest(algorithm=algorithm)
    request.lead.FromMilliseconds(lead)
    request.keep.FromMilliseconds(keep)
    async with Operator(where.grpc, token=where.token) as operator:
        answer = await operator.rotate_signing_key(request)
    print(json_line(answer.key) if json else _line(answer.key), flush=True)
    return DONE


async def withdraw(where: Where, id: str) -> int:
    """Takes a key away."""
    async with Operator(where.grpc, token=where.token) as operator:
        await operator.withdraw_signing_key(ops.WithdrawSigningKeyRequest(id=id))
    print(f"{id}  is shown no more", flush=True)
    return DONE


def _line(key: ops.SigningKey) -> str:
    state = ops.SigningKeyState.Name(key.state).removeprefix("SIGNING_KEY_STATE_").lower()
    words = [key.id, f"{key.algorithm:<5}", f"{state:<7}"]
    words.append(f"made {_when(key.created)}" if key.HasField("created") else "from the store's beginning")
    if key.state == ops.SIGNING_KEY_STATE_NEXT:
        words.append(f"signs from {_when(key.signs)}")
    if key.HasField("until"):
        words.append(f"shown until {_when(key.until)}")
    return "  ".join(words)


def _when(at: Timestamp) -> str:
    return f"{datetime.fromtimestamp(at.ToMilliseconds() / 1000):%Y-%m-%d %H:%M}"
