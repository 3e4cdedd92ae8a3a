"""Accepts workers, registers their agents, and shares both with other servers on the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.message import DecodeError

from dragoman.agents.values import NewId
from dragoman.agents.workers import connection
from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection
from dragoman.core.access.identity import WORKER_GRANT, Identity
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError, AgentIdTaken, InvalidParams, PermissionDenied
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.ids import IDS
from dragoman.ports import AgentWorkers, RegisteredAgent, RemoteAgentRegistry, WorkerRegistry
from dragoman.supervision import wait_for
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

WORKER_SYNC_INTERVAL: Final = 5.0
"""Seconds between two reads of the worker registry, where the servers on one store note connected workers."""

MAX_AGENTS_PER_PRINCIPAL: Final = 1000
"""Agents that the workers of one principal register. They are stored, and stay until an operator forgets them."""


class LocalWorkerHub:
    """Registry of workers and their agents. Implements `dragoman.ports.WorkerHub`."""

    def __init__(
        self,
        worker_registry: WorkerRegistry,
        agent_registry: RemoteAgentRegistry,
        known: Iterable[RegisteredAgent],
        *,
        clock: Callable[[], int],
        timings: HeartbeatTimings | None = None,
        frame_bytes: int = MAX_MESSAGE_BYTES,
        on_change: Callable[[], None] = lambda: None,
        new_id: NewId = IDS.hex,
    ) -> None:
        """`agent_registry`: where new agents are added. `known`: agents that workers registered before this process
        started; they count as absent from now on. `clock`: milliseconds since the epoch. `on_change`: called when this
        server has changed the worker registry."""
        self._worker_registry = worker_registry
        self._clock = clock
        self._timings = timings or HeartbeatTimings()
        self._frame_bytes = frame_bytes
        self._new_id = new_id
        self._agent_registry = agent_registry
        self.wakeup = asyncio.Event()
        """Set it when another server has changed the worker registry: ends the wait of `run_sync` early."""
        self._on_change = on_change
        self._agents: dict[str, WorkerAgent] = {}
        self.oldest_agent = ""  # the id of the agent that registered first; empty if there is none
        for entry in sorted(known, key=lambda entry: (entry.registered_at, entry.agent)):
            if self._restore_agent(entry) is not None:
                self.oldest_agent = self.oldest_agent or entry.agent

    @property
    def agents(self) -> Sequence[WorkerAgent]:
        return tuple(self._agents.values())

    def list_agents(self) -> Sequence[AgentWorkers]:
        return [
            AgentWorkers(
                name,
                agent.principal,
                self._clock() if agent.seconds_absent == 0 else agent.last_seen,
                tuple(worker.status(name) for worker in sorted(agent.workers, key=str)),
            )
            for name, agent in sorted(self._agents.items())
        ]

    async def forget(self, agent: str) -> int:
        known = self._agents.get(agent)
        if known is None:
            raise InvalidParams.field("agent", f'"{agent[:80]}" is not an agent of any worker')
        if known.seconds_absent == 0:
            workers = ", ".join(map(str, known.workers)) or "at another server"
            raise InvalidParams.field("agent", f'"{agent}" has connected workers: {workers}; stop them first')
        await self._worker_registry.unregister(agent)
        self._on_change()
        log.info("agent of workers removed", extra={"agent": agent, "principal": known.principal})
        del self._agents[agent]
        return await self._agent_registry.unregister(agent)

    async def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        try:
            hello = await self._receive_hello(frames)
            specs = connection.check_hello(hello)
            agents = {spec.id: spec for spec in specs}
            self._check_permission(agents, identity)
            await self._register(hello, specs, identity.principal)
        except (InvalidParams, AgentIdTaken) as error:
            fields = {"principal": identity.principal, "peer": peer}
            log.warning("worker rejected: %s", error.message, extra=fields)
            raise
        worker = WorkerConnection(
            hello, peer, agents, on_capacity_change=lambda: self._notify_capacity(agents), new_id=self._new_id,
            frame_bytes=self._frame_bytes, lease_left=self._agent_registry.lease_left,
        )  # fmt: skip
        log_fields = {"agents": sorted(agents), "peer": peer}
        log.info("worker connected: %s", worker, extra={**log_fields, "principal": identity.principal})
        reading = asyncio.create_task(_read_frames(frames, worker), name=f"frames of worker {worker}")
        beating = asyncio.create_task(worker.run_heartbeat(self._timings), name=f"heartbeat of worker {worker}")
        for name in agents:
            self._agents[name].workers.append(worker)
        self._notify_capacity(agents)
        try:
            welcome = connection.encode_welcome(identity.principal, self._frame_bytes, self._timings)
            yield wk.ConnectResponse(welcome=welcome)
            while (frame := await worker.next_frame()) is not None:
                yield frame
            if worker.error is not None:
                raise worker.error
        finally:
            for name in agents:
                self._agents[name].remove_worker(worker)
            self._notify_capacity(())
            worker.close()
            beating.cancel()
            reading.cancel()
            why = f": {worker.error.message}" if worker.error else ""
            level = logging.WARNING if worker.error else logging.INFO
            log.log(level, "worker disconnected: %s%s", worker, why, extra=log_fields)

    async def _receive_hello(self, frames: AsyncIterator[wk.ConnectRequest]) -> wk.Hello:
        try:
            async with asyncio.timeout(self._timings.lease):
                first = await anext(frames)
        except (StopAsyncIteration, TimeoutError):
            raise InvalidParams.field("hello", "is required as the first frame") from None
        if (kind := first.WhichOneof("frame")) != "hello":
            raise InvalidParams.field("hello", f"must be the first frame, not {kind or 'an empty one'}")
        return first.hello

    def _check_permission(self, agents: Iterable[str], identity: Identity) -> None:
        """Raises PermissionDenied or AgentIdTaken before anything is stored."""
        for name in agents:
            if identity.is_authenticated and not identity.may_serve(name):
                raise PermissionDenied(
                    f'hello.agents: these credentials may not serve agent "{name}"; '
                    f"they need the grant {WORKER_GRANT} or {WORKER_GRANT}:{name}",
                    log_details=identity.log_details,
                )
            if self._agent_registry.is_local(name):
                raise AgentIdTaken(f'hello.agents: "{name}" is an agent of the server itself; use another id')
            known = self._agents.get(name)
            if known is not None and known.principal != identity.principal:
                raise _agent_taken(name)
        served = {name for name, agent in self._agents.items() if agent.principal == identity.principal}
        if len(served.union(agents)) > max(MAX_AGENTS_PER_PRINCIPAL, len(served)):
            text = f"{len(served)} agents of this principal are known; at most {MAX_AGENTS_PER_PRINCIPAL} may be. "
            raise InvalidParams.field("hello.agents", text + "Remove some with `dragoman workers forget ID`")

    async def _register(self, hello: wk.Hello, specs: Iterable[AgentSpec], principal: str) -> None:
        """Stores and registers the agents of a worker. Raises AgentIdTaken if another principal was faster."""
        now = self._clock()  # entries are a millisecond apart, so that the first one is the oldest
        for index, (spec, registration) in enumerate(zip(specs, hello.agents, strict=True)):
            text = registration.SerializeToString(deterministic=True)
            if (agent := self._agents.get(spec.id)) is not None:
                agent.stored_at = now  # before others can read it
            stored = await self._worker_registry.register(
                RegisteredAgent(spec.id, principal, text, registered_at=now + index, last_seen=now)
            )
            if stored.principal != principal:
                raise _agent_taken(spec.id)
            agent = self._agents.get(spec.id)
            if agent is None or agent.spec != spec or not agent.workers:
                self._on_change()
            if agent is None:
                agent = self._agents[spec.id] = WorkerAgent(spec, principal, self._clock, now)
            agent.spec, agent.registration, agent.stored_at = spec, text, now
            await self._agent_registry.register(agent)

    def _notify_capacity(self, agents: Iterable[str]) -> None:
        for name in agents:
            self._agents[name].notify_capacity()
        self._agent_registry.capacity_changed()

    async def run_sync(self) -> None:
        """Stores which agents have workers here and reads which have some elsewhere. Runs until canceled."""
        written_at = 0.0
        while True:
            await wait_for(self.wakeup, WORKER_SYNC_INTERVAL)
            self.wakeup.clear()
            now = asyncio.get_running_loop().time()
            due = now - written_at >= WORKER_SYNC_INTERVAL / 2
            written_at = now if due else written_at
            await self.sync_once(write_presence=due)

    async def sync_once(self, *, write_presence: bool = True) -> None:
        """One round of synchronization. Without `write_presence` it only reads, so that it can run often."""
        now = self._clock()
        entries = await self._worker_registry.list()
        for name in set(self._agents) - {entry.agent for entry in entries}:
            # Removed by another server, unless it registered while the entries were read.
            known = self._agents[name]
            last_seen = max(known.last_seen, known.last_seen_elsewhere)
            if not known.workers and last_seen < now - WORKER_SYNC_INTERVAL * 1000:
                del self._agents[name]
                await self._agent_registry.unregister(name)
        for entry in entries:
            agent = self._agents.get(entry.agent)
            if agent is None:
                if self._agent_registry.is_local(entry.agent):
                    continue  # the app now has an agent with this id
                if (agent := self._restore_agent(entry)) is not None:
                    agent.last_seen_elsewhere = now
                    await self._agent_registry.register(agent)
            elif agent.workers:
                if not write_presence:
                    continue
                agent.stored_at = now
                await self._worker_registry.register(replace(entry, last_seen=now))
            elif entry.last_seen != agent.stored_at:  # a worker has registered at another server
                agent.stored_at, agent.last_seen_elsewhere = entry.last_seen, now
                if entry.registration != agent.registration and (spec := _spec_of_entry(entry)) is not None:
                    agent.spec, agent.registration = spec, entry.registration
                    await self._agent_registry.register(agent)

    def _restore_agent(self, entry: RegisteredAgent) -> WorkerAgent | None:
        """Creates the agent of a stored entry. Logs an error and returns None if this version cannot read it."""
        if (spec := _spec_of_entry(entry)) is None:
            return None
        agent = self._agents[entry.agent] = WorkerAgent(spec, entry.principal, self._clock, self._clock())
        agent.registration, agent.stored_at = entry.registration, entry.last_seen
        return agent


def _spec_of_entry(entry: RegisteredAgent) -> AgentSpec | None:
    try:
        return connection.read_registration(wk.AgentRegistration.FromString(entry.registration))
    except (A2AError, DecodeError, ValueError) as error:
        reason = error.message if isinstance(error, A2AError) else error
        log.error("stored registration of agent %s is ignored, because it is invalid: %s", entry.agent, reason)
        return None


async def _read_frames(frames: AsyncIterator[wk.ConnectRequest], worker: WorkerConnection) -> None:
    """Passes the frames of a worker on, until the stream ends or a frame is invalid."""
    try:
        async for frame in frames:
            worker.receive(frame)
        worker.close()
    except A2AError as error:
        worker.close(error)
    except Exception:
        log.exception("reading the frames of a worker failed: %s", worker)
        worker.close()


def _agent_taken(name: str) -> AgentIdTaken:
    return AgentIdTaken(
        f'hello.agents: "{name}" is an agent of another principal\'s workers; use another id or '
        "the same credentials, or ask an operator to remove the agent"
    )
