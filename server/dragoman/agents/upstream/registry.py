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

from dragoman.agents.upstream import discovery
from dragoman.agents.upstream.agent import CircuitBreaker, UpstreamAgent
from dragoman.agents.upstream.discovery import DiscoveredAgent
from dragoman.agents.upstream.transport import TransportFactory, UpstreamTransport
from dragoman.agents.values import NewId
from dragoman.agents.wakeup import Wakeup
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.core.agent_sources import UpstreamSpec, upstream_from_table, upstream_to_json
from dragoman.core.backoff import Backoff
from dragoman.core.errors import AgentIdTaken, InvalidParams, Unavailable
from dragoman.ids import IDS
from dragoman.ports import AddedUpstream, RemoteAgentRegistry, SecretBox, UpstreamStatus, UpstreamStore

log = logging.getLogger("dragoman.upstream")

CARD_TIMEOUT: Final = 20.0
"""Seconds for a card, with everything that belongs to that."""

UPSTREAM_SYNC_INTERVAL: Final = 5.0
"""Seconds between two looks at what other servers on the store have added or removed."""

CARD_REFRESH_INTERVAL: Final = 300.0
"""Seconds after which a card is read again."""

PROBE_BACKOFF: Final = Backoff(1.0, 5.0)
"""Between two attempts to reach an agent whose circuit breaker is open."""


class InvalidUpstream(Exception):
    """An agent upstream that the settings name and that cannot be served. The text says which, and why."""


class UpstreamEntry:
    """One agent upstream, and what is known of how to reach it."""

    def __init__(self, upstream: UpstreamSpec, agent: UpstreamAgent, *, from_settings: bool) -> None:
        self.upstream = upstream
        self.agent = agent
        self.from_settings = from_settings
        self.discovered: DiscoveredAgent | None = None
        self.transports: Sequence[UpstreamTransport] = ()
        """The ways there, the best first."""
        self.wake = asyncio.Event()
        self.refresh_task: asyncio.Task[None] | None = None


