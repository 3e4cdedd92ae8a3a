"""`dragoman.ops.v1` over gRPC, third part: API keys.

`Keykeeping` speaks the messages of the service and nothing of gRPC, so that the command line can make a key in a store
that no server holds.
"""

from __future__ import annotations

import grpc

from dragoman.bindings import ops_calls
from dragoman.bindings.ops_calls import Check, Refuse
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.runtime.api_keys import ApiKeyService
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops


class Keykeeping:
    """The operations, as messages in and messages out. All raise children of core.errors.A2AError."""

    def __init__(self, keyring: ApiKeyService) -> None:
        self._keyring = keyring

    async def create_key(self, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Makes a key. Its text is in the answer alone."""
        key, text = await self._keyring.create(
            request.name,
            principal=request.principal,
            grants=request.grants,
            lifetime=request.lifetime.ToMilliseconds(),
        )
        return ops.CreateKeyResponse(key=_shown(key), text=text)

    async def list_keys(self, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """The keys, the newest first."""
        return ops.ListKeysResponse(keys=map(_shown, await self._keyring.list(all=request.all)))

    async def rotate_key(self, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        """Gives a key another text."""
        lifetime = request.lifetime.ToMilliseconds() if request.HasField("lifetime") else None
        key, text = await self._keyring.rotate(request.id, grace=request.grace.ToMilliseconds(), lifetime=lifetime)
        return ops.RotateKeyResponse(key=_shown(key), text=text)

    async def revoke_key(self, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        """Ends a key."""
        return ops.RevokeKeyResponse(key=_shown(await self._keyring.revoke(request.id)))


def handler(keyring: ApiKeyService, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations."""
    keeping = Keykeeping(keyring)
    unary: ops_calls.Unary = {
        "CreateKey": (ops.CreateKeyRequest, keeping.create_key),
        "ListKeys": (ops.ListKeysRequest, keeping.list_keys),
        "RotateKey": (ops.RotateKeyRequest, keeping.rotate_key),
        "RevokeKey": (ops.RevokeKeyRequest, keeping.revoke_key),
    }
    return ops_calls.handler(unary, check, refuse)


def _shown(key: ApiKey) -> ops.ApiKey:
    shown = ops.ApiKey(id=key.id, name=key.name, principal=key.principal, grants=sorted(key.grants))
    for field, at in (
        ("created", key.created),
        ("expires", key.expires),
        ("last_used", key.used),
        ("rotated", key.rotated),
        ("former_until", key.former_until),
        ("revoked", key.revoked),
    ):
        if at:
            getattr(shown, field).FromMilliseconds(at)
    return shown
