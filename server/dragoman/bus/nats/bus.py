"""The bus between processes.

What is said is said here first, by the bus of this process, and then to the others: whoever follows a task where it
runs waits for no network, and loses nothing when NATS is away. Nothing of our own comes back to us.

Jobs, events and news may be lost, for the store has them, and is asked every few seconds. Signals are nowhere else, so
they are kept for a while, and said again to everybody who comes (back).
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

from dragoman.bus.nats import codec
from dragoman.bus.nats.codec import BusHeartbeat, InvalidBusMessage, Subjects
from dragoman.bus.nats.connection import NATS_CONNECT_TIMEOUT, NatsAddress, NatsConnection
from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Bus, Job, RegistryChange, TaskSignal, Unsubscribe

log = logging.getLogger("dragoman.bus")

T = TypeVar("T")

BUS_HEARTBEAT_INTERVAL: Final = 10.0
"""Seconds between two signs of life of a server."""

MAX_MISSED_HEARTBEATS: Final = 3
"""Signs of life that may be missing before a server is gone."""

MAX_RECENT_SIGNALS: Final = 10_000
"""Signals that are said again to who comes back."""

SENT_SIGNAL_TTL: Final = 30.0
"""Seconds for which they are once NATS had them: others may have been cut off in this moment, and come back. No longer,
since whoever was told that a task goes on may have gone on with it."""

UNSENT_SIGNAL_TTL: Final = 600.0
"""Seconds for which they wait for NATS while it is away."""

JOB_QUEUE_GROUP: Final = "workers"
"""The queue group: each job goes to one of it."""


@asynccontextmanager
async def open_nats_bus(
    local: Bus, address: NatsAddress, *, prefix: str, epoch: str, server: str = ""
) -> AsyncIterator[NatsBus]:
    """The bus of a store's servers, for as long as the block runs; connected, if that can be done at once.

    here: the bus of this process. epoch: the store's. server: a name that no other has; drawn when there is none.
    """
    bus = NatsBus(local, address, prefix=prefix, epoch=epoch, server=server or os.urandom(8).hex())
    await bus.start()
    try:
        yield bus
    finally:
        await bus.close()


class NatsBus:
    """Implements `dragoman.ports.Bus` for processes that have one NATS, one prefix and one store."""

    def __init__(self, local: Bus, address: NatsAddress, *, prefix: str, epoch: str, server: str) -> None:
        self._local = local
        self._prefix = prefix
        self._subjects = Subjects(prefix, epoch)
        self._heartbeat = BusHeartbeat(server, epoch, fresh=False)
        self._foreign_servers: dict[str, tuple[str, float]] = {}
        """Servers of other stores on our prefix: epoch, and when they were heard."""
        self._recent_signals: deque[tuple[float, bytes]] = deque(maxlen=MAX_RECENT_SIGNALS)
        """What may have to be said again, and until when."""
        self._connection = NatsConnection(address, f"dragoman {server}", self._on_connected)
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._clock = asyncio.get_running_loop().time

    async def start(self) -> None:
        """Begins to connect; returns when there was an attempt."""
        await self._connection.subscribe(
            self._subjects.heartbeats, self._message_handler(codec.decode_heartbeat, self._on_heartbeat)
        )
        self._connection.open()
        self._heartbeat_task = asyncio.create_task(self._run_heartbeat(), name="bus presence")
        with suppress(TimeoutError):
            async with asyncio.timeout(NATS_CONNECT_TIMEOUT):
                await self._connection.attempted.wait()
        await self._connection.flush()

    @property
    def problem(self) -> str:
        if self._foreign_servers:
            return "servers of another store use its prefix"
        return self._connection.problem

    # Events -----------------------------------------------------------------------------------------------------

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        self._local.publish(task, events)
        if self._connection.is_up:
            subject = self._subjects.events(task)
            for message in codec.encode_events(events, self._connection.max_message_bytes):
                self._connection.send(subject, message)

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        arrived = self._message_handler(codec.decode_events, deliver)
        stops = [await self._local.subscribe(task, deliver)]
        return await self._subscribe(stops, [self._subjects.events(task)], arrived)

    # Jobs -------------------------------------------------------------------------------------------------------

    def publish_job(self, job: Job) -> None:
        """Tells one worker here, which costs nothing when it has no room, and one elsewhere."""
        self._local.publish_job(job)
        self._connection.send(self._subjects.jobs(job.agent), codec.encode_job(job))

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        stops = [await self._local.subscribe_jobs(agents, handle)]
        subjects = [self._subjects.jobs(agent) for agent in agents]
        return await self._subscribe(stops, subjects, self._message_handler(codec.decode_job, handle), JOB_QUEUE_GROUP)

    # Signals ----------------------------------------------------------------------------------------------------

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        self._local.publish_signal(task, signal)
        message = codec.encode_signal(task, signal)
        self._recent_signals.append(
            (self._clock() + (SENT_SIGNAL_TTL if self._connection.is_up else UNSENT_SIGNAL_TTL), message)
        )
        self._connection.send(self._subjects.signals, message)

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        def arrived(said: tuple[TaskRef, TaskSignal]) -> None:
            handle(*said)

        stops = [await self._local.subscribe_signals(handle)]
        return await self._subscribe(
            stops, [self._subjects.signals], self._message_handler(codec.decode_signal, arrived)
        )

    # News -------------------------------------------------------------------------------------------------------

    def publish_change(self, change: RegistryChange) -> None:
        """On the subject of signals, which servers of older versions, and their grants, know: they leave it unread."""
        self._local.publish_change(change)
        self._connection.send(self._subjects.signals, codec.encode_change(change))

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        stops = [await self._local.subscribe_changes(handle)]
        return await self._subscribe(
            stops, [self._subjects.signals], self._message_handler(codec.decode_change, handle)
        )

    def _resend_signals(self) -> None:
        """Says again what somebody may not have heard."""
        now = self._clock()
        kept = [(min(until, now + SENT_SIGNAL_TTL), message) for until, message in self._recent_signals if until > now]
        self._recent_signals = deque(kept, MAX_RECENT_SIGNALS)
        for _, message in kept:
            self._connection.send(self._subjects.signals, message)

    # Presence ---------------------------------------------------------------------------------------------------

    def _on_connected(self) -> None:
        """Whoever is there learns that we missed something, and what we said while we were away."""
        self._send_heartbeat(fresh=True)
        self._resend_signals()

    def _send_heartbeat(self, *, fresh: bool) -> None:
        self._connection.send(self._subjects.heartbeats, codec.encode_heartbeat(self._heartbeat._replace(fresh=fresh)))

    async def _run_heartbeat(self) -> None:
        while True:
            await asyncio.sleep(BUS_HEARTBEAT_INTERVAL)
            self._send_heartbeat(fresh=False)
            self._expire_foreign_servers()

    def _expire_foreign_servers(self) -> None:
        """Strangers go without a word, so they are gone when they have been silent for long."""
        if not self._foreign_servers:
            return
        until = self._clock() - MAX_MISSED_HEARTBEATS * BUS_HEARTBEAT_INTERVAL
        self._foreign_servers = {server: said for server, said in self._foreign_servers.items() if said[1] > until}
        if not self._foreign_servers:
            log.info("nobody else uses the prefix %s of the bus any more", self._prefix)

    def _on_heartbeat(self, heartbeat: BusHeartbeat) -> None:
        if heartbeat.epoch == self._heartbeat.epoch:
            if heartbeat.fresh and heartbeat.server != self._heartbeat.server:
                self._resend_signals()
            return
        if not self._foreign_servers:
            log.error(
                "a server of another store (epoch %s, ours is %s) uses the prefix %s on the same bus: servers of one "
                "cluster have one --store, and each cluster its own --bus-prefix",
                heartbeat.epoch,
                self._heartbeat.epoch,
                self._prefix,
            )
            self._send_heartbeat(fresh=False)  # so that it knows as well
        self._foreign_servers[heartbeat.server] = (heartbeat.epoch, self._clock())

    # Both sides -------------------------------------------------------------------------------------------------

    async def _subscribe(
        self, stops: list[Unsubscribe], subjects: Sequence[str], on_message: Callable[[bytes], None], queue: str = ""
    ) -> Unsubscribe:
        """Listens to others as well; `stops` end what was begun here, which they do when this is cancelled."""
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
        def arrived(message: bytes) -> None:
            try:
                said = decode(message)
            except InvalidBusMessage:  # of another version: as good as lost
                log.debug("a message on the bus cannot be read: %s", message[:64].hex())
                return
            handle(said)

        return arrived

    async def flush(self) -> None:
        """Returns when NATS has what was said here, and we have what it had for us; or when it is away."""
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
