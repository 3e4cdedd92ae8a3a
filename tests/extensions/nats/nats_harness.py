"""Helpers for tests on a NATS server: an open bus, and the events its subscribers received."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from tests.nats import PREFIX

from dragoman.bus.local import LocalBus
from dragoman.core.task.log import Event, TaskRef
from dragoman.extensions.nats.address import NatsAddress
from dragoman.extensions.nats.bus import NatsBus, open_nats_bus
from dragoman.ports import Job, TaskSignal
from dragoman.testing.fixtures import AGENT

EPOCHS = (f"{os.getpid():x}e{number}" for number in count())


SERVERS = (f"server{number}" for number in count())


@asynccontextmanager
async def open_bus(url: str, epoch: str, prefix: str = PREFIX, authority: Path | None = None) -> AsyncIterator[NatsBus]:
    address = NatsAddress.parse(url, ca_file=authority)
    async with open_nats_bus(LocalBus(), address, prefix=prefix, epoch=epoch, server=next(SERVERS)) as bus:
        yield bus


class ReceivedEvents:
    """Everything that the subscribers of one bus received."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.jobs: list[Job] = []
        self.signals: list[tuple[TaskRef, TaskSignal]] = []

    async def listen(self, bus: NatsBus, task: TaskRef) -> None:
        await bus.subscribe(task, self.events.extend)
        await bus.subscribe_jobs([AGENT], self.jobs.append)
        await bus.subscribe_signals(lambda task, signal: self.signals.append((task, signal)))
