"""Operator calls for API keys and signing keys (`dragoman.ops.v1`).

`ApiKeyOperations` uses the messages of the service but not gRPC, so the command line can create a key in a store
that no server holds.
"""

from __future__ import annotations

from typing import Final

import grpc

from dragoman.bindings.admin import rpc_handler
from dragoman.bindings.admin.rpc_handler import AbortCall, AuthorizeOperator
from dragoman.core.access import signing_keys
from dragoman.core.access.caller_credentials import ApiKey
from dragoman.core.access.signing_keys import SigningKey, SigningKeyState
from dragoman.core.errors import InvalidParams
from dragoman.ports import SigningKeys
from dragoman.runtime.api_keys import ApiKeyService
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops
from dragoman_pb.dragoman.ops.v1 import signing_pb2 as signing_pb


class ApiKeyOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, api_keys: ApiKeyService) -> None:
        self._api_keys = api_keys

    async def create_key(self, request: ops.CreateKeyRequest) -> ops.CreateKeyResponse:
        """Creates an API key. Only this response contains its text."""
        key, text = await self._api_keys.create(
            request.name,
            principal=request.principal,
            grants=request.grants,
            lifetime=request.lifetime.ToMilliseconds(),
        )
        return ops.CreateKeyResponse(key=_api_key_message(key), text=text)

    async def list_keys(self, request: ops.ListKeysRequest) -> ops.ListKeysResponse:
        """Lists the API keys, newest first."""
        return ops.ListKeysResponse(keys=map(_api_key_message, await self._api_keys.list(all=request.all)))

    async def rotate_key(self, request: ops.RotateKeyRequest) -> ops.RotateKeyResponse:
        """Rotates the secret of an API key."""
        lifetime = request.lifetime.ToMilliseconds() if request.HasField("lifetime") else None
        key, text = await self._api_keys.rotate(request.id, grace=request.grace.ToMilliseconds(), lifetime=lifetime)
        return ops.RotateKeyResponse(key=_api_key_message(key), text=text)

    async def revoke_key(self, request: ops.RevokeKeyRequest) -> ops.RevokeKeyResponse:
        """Revokes an API key."""
        return ops.RevokeKeyResponse(key=_api_key_message(await self._api_keys.revoke(request.id)))


def api_key_handler(api_keys: ApiKeyService, authorize: AuthorizeOperator, abort: AbortCall) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    keeping = ApiKeyOperations(api_keys)
    unary: rpc_handler.UnaryOperations = {
        "CreateKey": (ops.CreateKeyRequest, keeping.create_key),
        "ListKeys": (ops.ListKeysRequest, keeping.list_keys),
        "RotateKey": (ops.RotateKeyRequest, keeping.rotate_key),
        "RevokeKey": (ops.RevokeKeyRequest, keeping.revoke_key),
    }
    return rpc_handler.service_handler(unary, authorize, abort)


def _api_key_message(key: ApiKey) -> ops.ApiKey:
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


_SIGNING_KEY_STATES: Final[dict[SigningKeyState, signing_pb.SigningKeyState]] = {
    "next": signing_pb.SIGNING_KEY_STATE_NEXT,
    "signing": signing_pb.SIGNING_KEY_STATE_SIGNING,
    "former": signing_pb.SIGNING_KEY_STATE_FORMER,
}


class SigningKeyOperations:
    """Operator calls from request message to response message. They raise A2AError."""

    def __init__(self, keys: SigningKeys) -> None:
        self._keys = keys

    async def list_signing_keys(self, _: signing_pb.ListSigningKeysRequest) -> signing_pb.ListSigningKeysResponse:
        """Lists the published signing keys."""
        return signing_pb.ListSigningKeysResponse(
            keys=[_signing_key_message(key, state) for key, state in await self._keys.list()]
        )

    async def rotate_signing_key(
        self, request: signing_pb.RotateSigningKeyRequest
    ) -> signing_pb.RotateSigningKeyResponse:
        """Rotates the signing key."""
        lead = request.lead.ToMilliseconds() if request.HasField("lead") else signing_keys.DEFAULT_KEY_LEAD_MS
        number = request.keep.ToMilliseconds() if request.HasField("keep") else signing_keys.DEFAULT_KEY_RETENTION_MS
        key = await self._keys.rotate(request.algorithm, lead=lead, retention=number)
        return signing_pb.RotateSigningKeyResponse(key=_signing_key_message(key, "next" if lead else "signing"))

    async def withdraw_signing_key(
        self, request: signing_pb.WithdrawSigningKeyRequest
    ) -> signing_pb.WithdrawSigningKeyResponse:
        """Removes a signing key."""
        if not request.id:
            raise InvalidParams.field("id", "is required")
        await self._keys.withdraw(request.id)
        return signing_pb.WithdrawSigningKeyResponse()


def signing_key_handler(keys: SigningKeys, authorize: AuthorizeOperator, abort: AbortCall) -> grpc.GenericRpcHandler:
    """The handler for grpc."""
    operations = SigningKeyOperations(keys)
    unary: rpc_handler.UnaryOperations = {
        "ListSigningKeys": (signing_pb.ListSigningKeysRequest, operations.list_signing_keys),
        "RotateSigningKey": (signing_pb.RotateSigningKeyRequest, operations.rotate_signing_key),
        "WithdrawSigningKey": (signing_pb.WithdrawSigningKeyRequest, operations.withdraw_signing_key),
    }
    return rpc_handler.service_handler(unary, authorize, abort)


def _signing_key_message(key: SigningKey, state: SigningKeyState) -> signing_pb.SigningKey:
    shown = signing_pb.SigningKey(id=key.id, algorithm=key.algorithm, state=_SIGNING_KEY_STATES.get(state))
    for field, at in (("created", key.made), ("signs", key.signs), ("until", key.until)):
        if at:
            getattr(shown, field).FromMilliseconds(at)
    return shown
