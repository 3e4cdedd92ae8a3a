"""What gRPC calls for the operations of `dragoman.ops.v1`: who may, the message in, the message out, and the refusal.

The operations themselves stand in `ops.py` and the files beside it, a subject each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Never, Protocol

import grpc
from google.protobuf.message import Message

from dragoman.bindings.access import Access
from dragoman.bindings.methods import parse
from dragoman.bindings.ops_audit import Acting
from dragoman.bindings.tally import GRPC, Tally
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"]

Context = grpc.aio.ServicerContext[bytes, bytes]
Operation = Callable[[Any], Coroutine[Any, Any, Message]]


class Refuse(Protocol):
    """Ends a call that failed."""

    @property
    def tally(self) -> Tally:
        """Who counts calls."""
        ...

    async def __call__(self, context: Context, error: Exception, access: Access) -> Never:
        """It does not return."""
        ...


Check = Callable[[Context], Coroutine[Any, Any, Acting]]
"""Who calls. Raises Unauthenticated, PermissionDenied for who is no operator."""

Unary = Mapping[str, tuple[type[Message], Operation]]
"""Operations of one answer, by the names of their methods: what they are asked with, and what answers."""


def unary(operations: Unary, check: Check, refuse: Refuse) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    """The methods of these operations."""
    return {name: _method(name, *operation, check, refuse) for name, operation in operations.items()}


def handler(operations: Unary, check: Check, refuse: Refuse) -> grpc.GenericRpcHandler:
    """What grpc calls for these operations; the service's other ones have handlers of their own."""
    return grpc.method_handlers_generic_handler(SERVICE.full_name, unary(operations, check, refuse))


def _method(
    name: str, request: type[Message], operation: Operation, check: Check, refuse: Refuse
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def call(data: bytes, context: Context) -> bytes:
        access = Access(refuse.tally, GRPC, f"{SERVICE.full_name}/{name}", "ops")
        try:
            who, asked = await check(context), parse(request, data)
            told = await operation(asked)
            await who.did(name, asked, told)
            answer = told.SerializeToString()
        except Exception as error:
            await refuse(context, error, access)
        access.done("OK")
        return answer

    return grpc.unary_unary_rpc_method_handler(call)