class LocalUpstreamRegistry:
    """Implements `dragoman.ports.Directory`."""

    def __init__(
        self,
        transport_factory: TransportFactory,
        store: UpstreamStore,
        vault: SecretBox,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        new_id: NewId = IDS.hex,
    ) -> None:
        """`vault` seals credentials. `clock` gives milliseconds since the epoch, `seconds` those of a clock
        that never
        goes back."""
        self._transport_factory = transport_factory
        self._store = store
        self._vault = vault
        self._clock = clock
        self._monotonic = monotonic
        self._new_id = new_id
        self._agent_registry: RemoteAgentRegistry | None = None
        self.wakeup = Wakeup()
        """To be rung when another server added or removed some."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when this one did."""
        self._entries: dict[str, UpstreamEntry] = {}
        self._removed: list[UpstreamAgent] = []

    @property
    def agents(self) -> Sequence[UpstreamAgent]:
        """Every one that is served."""
        return [member.agent for member in self._entries.values()]

    # The beginning and the end ----------------------------------------------------------------------------------

    async def start(self, configured: Sequence[UpstreamSpec], reserved_ids: Sequence[str]) -> None:
        """Reads the cards of those that the settings name and of those in the store. `taken`: ids of other agents.

        One that is not there is served all the same, if it is known what it is called. Raises Unusable.
        """
        kept = [one for added in await self._store.list() if (one := self._decode_stored(added)) is not None]
        results = await asyncio.gather(*map(self._discover, (*configured, *kept)))
        for upstream, result in zip(configured, results[: len(configured)], strict=True):
            if isinstance(result, ClientError) and not (upstream.id and _is_transient(result)):
                hint = (
                    ""
                    if upstream.id or not _is_transient(result)
                    else "; with an id (ID=URL) it is served once it is there"
                )
                raise InvalidUpstream(f"{upstream.location}: {result.summary}{hint}")
            id = upstream.id if isinstance(result, ClientError) else result.spec.id
            if id in reserved_ids or id in self._entries:
                raise InvalidUpstream(
                    f'{upstream.location}: "{id}" is another agent here; give it an id of its own, as ID=URL'
                )
            self._add_entry(replace(upstream, id=id), result, from_settings=True)
        for one, result in zip(kept, results[len(configured) :], strict=True):
            if one.id in reserved_ids or one.id in self._entries:
                log.warning("agent %s, which was added, is not served: its id is another's now", one.id)
            else:
                self._add_entry(one, result, from_settings=False)

    def attach_registry(self, agent_registry: RemoteAgentRegistry) -> None:
        """Makes agents known there from now on, and looks after those that there are."""
        self._agent_registry = agent_registry
        for member in self._entries.values():
            self._start_refresh(member)

    async def close(self) -> None:
        """Lets go of everything."""
        for member in self._entries.values():
            if member.refresh_task is not None:
                member.refresh_task.cancel()
                await asyncio.wait([member.refresh_task])
        for agent in (*self.agents, *self._removed):
            await agent.close()

    def _add_entry(
        self, upstream: UpstreamSpec, result: DiscoveredAgent | ClientError, *, from_settings: bool
    ) -> UpstreamEntry:
        breaker = CircuitBreaker(self._monotonic)
        spec = discovery.placeholder_spec(upstream) if isinstance(result, ClientError) else result.spec
        agent = UpstreamAgent(spec, upstream.location, upstream.turns, breaker, self._new_id)
        member = self._entries[spec.id] = UpstreamEntry(upstream, agent, from_settings=from_settings)
        agent.on_availability_change = lambda: self._on_availability_change(member)
        agent.idle_timeout = self._transport_factory.limits.idle_timeout
        if isinstance(result, ClientError):
            log.warning("%s is served as agent %s, and is not there: %s", upstream.location, spec.id, result.summary)
            breaker.open(result.summary)
        else:
            self._apply_card(member, result)
        return member

    def _apply_card(self, entry: UpstreamEntry, discovered: DiscoveredAgent) -> None:
        """Takes what a card says now. Turns under way go on over the roads that they have."""
        agent, known = entry.agent, entry.discovered
        entry.discovered = discovered
        agent.spec = discovered.spec
        agent.required_extensions, agent.idempotent, agent.supports_streaming = (
            discovered.required_extensions,
            discovered.idempotent,
            discovered.streaming,
        )
        if known is None or known.interfaces != discovered.interfaces:
            entry.transports = [self._transport_factory.create(entry.upstream, one) for one in discovered.interfaces]
            for why in discovered.skipped:
                log.info("agent %s: left out: %s", discovered.spec.id, why)
            log.info("agent %s is upstream: %s", discovered.spec.id, discovered.interfaces[0])
        agent.transports = entry.transports  # one that did not answer may do so now

    async def _discover(self, upstream: UpstreamSpec) -> DiscoveredAgent | ClientError:
        try:
            async with asyncio.timeout(CARD_TIMEOUT):
                return await discovery.discover(upstream, self._transport_factory)
        except ClientError as error:
            return error
        except TimeoutError:
            return ServerUnavailable.for_reason(f"its card was not there within {CARD_TIMEOUT:g} s")

    def _decode_stored(self, added: AddedUpstream) -> UpstreamSpec | None:
        """What the store has; None, with a line in the log, for what cannot be read."""
        try:
            text = self._vault.decrypt(added.spec.decode(), _encryption_context(added.agent))
            return replace(upstream_from_table(json.loads(text)), id=added.agent)
        except ValueError as error:
            log.error("agent %s, which was added, is not served: %s", added.agent, error)
            return None

    # What operators ask -----------------------------------------------------------------------------------------

    async def add(self, upstream: UpstreamSpec) -> UpstreamStatus:
        """Serves one more. Raises InvalidParams, AgentTaken, Unavailable."""
        found = await self._discover(upstream)
        if isinstance(found, ServerUnavailable):
            raise Unavailable(f"{upstream.location}: {found.summary}")
        if isinstance(found, ClientError):
            raise InvalidParams.field("url", found.summary)
        id = found.spec.id
        upstream = replace(upstream, id=id)
        assert self._agent_registry is not None
        entry = self._vault.encrypt(upstream_to_json(upstream), _encryption_context(id)).encode()
        if self._agent_registry.is_registered(id) or not await self._store.add(AddedUpstream(id, entry, self._clock())):
            raise AgentIdTaken(f'id: "{id}" is an agent of this server; choose another id')
        self.on_change()
        member = self._add_entry(upstream, found, from_settings=False)
        await self._agent_registry.register(member.agent)
        self._start_refresh(member)
        return self._status_of(member)

    async def remove(self, agent: str) -> int:
        """Serves one no more. Raises InvalidParams."""
        member = self._entries.get(agent)
        if member is None:
            raise InvalidParams.field("agent", f'"{agent[:80]}" is no agent upstream')
        if member.from_settings:
            raise InvalidParams.field("agent", f'"{agent}" is in the settings of the server; take it out there')
        await self._store.remove(agent)
        self.on_change()
        return await self._remove_entry(member)

    async def _remove_entry(self, entry: UpstreamEntry) -> int:
        agent = entry.agent
        del self._entries[agent.spec.id]
        if entry.refresh_task is not None:
            entry.refresh_task.cancel()
        agent.is_removed = True
        self._removed.append(agent)  # turns that it has may still end
        log.info("agent %s, which was upstream, is removed", agent.spec.id)
        return await self._agent_registry.unregister(agent.spec.id) if self._agent_registry is not None else 0

    def status(self) -> Sequence[UpstreamStatus]:
        """How it stands with each, by id."""
        return [self._status_of(member) for _, member in sorted(self._entries.items())]

    def _status_of(self, entry: UpstreamEntry) -> UpstreamStatus:
        agent, found = entry.agent, entry.discovered
        return UpstreamStatus(
            agent=agent.spec.id,
            url=entry.upstream.location,
            from_settings=entry.from_settings,
            has_credentials=bool(entry.upstream.headers),
            seconds_absent=agent.seconds_absent,
            problem=agent.breaker.last_error,
            interfaces=[str(road.interface) for road in agent.transports],
            skipped_interfaces=found.skipped if found else (),
            running_turns=agent.running,
            max_turns=agent.turns,
        )

    # Looking after them -----------------------------------------------------------------------------------------

    def _on_availability_change(self, entry: UpstreamEntry) -> None:
        entry.wake.set()
        if self._agent_registry is not None:
            self._agent_registry.capacity_changed()

    def _start_refresh(self, entry: UpstreamEntry) -> None:
        entry.refresh_task = asyncio.create_task(self._run_refresh(entry), name=f"upstream {entry.upstream.location}")

    async def _run_refresh(self, entry: UpstreamEntry) -> None:
        """Reads the card again now and then, and soon while the agent is left alone. Runs until cancelled."""
        probes = 0
        while True:
            entry.wake.clear()
            if not entry.agent.is_unavailable:
                probes = probes if entry.agent.breaker.is_half_open else 0
                with suppress(TimeoutError):
                    async with asyncio.timeout(CARD_REFRESH_INTERVAL):
                        await entry.wake.wait()
                    if not entry.agent.is_unavailable:
                        continue
            if entry.agent.is_unavailable:
                probes += 1
                await asyncio.sleep(PROBE_BACKOFF.delay(probes))
            try:
                await self.refresh(entry)
            except Exception:
                log.exception("could not look after agent %s", entry.agent.spec.id)

    async def refresh(self, entry: UpstreamEntry) -> None:
        """Reads a card once more."""
        found = await self._discover(entry.upstream)
        agent = entry.agent
        if isinstance(found, ClientError):
            if agent.is_unavailable:
                agent.breaker.open(found.summary)
            log.info("the card of agent %s was not read: %s", agent.spec.id, found.summary)
            return
        before = agent.spec
        self._apply_card(entry, found)
        if self._agent_registry is None:
            return
        if agent.spec != before:
            await self._agent_registry.register(agent)
        if agent.breaker.is_open:
            agent.breaker.half_open()
            self._agent_registry.capacity_changed()

    async def run_sync(self) -> None:
        """Learns what other servers on the store added and removed. Runs until cancelled."""
        while True:
            await self.wakeup.wait(UPSTREAM_SYNC_INTERVAL)
            try:
                await self.sync_once()
            except Exception:
                log.exception("could not look for agents upstream")

    async def sync_once(self) -> None:
        """Once of that."""
        assert self._agent_registry is not None
        kept = {one.agent: one for one in await self._store.list()}
        for name, member in tuple(self._entries.items()):
            if not member.from_settings and name not in kept:
                await self._remove_entry(member)
        for name, one in kept.items():
            if name in self._entries or self._agent_registry.is_registered(name):
                continue
            upstream = self._decode_stored(one)
            if upstream is None:
                continue
            result = await self._discover(upstream)
            if name in self._entries or self._agent_registry.is_registered(name):
                continue  # meanwhile
            member = self._add_entry(upstream, result, from_settings=False)
            await self._agent_registry.register(member.agent)
            self._start_refresh(member)


def _encryption_context(agent: str) -> str:
    """What an entry in the store is sealed for."""
    return f"upstream {agent}"


def with_token(upstream: UpstreamSpec) -> UpstreamSpec:
    """One with the token that is in its file. Raises OSError, ValueError."""
    if not upstream.token_file:
        return upstream
    token = Path(upstream.token_file).read_text("utf-8").strip()
    return replace(
        upstream, headers={**upstream.headers, **upstream_from_table({"url": upstream.url, "token": token}).headers}
    )


def _is_transient(error: ClientError) -> bool:
    """Whether it may be otherwise a little later."""
    return isinstance(error, ProtocolError | ServerUnavailable)
