"""gRPC handlers of operator calls: authorization, codec, audit and errors.

The operations themselves stand in `ops.py` and the files beside it, a subject each.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Never, Protocol

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dragoman.bindings.method_table import parse_message
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry, RequestMetrics
from dragoman.core.access.identity import Identity
from dragoman.runtime.observe.audit import Auditor
from dragoman_pb import _pool
from dragoman_pb.dragoman.ops.v1 import ops_pb2 as ops

OPS_SERVICE: Final = ops.DESCRIPTOR.services_by_name["OpsService"]

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]
AdminOperation = Callable[[Any], Coroutine[Any, Any, Message]]


class AbortCall(Protocol):
    """Aborts a failed call."""

    @property
    def metrics(self) -> RequestMetrics:
        """Counts the calls."""
        ...

    async def __call__(self, context: GrpcContext, error: Exception, log_entry: RequestLogEntry) -> Never:
        """Aborts the call; never returns."""
        ...


UNAUDITED_OPERATIONS: Final = frozenset(("ListAgents", "ListUpstreams", "ListWorkers"))
"""Operations without personal data that dashboards poll; they are not audited."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """The operator of one call."""

    identity: Identity
    peer: str = ""
    auditor: Auditor | None = None

    async def record(self, operation: str, request: Message, response: Message | None = None) -> None:
        """Writes the call to the audit log, durably: the request without fields that the proto marks as secret,
        and of responses only the receipt of an erasure."""
        if self.auditor is None or operation in UNAUDITED_OPERATIONS:
            return
        who = {"principal": self.identity.principal}
        if self.identity.credential_id:
            who["key"] = self.identity.credential_id
        if self.peer:
            who["peer"] = self.peer
        receipt: Any = getattr(response, "receipt", None)
        about = {"receipt": str(receipt.number), "digest": receipt.digest} if receipt and receipt.number else {}
        await self.auditor.record_operator_action(
            operation, who, dict(_flatten("asked", _without_secrets(request))), **about
        )


AuthorizeOperator = Callable[[GrpcContext], Coroutine[Any, Any, OperatorCall]]
"""Authenticates the operator. Raises Unauthenticated, PermissionDenied."""

UnaryOperations = Mapping[str, tuple[type[Message], AdminOperation]]
"""Unary operations by method name: request type and handler."""


def unary_handlers(
    operations: UnaryOperations, authorize: AuthorizeOperator, abort: AbortCall
) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    """The method handlers of these operations."""
    return {name: _unary_handler(name, *operation, authorize, abort) for name, operation in operations.items()}


def service_handler(
    operations: UnaryOperations, authorize: AuthorizeOperator, abort: AbortCall
) -> grpc.GenericRpcHandler:
    """The handler for grpc; other operations of the service have their own handlers."""
    return grpc.method_handlers_generic_handler(OPS_SERVICE.full_name, unary_handlers(operations, authorize, abort))


def _unary_handler(
    name: str, request_type: type[Message], operation: AdminOperation, authorize: AuthorizeOperator, abort: AbortCall
) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def call(data: bytes, context: GrpcContext) -> bytes:
        access = RequestLogEntry(abort.metrics, GRPC_LABEL, f"{OPS_SERVICE.full_name}/{name}", "ops")
        try:
            who, message = await authorize(context), parse_message(request_type, data)
            reported_message = await operation(message)
            await who.record(name, message, reported_message)
            answer = reported_message.SerializeToString()
        except Exception as error:
            await abort(context, error, access)
        access.finish("OK")
        return answer

    return grpc.unary_unary_rpc_method_handler(call)


def _without_secrets(request: Message) -> dict[str, Any]:
    message = type(request)()
    message.CopyFrom(request)
    for field, _ in request.ListFields():
        if field.GetOptions().debug_redact:
            message.ClearField(field.name)
    found: dict[str, Any] = MessageToDict(message, descriptor_pool=_pool.POOL)
    return found


def _flatten(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(f"{name}.{key}", inner)
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)
