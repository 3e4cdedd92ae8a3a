"""Simulated time: event loops of several machines in one thread, on one clock that jumps to the next timer.

A `World` has the clock, the random numbers and one queue of callbacks. Each machine has a `HostLoop`, which asyncio
uses as its event loop: tasks, futures, timeouts and locks are asyncio's own. Nothing sleeps and no thread runs, so
a history depends on its seed alone. A callback takes one microsecond, so that no two happen at the same time.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, cast

CALLBACK_SECONDS: Final = 1e-6
"""Simulated seconds that each callback takes."""

MAX_CALLBACKS: Final = 400_000
"""Callbacks after which a history counts as endless."""

MAX_CLOSES: Final = 20
"""How often a coroutine is closed that goes on in a `finally`."""

EPOCH_SECONDS: Final = 1_700_000_000.0
"""The time at which every history begins."""


class Livelock(Exception):
    """A history does not end."""


class SimulatedHandle:
    """A callback that waits in the queue, or for its time. Stands for asyncio.Handle and asyncio.TimerHandle.

    Who makes one sets its attributes: an `__init__` takes as long as the rest, a thousand times in a history.
    """

    __slots__ = ("args", "callback", "context", "host", "time")
    host: HostLoop
    time: float
    """Of the world. Unset for a callback that waits in the queue."""
    callback: Callable[..., object] | None
    """None once it is canceled."""
    args: tuple[Any, ...]
    context: contextvars.Context

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        """The time by the loop's clock."""
        return self.host.local_time(self.time)


class World:
    """The clock and the callbacks of all hosts. `random`: seeded; all draws happen in one order."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(f"world {seed}")
        self.chance = self.random.random
        """A number from 0 to 1."""
        self.now = 0.0
        """Seconds since the history began."""
        self.callbacks = 0
        self.ready: deque[SimulatedHandle] = deque()
        self.network = HostLoop(self, "network")
        """Runs what happens outside of any server."""
        self.timers: list[tuple[float, int, Any, tuple[Any, ...] | None]] = []
        """Time, count, and a handle; or, with arguments, a callback outside of any server."""
        self.timer_count = 0
        self.hosts: list[HostLoop] = [self.network]
        self.faults: list[str] = []
        """Unhandled exceptions."""
        self.is_over = False
        """Whether everything that still runs is being ended: errors have no meaning."""

    def host(self, name: str, *, skew: float = 0.0, rate: float = 1.0) -> HostLoop:
        """A new machine. `skew`: seconds by which its wall clock is ahead. `rate`: of its clocks."""
        host = HostLoop(self, name, skew, rate)
        self.hosts.append(host)
        return host

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Calls `callback` after so many seconds, outside of any server."""
        self.timer_count += 1
        heappush(self.timers, (self.now + seconds, self.timer_count, callback, args))

    def run(self, main: Coroutine[Any, Any, None], on_end: Callable[[], None] = lambda: None) -> None:
        """Runs `main` on the network's host until it returns, then `on_end`. Raises what it raises, and Livelock."""
        hooks = sys.get_asyncgen_hooks()
        # A generator of a killed server vanishes without its `finally`.
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_forget)
        running = events._get_running_loop()
        try:
            task = self.network.create_task(main)
            self._run_until(task)
            events._set_running_loop(None)
            task.result()
        finally:
            on_end()
            self._vanish()
            events._set_running_loop(running)
            sys.set_asyncgen_hooks(*hooks)

    def _run_until(self, task: asyncio.Task[None]) -> None:
        ready, timers, current = self.ready, self.timers, None
        while not task.done():
            if not ready:
                if not timers:
                    raise Livelock("nothing is left to happen, and the history has not ended")
                self.now = max(self.now, timers[0][0])
            while timers and timers[0][0] <= self.now:
                _, _, due, args = heappop(timers)
                if args is not None:
                    due(*args)
                elif due.callback is not None:
                    ready.append(due)
            for _ in range(len(ready)):
                handle = ready.popleft()
                callback = handle.callback
                if callback is None:
                    continue
                host = handle.host
                if host.held is not None:
                    host.held.append(handle)
                    continue
                if host is not current:
                    events._set_running_loop(host.as_loop)
                    current = host
                self.now += CALLBACK_SECONDS
                self.callbacks += 1
                try:
                    handle.context.run(callback, *handle.args)
                except Exception as error:
                    host.call_exception_handler({"message": "a callback failed", "exception": error})
            if self.callbacks > MAX_CALLBACKS:
                raise Livelock(f"{self.callbacks} callbacks, and the history has not ended")

    def _vanish(self) -> None:
        """Ends everything that still runs, without letting it do anything more."""
        self.is_over = True
        self.ready.clear()
        self.timers.clear()
        hook, sys.unraisablehook = sys.unraisablehook, _forget  # of coroutines that await something as they end
        try:
            for host in self.hosts:
                host.vanish()
        finally:
            sys.unraisablehook = hook


