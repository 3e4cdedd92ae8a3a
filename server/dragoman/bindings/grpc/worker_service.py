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
from dragoman.bindings.pipeline import (
    CREDENTIALS_REQUIRED,
    LOCAL_ONLY,
    Pipeline,
    RequestLogEntry,
    authenticate,
    is_local,
)
from dragoman.core.access.identity import WORKER_GRANT, Identity
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.ports import WorkerHub
from dragoman.wire.field_count import parse_message
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

WORKER_SERVICE: Final = wk.DESCRIPTOR.services_by_name["WorkerService"]


def worker_service_handler(
    worker_hub: WorkerHub, pipeline: Pipeline, abort: AbortCall, reader: MessageReader
) -> grpc.GenericRpcHandler:
    options, streams = pipeline.options, pipeline.streams

    async def serve(
        frames: AsyncIterator[bytes], context: GrpcContext, log_entry: RequestLogEntry, handoff: _FrameHandoff
    ) -> None:
        try:
            with streams.open() as stream, reader.open_call(context):
                if options.draining.is_set():
                    raise Unavailable("the server is shutting down and takes no new workers")
                stream.identity = log_entry.identity = identity = await _authenticate_worker(context, options)
                peer = str(context.peer())
                with pipeline.operations.admission.stream(identity):
                    first = await reader.read(context, identity.principal)
                    async with aclosing(worker_hub.connect(_parse_frames(first, frames), identity, peer)) as responses:
                        async for response in responses:
                            await handoff.put(response.SerializeToString())
        except asyncio.CancelledError:
            if end_reason := streams.take_end_reason():
                raise end_reason from None
            raise
        finally:
            handoff.end()

    async def connect(frames: AsyncIterator[bytes], context: GrpcContext) -> AsyncIterator[bytes]:
        path = f"{WORKER_SERVICE.full_name}/Connect"
        log_entry = RequestLogEntry(options, "grpc", path, "worker")
        handoff = _FrameHandoff()
        # A separate asyncio task, because the stream registry may cancel it: if gRPC's own task were canceled during a
        # send, the call would end without a status.
        serve_task = asyncio.create_task(serve(frames, context, log_entry, handoff), name="worker")
        try:
            while (frame := await handoff.next()) is not None:
                yield frame
            await serve_task
        except Exception as error:
            await abort(options, context, error, log_entry)
        except asyncio.CancelledError:
            log_entry.finish("CANCELLED")
            raise
        finally:
            serve_task.cancel()
        log_entry.finish("OK")

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(connect)
    return grpc.method_handlers_generic_handler(WORKER_SERVICE.full_name, {"Connect": handler})


class _FrameHandoff:
    """Passes frames from one asyncio task to another, one at a time."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._consumed = asyncio.Event()
        self._consumed.set()

    async def put(self, frame: bytes) -> None:
        """Passes a frame on. Waits until the previous one was taken."""
        await self._consumed.wait()
        self._consumed.clear()
        self._queue.put_nowait(frame)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def next(self) -> bytes | None:
        """Returns the next frame; None at the end."""
        self._consumed.set()
        return await self._queue.get()


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
