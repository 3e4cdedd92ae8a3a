"""The worker service (`dragoman.worker.v1`): one stream for each connected worker.

Who may: with an authenticator, whoever shows credentials with the grant `worker` (or `worker:ID` for each of its
agents); without one, workers on this machine. `--insecure` opens the agents to others, and not this: a worker reads
what callers send to its agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import grpc

from dragoman.bindings import authentication
from dragoman.bindings.admin.rpc_handler import AbortCall
from dragoman.bindings.admin.tasks import is_local_caller
from dragoman.bindings.method_table import parse_message
from dragoman.bindings.options import ServerOptions
from dragoman.bindings.request_log import GRPC_LABEL, RequestLogEntry
from dragoman.bindings.stream_registry import StreamRegistry
from dragoman.core.access.identity import WORKER_GRANT, Identity
from dragoman.core.errors import Unauthenticated, Unavailable
from dragoman.ports import WorkerHub
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

WORKER_SERVICE: Final = wk.DESCRIPTOR.services_by_name["WorkerService"]

GrpcContext = grpc.aio.ServicerContext[bytes, bytes]


def worker_service_handler(
    worker_hub: WorkerHub, options: ServerOptions, abort: AbortCall, streams: StreamRegistry
) -> grpc.GenericRpcHandler:
    """The handler for grpc."""

    async def serve(
        frames: AsyncIterator[bytes], context: GrpcContext, access: RequestLogEntry, out: _FrameHandoff
    ) -> None:
        try:
            with streams.open() as stream:
                if options.draining.is_set():
                    raise Unavailable("the server is shutting down and takes no new workers")
                stream.identity = identity = await _authenticate_worker(context, options)
                access.principal = identity.principal if identity.is_authenticated else ""
                peer = str(context.peer())
                async with aclosing(worker_hub.connect(_parse_frames(frames), identity, peer)) as answers:
                    async for answer in answers:
                        await out.put(answer.SerializeToString())
        except asyncio.CancelledError:
            if why := streams.take_end_reason():
                raise why from None
            raise
        finally:
            out.end()

    async def connect(frames: AsyncIterator[bytes], context: GrpcContext) -> AsyncIterator[bytes]:
        access, out = (
            RequestLogEntry(options.request_metrics, GRPC_LABEL, f"{WORKER_SERVICE.full_name}/Connect", "worker"),
            _FrameHandoff(),
        )
        # Its own asyncio task, because the stream registry may cancel it: gRPC's task would then end without a status
        # if it was about to send.
        serving = asyncio.create_task(serve(frames, context, access, out), name="worker")
        try:
            while (answer := await out.next()) is not None:
                yield answer
            await serving
        except Exception as error:
            await abort(context, error, access)
        except asyncio.CancelledError:
            access.finish("CANCELLED")
            raise
        finally:
            serving.cancel()
        access.finish("OK")

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]]
    handlers = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    return grpc.method_handlers_generic_handler(WORKER_SERVICE.full_name, handlers)


class _FrameHandoff:
    """Hands single frames from one asyncio task to another."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._consumed = asyncio.Event()
        self._consumed.set()

    async def put(self, frame: bytes) -> None:
        """Passes a frame on, once the previous one was taken."""
        await self._consumed.wait()
        self._consumed.clear()
        self._queue.put_nowait(frame)

    def end(self) -> None:
        """Marks the end of the frames."""
        self._queue.put_nowait(None)

    async def next(self) -> bytes | None:
        """The next frame; None at the end."""
        self._consumed.set()
        return await self._queue.get()


async def _parse_frames(frames: AsyncIterator[bytes]) -> AsyncIterator[wk.ConnectRequest]:
    """Parses frames. Raises InvalidParams for invalid bytes."""
    async for frame in frames:
        parsed = parse_message(wk.ConnectRequest, frame)
        assert isinstance(parsed, wk.ConnectRequest)
        yield parsed


async def _authenticate_worker(context: GrpcContext, options: ServerOptions) -> Identity:
    """The identity of the worker. Raises Unauthenticated without credentials, unless it is local and auth is off."""
    metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
    identity = await authentication.authenticate(
        metadata, options, context, public=True
    )  # to refuse in words of its own
    if options.authenticator is None and not is_local_caller(context):
        raise Unauthenticated(
            "workers dial in from this machine only where nobody is asked who they are; "
            "run the server with --api-keys, --issuers or --token"
        )
    if options.authenticator is not None and not identity.is_authenticated:
        raise Unauthenticated(
            f'workers need credentials with the grant "{WORKER_GRANT}": {authentication.CREDENTIALS_REQUIRED}'
        )
    return identity
