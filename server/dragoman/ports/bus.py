"""What the runtime needs of a bus: hints and committed events between processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from dragoman.core.task.log import Event, TaskRef


@dataclass(frozen=True, slots=True)
class Job:
    """A task waits for a worker of this agent."""

    agent: str
    task: TaskRef


class TaskSignal(Enum):
    """What someone tells whoever runs a task."""

    CANCEL = "cancel"
    """There is a cancel of it in the store (`CancelRequests`), or the task was erased."""
    MESSAGE = "message"
    PUSH_CONFIGS = "pushes"
    """Its push configurations are others now. For whoever delivers them."""


class RegistryChange(Enum):
    """What every process keeps a copy of is another in the store now."""

    WORKERS = "workers"
    """The agents of workers (`WorkerRegistry`)."""
    UPSTREAMS = "upstreams"
    """The agents upstream that were added (`Upstreams`)."""


Unsubscribe = Callable[[], Awaitable[None]]
"""Ends a registration with the bus; may be called twice."""


class Bus(Protocol):
    """Hints and committed events between processes. May lose, repeat and reorder: the store is the truth."""

    @property
    def problem(self) -> str:
        """Why others hear late of what is said, in a few words without anything secret; empty while all is well."""
        ...

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        """Tells all who follow the task. Only for events that are committed.

        An event may arrive without its data, where it is too large to be carried: then it is in the store.
        """
        ...

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        """Calls `deliver` on this event loop for what is published from the return of this call on."""
        ...

    def publish_job(self, job: Job) -> None:
        """Tells workers of the agent that a task waits."""
        ...

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        """Calls `take` for jobs of these agents. One worker is told of each job."""
        ...

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        """Tells whoever runs the task."""
        ...

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        """Calls `handle` for every signal; whoever does not run the task ignores it."""
        ...

    def publish_change(self, change: RegistryChange) -> None:
        """Tells every process of what is in the store already."""
        ...

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        """Calls `handle` for all of it, also for what is announced here."""
        ...

    async def close(self) -> None:
        """Drops every registration. May be called twice."""
        ...
