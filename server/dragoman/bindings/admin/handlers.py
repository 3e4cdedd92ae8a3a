"""The operators' service over gRPC, and the authentication of operators on every transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Never

import grpc

from dragoman.bindings.admin.actions import AdminOperation, OperatorCall
from dragoman.bindings.admin.table import OPS_SERVICE, AdminTable, request_type_of
from dragoman.bindings.grpc.messages import GrpcContext, MessageReader, text_metadata
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import (
    LOCAL_ONLY,
    CallerConnection,
    RequestLogEntry,
    authenticate,
    authenticate_operator,
    is_local,
)
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import OPERATOR_GRANT
from dragoman.core.errors import Unauthenticated
from dragoman.wire.field_count import parse_message

AbortCall = Callable[[ServerOptions, GrpcContext, Exception, RequestLogEntry], Awaitable[Never]]
"""Ends a failed call: `grpc.server.abort_call`."""


async def authorize_grpc(context: GrpcContext, options: ServerOptions, operation: AdminOperation) -> OperatorCall:
    """Authenticates the caller of an operation over gRPC. Raises Unauthenticated, PermissionDenied.

    Without authentication only callers on this machine are operators. `--insecure` opens the agents to other machines,
    but not the tasks of all callers.
    """
    metadata = text_metadata(context).items()
    if not operation.open_remotely and options.authenticator is None and not is_local(metadata, options, context):
        raise Unauthenticated(LOCAL_ONLY.format(what="operations on the store are allowed"))
    return await authorize_operator(metadata, options, context, context.peer(), operation)


async def authorize_operator(
    headers: Iterable[tuple[str, str]],
    options: ServerOptions,
    connection: CallerConnection,
    peer: str,
    operation: AdminOperation | None,
) -> OperatorCall:
    """Authenticates the caller of an operation on any transport; None needs the operator's grant."""
    if operation is None or operation.grant != "none":
        grant, limited = (operation.grant, operation.limited_grants) if operation else (OPERATOR_GRANT, False)
        identity = await authenticate_operator(headers, options, connection, grant=grant, limited=limited)
        is_operator = options.authenticator is None or identity.is_operator
        return OperatorCall(identity, peer, is_operator=is_operator, is_local=is_local(headers, options, connection))
    identity = await authenticate(headers, options, connection)
    is_viewer = identity.is_viewer if options.authenticator else is_local(headers, options, connection)
    return OperatorCall(identity, peer, is_viewer, identity.is_operator if options.authenticator else is_viewer)


def grpc_handler(
    table: AdminTable, options: ServerOptions, abort: AbortCall, streams: StreamRegistry, reader: MessageReader
) -> grpc.GenericRpcHandler:
    async def open_call(operation: AdminOperation, context: GrpcContext) -> tuple[OperatorCall, Any]:
        operator = await authorize_grpc(context, options, operation)
        data = await reader.read(context, operator.identity.principal)
        return operator, parse_message(request_type_of(operation.name), data)

    def unary(operation: AdminOperation) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def call(_: object, context: GrpcContext) -> bytes:
            log_entry = _log_entry(options, operation)
            try:
                with reader.open_call(context):
                    operator, request = await open_call(operation, context)
                    encoded = (await table.run(operation.name, operator, request)).SerializeToString()
            except Exception as error:
                await abort(options, context, error, log_entry)
            log_entry.finish("OK")
            return encoded

        return grpc.stream_unary_rpc_method_handler(call)

    def streaming(operation: AdminOperation) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def call(_: object, context: GrpcContext) -> AsyncIterator[bytes]:
            log_entry = _log_entry(options, operation)
            try:
                with streams.open() as stream, reader.open_call(context):
                    operator, request = await open_call(operation, context)
                    stream.identity = operator.identity
                    async with aclosing(table.stream(operation.name, operator, request)) as responses:
                        async for response in responses:
                            yield response.SerializeToString()
            except Exception as error:
                await abort(options, context, error, log_entry)
            except asyncio.CancelledError:
                if end_reason := streams.take_end_reason():
                    await abort(options, context, end_reason, log_entry)
                log_entry.finish("CANCELLED")
                raise
            log_entry.finish("OK")

        return grpc.stream_stream_rpc_method_handler(call)

    handlers = {
        method.name: (streaming if method.server_streaming else unary)(table.rows[method.name])
        for method in OPS_SERVICE.methods
    }
    return grpc.method_handlers_generic_handler(OPS_SERVICE.full_name, handlers)


def _log_entry(options: ServerOptions, operation: AdminOperation) -> RequestLogEntry:
    return RequestLogEntry(options, "grpc", f"{OPS_SERVICE.full_name}/{operation.name}", "ops")
