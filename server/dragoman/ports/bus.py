"""The port of the bus: hints and committed events between processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from dragoman.core.task.log import Event, TaskRef


@dataclass(frozen=True, slots=True)
class Job:
    """A task of this agent is ready to be claimed."""

    agent: str
    task: TaskRef


class TaskSignal(Enum):
    """A signal to the process that runs a task."""

    CANCEL = "cancel"
    """A cancel request was stored (`CancelRequests`), or the task was erased."""
    MESSAGE = "message"
    PUSH_CONFIGS = "pushes"
    """Its push configurations changed. For the process that delivers them."""


class RegistryChange(Enum):
    """A stored registry, of which every process has a copy, changed."""

    WORKERS = "workers"  # the agents of workers (`WorkerRegistry`)
    UPSTREAMS = "upstreams"  # the upstream agents added at run time (`UpstreamStore`)


Unsubscribe = Callable[[], Awaitable[None]]  # ends a subscription; may be called twice


class Bus(Protocol):
    """Carries hints and committed events between processes. It may lose, repeat and reorder them: the store rules."""

    @property
    def problem(self) -> str:
        """Why messages to other processes are delayed, in a few words without secrets; empty when they are not."""

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        """Publishes committed events to the task's subscribers; too large ones without data, which the store has."""

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        """Calls `deliver` on this event loop for everything published after this call returned."""

    def publish_job(self, job: Job) -> None:
        """Announces a ready task to the processes that can run its agent."""

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        """Calls `handle` for jobs of these agents. Each job goes to one subscriber."""

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        """Sends a signal to the process that runs the task."""

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        """Calls `handle` for every signal. Processes that do not run the task ignore it."""

    def publish_change(self, change: RegistryChange) -> None:
        """Announces a stored change to every process."""

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        """Calls `handle` for every change, including those published here."""

    async def close(self) -> None:
        """Ends every subscription. May be called twice."""
