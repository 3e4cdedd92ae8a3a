"""Bus between the servers of a store, over NATS.

Messages go to the local bus first, then to NATS: subscribers in the process that runs a task do not wait for the
network, and lose nothing during an outage of NATS. A server does not receive its own messages.
Jobs, events, cancels and registry changes may be lost: the store has them and is polled every few seconds. The signal
of a message to a running turn has no such poll, so signals are retained for a while and resent to servers that connect.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, TypeVar

from dragoman.core.task.log import Event, TaskRef
from dragoman.extensions.nats import codec
from dragoman.extensions.nats.address import NatsAddress
from dragoman.extensions.nats.codec import BusHeartbeat, InvalidBusMessage, Subjects
from dragoman.extensions.nats.connection import NATS_CONNECT_TIMEOUT, NatsConnection
from dragoman.ports import Bus, Job, RegistryChange, TaskSignal, Unsubscribe
from dragoman.ports.extension import CHECK_EPOCH
from dragoman.supervision import Background, start_task

log = logging.getLogger("dragoman.bus")

T = TypeVar("T")

BUS_HEARTBEAT_INTERVAL: Final = 10.0
"""Seconds between two heartbeats of a server."""

MAX_MISSED_HEARTBEATS: Final = 3
"""Missed heartbeats after which a server counts as stopped."""

MAX_RECENT_SIGNALS: Final = 10_000
"""Signals retained for servers that reconnect."""

SENT_SIGNAL_TTL: Final = 30.0
"""Seconds to retain a signal sent to NATS, for servers disconnected at that moment. Not longer: a server that was
told about a follow-up message may already have processed it."""

UNSENT_SIGNAL_TTL: Final = 600.0
"""Seconds to retain a signal during an outage of NATS."""

JOB_QUEUE_GROUP: Final = "workers"
"""Queue group: each job is delivered to one member."""


@asynccontextmanager
async def open_nats_bus(
    local: Bus, address: NatsAddress, *, prefix: str, epoch: str, server: str = ""
) -> AsyncIterator[NatsBus]:
    """Opens the bus of a store's servers for the duration of the block; waits for the first connection attempt.

    local: the bus of this process. epoch: that of the store. server: a unique name; random by default.
    """
    bus = NatsBus(local, address, prefix=prefix, epoch=epoch, server=server or os.urandom(8).hex())
    await bus.start()
    try:
        yield bus
    finally:
        await bus.close()


class NatsBus:
    """Implements `dragoman.ports.Bus` for processes with the same NATS, prefix and store."""

    def __init__(self, local: Bus, address: NatsAddress, *, prefix: str, epoch: str, server: str) -> None:
        self._local = local
        self._prefix = prefix
        self._subjects = Subjects(prefix, epoch)
        self._heartbeat = BusHeartbeat(server, epoch, fresh=False)
        self._is_check = epoch == CHECK_EPOCH
        self._foreign_servers: dict[str, tuple[str, float]] = {}
        """Servers of other stores with our prefix: epoch and time of the last heartbeat."""
        self._recent_signals: deque[tuple[float, bytes]] = deque(maxlen=MAX_RECENT_SIGNALS)
        """Expiry and message of signals that may have to be resent."""
        self._connection = NatsConnection(address, f"dragoman {server}", self._on_connected)
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._clock = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Starts to connect; returns after the first attempt."""
        await self._connection.subscribe(
            self._subjects.heartbeats, self._message_handler(codec.decode_heartbeat, self._on_heartbeat)
        )
        self._connection.open()
        self._heartbeat_task = start_task(Background.BUS_HEARTBEAT, self._run_heartbeat)
        with suppress(TimeoutError):
            async with asyncio.timeout(NATS_CONNECT_TIMEOUT):
                await self._connection.attempted.wait()
        await self._connection.flush()

    @property
    def problem(self) -> str:
        if self._foreign_servers:
            return "servers of another store use the same prefix"
        return self._connection.problem

    # Events ---------------------------------------------------------------------------------------------------------

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self._local.publish(task, events)
        if self._connection.is_up:
            subject = self._subjects.events(task)
            for message in codec.encode_events(events, self._connection.max_message_bytes):
                self._connection.send(subject, message)

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        on_message = self._message_handler(codec.decode_events, deliver)
        stops = [await self._local.subscribe(task, deliver)]
        return await self._subscribe(stops, [self._subjects.events(task)], on_message)

    # Jobs -----------------------------------------------------------------------------------------------------------

    def publish_job(self, job: Job) -> None:
        """Notifies one local and one remote subscriber; a subscriber without capacity ignores it at no cost."""
        self._local.publish_job(job)
        self._connection.send(self._subjects.jobs(job.agent), codec.encode_job(job))

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        stops = [await self._local.subscribe_jobs(agents, handle)]
        subjects = [self._subjects.jobs(agent) for agent in agents]
        return await self._subscribe(stops, subjects, self._message_handler(codec.decode_job, handle), JOB_QUEUE_GROUP)

    # Signals --------------------------------------------------------------------------------------------------------

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        self._local.publish_signal(task, signal)
        message = codec.encode_signal(task, signal)
        self._recent_signals.append(
            (self._clock() + (SENT_SIGNAL_TTL if self._connection.is_up else UNSENT_SIGNAL_TTL), message)
        )
        self._connection.send(self._subjects.signals, message)

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        def on_signal(signal: tuple[TaskRef, TaskSignal]) -> None:
            handle(*signal)

        stops = [await self._local.subscribe_signals(handle)]
        return await self._subscribe(
            stops, [self._subjects.signals], self._message_handler(codec.decode_signal, on_signal)
        )

    # Registry changes -----------------------------------------------------------------------------------------------

    def publish_change(self, change: RegistryChange) -> None:
        """Uses the subject of signals, which older servers and their grants know; they ignore the message."""
        self._local.publish_change(change)
        self._connection.send(self._subjects.signals, codec.encode_change(change))

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        stops = [await self._local.subscribe_changes(handle)]
        return await self._subscribe(
            stops, [self._subjects.signals], self._message_handler(codec.decode_change, handle)
        )

    def _resend_signals(self) -> None:
        """Resends signals that some server may have missed."""
        now = self._clock()
        kept = [(min(until, now + SENT_SIGNAL_TTL), message) for until, message in self._recent_signals if until > now]
        self._recent_signals = deque(kept, MAX_RECENT_SIGNALS)
        for _, message in kept:
            self._connection.send(self._subjects.signals, message)

    # Heartbeats -----------------------------------------------------------------------------------------------------

    def _on_connected(self) -> None:
        """Tells other servers to resend what we missed, and resends our own signals."""
        self._send_heartbeat(fresh=True)
        self._resend_signals()

    def _send_heartbeat(self, *, fresh: bool) -> None:
        if self._is_check:
            return
        self._connection.send(self._subjects.heartbeats, codec.encode_heartbeat(self._heartbeat._replace(fresh=fresh)))

    async def _run_heartbeat(self) -> None:
        while True:
            await asyncio.sleep(BUS_HEARTBEAT_INTERVAL)
            self._send_heartbeat(fresh=False)
            self._expire_foreign_servers()

    def _expire_foreign_servers(self) -> None:
        """Forgets servers of other stores after too many missed heartbeats."""
        if not self._foreign_servers:
            return
        oldest = self._clock() - MAX_MISSED_HEARTBEATS * BUS_HEARTBEAT_INTERVAL
        self._foreign_servers = {server: seen for server, seen in self._foreign_servers.items() if seen[1] > oldest}
        if not self._foreign_servers:
            log.info("no other store uses the prefix %s on the bus any more", self._prefix)

    def _on_heartbeat(self, heartbeat: BusHeartbeat) -> None:
        if self._is_check:
            return
        if heartbeat.epoch == self._heartbeat.epoch:
            if heartbeat.fresh and heartbeat.server != self._heartbeat.server:
                self._resend_signals()
            return
        if not self._foreign_servers:
            log.error(
                "a server of another store (epoch %s, ours is %s) uses the prefix %s on the same bus; give all servers "
                "of a cluster the same --store, and each cluster its own --bus-prefix",
                heartbeat.epoch,
                self._heartbeat.epoch,
                self._prefix,
            )
            self._send_heartbeat(fresh=False)  # so that it reports the conflict too
        self._foreign_servers[heartbeat.server] = (heartbeat.epoch, self._clock())

    # Helpers --------------------------------------------------------------------------------------------------------

    async def _subscribe(
        self, stops: list[Unsubscribe], subjects: Sequence[str], on_message: Callable[[bytes], None], queue: str = ""
    ) -> Unsubscribe:
        """Subscribes at NATS too; on failure or cancellation, `stops` end the local subscription."""
        try:
            for subject in subjects:
                stop = await self._connection.subscribe(subject, on_message, queue)
                stops.append(stop)
            await self._connection.flush()
        except BaseException:
            await _stop_all(stops)
            raise
        return partial(_stop_all, stops)

    def _message_handler(self, decode: Callable[[bytes], T], handle: Callable[[T], None]) -> Callable[[bytes], None]:
        def on_message(message: bytes) -> None:
            try:
                decoded = decode(message)
            except InvalidBusMessage:  # of another version: counts as lost
                log.debug("a message on the bus cannot be read: %s", message[:64].hex())
                return
            handle(decoded)

        return on_message

    async def flush(self) -> None:
        """Returns when NATS has all our messages and we have all of its; or when it is not reachable."""
        await self._connection.drain()
        await self._connection.flush()

    async def close(self) -> None:
        await self._local.close()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait((self._heartbeat_task,))
        await self._connection.close()


async def _stop_all(stops: Sequence[Unsubscribe]) -> None:
    for stop in stops:
        await stop()
