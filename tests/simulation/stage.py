"""What the callers of a history share: servers, the clock, the record, and calls over an unreliable network."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeVar

from tests.chaos.history import Entry, Recorder
from tests.simulation.loop import HostLoop, World
from tests.simulation.plan import Plan
from tests.simulation.receivers import Receivers
from tests.simulation.server import SimulatedServer

from dragoman.core.access.identity import Identity
from dragoman.core.errors import A2AError
from dragoman.core.task.log import Event
from dragoman.runtime import Call, Runtime
from dragoman.runtime.feeds import EventStream

T = TypeVar("T")

CALL_TIMEOUT: Final = 20.0
"""Seconds after which a caller gives up: more than a blocking send may wait."""


class NoAnswer(Exception):
    """No answer: the connection broke, or there was none."""


class MemoryRecorder(Recorder):
    """The entries of a history, in memory only."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)


OWNER: Final = Identity("alice")


def reason_of(error: A2AError) -> str:
    """The kind of an error."""
    return "TASK_NOT_FOUND" if type(error).__name__ == "TaskNotFound" else type(error).__name__


def call_of(runtime: Runtime, agent: str, identity: Identity = OWNER, cursor: str = "", key: str = "") -> Call:
    """A request of a principal to an agent."""
    caller = runtime.operations.access.authorize(agent, identity)
    return Call(caller, cursor=cursor, idempotency_key=key, shows_finished=False)


class Stage:
    """See the module's text."""

    def __init__(
        self, world: World, plan: Plan, servers: Sequence[SimulatedServer], receivers: Receivers, record: Recorder
    ) -> None:
        self.world = world
        self.plan = plan
        self.servers = servers
        self.receivers = receivers
        self.record = record
        self.over = False
        """Whether all faults are over: callers are served well from now on."""
        self.following: dict[asyncio.Task[None], Callable[[], str]] = {}
        """The followers, each with its task's id, empty as long as it is not known."""
        self.streams: dict[ServerStream, None] = {}
        """The open streams."""
        self.left: list[tuple[str, str]] = []
        """Tasks that asked and were left, with their agents."""
        self._numbers = 0

    @property
    def now(self) -> float:
        """Seconds since the history began."""
        return round(self.world.now, 6)

    def number(self) -> int:
        """A unique number."""
        self._numbers += 1
        return self._numbers

    async def server(self, preferred: int = -1) -> SimulatedServer:
        """A server that takes calls; waits for one."""
        while True:
            up = [server for server in self.servers if server.up]
            for server in up:
                if server.number == preferred:
                    return server
            if up:
                return self.world.random.choice(up)
            await asyncio.sleep(0.1)

    async def call(self, server: SimulatedServer, work: Callable[[Runtime], Awaitable[T]]) -> T:
        """Runs a call on a server. Raises what it raises, and NoAnswer."""
        world = self.world
        answer: asyncio.Future[T] = world.network.create_future()
        running: list[asyncio.Task[None]] = []

        def lose() -> None:
            if not answer.done():
                answer.set_exception(NoAnswer())

        def reply(deliver: Callable[[], None]) -> None:
            lost = not self.over and world.random.random() < self.plan.profile.lost_answers
            if lost:  # the connection breaks
                world.after(world.random.random(), lose)
            else:
                world.after(self.delay(), deliver)

        async def serve(runtime: Runtime) -> None:
            try:
                result = await work(runtime)
            except Exception as error:
                failure = error
                reply(lambda: None if answer.done() else answer.set_exception(failure))
            else:
                reply(lambda: None if answer.done() else answer.set_result(result))

        def arrive(host: HostLoop | None) -> None:
            runtime = server.runtime
            if runtime is None or host is None or server.host is not host:
                lose()
                return
            server.on_lost.append(lambda: world.after(self.delay(), lose))
            running.append(host.create_task(serve(runtime)))

        world.after(self.delay(), arrive, server.host)
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await answer
        except TimeoutError:
            raise NoAnswer from None
        finally:
            if not answer.done() or answer.cancelled():
                for task in running:  # the connection is closed
                    task.get_loop().call_soon(task.cancel)

    def delay(self) -> float:
        """Seconds that a message is on the way."""
        return self.world.random.uniform(0.0002, 0.003)

    def storm(self) -> None:
        """Cuts all streams."""
        for stream in list(self.streams):
            stream.cut()


class ServerStream:
    """The client's end of a stream of events."""

    def __init__(self, stage: Stage, server: SimulatedServer, work: Callable[[Runtime], EventStream]) -> None:
        self._stage = stage
        self._server = server
        self._work = work
        self._received: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._last_arrival = 0.0

    def cut(self) -> None:
        """Breaks the connection."""
        self._finish(NoAnswer())

    def _finish(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    def _receive(self, events: Sequence[Event]) -> None:
        if not self._ended:
            self._received.extend(events)
            self._changed.set()

    def _deliver(self, callback: Callable[[], None]) -> None:
        """Calls it at the client, behind everything sent before."""
        world = self._stage.world
        arrival = max(world.now + self._stage.delay(), self._last_arrival + 1e-9)
        self._last_arrival = arrival
        world.after(arrival - world.now, callback)

    async def _serve(self, runtime: Runtime) -> None:
        try:
            async with aclosing(self._work(runtime)) as batches:
                async for batch in batches:
                    await self._send(runtime, batch)
        except Exception as error:
            failure = error
            self._deliver(lambda: self._finish(failure))
        else:
            self._deliver(lambda: self._finish(None))

    async def _send(self, runtime: Runtime, batch: Sequence[Event]) -> None:
        """Writes a batch. Waits for its client if it has to."""
        self._deliver(partial(self._receive, list(batch)))

    def _take(self) -> Event:
        """The next event that has arrived."""
        return self._received.popleft()

    def _arrive(self, host: HostLoop | None) -> None:
        runtime = self._server.runtime
        if runtime is None or host is None or self._server.host is not host or self._ended:
            self.cut()
            return
        self._server.on_lost.append(lambda: self._deliver(self.cut))
        self._task = host.create_task(self._serve(runtime))

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events; raises the server's error, or NoAnswer."""
        stage = self._stage
        stage.streams[self] = None
        stage.world.after(stage.delay(), self._arrive, self._server.host)
        try:
            while True:
                while self._received:
                    yield self._take()
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            stage.streams.pop(self, None)
            self._ended = True
            if self._task is not None:
                self._task.get_loop().call_soon(self._task.cancel)
