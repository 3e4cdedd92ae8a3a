"""The upstream agents of one process, from the settings and from the store."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from dragoman.agents.called.registry import CalledRegistry
from dragoman.agents.values import NewId
from dragoman.calling.errors import ClientError, ProtocolError, ServerUnavailable
from dragoman.calling.secret_files import read_secret
from dragoman.core.agent_sources import UpstreamSpec, upstream_from_table, upstream_to_json
from dragoman.core.durations import Backoff
from dragoman.core.errors import AgentIdTaken, InvalidParams, Unavailable
from dragoman.ids import IDS
from dragoman.ports import AddedUpstream, RemoteAgentRegistry, SecretBox, Store, UpstreamStatus
from dragoman.supervision import wait_for

if TYPE_CHECKING:  # imported with the first upstream agent, which few servers have: 16 modules, 0.9 MB
    from dragoman.agents.upstream.agent import UpstreamAgent
    from dragoman.agents.upstream.discovery import DiscoveredAgent
    from dragoman.agents.upstream.transport import TransportFactory

log = logging.getLogger("dragoman.upstream")

CARD_TIMEOUT: Final = 20.0  # total seconds to fetch a card

UPSTREAM_SYNC_INTERVAL: Final = 5.0
"""Seconds between two reads of what other servers have added to the store or removed."""

CARD_REFRESH_INTERVAL: Final = 300.0  # seconds between two reads of a card
PROBE_BACKOFF: Final = Backoff(1.0, 5.0)  # between two attempts to reach an agent whose circuit breaker is open


class InvalidUpstream(Exception):
    """A configured upstream agent that cannot be served. The text names it and says why."""


class LocalUpstreamRegistry(CalledRegistry["UpstreamAgent"]):
    """Implements `dragoman.ports.UpstreamRegistry`."""

    log = log

    def __init__(
        self,
        open_transport_factory: Callable[[], TransportFactory],
        store: Store,
        secret_box: SecretBox,
        agent_registry: RemoteAgentRegistry,
        *,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        new_id: NewId = IDS.hex,
    ) -> None:
        """open_transport_factory: called with the first agent. secret_box: encrypts stored credentials. agent_registry:
        where agents are added. on_change: called when this server has added or removed agents.

        clock: milliseconds since the epoch. monotonic: seconds.
        """
        super().__init__(agent_registry, store.key_values)
        self._transport_factory = cache(open_transport_factory)
        self._store = store.upstreams
        self._secret_box = secret_box
        self._clock = clock
        self._monotonic = monotonic
        self._new_id = new_id
        self._agent_registry = agent_registry
        self.wakeup = asyncio.Event()
        """Set it when another server has added or removed agents: ends the wait of `run_sync` early."""
        self._on_change = on_change
        self.others: Callable[[], Sequence[UpstreamStatus]] = lambda: ()
        """Reads the status of other servers behind agents, which only settings change; `status` lists them as well."""
        self._agents: dict[str, UpstreamAgent] = {}
        self._removed: list[UpstreamAgent] = []

    # Start and stop ---------------------------------------------------------------------------------------------

    async def start(self, configured: Sequence[UpstreamSpec], reserved_ids: Sequence[str]) -> None:
        """Reads the cards of the configured and the stored agents. `reserved_ids`: those of other agents.

        An unavailable agent is served, too, if its id is known. Raises InvalidUpstream.
        """
        stored = list(filter(None, map(self._decode_stored, await self._store.list())))
        results = await asyncio.gather(*map(self._discover, (*configured, *stored)))
        for upstream, result in zip(configured, results[: len(configured)], strict=True):
            is_transient = isinstance(result, ProtocolError | ServerUnavailable)
            if isinstance(result, ClientError) and not (upstream.id and is_transient):
                hint = "; with an id (ID=URL) it is served as soon as it responds" if is_transient else ""
                raise InvalidUpstream(f"{upstream.location}: {result.summary}{hint}")
            id = upstream.id if isinstance(result, ClientError) else result.spec.id
            if id in reserved_ids or id in self._agents:
                raise InvalidUpstream(
                    f'{upstream.location}: the id "{id}" belongs to another agent here; choose another id with ID=URL'
                )
            self._add_agent(replace(upstream, id=id), result, from_settings=True)
        for upstream, result in zip(stored, results[len(configured) :], strict=True):
            if upstream.id in reserved_ids or upstream.id in self._agents:
                log.warning("stored agent %s is not served: another agent has its id now", upstream.id)
            else:
                self._add_agent(upstream, result, from_settings=False)
        await asyncio.gather(*map(self.sync_spec, self.all_agents()))

    def all_agents(self) -> Sequence[UpstreamAgent]:
        return tuple(self._agents.values())

    async def close(self) -> None:
        await super().close()
        for agent in self._removed:
            await agent.close()

    def _add_agent(
        self, upstream: UpstreamSpec, result: DiscoveredAgent | ClientError, *, from_settings: bool
    ) -> UpstreamAgent:
        from dragoman.agents.called.agent import placeholder_spec
        from dragoman.agents.upstream.agent import UpstreamAgent
        from dragoman.agents.upstream.turn import UpstreamTurn
        from dragoman.calling.breaker import CircuitBreaker

        unread = placeholder_spec(upstream.id, "an agent whose card", upstream.time_limit, direct=True)
        spec = unread if isinstance(result, ClientError) else result.spec
        agent = self._agents[spec.id] = UpstreamAgent(
            spec,
            upstream,
            CircuitBreaker(self._monotonic),
            partial(UpstreamTurn, new_id=self._new_id),
            from_settings=from_settings,
            on_availability_change=self.capacity_changed,
            idle_timeout=self._transport_factory().limits.idle_timeout,
        )
        if isinstance(result, ClientError):
            log.warning("%s is served as agent %s, but is unavailable: %s", upstream.location, spec.id, result.summary)
            agent.breaker.open(result.summary)
        else:
            self.apply(agent, result)
        return agent

    async def _discover(self, upstream: UpstreamSpec) -> DiscoveredAgent | ClientError:
        from dragoman.agents.upstream import discovery

        try:
            async with asyncio.timeout(CARD_TIMEOUT):
                return await discovery.discover(upstream, self._transport_factory())
        except ClientError as error:
            return error
        except TimeoutError:
            return ServerUnavailable.for_reason(f"the card was not received within {CARD_TIMEOUT:g} s")

    def _decode_stored(self, added: AddedUpstream) -> UpstreamSpec | None:
        """A stored agent; None, with a line in the log, for one that cannot be decrypted or parsed."""
        try:
            text = self._secret_box.decrypt(added.spec.decode(), _encryption_context(added.agent))
            return replace(upstream_from_table(json.loads(text)), id=added.agent)
        except ValueError as error:
            log.error("stored agent %s is not served: %s", added.agent, error)
            return None

    # Operations -------------------------------------------------------------------------------------------------

    async def add(self, upstream: UpstreamSpec) -> UpstreamStatus:
        """Adds an agent. Raises InvalidParams, AgentIdTaken, Unavailable."""
        found = await self._discover(upstream)
        if isinstance(found, ServerUnavailable):
            raise Unavailable(f"{upstream.location}: {found.summary}")
        if isinstance(found, ClientError):
            raise InvalidParams.field("url", found.summary)
        id = found.spec.id
        upstream = replace(upstream, id=id)
        encrypted = self._secret_box.encrypt(upstream_to_json(upstream), _encryption_context(id)).encode()
        added = AddedUpstream(id, encrypted, self._clock())
        if self._is_served(id) or not await self._store.add(added):
            raise AgentIdTaken(f'id: "{id}" belongs to another agent of this server; choose another id')
        self._on_change()
        return self._status_of(await self._serve(upstream, found))

    async def _serve(self, upstream: UpstreamSpec, found: DiscoveredAgent | ClientError) -> UpstreamAgent:
        """Serves an agent of the store from now on."""
        agent = self._add_agent(upstream, found, from_settings=False)
        await self.sync_spec(agent)
        if not agent.is_removed:
            await self._agent_registry.register(agent)
            self.follow(agent)
        return agent

    async def remove(self, agent: str) -> int:
        """Removes an agent; returns how many of its tasks are affected. Raises InvalidParams."""
        known = self._agents.get(agent)
        if known is None:
            raise InvalidParams.field("agent", f'"{agent[:80]}" is not an upstream agent')
        if known.from_settings:
            raise InvalidParams.field("agent", f'"{agent}" is in the settings of the server; remove it there')
        await self._store.remove(agent)
        self._on_change()
        return await self._remove_agent(known)

    async def _remove_agent(self, agent: UpstreamAgent) -> int:
        del self._agents[agent.spec.id]
        if agent.refresh_task is not None:
            agent.refresh_task.cancel()
        agent.is_removed = True
        self._removed.append(agent)  # its running turns may still end
        log.info("upstream agent %s is removed", agent.spec.id)
        return await self._agent_registry.unregister(agent.spec.id)

    def status(self) -> Sequence[UpstreamStatus]:
        found = [*map(self._status_of, self._agents.values()), *self.others()]
        return sorted(found, key=lambda status: status.agent)

    def _status_of(self, agent: UpstreamAgent) -> UpstreamStatus:
        discovered = agent.discovered
        return UpstreamStatus(
            agent=agent.spec.id, url=agent.location, from_settings=agent.from_settings,
            has_credentials=bool(agent.upstream.headers), seconds_absent=agent.seconds_absent,
            problem=agent.breaker.last_error, seconds_since_error=agent.breaker.seconds_since_error,
            interfaces=[str(transport.interface) for transport in agent.transports],
            skipped_interfaces=discovered.skipped if discovered else (),
            running_turns=agent.running, max_turns=agent.turns,
        )  # fmt: skip

    # Refresh and synchronization --------------------------------------------------------------------------------

    async def run_refresh(self, agent: UpstreamAgent) -> None:
        """Reads the card periodically, and more often while the agent is unavailable. Runs until canceled."""
        probes = 0
        while True:
            agent.wake.clear()
            if not agent.is_unavailable:
                probes = probes if agent.breaker.is_half_open else 0
                await wait_for(agent.wake, CARD_REFRESH_INTERVAL)
                if agent.wake.is_set() and not agent.is_unavailable:
                    continue
            if agent.is_unavailable:
                probes += 1
                await asyncio.sleep(PROBE_BACKOFF.delay(probes))
            await self.refresh(agent)

    async def discover(self, agent: UpstreamAgent) -> DiscoveredAgent | ClientError:
        return await self._discover(agent.upstream)

    def apply(self, agent: UpstreamAgent, found: DiscoveredAgent) -> bool:
        """Applies a card. Running turns keep their transports. Returns whether the spec of the agent has changed."""
        before, known = agent.spec, agent.discovered
        agent.discovered, agent.spec = found, found.spec
        agent.required_extensions, agent.idempotent = found.required_extensions, found.idempotent
        agent.supports_streaming = found.streaming
        if known is None or known.interfaces != found.interfaces:
            factory = self._transport_factory()
            agent.all_transports = [factory.create(agent.upstream, one) for one in found.interfaces]
            agent.linked_contents = factory.linked_contents(agent.upstream, found.interfaces)
            for problem in found.skipped:
                log.info("agent %s: unused interface: %s", found.spec.id, problem)
            log.info("agent %s is upstream: %s", found.spec.id, found.interfaces[0])
        agent.transports = agent.all_transports  # also those that failed before
        return agent.spec != before

    async def run_sync(self) -> None:
        """Applies what other servers have added and removed. Runs until canceled."""
        while True:
            await wait_for(self.wakeup, UPSTREAM_SYNC_INTERVAL)
            self.wakeup.clear()
            await self.sync_once()

    async def sync_once(self) -> None:
        stored = {added.agent: added for added in await self._store.list()}
        for name, agent in tuple(self._agents.items()):
            if not agent.from_settings and name not in stored:
                await self._remove_agent(agent)
        for name, added in stored.items():
            upstream = None if self._is_served(name) else self._decode_stored(added)
            if upstream is not None:
                result = await self._discover(upstream)
                if not self._is_served(name):  # it was not registered meanwhile
                    await self._serve(upstream, result)

    def _is_served(self, agent: str) -> bool:
        return agent in self._agents or self._agent_registry.is_registered(agent)


def _encryption_context(agent: str) -> str:
    return f"upstream {agent}"


def with_token(upstream: UpstreamSpec) -> UpstreamSpec:
    """The agent with the token from its file. Raises ValueError."""
    if not upstream.token_file:
        return upstream
    token = read_secret(upstream.token_file)
    return replace(
        upstream, headers={**upstream.headers, **upstream_from_table({"url": upstream.url, "token": token}).headers}
    )
