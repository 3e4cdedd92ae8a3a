"""Permanent connection to NATS, which reconnects and resubscribes after every failure.

The library can reconnect, but gives up after some errors (for example rejected credentials during their rotation), so
each connection here is a new client, with our own backoff. Messages sent while NATS is not reachable, or while the
queue is full, are lost; callers recover from that.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error

from dragoman.core.durations import Backoff
from dragoman.extensions.nats.address import NatsAddress
from dragoman.ports import Unsubscribe
from dragoman.supervision import Background, start_task

log = logging.getLogger("dragoman.bus")

NATS_CONNECT_TIMEOUT: Final = 2.0
"""Seconds for one attempt to connect to one server."""

NATS_FLUSH_TIMEOUT: Final = 1.0
"""Seconds without a response after which NATS counts as not reachable."""

NATS_PING_INTERVAL: Final = 5.0
"""Seconds between two pings of an idle connection; after two without a pong it is closed."""

NATS_MAX_RECONNECT_DELAY: Final = 5.0
"""Longest delay between two attempts, in seconds."""

NATS_RECONNECT_BACKOFF: Final = Backoff(0.1, NATS_MAX_RECONNECT_DELAY, jitter=0.5)

MAX_BUS_QUEUE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of messages that wait to be sent; further messages are dropped."""

_CLOSED_ERRORS: Final = (Error, OSError, RuntimeError)
"""Exceptions of a closing connection, including those of a closed transport that the library does not catch
(RuntimeError in uvloop)."""

MAX_BUS_MESSAGE_BYTES: Final = 1024 * 1024
"""Largest message, unless the server has a lower limit."""


class _NatsClient(Client):
    """A NATS client that enforces TLS, can flush completely, reports its end, and outlives late answers."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()
        """Set when the connection has ended, for any reason."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The library would send what is pending. A closed transport can raise then, which would skip the rest of the
        # shutdown and leave `ended` unset.
        self._pending, self._pending_data_size = [], 0
        try:
            await super()._close(status, do_cbs)
        finally:
            self.ended.set()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # The library uses TLS only if the server requests it. A server that does not, or a man in the middle, must not
        # get our credentials.
        await super()._process_info(info, initial_connection)
        server = self._current_server
        if initial_connection and server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise Error("the server does not offer TLS, and the URL is tls://")

    async def _process_pong(self) -> None:
        # The answer to a flush that has timed out: the library would fail on its canceled future and stop reading.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def flush_fully(self) -> None:
        """Returns when the server has received everything sent before."""
        await self._flush_pending(force_flush=True)  # `flush` alone sends its PING before pending data
        await self.flush(int(NATS_FLUSH_TIMEOUT) + 1)


@dataclass(eq=False)
class _Subscription:
    """A subscription that outlives connections."""

    subject: str
    queue: str
    on_message: Callable[[bytes], None]
    client: Client | None = None
    """The connection of `nats_subscription`."""
    nats_subscription: Subscription | None = None
    stopped: bool = False


