"""Workers of a simulation: the real `Worker`, over a stream without threads to a server's real hub."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

from tests.simulation.agents import WORKER_SPECS, Journal, agents_of
from tests.simulation.loop import HostLoop, World
from tests.simulation.server import SimulatedServer

from dragoman.calling.errors import ClientError
from dragoman.core.access.identity import ANONYMOUS
from dragoman.core.errors import A2AError
from dragoman.ids import IDS
from dragoman.runtime.lease import Lease
from dragoman.worker.stream import WELCOME_TIMEOUT, ServerStream
from dragoman.worker.worker import Worker
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

TURNS: Final = 4
"""Concurrent turns of each agent of a worker."""


class SimulatedWorker:
    """One worker, over its starts. `number` counts from 0."""

    def __init__(self, world: World, servers: Sequence[SimulatedServer], journal: Journal, number: int) -> None:
        self.world = world
        self.servers = servers
        self.number = number
        self._journal = journal
        self._starts = 0
        self.is_cut = False
        """Whether no packet reaches it, or leaves it."""
        self.is_refused = False
        """Whether its connections end at once."""
        self._held: list[Callable[[], None]] = []
        self.reset_stream: Callable[[], None] = lambda: None
        """Ends the connection of the current stream, as each side notices."""
        self.host: HostLoop | None = None
        self.on_killed: list[Callable[[], None]] = []
        """Called when its process dies, for its stream."""

    def start(self) -> None:
        """Starts its process on a new machine."""
        self._starts += 1
        self.host = host = self.world.host(f"worker{self.number}.{self._starts}")
        host.create_task(self._run(host))

    async def _run(self, host: HostLoop) -> None:
        agents = agents_of(host, self._journal, IDS.hex, WORKER_SPECS)
        await Worker(
            agents,
            "server",
            name=host.name,
            turns=TURNS,
            open_stream=partial(SimulatedServerStream, self, host),
        ).run()

    def kill(self) -> None:
        """Ends its process at once."""
        assert self.host is not None
        self.host.kill()
        lost, self.on_killed = self.on_killed, []
        for on_killed in lost:
            self.world.after(self.delay(), on_killed)

    def refuse(self) -> None:
        """Ends its connection, and refuses others, until `heal`. Its agents go on."""
        self.is_refused = True
        self.reset_stream()

    def heal(self) -> None:
        """Ends a partition: what was on the way arrives."""
        self.is_cut = self.is_refused = False
        held, self._held = self._held, []
        for number, deliver in enumerate(held):  # in order, and before what is sent from now on
            self.world.after(0.0001 + number * 1e-9, deliver)

    def recover(self) -> None:
        """Ends every fault."""
        self.heal()
        assert self.host is not None
        if self.host.killed:
            self.start()
        else:
            self.host.resume()

    def delay(self) -> float:
        """Seconds that a packet is on the way."""
        return self.world.random.uniform(0.0002, 0.003)

    def send(self, deliver: Callable[[], None], seconds: float) -> None:
        """Delivers a packet, at the end of the partition if there is one."""
        if self.is_cut:
            self._held.append(deliver)
        else:
            self.world.after(seconds, deliver)


class SimulatedServerStream(ServerStream):
    """The worker's end of a stream to a server that is up, with its heartbeats."""

    def __init__(
        self,
        worker: SimulatedWorker,
        host: HostLoop,
        address: str,
        *,
        on_frame: Callable[[wk.ConnectResponse], None],
        on_end: Callable[[ClientError | None], None],
        **_: Any,
    ) -> None:
        self._worker = worker
        self._host = host
        self._on_frame = on_frame
        self._on_end = on_end
        self.lease = Lease(math.inf, margin=0.0, clock=host.time)
        self._heartbeat_numbers = itertools.count(1)
        self._heartbeats_sent: dict[int, float] = {}
        self._heartbeat, self._lease = 1.0, WELCOME_TIMEOUT
        self._last_received_at = host.time()
        self._closed = False
        self._last_sent = self._last_answered = 0.0
        self._server_host: HostLoop | None = None
        self._frames: asyncio.Queue[wk.ConnectRequest | None] = asyncio.Queue()
        self._serving: asyncio.Task[None] | None = None
        self._beating = host.create_task(self._beat())
        worker.on_killed.append(self._drop)
        worker.reset_stream = self._reset
        self._to_server(self._connect)

    # The worker's side ------------------------------------------------------------------------------------------------

    def send(self, **frame: Any) -> None:
        data = wk.ConnectRequest(**frame).SerializeToString()
        self._to_server(lambda: self._receive(wk.ConnectRequest.FromString(data)))

    def set_timings(self, *, heartbeat: float, lease: float) -> None:
        self._heartbeat, self._lease = heartbeat, lease

    def half_close(self) -> None:
        self._to_server(lambda: self._receive(None))

    def close(self) -> None:
        self._closed = True
        self._beating.cancel()
        self._to_server(self._drop)

    async def _beat(self) -> None:
        while True:
            if self._host.time() - self._last_received_at > self._lease:
                self._fail("the server has sent nothing for too long")
                return
            self.send(heartbeat=self._next_heartbeat())
            await asyncio.sleep(self._heartbeat)

    def _arrive(self, frame: wk.ConnectResponse) -> None:
        """A frame of the server arrives."""
        if self._closed:
            return
        self._last_received_at = self._host.time()
        if frame.HasField("heartbeat"):
            self._renew_lease(frame.heartbeat)
        self._on_frame(frame)

    def _fail(self, reason: str) -> None:
        self._end(ClientError("UNAVAILABLE", reason))

    def _end(self, error: ClientError | None) -> None:
        if not self._closed:
            self._closed = True
            self._beating.cancel()
            self._to_server(self._drop)
            self._on_end(error)

    # The network ------------------------------------------------------------------------------------------------------

    def _to_server(self, deliver: Callable[[], None]) -> None:
        world = self._worker.world
        arrival = self._last_sent = max(world.now + self._worker.delay(), self._last_sent + 1e-9)
        self._worker.send(deliver, arrival - world.now)

    def _to_worker(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls it at the worker, behind everything that was sent before."""
        world = self._worker.world
        arrival = self._last_answered = max(world.now + self._worker.delay(), self._last_answered + 1e-9)

        def deliver() -> None:
            if not self._host.killed:
                self._host.call_soon(call, *arguments)

        self._worker.send(deliver, arrival - world.now)

    def _reset(self) -> None:
        self._to_server(self._drop)
        self._to_worker(self._fail, "the connection was reset")

    # The server's side ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        up = [server for server in self._worker.servers if server.up and server.hub is not None]
        if not up or self._host.killed or self._worker.is_refused:
            self._to_worker(self._fail, "the connection was refused")
            return
        server = self._worker.world.random.choice(up)
        assert server.host is not None
        self._server_host = server.host
        server.on_lost.append(lambda: self._to_worker(self._fail, "the connection was lost"))
        self._serving = server.host.create_task(self._serve(server))

    async def _serve(self, server: SimulatedServer) -> None:
        assert server.hub is not None
        try:
            async for answer in server.hub.connect(self._requests(), ANONYMOUS, self._host.name):
                self._to_worker(self._arrive, wk.ConnectResponse.FromString(answer.SerializeToString()))
        except A2AError as error:
            self._to_worker(self._end, ClientError("UNAVAILABLE", error.message))
        else:
            self._to_worker(self._end, None)

    async def _requests(self) -> AsyncIterator[wk.ConnectRequest]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    def _receive(self, frame: wk.ConnectRequest | None) -> None:
        if self._server_host is not None and not self._server_host.killed:
            self._server_host.call_soon(self._frames.put_nowait, frame)

    def _drop(self) -> None:
        """The connection of the worker has ended."""
        if self._serving is not None and self._server_host is not None:
            self._server_host.call_soon(self._serving.cancel)
