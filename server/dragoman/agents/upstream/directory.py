"""The agents upstream of one process: those that the settings name, and those that were added to the store."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from dragoman.agents.bell import Bell
from dragoman.agents.upstream import reading
from dragoman.agents.upstream.agent import UpstreamAgent
from dragoman.agents.upstream.breaker import Breaker
from dragoman.agents.upstream.reading import Found, Means
from dragoman.agents.upstream.road import Away, CallFailed, Nonsense, Road
from dragoman.agents.values import NewId
from dragoman.core.errors import AgentTaken, InvalidParams, Unavailable
from dragoman.core.upstreams import Upstream, read, written
from dragoman.entropy import ENTROPY
from dragoman.ports import Added, Enlist, Standing, Upstreams, Vault

log = logging.getLogger("dragoman.upstream")

PATIENCE: Final = 20.0
"""Seconds for a card, with everything that belongs to that."""

LOOK: Final = 5.0
"""Seconds between two looks at what other servers on the store have added or removed."""

FRESH: Final = 300.0
"""Seconds after which a card is read again."""

FIRST_PROBE: Final = 1.0
LONGEST_PROBE: Final = 5.0
"""Seconds between two tries to reach an agent that is left alone, from the first to the longest."""


class Unusable(Exception):
    """An agent upstream that the settings name and that cannot be served. The text says which, and why."""


class Member:
    """One agent upstream, and what is known of how to reach it."""

    def __init__(self, upstream: Upstream, agent: UpstreamAgent, *, settings: bool) -> None:
        self.upstream = upstream
        self.agent = agent
        self.settings = settings
        self.found: Found | None = None
        self.roads: Sequence[Road] = ()
        """The ways there, the best first."""
        self.wake = asyncio.Event()
        self.keeping: asyncio.Task[None] | None = None


class Directory:
    """Implements `dragoman.ports.Directory`."""

    def __init__(
        self,
        means: Means,
        store: Upstreams,
        vault: Vault,
        *,
        clock: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
        new_id: NewId = ENTROPY.hex,
    ) -> None:
        """`vault` seals credentials. `clock` gives milliseconds since the epoch, `seconds` those of a clock that never
        goes back."""
        self._means = means
        self._store = store
        self._vault = vault
        self._clock = clock
        self._seconds = seconds
        self._new_id = new_id
        self._enlist: Enlist | None = None
        self.bell = Bell()
        """To be rung when another server added or removed some."""
        self.announce: Callable[[], None] = lambda: None
        """Called when this one did."""
        self._members: dict[str, Member] = {}
        self._gone: list[UpstreamAgent] = []

    @property
    def agents(self) -> Sequence[UpstreamAgent]:
        """Every one that is served."""
        return [member.agent for member in self._members.values()]

    # The beginning and the end ----------------------------------------------------------------------------------

    async def begin(self, named: Sequence[Upstream], taken: Sequence[str]) -> None:
        """Reads the cards of those that the settings name and of those in the store. `taken`: ids of other agents.

        One that is not there is served all the same, if it is known what it is called. Raises Unusable.
        """
        kept = [one for added in await self._store.list() if (one := self._entry(added)) is not None]
        results = await asyncio.gather(*map(self._try, (*named, *kept)))
        for upstream, result in zip(named, results[: len(named)], strict=True):
            if isinstance(result, CallFailed) and not (upstream.id and _may_pass(result)):
                hint = (
                    ""
                    if upstream.id or not _may_pass(result)
                    else "; with an id (ID=URL) it is served once it is there"
                )
                raise Unusable(f"{upstream.place}: {result}{hint}")
            id = upstream.id if isinstance(result, CallFailed) else result.spec.id
            if id in taken or id in self._members:
                raise Unusable(f'{upstream.place}: "{id}" is another agent here; give it an id of its own, as ID=URL')
            self._join(replace(upstream, id=id), result, settings=True)
        for one, result in zip(kept, results[len(named) :], strict=True):
            if one.id in taken or one.id in self._members:
                log.warning("agent %s, which was added, is not served: its id is another's now", one.id)
            else:
                self._join(one, result, settings=False)

    def serve(self, enlist: Enlist) -> None:
        """Makes agents known there from now on, and looks after those that there are."""
        self._enlist = enlist
        for member in self._members.values():
            self._keep(member)

    async def close(self) -> None:
        """Lets go of everything."""
        for member in self._members.values():
            if member.keeping is not None:
                member.keeping.cancel()
                await asyncio.wait([member.keeping])
        for agent in (*self.agents, *self._gone):
            await agent.close()

    def _join(self, upstream: Upstream, result: Found | CallFailed, *, settings: bool) -> Member:
        breaker = Breaker(self._seconds)
        spec = reading.unread(upstream) if isinstance(result, CallFailed) else result.spec
        agent = UpstreamAgent(spec, upstream.place, upstream.turns, breaker, self._new_id)
        member = self._members[spec.id] = Member(upstream, agent, settings=settings)
        agent.changed = lambda: self._changed(member)
        agent.silence = self._means.bounds.silence
        if isinstance(result, CallFailed):
            log.warning("%s is served as agent %s, and is not there: %s", upstream.place, spec.id, result)
            breaker.open(str(result))
        else:
            self._learn(member, result)
        return member

    def _learn(self, member: Member, found: Found) -> None:
        """Takes what a card says now. Turns under way go on over the roads that they have."""
        agent, known = member.agent, member.found
        member.found = found
        agent.spec = found.spec
        agent.extensions, agent.idempotent, agent.streams = found.extensions, found.idempotent, found.streaming
        if known is None or known.interfaces != found.interfaces:
            member.roads = [self._means.road(member.upstream, one) for one in found.interfaces]
            for why in found.left_out:
                log.info("agent %s: left out: %s", found.spec.id, why)
            log.info("agent %s is upstream: %s", found.spec.id, found.interfaces[0])
        agent.roads = member.roads  # one that did not answer may do so now

    async def _try(self, upstream: Upstream) -> Found | CallFailed:
        try:
            async with asyncio.timeout(PATIENCE):
                return await reading.find(upstream, self._means)
        except CallFailed as error:
            return error
        except TimeoutError:
            return Away(f"its card was not there within {PATIENCE:g} s")

    def _entry(self, added: Added) -> Upstream | None:
        """What the store has; None, with a line in the log, for what cannot be read."""
        try:
            text = self._vault.open(added.entry.decode(), _about(added.agent))
            return replace(read(json.loads(text)), id=added.agent)
        except ValueError as error:
            log.error("agent %s, which was added, is not served: %s", added.agent, error)
            return None

    # What operators ask -----------------------------------------------------------------------------------------

    async def add(self, upstream: Upstream) -> Standing:
        """Serves one more. Raises InvalidParams, AgentTaken, Unavailable."""
        found = await self._try(upstream)
        if isinstance(found, Away):
            raise Unavailable(f"{upstream.place}: {found}")
        if isinstance(found, CallFailed):
            raise InvalidParams.field("url", str(found))
        id = found.spec.id
        upstream = replace(upstream, id=id)
        assert self._enlist is not None
        entry = self._vault.seal(written(upstream), _about(id)).encode()
        if self._enlist.knows(id) or not await self._store.add(Added(id, entry, self._clock())):
            raise AgentTaken(f'id: "{id}" is an agent of this server; choose another id')
        self.announce()
        member = self._join(upstream, found, settings=False)
        await self._enlist.enlist(member.agent)
        self._keep(member)
        return self._standing(member)

    async def remove(self, agent: str) -> int:
        """Serves one no more. Raises InvalidParams."""
        member = self._members.get(agent)
        if member is None:
            raise InvalidParams.field("agent", f'"{agent[:80]}" is no agent upstream')
        if member.settings:
            raise InvalidParams.field("agent", f'"{agent}" is in the settings of the server; take it out there')
        await self._store.remove(agent)
        self.announce()
        return await self._part(member)

    async def _part(self, member: Member) -> int:
        agent = member.agent
        del self._members[agent.spec.id]
        if member.keeping is not None:
            member.keeping.cancel()
        agent.is_removed = True
        self._gone.append(agent)  # turns that it has may still end
        log.info("agent %s, which was upstream, is removed", agent.spec.id)
        return await self._enlist.discharge(agent.spec.id) if self._enlist is not None else 0

    def standing(self) -> Sequence[Standing]:
        """How it stands with each, by id."""
        return [self._standing(member) for _, member in sorted(self._members.items())]

    def _standing(self, member: Member) -> Standing:
        agent, found = member.agent, member.found
        return Standing(
            agent=agent.spec.id,
            url=member.upstream.place,
            settings=member.settings,
            credentials=bool(member.upstream.headers),
            away=agent.absence,
            trouble=agent.breaker.trouble,
            interfaces=[str(road.interface) for road in agent.roads],
            left_out=found.left_out if found else (),
            running=agent.running,
            turns=agent.turns,
        )

    # Looking after them -----------------------------------------------------------------------------------------

    def _changed(self, member: Member) -> None:
        member.wake.set()
        if self._enlist is not None:
            self._enlist.changed()

    def _keep(self, member: Member) -> None:
        member.keeping = asyncio.create_task(self._look_after(member), name=f"upstream {member.upstream.place}")

    async def _look_after(self, member: Member) -> None:
        """Reads the card again now and then, and soon while the agent is left alone. Runs until cancelled."""
        pause = FIRST_PROBE
        while True:
            member.wake.clear()
            if not member.agent.is_away:
                pause = FIRST_PROBE if not member.agent.breaker.is_ajar else pause
                with suppress(TimeoutError):
                    async with asyncio.timeout(FRESH):
                        await member.wake.wait()
                    if not member.agent.is_away:
                        continue
            if member.agent.is_away:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PROBE)
            try:
                await self.refresh(member)
            except Exception:
                log.exception("could not look after agent %s", member.agent.spec.id)

    async def refresh(self, member: Member) -> None:
        """Reads a card once more."""
        found = await self._try(member.upstream)
        agent = member.agent
        if isinstance(found, CallFailed):
            if agent.is_away:
                agent.breaker.open(str(found))
            log.info("the card of agent %s was not read: %s", agent.spec.id, found)
            return
        before = agent.spec
        self._learn(member, found)
        if self._enlist is None:
            return
        if agent.spec != before:
            await self._enlist.enlist(agent)
        if agent.breaker.is_open:
            agent.breaker.ajar()
            self._enlist.changed()

    async def keep_up(self) -> None:
        """Learns what other servers on the store added and removed. Runs until cancelled."""
        while True:
            await self.bell.wait(LOOK)
            try:
                await self.look()
            except Exception:
                log.exception("could not look for agents upstream")

    async def look(self) -> None:
        """Once of that."""
        assert self._enlist is not None
        kept = {one.agent: one for one in await self._store.list()}
        for name, member in tuple(self._members.items()):
            if not member.settings and name not in kept:
                await self._part(member)
        for name, one in kept.items():
            if name in self._members or self._enlist.knows(name):
                continue
            upstream = self._entry(one)
            if upstream is None:
                continue
            result = await self._try(upstream)
            if name in self._members or self._enlist.knows(name):
                continue  # meanwhile
            member = self._join(upstream, result, settings=False)
            await self._enlist.enlist(member.agent)
            self._keep(member)


def _about(agent: str) -> str:
    """What an entry in the store is sealed for."""
    return f"upstream {agent}"


def with_token(upstream: Upstream) -> Upstream:
    """One with the token that is in its file. Raises OSError, ValueError."""
    if not upstream.token_file:
        return upstream
    token = Path(upstream.token_file).read_text("utf-8").strip()
    return replace(upstream, headers={**upstream.headers, **read({"url": upstream.url, "token": token}).headers})


def _may_pass(failed: CallFailed) -> bool:
    """Whether it may be otherwise a little later."""
    return isinstance(failed, Nonsense | Away)