def _forget(_: object) -> None:
    """Ignores an asynchronous generator without references, or an error in its end."""


class HostLoop:
    """The event loop of one machine: what asyncio needs of one."""

    def __init__(self, world: World, name: str, skew: float = 0.0, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.skew = skew
        self.rate = rate
        self.held: list[SimulatedHandle] | None = None
        """What waits while the machine is paused, or was to run on a killed one; None while it runs."""
        self.killed = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._ready = world.ready
        self.as_loop = cast("asyncio.AbstractEventLoop", self)
        """asyncio calls few of the methods of a loop: only those are here."""
        self.create_future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=self.as_loop)

    # Faults ---------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Runs nothing until `resume`. Clocks go on."""
        if self.held is None:
            self.held = []

    def resume(self) -> None:
        """Runs what has become due meanwhile."""
        if self.held is not None and not self.killed:
            self.world.ready.extend(self.held)
            self.held = None

    def kill(self) -> None:
        """Runs nothing any more: not even what cleans up."""
        self.killed = True
        self.held = []

    def vanish(self) -> None:
        """Ends the coroutines that have not ended. See `World.run`."""
        self.kill()
        events._set_running_loop(self.as_loop)
        while self._tasks:  # those that others wait for first, and those that a `finally` starts
            task = self._tasks.pop()
            if not task.done():
                _close(task)
        events._set_running_loop(None)

    # Clocks ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.world.now * self.rate

    def local_time(self, time: float) -> float:
        """The time of this host's clock at a time of the world."""
        return time * self.rate

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, by this machine's clock."""
        return int((EPOCH_SECONDS + self.skew + self.world.now * self.rate) * 1000)

    # asyncio --------------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        handle = SimulatedHandle()
        handle.host = self
        handle.callback = callback
        handle.args = args
        handle.context = copy_context() if context is None else context
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        return self._call_at((self.world.now * self.rate + delay) / self.rate, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimulatedHandle:
        return self._call_at(when / self.rate, callback, args, context)

    def _call_at(
        self, time: float, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> SimulatedHandle:
        """Calls it at a time of the world."""
        world = self.world
        handle = SimulatedHandle()
        handle.host = self
        handle.time = time
        handle.callback = callback
        handle.args = args
        handle.context = copy_context() if context is None else context
        world.timer_count += 1
        heappush(world.timers, (time, world.timer_count, handle, None))
        return handle

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self.as_loop, name=name or "task", context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        raise RuntimeError(f"{func} would run in a thread, and a simulation has none")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.killed:  # what a killed server leaves has no effect
            error = context.get("exception")
            self.world.faults.append(f"{self.name}: {context['message']}: {error!r}")

    get_debug: Callable[[], bool] = staticmethod(bool)
    """False. A function of C: every future and every task asks."""

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


def _close(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    for _ in range(MAX_CLOSES):
        try:
            coroutine.close()
        except BaseException:  # it goes on in a `finally`: nothing of it has an effect any more
            continue
        return
