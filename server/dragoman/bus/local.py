"""In-process bus: callbacks on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import cycle
from typing import TypeVar

from dragoman.core.task.log import Event, TaskRef
from dragoman.ports import Job, RegistryChange, TaskSignal, Unsubscribe

H = TypeVar("H")


class LocalBus:
    """Implements `dragoman.ports.Bus` for one event loop, without loss, repetition or reordering.

    Events are delivered in the caller; jobs, signals and registry changes on the loop's next iteration.
    """

    problem = ""

    def __init__(self) -> None:
        self._event_subscribers: dict[TaskRef, list[Callable[[Sequence[Event]], None]]] = {}
        self._job_handlers: dict[str, tuple[Callable[[Job], None], ...]] = {}
        self._job_rotation: dict[str, cycle[Callable[[Job], None]]] = {}
        self._signal_handlers: list[Callable[[TaskRef, TaskSignal], None]] = []
        self._change_handlers: list[Callable[[RegistryChange], None]] = []

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        for deliver in tuple(self._event_subscribers.get(task, ())):
            deliver(events)

    async def subscribe(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Unsubscribe:
        self._event_subscribers.setdefault(task, []).append(deliver)

        async def stop() -> None:
            following = self._event_subscribers.get(task, [])
            if deliver in following:
                following.remove(deliver)
            if not following:
                self._event_subscribers.pop(task, None)

        return stop

    def publish_job(self, job: Job) -> None:
        if turns := self._job_rotation.get(job.agent):
            asyncio.get_running_loop().call_soon(next(turns), job)

    async def subscribe_jobs(self, agents: Collection[str], handle: Callable[[Job], None]) -> Unsubscribe:
        for agent in agents:
            self._job_handlers[agent] = (*self._job_handlers.get(agent, ()), handle)
            self._job_rotation[agent] = cycle(self._job_handlers[agent])

        async def stop() -> None:
            for agent in agents:
                handlers = tuple(one for one in self._job_handlers.pop(agent, ()) if one != handle)
                self._job_rotation.pop(agent, None)
                if handlers:
                    self._job_handlers[agent], self._job_rotation[agent] = handlers, cycle(handlers)

        return stop

    def publish_signal(self, task: TaskRef, signal: TaskSignal) -> None:
        loop = asyncio.get_running_loop()
        for handle in tuple(self._signal_handlers):
            loop.call_soon(handle, task, signal)

    async def subscribe_signals(self, handle: Callable[[TaskRef, TaskSignal], None]) -> Unsubscribe:
        return _subscribe(self._signal_handlers, handle)

    def publish_change(self, change: RegistryChange) -> None:
        loop = asyncio.get_running_loop()
        for handle in tuple(self._change_handlers):
            loop.call_soon(handle, change)

    async def subscribe_changes(self, handle: Callable[[RegistryChange], None]) -> Unsubscribe:
        return _subscribe(self._change_handlers, handle)

    async def close(self) -> None:
        self._change_handlers.clear()
        self._event_subscribers.clear()
        self._job_handlers.clear()
        self._job_rotation.clear()
        self._signal_handlers.clear()


def _subscribe(handlers: list[H], handle: H) -> Unsubscribe:
    handlers.append(handle)

    async def stop() -> None:
        if handle in handlers:
            handlers.remove(handle)

    return stop
