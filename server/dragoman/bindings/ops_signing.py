"""`dragoman.ops.v1` over gRPC: the keys with which the server signs, seen by those who run it."""

from __future__ import annotations

from typing import Final

import grpc

from dragoman.bindings import ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.core.access import signing_keys
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.errors import InvalidParams
from dragoman.ports import SigningKeys
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as ops

_STATES: Final[dict[SigningKeyState, ops.SigningKeyState]] = {
    "next": ops.SIGNING_KEY_STATE_NEXT,
    "signing": ops.SIGNING_KEY_STATE_SIGNING,
    "former": ops.SIGNING_KEY_STATE_FORMER,
}


class SigningOperations:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, keys: SigningKeys) -> None:
        self._keys = keys

    async def list_signing_keys(self, _: ops.ListSigningKeysRequest) -> ops.ListSigningKeysResponse:
        """Those that are shown."""
        return ops.ListSigningKeysResponse(keys=[_shown(key, state) for key, state in await self._keys.list()])

    async def rotate_signing_key(self, request: ops.RotateSigningKeyRequest) -> ops.RotateSigningKeyResponse:
        """Makes another one."""
        lead = request.lead.ToMilliseconds() if request.HasField("lead") else signing_keys.DEFAULT_KEY_LEAD_MS
        keep = request.keep.ToMilliseconds() if request.HasField("keep") else signing_keys.DEFAULT_KEY_KEEP_MS
        key = await self._keys.rotate(request.algorithm, lead=lead, keep=keep)
        return ops.RotateSigningKeyResponse(key=_shown(key, "next" if lead else "signing"))

    async def withdraw_signing_key(self, request: ops.WithdrawSigningKeyRequest) -> ops.WithdrawSigningKeyResponse:
        """Takes one away."""
        if not request.id:
            raise InvalidParams.field("id", "is required")
        await self._keys.withdraw(request.id)
        return ops.WithdrawSigningKeyResponse()


def handler(keys: SigningKeys, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    operations = SigningOperations(keys)
    unary: ops_calls.Unary = {
        "ListSigningKeys": (ops.ListSigningKeysRequest, operations.list_signing_keys),
        "RotateSigningKey": (ops.RotateSigningKeyRequest, operations.rotate_signing_key),
        "WithdrawSigningKey": (ops.WithdrawSigningKeyRequest, operations.withdraw_signing_key),
    }
    return ops_calls.handler(unary, check, refuse)


def _shown(key: SigningKey, state: SigningKeyState) -> ops.SigningKey:
    shown = ops.SigningKey(id=key.id, algorithm=key.algorithm, state=_STATES.get(state))
    for field, at in (("created", key.made), ("signs", key.signs), ("until", key.until)):
        if at:
            getattr(shown, field).FromMilliseconds(at)
    return shown