class NatsConnection:
    """A connection that is maintained between `open` and `close`."""

    def __init__(
        self,
        address: NatsAddress,
        name: str,
        on_connected: Callable[[], None],
        random: Callable[[], float] = random.random,
    ) -> None:
        """`on_connected` is called for each new connection, before anything is sent over it."""
        self.address = address
        self.problem = "not connected yet"
        """Why it cannot be used, or not fully; empty if healthy."""
        self.is_up = False
        self.max_message_bytes = MAX_BUS_MESSAGE_BYTES
        """Largest message in bytes."""
        self.attempted = asyncio.Event()
        """Set after the first attempt to connect."""
        self._name = name
        self._on_connected = on_connected
        self._random = random
        self._client: _NatsClient | None = None
        self._subscriptions: set[_Subscription] = set()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._queue_empty = asyncio.Event()
        """Set when nothing waits to be sent."""
        self._flush_task: asyncio.Task[None] | None = None
        self._next_flush_task: asyncio.Task[None] | None = None
        self._permission_error = ""
        self._run_task: asyncio.Task[None] | None = None
        self._closing = False

    def open(self) -> None:
        """Starts to connect."""
        self._run_task = start_task(Background.BUS, self._run)

    async def close(self) -> None:
        """Sends queued messages within NATS_FLUSH_TIMEOUT and disconnects. May be called twice."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(NATS_FLUSH_TIMEOUT):
                await self.drain()
        if self._client is not None:
            await self._close_client(self._client)
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait((self._run_task,), timeout=NATS_FLUSH_TIMEOUT)

    async def _run(self) -> None:
        """Connects and reconnects until closed."""
        failures = 0
        while not self._closing:
            if await self._run_connection():
                failures = 0
            failures += 1
            await asyncio.sleep(NATS_RECONNECT_BACKOFF.delay(failures, self._random()))

    async def _run_connection(self) -> bool:
        """Runs one connection to its end. Returns whether it was established."""
        client = _NatsClient()
        reasons: deque[str] = deque(maxlen=1)

        async def on_error(error: Exception) -> None:
            if not isinstance(error, Error | OSError):
                log.error("handling a message from the bus failed", exc_info=error)
                return
            reasons.append(self._error_text(error))
            if "permissions violation" in str(error).lower():
                self._on_permission_error(reasons[-1])

        credentials: dict[str, Any] = {"user": self.address.user, "password": self.address.password}
        if self.address.credentials is not None:
            credentials = {"user_credentials": str(self.address.credentials)}
        try:
            await client.connect(
                list(self.address.servers),
                name=self._name,
                error_cb=on_error,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(NATS_CONNECT_TIMEOUT),
                ping_interval=int(NATS_PING_INTERVAL),
                no_echo=True,
                token=self.address.token,
                tls=self.address.ssl_context() if self.address.uses_tls or self.address.ca_file else None,
                **credentials,
            )
            self._mark_up(client)
            pump = start_task(Background.BUS_SENDER, partial(self._send_queued, client))
            try:
                await self._resubscribe(client)
                await client.ended.wait()
            finally:
                self._client = None
                self._wake.set()  # the library swallows cancellation in places
                pump.cancel()
                await asyncio.wait((pump,))
            self._mark_down(reasons[-1] if reasons else "the connection was closed")
        except Exception as error:  # any failure may be temporary, so there is another attempt
            was_up = self.is_up
            self._mark_down(reasons[-1] if reasons else self._error_text(error))
            return was_up
        else:
            return True
        finally:
            self._client, self.is_up = None, False
            self._queue.clear()
            self._queued_bytes = 0
            self._queue_empty.set()
            self.attempted.set()
            await self._close_client(client)

    async def _close_client(self, client: _NatsClient) -> None:
        with suppress(Exception):
            async with asyncio.timeout(NATS_FLUSH_TIMEOUT):
                await client.close()

    # State ------------------------------------------------------------------------------------------------------

    def _mark_up(self, client: _NatsClient) -> None:
        if self.attempted.is_set():
            log.info("reconnected to the bus %s", self.address)
        else:
            log.info("connected to the bus %s", self.address)
        self._client, self.is_up, self.problem = client, True, ""
        self._permission_error = ""
        self.max_message_bytes = min(MAX_BUS_MESSAGE_BYTES, client.max_payload)
        self.attempted.set()
        self._on_connected()

    def _mark_down(self, reason: str) -> None:
        if not self._closing and (self.is_up or not self.attempted.is_set()):
            log.warning(
                "the bus %s is not reachable (%s); until it is back, events of other servers arrive some seconds late",
                self.address,
                reason,
            )
        self.is_up, self.problem = False, "not reachable"

    def _on_permission_error(self, reason: str) -> None:
        """Reports missing permissions of our NATS user, once per connection."""
        if not self._permission_error:
            log.error(
                "the bus %s rejects an operation: %s; grant the permissions in docs/how-to/postgresql.md",
                self.address,
                reason,
            )
        self._permission_error = reason
        self.problem = "missing permissions"

    def _error_text(self, error: BaseException) -> str:
        text = " ".join(str(error).split()).removeprefix("nats: ") or type(error).__name__
        return self.address.redact(text)

    # Sending ----------------------------------------------------------------------------------------------------

    def send(self, subject: str, message: bytes) -> None:
        """Queues a message; drops it if NATS is not reachable or the queue is full."""
        if self.is_up and self._queued_bytes + len(message) <= MAX_BUS_QUEUE_BYTES:
            self._queue.append((subject, message))
            self._queued_bytes += len(message)
            self._queue_empty.clear()
            self._wake.set()

    async def _send_queued(self, client: _NatsClient) -> None:
        while self._client is client:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self._client is client:
                subject, message = self._queue.popleft()
                self._queued_bytes -= len(message)
                with suppress(*_CLOSED_ERRORS):  # it is closing
                    await client.publish(subject, message)
            self._queue_empty.set()

    async def drain(self) -> None:
        """Returns when the queue is empty, or NATS is not reachable."""
        if self._queue and self.is_up:
            await self._queue_empty.wait()
        await self.flush()

    # Listening --------------------------------------------------------------------------------------------------

    async def subscribe(self, subject: str, on_message: Callable[[bytes], None], queue: str = "") -> Unsubscribe:
        """Calls `on_message` for each message; with a `queue` group, one member gets each message.

        NATS has processed it after `flush`. If NATS is not reachable, the next connection subscribes.
        """
        subscription = _Subscription(subject, queue, on_message)
        self._subscriptions.add(subscription)

        async def stop() -> None:
            subscription.stopped = True
            self._subscriptions.discard(subscription)
            await self._end_subscription(subscription)

        if (client := self._client) is not None:
            try:
                await self._start_subscription(client, subscription)
            except BaseException:
                await stop()
                raise
        return stop

    async def _resubscribe(self, client: _NatsClient) -> None:
        for subscription in tuple(self._subscriptions):
            if not subscription.stopped and subscription.client is not client:
                await self._start_subscription(client, subscription)

    async def _start_subscription(self, client: _NatsClient, subscription: _Subscription) -> None:
        async def deliver(message: Msg) -> None:
            if not subscription.stopped:
                subscription.on_message(message.data)

        subscription.client = client
        with suppress(*_CLOSED_ERRORS):  # it is closing: the next connection subscribes
            subscription.nats_subscription = await client.subscribe(
                subscription.subject, queue=subscription.queue, cb=deliver
            )
        if subscription.stopped:
            await self._end_subscription(subscription)

    async def _end_subscription(self, subscription: _Subscription) -> None:
        nats_subscription, subscription.nats_subscription = subscription.nats_subscription, None
        if nats_subscription is not None and subscription.client is self._client:
            with suppress(*_CLOSED_ERRORS):
                await nats_subscription.unsubscribe()

    async def flush(self) -> None:
        """Returns when NATS has processed everything sent so far, or is not reachable. Concurrent calls are merged."""
        if self._client is None:
            return
        if self._next_flush_task is None:
            self._next_flush_task = asyncio.create_task(self._flush(self._flush_task), name="bus settles")
        await asyncio.shield(self._next_flush_task)

    async def _flush(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        self._flush_task, self._next_flush_task = self._next_flush_task, None
        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(NATS_FLUSH_TIMEOUT):
                await client.flush_fully()
        except TimeoutError:
            if self._client is client:  # otherwise a new connection has replaced it
                self._mark_down("it does not respond")
            await self._close_client(client)
        except _CLOSED_ERRORS:
            return  # it is closing
