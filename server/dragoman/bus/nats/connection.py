"""One connection to NATS for ever: made again whenever it breaks, with everything that is listened to.

The library would reconnect by itself, but gives up after some errors (credentials that are refused while somebody
changes them), so here each connection is a new client, and how long to wait is ours to say.

What is said while NATS is away is lost, and so is what lies in a queue that is full; that is for others to mend.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error

from dragoman.bus.nats.address import Address
from dragoman.ports import Stop

log = logging.getLogger("dragoman.bus")

CONNECT: Final = 2.0
"""Seconds for one attempt to connect to one server."""

SETTLE: Final = 1.0
"""Seconds that NATS may take to answer before it counts as away."""

PING: Final = 5.0
"""Seconds between two looks whether a silent NATS is there; two without an answer, and it is away."""

SHORTEST: Final = 0.1
LONGEST: Final = 5.0
"""Seconds between attempts: they double, and a random part is taken off."""

QUEUE_BYTES: Final = 16 * 1024 * 1024
"""What may wait to be sent; what comes on top is lost."""

_GONE: Final = (Error, OSError, RuntimeError)
"""What the library raises for a connection that is closing, and lets through of a transport that is closed already:
uvloop's says so by a RuntimeError."""

MESSAGE_BYTES: Final = 1024 * 1024
"""The largest message, unless the server allows less."""


class _Client(Client):
    """A client that encrypts where it was told to, and knows when it was heard, and when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = asyncio.Event()
        """Set when there is no connection any more, however that came."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The library still says what waits to be said. A transport that is gone may answer by an error; then it would
        # break off here, and nobody hear that it is over.
        self._pending, self._pending_data_size = [], 0
        try:
            await super()._close(status, do_cbs)
        finally:
            self.over.set()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # The library encrypts when the server asks for it. One that does not, or somebody in between, gets no
        # credentials.
        await super()._process_info(info, initial_connection)
        server = self._current_server
        if initial_connection and server and server.uri.scheme == "tls" and not info.get("tls_required"):
            raise Error("it does not encrypt, and tls:// was asked for")

    async def settle(self) -> None:
        """Returns when the server has read what was said before."""
        await self._flush_pending(force_flush=True)  # `flush` sends its PING past what is still here
        await self.flush(int(SETTLE) + 1)


@dataclass(eq=False)
class _Listening:
    """What is listened to, over all connections."""

    subject: str
    queue: str
    arrived: Callable[[bytes], None]
    at: Client | None = None
    """The connection that was told."""
    subscription: Subscription | None = None
    stopped: bool = False


