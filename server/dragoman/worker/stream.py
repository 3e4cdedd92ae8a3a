"""The gRPC stream to the server, with its own threads.

Threads read and write frames and send heartbeats, so that an agent that blocks the event loop for some seconds does
not make the worker look dead. If it blocks for longer, the stream ends, and the server ends or repeats its turns.
"""

from __future__ import annotations

import asyncio
import itertools
import math
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
from dragoman.runtime.lease import LOOP_TIMEOUT, Lease, LoopCheck
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

CONNECT_METHOD: Final = f"/{wk.DESCRIPTOR.services_by_name['WorkerService'].full_name}/Connect"

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # The worker decides when to reconnect, so that it can log it.
    ("grpc.enable_retries", 0),
    # A connection of its own: the calls of one connection are limited by the server.
    ("grpc.use_local_subchannel_pool", 1),
)

WELCOME_TIMEOUT: Final = 10.0  # seconds of silence allowed until the server sends its own limit


class ServerStream:
    """One stream. Calls `on_frame` for each frame and `on_end` once, both on the event loop."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        ca: Path | None = None,
        cert: Path | None = None,
        on_frame: Callable[[wk.ConnectResponse], None],
        on_end: Callable[[ClientError | None], None],
        loop_timeout: float = LOOP_TIMEOUT,
    ) -> None:
        """Connects at once. Raises ClientError if a certificate file is unusable."""
        self._on_frame = on_frame
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop_check = LoopCheck(self._loop, loop_timeout)
        self._queue: queue.SimpleQueue[wk.ConnectRequest | None] = queue.SimpleQueue()
        self.lease = Lease(math.inf, margin=0.0)
        """Until when turns of this stream may run, once a heartbeat was answered with a lease: none begins earlier."""
        self._heartbeat_numbers = itertools.count(1)
        self._heartbeats_sent: dict[int, float] = {}
        """When each heartbeat without an answer was sent, on the lease's clock."""
        self._heartbeat = 1.0
        self._lease = WELCOME_TIMEOUT
        self._last_received_at = time.monotonic()
        self._failure = ""  # why this side has ended the stream; empty if it has not
        self._closed = False
        self._channel = tls.grpc_channel(grpc, address, _CHANNEL_OPTIONS, ca=ca, cert=cert)
        connect = self._channel.stream_stream(
            CONNECT_METHOD, wk.ConnectRequest.SerializeToString, wk.ConnectResponse.FromString
        )
        self._call = connect(self._outgoing_frames(), metadata=(("authorization", f"Bearer {token}"),) if token else ())
        threading.Thread(target=self._read, name="dragoman-worker-stream", daemon=True).start()

    def send(self, **frame: Any) -> None:
        """Queues a frame. Thread-safe."""
        self._queue.put(wk.ConnectRequest(**frame))

    def set_timings(self, *, heartbeat: float, lease: float) -> None:
        """Sets the heartbeat interval and the allowed silence of the server, in seconds."""
        self._heartbeat, self._lease = heartbeat, lease

    def half_close(self) -> None:
        """Ends our side after all queued frames; the server then ends the stream."""
        self._queue.put(None)

    def close(self) -> None:
        """Aborts the stream. `on_end` is not called afterwards."""
        self._closed = True
        self._queue.put(None)
        self._call.cancel()
        self._channel.close()

    def _outgoing_frames(self) -> Iterator[wk.ConnectRequest]:
        frame = self._queue.get()  # Hello
        due = time.monotonic()  # the first heartbeat follows at once: no turn begins before its answer
        while frame is not None:
            if time.monotonic() - self._last_received_at > self._lease:
                self._failure = f"the server has sent nothing for {self._lease:g} s"
            elif not self._loop_check.answers():
                self._failure = f"an agent has blocked the event loop for {self._loop_check.timeout:g} s"
            if self._failure:
                self._call.cancel()
                return
            yield frame
            if (wait := min(due - time.monotonic(), self._heartbeat)) > 0:
                with suppress(queue.Empty):
                    frame = self._queue.get(timeout=wait)
                    continue
            due = time.monotonic() + self._heartbeat
            frame = wk.ConnectRequest(heartbeat=self._next_heartbeat())

    def _next_heartbeat(self) -> wk.Heartbeat:
        number = next(self._heartbeat_numbers)
        self._heartbeats_sent[number] = self.lease.now()
        return wk.Heartbeat(number=number)

    def _renew_lease(self, answer: wk.Heartbeat) -> None:
        """Extends the lease. A server whose own has lapsed answers with none, and an earlier one ends by itself."""
        sent_at, seconds = self._heartbeats_sent.pop(answer.number, None), answer.lease.ToNanoseconds() / 1e9
        if sent_at is not None and seconds > 0:
            self.lease.extend(sent_at, seconds)

    def _read(self) -> None:
        failure: ClientError | None = None
        try:
            for frame in self._call:
                self._last_received_at = time.monotonic()
                if frame.HasField("heartbeat"):
                    self._renew_lease(frame.heartbeat)
                self._call_soon(self._on_frame, frame)
        except grpc.RpcError as error:
            failure = ClientError.from_rpc_error(cast("grpc.aio.AioRpcError", error))
            if self._failure:
                failure = ClientError("UNAVAILABLE", self._failure)
        except ValueError:  # the channel has been closed
            pass
        self._call_soon(self._finish, failure)

    def _finish(self, error: ClientError | None) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._channel.close()
            self._on_end(error)

    def _call_soon(self, callback: Callable[[Any], None], argument: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback, argument)
