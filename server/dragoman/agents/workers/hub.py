"""Where workers connect: who they are, which agents they have, and that nobody has another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.agents.values import NewId
from dragoman.agents.wakeup import Wakeup
from dragoman.agents.workers.agent import WorkerAgent
from dragoman.agents.workers.connection import HeartbeatTimings, WorkerConnection, check_hello, read_registration
from dragoman.core.access.identity import WORKER_GRANT, Identity
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.errors import A2AError, AgentIdTaken, InvalidParams, PermissionDenied
from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.ids import IDS
from dragoman.ports import AgentWorkers, RegisteredAgent, RemoteAgentRegistry, WorkerRegistry, WorkerStatus
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

WORKER_SYNC_INTERVAL: Final = 5.0
"""Seconds between two looks at the roster, where the servers on one store note who is there."""


class LocalWorkerHub:
    """Implements `dragoman.ports.Switchboard`. `agents` are those that workers had before this process began."""

    def __init__(
        self,
        worker_registry: WorkerRegistry,
        known: Iterable[RegisteredAgent],
        *,
        clock: Callable[[], int],
        timings: HeartbeatTimings | None = None,
        frame_bytes: int = MAX_MESSAGE_BYTES,
        new_id: NewId = IDS.hex,
    ) -> None:
        """`clock` gives milliseconds since the epoch. An agent without a worker counts as away from now on."""
        self._worker_registry = worker_registry
        self._clock = clock
        self._timings = timings or HeartbeatTimings()
        self._frame_bytes = frame_bytes
        self._new_id = new_id
        self._agent_registry: RemoteAgentRegistry | None = None
        self.wakeup = Wakeup()
        """To be rung when another server changed the roster."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when this one did."""
        self._agents: dict[str, WorkerAgent] = {}
        self._registrations: dict[str, bytes] = {}
        """What was last said of each, serialized."""
        self._written_at: dict[str, int] = {}
        """What this server itself wrote into the roster last."""
        self.oldest_agent = ""
        """The id of the agent that was there first; empty when there is none."""
        for one in sorted(known, key=lambda one: (one.registered_at, one.agent)):
            if self._restore_agent(replace(one, last_seen=clock())) is not None:
                self.oldest_agent = self.oldest_agent or one.agent

    @property
    def agents(self) -> Sequence[WorkerAgent]:
        """Every agent that a worker has, or had."""
        return tuple(self._agents.values())

    def attach_registry(self, agent_registry: RemoteAgentRegistry) -> None:
        """Makes agents known there that come from now on."""
        self._agent_registry = agent_registry

    def list_agents(self) -> Sequence[AgentWorkers]:
        """Who has which agent, by id."""
        return [
            AgentWorkers(
                name,
                agent.principal,
                self._clock() if agent.seconds_absent == 0 else agent.last_seen,
                tuple(
                    WorkerStatus(
                        worker.name,
                        worker.peer,
                        worker.free_capacity(name),
                        worker.running_turns(name),
                        worker.draining,
                    )
                    for worker in sorted(agent.workers, key=str)
                ),
            )
            for name, agent in sorted(self._agents.items())
        ]

    async def forget(self, agent: str) -> int:
        """Frees an agent's id. Gives how many tasks waited for it, and ended as FAILED. Raises InvalidParams."""
        found = self._agents.get(agent)
        if found is None:
            raise InvalidParams.field("agent", f'"{agent[:80]}" is no agent that a worker had')
        if found.seconds_absent == 0:
            there = ", ".join(map(str, found.workers)) or "at another server"
            raise InvalidParams.field("agent", f'"{agent}" has workers that are there: {there}; stop them first')
        await self._worker_registry.unregister(agent)
        self.on_change()
        log.info("an agent of workers is forgotten", extra={"agent": agent, "principal": found.principal})
        return await self._unregister(agent)

    async def _unregister(self, agent: str) -> int:
        del self._agents[agent]
        self._registrations.pop(agent, None)
        return await self._agent_registry.unregister(agent) if self._agent_registry is not None else 0

    # A worker ---------------------------------------------------------------------------------------------------

    async def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        """One worker, for as long as it is there. Raises A2AError for one that cannot be served, or breaks a rule."""
        try:
            hello = await self._receive_hello(frames)
            specs = check_hello(hello)
            agents = {spec.id: spec for spec in specs}
            self._check_permission(agents, identity)
            await self._register(hello, specs, identity.principal)
        except (InvalidParams, AgentIdTaken) as error:
            fields = {"principal": identity.principal, "peer": peer}
            log.warning("a worker was refused: %s", error.message, extra=fields)
            raise
        worker = WorkerConnection(
            hello.name,
            peer,
            identity.principal,
            agents,
            hello.agents,
            on_capacity_change=lambda: self._notify_capacity(agents),
            new_id=self._new_id,
            frame_bytes=self._frame_bytes,
        )
        log.info(
            "a worker came: %s", worker, extra={"agents": sorted(agents), "principal": identity.principal, "peer": peer}
        )
        reading = asyncio.create_task(_read_frames(frames, worker), name=f"frames of worker {worker}")
        beating = asyncio.create_task(worker.run_heartbeat(self._timings), name=f"heartbeat of worker {worker}")
        for name in agents:
            self._agents[name].add_worker(worker)
        self._notify_capacity(agents)
        try:
            yield wk.ConnectResponse(welcome=self._welcome_frame(identity))
            while (frame := await worker.outgoing.get()) is not None:
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
            log.log(level, "a worker is gone: %s%s", worker, why, extra={"agents": sorted(agents), "peer": peer})

    async def _receive_hello(self, frames: AsyncIterator[wk.ConnectRequest]) -> wk.Hello:
        try:
            async with asyncio.timeout(self._timings.lease):
                first = await anext(frames)
        except (StopAsyncIteration, TimeoutError):
            raise InvalidParams.field("hello", "is required: the first frame says who the worker is") from None
        if first.WhichOneof("frame") != "hello":
            raise InvalidParams.field("hello", f"must come first, before {first.WhichOneof('frame') or 'nothing'}")
        return first.hello

    def _check_permission(self, agents: Iterable[str], identity: Identity) -> None:
        """Raises PermissionDenied, AgentTaken, before anything is kept."""
        for name in agents:
            if identity.is_authenticated and not identity.may_serve(name):
                about = {
                    "principal": identity.principal,
                    **({"key": identity.credential_id} if identity.credential_id else {}),
                }
                raise PermissionDenied(
                    f'hello.agents: these credentials may not serve agent "{name}"; '
                    f"they need the grant {WORKER_GRANT} or {WORKER_GRANT}:{name}",
                    log_details=about,
                )
            if self._agent_registry is None or self._agent_registry.is_local(name):
                raise AgentIdTaken(f'hello.agents: "{name}" is an agent of the server itself; choose another id')
            known = self._agents.get(name)
            if known is not None and known.principal != identity.principal:
                raise _agent_taken(name)

    async def _register(self, hello: wk.Hello, specs: Iterable[AgentSpec], principal: str) -> None:
        """Keeps and serves the agents of a worker. Raises AgentTaken when somebody else was faster."""
        assert self._agent_registry is not None
        now = self._clock()  # a millisecond apart, so that the first is the eldest
        for place, (spec, registration) in enumerate(zip(specs, hello.agents, strict=True)):
            text = registration.SerializeToString(deterministic=True)
            self._written_at[spec.id] = now
            kept = await self._worker_registry.register(
                RegisteredAgent(spec.id, principal, text, registered_at=now + place, last_seen=now)
            )
            if kept.principal != principal:
                raise _agent_taken(spec.id)
            agent = self._agents.get(spec.id)
            if agent is None or agent.spec != spec or not agent.has_local_workers:
                self.on_change()
            if agent is None:
                agent = self._agents[spec.id] = WorkerAgent(spec, principal, self._clock, now)
            agent.spec = spec
            self._registrations[spec.id] = text
            await self._agent_registry.register(agent)

    def _notify_capacity(self, agents: Iterable[str]) -> None:
        for name in agents:
            self._agents[name].notify_capacity()
        if self._agent_registry is not None:
            self._agent_registry.capacity_changed()

    def _welcome_frame(self, identity: Identity) -> wk.Welcome:
        welcome = wk.Welcome(principal=identity.principal, max_frame_bytes=self._frame_bytes)
        welcome.heartbeat.FromNanoseconds(round(self._timings.heartbeat * 1e9))
        welcome.lease.FromNanoseconds(round(self._timings.lease * 1e9))
        return welcome

    # Other processes on the same store --------------------------------------------------------------------------

    async def run_sync(self) -> None:
        """Notes whose workers are here, and learns whose are elsewhere. Runs until cancelled."""
        noted = 0.0
        while True:
            await self.wakeup.wait(WORKER_SYNC_INTERVAL)
            now = asyncio.get_running_loop().time()
            due = now - noted >= WORKER_SYNC_INTERVAL / 2
            noted = now if due else noted
            try:
                await self.sync_once(write_presence=due)
            except Exception:
                log.exception("could not look at the roster of workers")

    async def sync_once(self, *, write_presence: bool = True) -> None:
        """Once of that; without `note` only the learning, which others may ask for often."""
        now = self._clock()
        kept = await self._worker_registry.list()
        for name in set(self._agents) - {entry.agent for entry in kept}:
            # Forgotten elsewhere; but who came while the roster was read is not in it yet.
            known = self._agents[name]
            if (
                not known.has_local_workers
                and max(known.last_seen, known.last_seen_elsewhere) < now - WORKER_SYNC_INTERVAL * 1000
            ):
                await self._unregister(name)
        for entry in kept:
            agent = self._agents.get(entry.agent)
            if agent is None:
                if self._agent_registry is None or self._agent_registry.is_local(entry.agent):
                    continue  # the app has an agent of this id now
                if (agent := self._restore_agent(entry)) is not None:
                    await self._agent_registry.register(agent)
            elif agent.has_local_workers:
                if not write_presence:
                    continue
                self._written_at[entry.agent] = now
                await self._worker_registry.register(replace(entry, last_seen=now))
            elif entry.last_seen != self._written_at.get(entry.agent):
                agent.last_seen_elsewhere = entry.last_seen
                await self._apply_entry(agent, entry)

    async def _apply_entry(self, agent: WorkerAgent, entry: RegisteredAgent) -> None:
        """Takes what a worker at another server says of an agent now."""
        if entry.registration != self._registrations.get(entry.agent) and (spec := _spec_of_entry(entry)) is not None:
            self._registrations[entry.agent] = entry.registration
            agent.spec = spec
            if self._agent_registry is not None:
                await self._agent_registry.register(agent)

    def _restore_agent(self, entry: RegisteredAgent) -> WorkerAgent | None:
        """An agent of the roster; None, with a line in the log, for one that this version cannot read."""
        if (spec := _spec_of_entry(entry)) is None:
            return None
        self._registrations[entry.agent] = entry.registration
        agent = self._agents[entry.agent] = WorkerAgent(spec, entry.principal, self._clock, entry.last_seen)
        agent.last_seen_elsewhere = entry.last_seen if self._agent_registry is not None else 0
        return agent


def _spec_of_entry(entry: RegisteredAgent) -> AgentSpec | None:
    try:
        return read_registration(wk.AgentRegistration.FromString(entry.registration))
    except A2AError as error:
        log.error("agent %s of a worker is not served as it is now: %s", entry.agent, error.message)
        return None


async def _read_frames(frames: AsyncIterator[wk.ConnectRequest], worker: WorkerConnection) -> None:
    """What a worker says, until it says no more or breaks a rule."""
    try:
        async for frame in frames:
            worker.receive(frame)
        worker.close()
    except A2AError as error:
        worker.close(error)
    except Exception:
        log.exception("the frames of a worker could not be read: %s", worker)
        worker.close()


def _agent_taken(name: str) -> AgentIdTaken:
    return AgentIdTaken(
        f'hello.agents: "{name}" is an agent of another principal\'s workers; choose another id, '
        "show the same credentials, or have an operator forget it"
    )