class Connection:
    """A connection that is kept up between `open` and `close`."""

    def __init__(
        self, address: Address, name: str, connected: Callable[[], None], dice: Callable[[], float] = random.random
    ) -> None:
        """`connected` is called for each new connection, before anything else goes over it."""
        self.address = address
        self.trouble = "it was not reached yet"
        """Why it cannot be used, or not fully; empty while all is well."""
        self.is_up = False
        self.limit = MESSAGE_BYTES
        """Bytes of the largest message."""
        self.tried = asyncio.Event()
        """Set once there was an attempt to connect."""
        self._name = name
        self._connected = connected
        self._dice = dice
        self._client: _Client | None = None
        self._listening: set[_Listening] = set()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._queued = 0
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        """Set when nothing waits to be sent."""
        self._round: asyncio.Task[None] | None = None
        self._next_round: asyncio.Task[None] | None = None
        self._refused = ""
        self._running: asyncio.Task[None] | None = None
        self._closing = False

    def open(self) -> None:
        """Begins to connect."""
        self._running = asyncio.create_task(self._run(), name="bus")

    async def close(self) -> None:
        """Sends what waits, if that can be done at once, and ends. May be called twice."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE):
                await self.sent()
        if self._client is not None:
            await self._shut(self._client)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,), timeout=SETTLE)

    async def _run(self) -> None:
        """Connects, and connects again, until closed."""
        failures = 0
        while not self._closing:
            if await self._once():
                failures = 0
            wait = min(SHORTEST * 2 ** min(failures, 16), LONGEST)
            failures += 1
            await asyncio.sleep(wait * (1 - self._dice() / 2))

    async def _once(self) -> bool:
        """One connection, from its beginning to its end. Gives whether there was one."""
        client = _Client()
        reasons: deque[str] = deque(maxlen=1)

        async def failed(error: Exception) -> None:
            if not isinstance(error, Error | OSError):
                log.error("what the bus brought could not be taken", exc_info=error)
                return
            reasons.append(self._say(error))
            if "permissions violation" in str(error).lower():
                self._not_permitted(reasons[-1])

        credentials: dict[str, Any] = {"user": self.address.user, "password": self.address.password}
        if self.address.credentials is not None:
            credentials = {"user_credentials": str(self.address.credentials)}
        try:
            await client.connect(
                list(self.address.servers),
                name=self._name,
                error_cb=failed,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(CONNECT),
                ping_interval=int(PING),
                no_echo=True,
                token=self.address.token,
                tls=self.address.context() if self.address.encrypted or self.address.authority else None,
                **credentials,
            )
            self._up(client)
            pump = asyncio.create_task(self._pump(client), name="bus sends")
            try:
                await self._listen_again(client)
                await client.over.wait()
            finally:
                self._client = None
                self._wake.set()  # the library swallows cancellation in places
                pump.cancel()
                await asyncio.wait((pump,))
            self._down(reasons[-1] if reasons else "the connection was closed")
        except Exception as error:  # whatever it is, the next attempt may go better
            was_up = self.is_up
            self._down(reasons[-1] if reasons else self._say(error))
            return was_up
        else:
            return True
        finally:
            self._client, self.is_up = None, False
            self._queue.clear()
            self._queued = 0
            self._empty.set()
            self.tried.set()
            await self._shut(client)

    async def _shut(self, client: _Client) -> None:
        with suppress(Exception):
            async with asyncio.timeout(SETTLE):
                await client.close()

    # State ------------------------------------------------------------------------------------------------------

    def _up(self, client: _Client) -> None:
        if self.tried.is_set():
            log.info("the bus %s is back", self.address)
        else:
            log.info("the bus %s is there", self.address)
        self._client, self.is_up, self.trouble = client, True, ""
        self._refused = ""
        self.limit = min(MESSAGE_BYTES, client.max_payload)
        self.tried.set()
        self._connected()

    def _down(self, why: str) -> None:
        if not self._closing and (self.is_up or not self.tried.is_set()):
            log.warning(
                "the bus %s is away (%s); what other servers do is seen some seconds later until it is back",
                self.address,
                why,
            )
        self.is_up, self.trouble = False, "it is away"

    def _not_permitted(self, what: str) -> None:
        """Our user may not do what a server does: told once for each connection."""
        if not self._refused:
            log.error("the bus %s does not let us: %s; see docs/how-to/postgresql.md", self.address, what)
        self._refused = what
        self.trouble = "it does not grant what a server needs"

    def _say(self, error: BaseException) -> str:
        text = " ".join(str(error).split()).removeprefix("nats: ") or type(error).__name__
        return self.address.without_secrets(text)

    # Sending ----------------------------------------------------------------------------------------------------

    def send(self, subject: str, message: bytes) -> None:
        """Sends it soon, or never."""
        if self.is_up and self._queued + len(message) <= QUEUE_BYTES:
            self._queue.append((subject, message))
            self._queued += len(message)
            self._empty.clear()
            self._wake.set()

    async def _pump(self, client: _Client) -> None:
        while self._client is client:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self._client is client:
                subject, message = self._queue.popleft()
                self._queued -= len(message)
                with suppress(*_GONE):  # it is closing
                    await client.publish(subject, message)
            self._empty.set()

    async def sent(self) -> None:
        """Returns when nothing waits to be sent, or when NATS is away."""
        if self._queue and self.is_up:
            await self._empty.wait()
        await self.settled()

    # Listening --------------------------------------------------------------------------------------------------

    async def listen(self, subject: str, arrived: Callable[[bytes], None], queue: str = "") -> Stop:
        """Calls `arrived` for messages; of those who listen with one `queue`, one is given each message.

        NATS knows once it has `settled`; while it is away, it is told later.
        """
        listening = _Listening(subject, queue, arrived)
        self._listening.add(listening)

        async def stop() -> None:
            listening.stopped = True
            self._listening.discard(listening)
            await self._end(listening)

        if (client := self._client) is not None:
            try:
                await self._begin(client, listening)
            except BaseException:
                await stop()
                raise
        return stop

    async def _listen_again(self, client: _Client) -> None:
        for listening in tuple(self._listening):
            if not listening.stopped and listening.at is not client:
                await self._begin(client, listening)

    async def _begin(self, client: _Client, listening: _Listening) -> None:
        async def arrived(message: Msg) -> None:
            if not listening.stopped:
                listening.arrived(message.data)

        listening.at = client
        with suppress(*_GONE):  # it is closing: the next connection is told
            listening.subscription = await client.subscribe(listening.subject, queue=listening.queue, cb=arrived)
        if listening.stopped:
            await self._end(listening)

    async def _end(self, listening: _Listening) -> None:
        subscription, listening.subscription = listening.subscription, None
        if subscription is not None and listening.at is self._client:
            with suppress(*_GONE):
                await subscription.unsubscribe()

    async def settled(self) -> None:
        """Returns when NATS has read what it was told until now, or is away. All who wait at a time ask it once."""
        if self._client is None:
            return
        if self._next_round is None:
            self._next_round = asyncio.create_task(self._settle(self._round), name="bus settles")
        await asyncio.shield(self._next_round)

    async def _settle(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._round, self._next_round = self._next_round, None
        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(SETTLE):
                await client.settle()
        except TimeoutError:
            if self._client is client:  # else there is another one by now, which is not to blame
                self._down("it does not answer")
            await self._shut(client)
        except _GONE:
            return  # it is closing
