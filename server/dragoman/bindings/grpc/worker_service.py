"""Worker service (`dragoman.worker.v1`): one bidirectional stream for each connected worker.

With an authenticator, a worker needs credentials with the grant `worker`, or `worker:ID` for each of its agents.
Without one, only workers on this machine may connect, even with `--insecure`: a worker reads what callers send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc

from dragoman.bindings.admin.handlers import AbortCall
from dragoman.bindings.grpc.messages import GrpcContext, MessageReader, text_metadata
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.pipeline import CREDENTIALS_REQUIRED, LOCAL_ONLY, authenticate, is_local
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import WORKER_GRANT, Identity
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.ports import WorkerHub
from dragoman.wire.field_count import parse_message
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

WORKER_SERVICE: Final = wk.DESCRIPTOR.services_by_name["WorkerService"]


def worker_service_handler(
    worker_hub: WorkerHub, options: ServerOptions, abort: AbortCall, streams: StreamRegistry, reader: MessageReader
) -> grpc.GenericRpcHandler:
    async def connect(frames: AsyncIterator[bytes], context: GrpcContext) -> None:
        path = f"{WORKER_SERVICE.full_name}/Connect"
        log_entry = RequestLogEntry(options.request_metrics, GRPC_LABEL, path, "worker")
        try:
            with streams.open() as stream:
                if options.draining.is_set():
                    raise Unavailable("the server is shutting down and takes no new workers")
                stream.identity = log_entry.identity = identity = await _authenticate_worker(context, options)
                peer = str(context.peer())
                first = await reader.read(context, identity.principal)
                async with aclosing(worker_hub.connect(_parse_frames(first, frames), identity, peer)) as responses:
                    async for response in responses:
                        with stream.sending():
                            await context.write(response.SerializeToString())
        except Exception as error:
            await abort(options, context, error, log_entry)
        except asyncio.CancelledError:
            if end_reason := streams.take_end_reason():
                await abort(options, context, end_reason, log_entry)
            log_entry.finish("CANCELLED")
            raise
        log_entry.finish("OK")

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(connect)
    return grpc.method_handlers_generic_handler(WORKER_SERVICE.full_name, {"Connect": handler})


async def _parse_frames(first: bytes, frames: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Parses the first frame and the following ones. Raises InvalidParams for invalid bytes."""
    yield parse_message(wk.ConnectRequest, first)
    async for frame in frames:
        yield parse_message(wk.ConnectRequest, frame)


async def _authenticate_worker(context: GrpcContext, options: ServerOptions) -> Identity:
    """Returns the worker's identity. Raises Unauthenticated without credentials, unless it is local and auth is off."""
    metadata = text_metadata(context).items()
    # `public`, so the error messages below apply instead of the general one.
    identity = await authenticate(metadata, options, context, public=True)
    if options.authenticator is None and not is_local(metadata, options, context):
        raise Unauthenticated(LOCAL_ONLY.format(what="workers may connect"))
    if options.authenticator is not None and not identity.is_authenticated:
        raise Unauthenticated(f'workers need credentials with the grant "{WORKER_GRANT}": {CREDENTIALS_REQUIRED}')
    return identity
