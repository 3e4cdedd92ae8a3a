"""The bus of one process: a few callbacks on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import cycle

from dragoman.core.log import Event, TaskRef
from dragoman.ports import Job, News, Signal, Stop


class LocalBus:
    """Implements `dragoman.ports.Bus` for one event loop; nothing is lost, repeated or reordered.

    Jobs, signals and news are handed over on the loop's next turn, never inside the caller's.
    """

    trouble = ""

    def __init__(self) -> None:
        self._followers: dict[TaskRef, list[Callable[[Sequence[Event]], None]]] = {}
        self._workers: dict[str, list[Callable[[Job], None]]] = {}
        self._turns: dict[str, cycle[Callable[[Job], None]]] = {}
        self._obeying: list[Callable[[TaskRef, Signal], None]] = []
        self._attending: list[Callable[[News], None]] = []

    def publish(self, task: TaskRef, events: Sequence[Event]) -> None:
        for deliver in tuple(self._followers.get(task, ())):
            deliver(events)

    async def follow(self, task: TaskRef, deliver: Callable[[Sequence[Event]], None]) -> Stop:
        self._followers.setdefault(task, []).append(deliver)

        async def stop() -> None:
            following = self._followers.get(task, [])
            if deliver in following:
                following.remove(deliver)
            if not following:
                self._followers.pop(task, None)

        return stop

    def offer(self, job: Job) -> None:
        if turns := self._turns.get(job.agent):
            asyncio.get_running_loop().call_soon(next(turns), job)

    async def work(self, agents: Collection[str], take: Callable[[Job], None]) -> Stop:
        for agent in agents:
            self._workers.setdefault(agent, []).append(take)
            self._turns[agent] = cycle(tuple(self._workers[agent]))

        async def stop() -> None:
            for agent in agents:
                workers = self._workers.get(agent, [])
                if take in workers:
                    workers.remove(take)
                self._turns[agent] = cycle(tuple(workers))
                if not workers:
                    self._workers.pop(agent, None)
                    self._turns.pop(agent, None)

        return stop

    def signal(self, task: TaskRef, signal: Signal) -> None:
        loop = asyncio.get_running_loop()
        for handle in tuple(self._obeying):
            loop.call_soon(handle, task, signal)

    async def obey(self, handle: Callable[[TaskRef, Signal], None]) -> Stop:
        self._obeying.append(handle)

        async def stop() -> None:
            if handle in self._obeying:
                self._obeying.remove(handle)

        return stop

    def announce(self, news: News) -> None:
        loop = asyncio.get_running_loop()
        for handle in tuple(self._attending):
            loop.call_soon(handle, news)

    async def attend(self, handle: Callable[[News], None]) -> Stop:
        self._attending.append(handle)

        async def stop() -> None:
            if handle in self._attending:
                self._attending.remove(handle)

        return stop

    async def close(self) -> None:
        self._attending.clear()
        self._followers.clear()
        self._workers.clear()
        self._turns.clear()
        self._obeying.clear()
