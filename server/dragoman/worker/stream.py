"""The stream to the server, carried by threads of its own.

An agent that blocks the event loop must not look like a dead worker, so frames are written and read, and signs of life
given, where agents have no part.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import grpc

from dragoman.calling import tls
from dragoman.calling.errors import ClientError
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

CONNECT_METHOD: Final = f"/{wk.DESCRIPTOR.services_by_name['WorkerService'].full_name}/Connect"

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Whether and when to dial again is decided here, where it can be told.
    ("grpc.enable_retries", 0),
)

WELCOME_TIMEOUT: Final = 10.0
"""Seconds for which the server may be silent until it has said how long."""


class ServerStream:
    """One stream. `hear` gets each frame and `ended` why there are no more, both on the event loop."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        ca: Path | None = None,
        cert: Path | None = None,
        on_frame: Callable[[wk.ConnectResponse], None],
        on_end: Callable[[ClientError | None], None],
    ) -> None:
        """Dials at once. Raises ClientError for a file that holds no authorities."""
        self._on_frame = on_frame
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[wk.ConnectRequest | None] = queue.SimpleQueue()
        self._heartbeat = 1.0
        self._lease = WELCOME_TIMEOUT
        self._last_received_at = time.monotonic()
        self._timed_out = False
        self._closed = False
        self._channel = tls.blocking_grpc_channel(address, _CHANNEL_OPTIONS, ca=ca, cert=cert)
        dial = self._channel.stream_stream(
            CONNECT_METHOD, wk.ConnectRequest.SerializeToString, wk.ConnectResponse.FromString
        )
        self._call = dial(self._outgoing_frames(), metadata=(("authorization", f"Bearer {token}"),) if token else ())
        self._reader = threading.Thread(target=self._read, name="dragoman-worker-line", daemon=True)
        self._reader.start()

    def send(self, **frame: Any) -> None:
        """Sends a frame. From any thread."""
        self._queue.put(wk.ConnectRequest(**frame))

    def set_timings(self, *, heartbeat: float, lease: float) -> None:
        """How often to show that we live, and how long the server may be silent, in seconds."""
        self._heartbeat, self._lease = heartbeat, lease

    def half_close(self) -> None:
        """Says no more, once everything said is on its way; the server then ends the stream."""
        self._queue.put(None)

    def close(self) -> None:
        """Breaks the stream off. `ended` is not called any more."""
        self._closed = True
        self._queue.put(None)
        self._call.cancel()
        self._channel.close()

    def _outgoing_frames(self) -> Iterator[wk.ConnectRequest]:
        while True:
            try:
                frame = self._queue.get(timeout=self._heartbeat)
            except queue.Empty:
                frame = wk.ConnectRequest(heartbeat=wk.Heartbeat())
            if frame is None:
                return
            if time.monotonic() - self._last_received_at > self._lease:
                self._timed_out = True
                self._call.cancel()
                return
            yield frame

    def _read(self) -> None:
        trouble: ClientError | None = None
        try:
            for frame in self._call:
                self._last_received_at = time.monotonic()
                self._call_soon(self._on_frame, frame)
        except grpc.RpcError as error:
            trouble = ClientError.from_rpc_error(cast("grpc.aio.AioRpcError", error))
            if self._timed_out:
                trouble = ClientError("UNAVAILABLE", f"nothing was heard of the server for {self._lease:g} s")
        except ValueError:  # the channel was closed meanwhile
            pass
        self._call_soon(self._finish, trouble)

    def _finish(self, error: ClientError | None) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._channel.close()
            self._on_end(error)

    def _call_soon(self, callback: Callable[[Any], None], argument: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, argument)
