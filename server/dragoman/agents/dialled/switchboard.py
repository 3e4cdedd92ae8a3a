"""Where workers connect: who they are, which agents they have, and that nobody has another's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from dragoman.agents.bell import Bell
from dragoman.agents.dialled.agent import DialledAgent
from dragoman.agents.dialled.connection import Connection, Pace
from dragoman.agents.dialled.registration import check_hello, read
from dragoman.agents.values import NewId
from dragoman.core.card import AgentSpec
from dragoman.core.errors import A2AError, AgentTaken, InvalidParams, PermissionDenied
from dragoman.core.identity import WORKER, Identity
from dragoman.core.limits import MESSAGE_BYTES
from dragoman.entropy import ENTROPY
from dragoman.ports import Enlist, Enrolled, Presence, Present, Roster
from dragoman_pb.dragoman.worker.v1 import worker_pb2 as wk

log = logging.getLogger("dragoman.workers")

LOOK: Final = 5.0
"""Seconds between two looks at the roster, where the servers on one store note who is there."""


class Switchboard:
    """Implements `dragoman.ports.Switchboard`. `agents` are those that workers had before this process began."""

    def __init__(
        self,
        roster: Roster,
        known: Iterable[Enrolled],
        *,
        clock: Callable[[], int],
        pace: Pace | None = None,
        frame_bytes: int = MESSAGE_BYTES,
        new_id: NewId = ENTROPY.hex,
    ) -> None:
        """`clock` gives milliseconds since the epoch. An agent without a worker counts as away from now on."""
        self._roster = roster
        self._clock = clock
        self._pace = pace or Pace()
        self._frame_bytes = frame_bytes
        self._new_id = new_id
        self._enlist: Enlist | None = None
        self.bell = Bell()
        """To be rung when another server changed the roster."""
        self.announce: Callable[[], None] = lambda: None
        """Called when this one did."""
        self._agents: dict[str, DialledAgent] = {}
        self._said: dict[str, bytes] = {}
        """What was last said of each, serialized."""
        self._noted: dict[str, int] = {}
        """What this server itself wrote into the roster last."""
        self.eldest = ""
        """The id of the agent that was there first; empty when there is none."""
        for one in sorted(known, key=lambda one: (one.since, one.agent)):
            if self._restore(replace(one, seen=clock())) is not None:
                self.eldest = self.eldest or one.agent

    @property
    def agents(self) -> Sequence[DialledAgent]:
        """Every agent that a worker has, or had."""
        return tuple(self._agents.values())

    def serve(self, enlist: Enlist) -> None:
        """Makes agents known there that come from now on."""
        self._enlist = enlist

    def presence(self) -> Sequence[Presence]:
        """Who has which agent, by id."""
        return [
            Presence(
                name,
                agent.principal,
                self._clock() if agent.absence == 0 else agent.seen,
                tuple(
                    Present(worker.name, worker.peer, worker.free(name), worker.running(name), worker.draining)
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
        if found.absence == 0:
            there = ", ".join(map(str, found.workers)) or "at another server"
            raise InvalidParams.field("agent", f'"{agent}" has workers that are there: {there}; stop them first')
        await self._roster.strike(agent)
        self.announce()
        log.info("an agent of workers is forgotten", extra={"agent": agent, "principal": found.principal})
        return await self._discharge(agent)

    async def _discharge(self, agent: str) -> int:
        del self._agents[agent]
        self._said.pop(agent, None)
        return await self._enlist.discharge(agent) if self._enlist is not None else 0

    # A worker ---------------------------------------------------------------------------------------------------

    async def connect(
        self, frames: AsyncIterator[wk.ConnectRequest], identity: Identity, peer: str
    ) -> AsyncGenerator[wk.ConnectResponse]:
        """One worker, for as long as it is there. Raises A2AError for one that cannot be served, or breaks a rule."""
        try:
            hello = await self._hello(frames)
            specs = check_hello(hello)
            agents = {spec.id: spec for spec in specs}
            self._check(agents, identity)
            await self._enrol(hello, specs, identity.principal)
        except (InvalidParams, AgentTaken) as error:
            fields = {"principal": identity.principal, "peer": peer}
            log.warning("a worker was refused: %s", error.message, extra=fields)
            raise
        worker = Connection(
            hello.name,
            peer,
            identity.principal,
            agents,
            hello.agents,
            changed=lambda: self._more(agents),
            new_id=self._new_id,
            frame_bytes=self._frame_bytes,
        )
        log.info(
            "a worker came: %s", worker, extra={"agents": sorted(agents), "principal": identity.principal, "peer": peer}
        )
        reading = asyncio.create_task(_read(frames, worker), name=f"frames of worker {worker}")
        beating = asyncio.create_task(worker.beat(self._pace), name=f"heartbeat of worker {worker}")
        for name in agents:
            self._agents[name].join(worker)
        self._more(agents)
        try:
            yield wk.ConnectResponse(welcome=self._welcome(identity))
            while (frame := await worker.outgoing.get()) is not None:
                yield frame
            if worker.failed is not None:
                raise worker.failed
        finally:
            for name in agents:
                self._agents[name].part(worker)
            self._more(())
            worker.leave()
            beating.cancel()
            reading.cancel()
            why = f": {worker.failed.message}" if worker.failed else ""
            level = logging.WARNING if worker.failed else logging.INFO
            log.log(level, "a worker is gone: %s%s", worker, why, extra={"agents": sorted(agents), "peer": peer})

    async def _hello(self, frames: AsyncIterator[wk.ConnectRequest]) -> wk.Hello:
        try:
            async with asyncio.timeout(self._pace.lease):
                first = await anext(frames)
        except (StopAsyncIteration, TimeoutError):
            raise InvalidParams.field("hello", "is required: the first frame says who the worker is") from None
        if first.WhichOneof("frame") != "hello":
            raise InvalidParams.field("hello", f"must come first, before {first.WhichOneof('frame') or 'nothing'}")
        return first.hello

    def _check(self, agents: Iterable[str], identity: Identity) -> None:
        """Raises PermissionDenied, AgentTaken, before anything is kept."""
        for name in agents:
            if identity.known and not identity.may_serve(name):
                about = {"principal": identity.principal, **({"key": identity.key} if identity.key else {})}
                raise PermissionDenied(
                    f'hello.agents: these credentials may not serve agent "{name}"; '
                    f"they need the grant {WORKER} or {WORKER}:{name}",
                    about=about,
                )
            if self._enlist is None or self._enlist.is_of_this_process(name):
                raise AgentTaken(f'hello.agents: "{name}" is an agent of the server itself; choose another id')
            known = self._agents.get(name)
            if known is not None and known.principal != identity.principal:
                raise _taken(name)

    async def _enrol(self, hello: wk.Hello, specs: Iterable[AgentSpec], principal: str) -> None:
        """Keeps and serves the agents of a worker. Raises AgentTaken when somebody else was faster."""
        assert self._enlist is not None
        now = self._clock()  # a millisecond apart, so that the first is the eldest
        for place, (spec, registration) in enumerate(zip(specs, hello.agents, strict=True)):
            text = registration.SerializeToString(deterministic=True)
            self._noted[spec.id] = now
            kept = await self._roster.enrol(Enrolled(spec.id, principal, text, since=now + place, seen=now))
            if kept.principal != principal:
                raise _taken(spec.id)
            agent = self._agents.get(spec.id)
            if agent is None or agent.spec != spec or not agent.is_here:
                self.announce()
            if agent is None:
                agent = self._agents[spec.id] = DialledAgent(spec, principal, self._clock, now)
            agent.spec = spec
            self._said[spec.id] = text
            await self._enlist.enlist(agent)

    def _more(self, agents: Iterable[str]) -> None:
        for name in agents:
            self._agents[name].tell()
        if self._enlist is not None:
            self._enlist.changed()

    def _welcome(self, identity: Identity) -> wk.Welcome:
        welcome = wk.Welcome(principal=identity.principal, max_frame_bytes=self._frame_bytes)
        welcome.heartbeat.FromNanoseconds(round(self._pace.heartbeat * 1e9))
        welcome.lease.FromNanoseconds(round(self._pace.lease * 1e9))
        return welcome

    # Other processes on the same store --------------------------------------------------------------------------

    async def keep_up(self) -> None:
        """Notes whose workers are here, and learns whose are elsewhere. Runs until cancelled."""
        noted = 0.0
        while True:
            await self.bell.wait(LOOK)
            now = asyncio.get_running_loop().time()
            due = now - noted >= LOOK / 2
            noted = now if due else noted
            try:
                await self.look(note=due)
            except Exception:
                log.exception("could not look at the roster of workers")

    async def look(self, *, note: bool = True) -> None:
        """Once of that; without `note` only the learning, which others may ask for often."""
        now = self._clock()
        kept = await self._roster.list()
        for name in set(self._agents) - {entry.agent for entry in kept}:
            # Forgotten elsewhere; but who came while the roster was read is not in it yet.
            known = self._agents[name]
            if not known.is_here and max(known.seen, known.elsewhere) < now - LOOK * 1000:
                await self._discharge(name)
        for entry in kept:
            agent = self._agents.get(entry.agent)
            if agent is None:
                if self._enlist is None or self._enlist.is_of_this_process(entry.agent):
                    continue  # the app has an agent of this id now
                if (agent := self._restore(entry)) is not None:
                    await self._enlist.enlist(agent)
            elif agent.is_here:
                if not note:
                    continue
                self._noted[entry.agent] = now
                await self._roster.enrol(replace(entry, seen=now))
            elif entry.seen != self._noted.get(entry.agent):
                agent.elsewhere = entry.seen
                await self._learn(agent, entry)

    async def _learn(self, agent: DialledAgent, entry: Enrolled) -> None:
        """Takes what a worker at another server says of an agent now."""
        if entry.registration != self._said.get(entry.agent) and (spec := _spec(entry)) is not None:
            self._said[entry.agent] = entry.registration
            agent.spec = spec
            if self._enlist is not None:
                await self._enlist.enlist(agent)

    def _restore(self, entry: Enrolled) -> DialledAgent | None:
        """An agent of the roster; None, with a line in the log, for one that this version cannot read."""
        if (spec := _spec(entry)) is None:
            return None
        self._said[entry.agent] = entry.registration
        agent = self._agents[entry.agent] = DialledAgent(spec, entry.principal, self._clock, entry.seen)
        agent.elsewhere = entry.seen if self._enlist is not None else 0
        return agent


def _spec(entry: Enrolled) -> AgentSpec | None:
    try:
        return read(wk.AgentRegistration.FromString(entry.registration))
    except A2AError as error:
        log.error("agent %s of a worker is not served as it is now: %s", entry.agent, error.message)
        return None


async def _read(frames: AsyncIterator[wk.ConnectRequest], worker: Connection) -> None:
    """What a worker says, until it says no more or breaks a rule."""
    try:
        async for frame in frames:
            worker.take(frame)
        worker.leave()
    except A2AError as error:
        worker.leave(error)
    except Exception:
        log.exception("the frames of a worker could not be read: %s", worker)
        worker.leave()


def _taken(name: str) -> AgentTaken:
    return AgentTaken(
        f'hello.agents: "{name}" is an agent of another principal\'s workers; choose another id, '
        "show the same credentials, or have an operator forget it"
    )
