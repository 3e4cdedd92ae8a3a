"""Assembles all agents: the app's, those of extensions, upstreams, and those of workers; and the card file."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.agents.functions.startup import StartupFailed, StartupHook, started, startup_hooks_of
from dragoman.agents.upstream.registry import InvalidUpstream, LocalUpstreamRegistry, with_token
from dragoman.agents.workers.connection import HeartbeatTimings
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.core.access.identity import AccessPolicy
from dragoman.core.cards import agent_spec
from dragoman.core.cards.agent_spec import CardOverride
from dragoman.ids import SteadyClock, now_ms
from dragoman.ports import Agent, RegistryChange
from dragoman.ports.extension import AgentHost, StartError
from dragoman.runtime.lease import Lease
from dragoman.runtime.registry import AgentRegistry
from dragoman.security.tls.certificate_files import InvalidFile, ReloadedFiles
from dragoman.settings.extensions import used_sources
from dragoman.settings.settings import Settings, SettingsError
from dragoman.supervision import Background, start_task
from dragoman.wiring.extensions import OpenedSources, open_sources
from dragoman.wiring.infra import Infra, open_outbound

if TYPE_CHECKING:
    from dragoman.agents.upstream.transport import TransportFactory


@dataclass(frozen=True, slots=True)
class ServerAgents:
    """All agents of a server, and the components that bring them."""

    registry: AgentRegistry
    root: str  # the id of the agent for requests that name none; empty: the agents decide
    is_empty: bool  # whether only workers can bring agents
    worker_hub: LocalWorkerHub
    upstreams: LocalUpstreamRegistry
    sources: OpenedSources  # the agents of extensions

    async def follow(self, stack: AsyncExitStack, infra: Infra) -> None:
        """Follows other servers, and what other processes on the store change, until the stack closes."""
        self.upstreams.start_refresh()
        self.sources.start()
        if infra.exclusive:
            return
        stack.callback(start_task(Background.WORKER_REGISTRY, self.worker_hub.run_sync).cancel)
        stack.callback(start_task(Background.UPSTREAMS, self.upstreams.run_sync).cancel)
        sources: dict[RegistryChange, LocalWorkerHub | LocalUpstreamRegistry] = {
            RegistryChange.WORKERS: self.worker_hub,
            RegistryChange.UPSTREAMS: self.upstreams,
        }
        stack.push_async_callback(await infra.bus.subscribe_changes(lambda change: sources[change].wakeup.set()))


@asynccontextmanager
async def run_startup_hooks(
    agents: Sequence[Agent], hooks: Sequence[StartupHook[..., Any]] = ()
) -> AsyncIterator[None]:
    """Runs the hooks of the agents' modules, then `hooks`, around the block. Raises StartError."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(started(dict.fromkeys([*startup_hooks_of(agents), *hooks])))
        except StartupFailed as error:
            raise StartError(str(error)) from error
        yield


async def open_agents(
    stack: AsyncExitStack,
    infra: Infra,
    settings: Settings,
    agents: Sequence[Agent],
    lease: Lease | None,
    worker_timings: HeartbeatTimings | None = None,
) -> ServerAgents:
    """Opens all agents of a server. agents: those of APP. lease: None if no other process uses the store.

    Raises SettingsError, StartError.
    """
    registry = AgentRegistry(agents, lease)
    sources = await _open_sources(stack, infra, settings, registry, agents)
    registry.reserve_ids(agent.spec.id for agent in sources.agents)
    upstreams = await _open_upstreams(stack, infra, settings, registry, [*agents, *sources.agents])
    upstreams.others = sources.status
    for agent in (*sources.agents, *upstreams.all_agents()):
        registry.add(agent)
    is_empty = settings.agents.workers_only and not registry.agents
    hub = await _open_worker_hub(infra, settings, registry, worker_timings)
    for agent in hub.agents:
        registry.add(agent)
    root = settings.agents.root or (hub.oldest_agent if is_empty else "")
    _check_names(settings, registry)
    return ServerAgents(registry, root, is_empty, hub, upstreams, sources)


async def _open_sources(
    stack: AsyncExitStack, infra: Infra, settings: Settings, registry: AgentRegistry, agents: Sequence[Agent]
) -> OpenedSources:
    """Opens the agents of extensions. agents: the others so far. Raises SettingsError, StartError."""
    host = AgentHost(
        app="",
        turns=0 if settings.cluster.role == "server" else None,
        registry=registry,
        key_values=infra.store.key_values,
        reserved_ids=[agent.spec.id for agent in agents],
        message_bytes=settings.limits.message_bytes,
        response_bytes=settings.limits.upstream_bytes,
        open_outbound=partial(open_outbound, settings, per_host=0),
        clock=now_ms,
    )
    used = used_sources(settings.extensions, settings.agents.app)
    return await open_sources(stack, used, settings.extensions, settings.agents.app, host)


async def _open_worker_hub(
    infra: Infra, settings: Settings, registry: AgentRegistry, timings: HeartbeatTimings | None
) -> LocalWorkerHub:
    """Opens the worker hub with the agents known from earlier, except those that the app now declares."""
    known = [entry for entry in await infra.store.worker_registry.list() if not registry.is_registered(entry.agent)]
    return LocalWorkerHub(
        infra.store.worker_registry,
        registry,
        known,
        clock=SteadyClock(),
        timings=timings,
        frame_bytes=settings.limits.message_bytes,
        on_change=partial(infra.bus.publish_change, RegistryChange.WORKERS),
    )


async def _open_upstreams(
    stack: AsyncExitStack, infra: Infra, settings: Settings, registry: AgentRegistry, agents: Sequence[Agent]
) -> LocalUpstreamRegistry:
    """Opens the upstream registry. agents: the others of this server. Raises SettingsError, StartError."""
    outbound = open_outbound(settings, per_host=0)
    stack.push_async_callback(outbound.close)

    def open_transport_factory() -> TransportFactory:
        from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS, TransportFactory

        limits = replace(
            DEFAULT_TRANSPORT_LIMITS,
            max_response_bytes=settings.limits.upstream_bytes,
            blocking_timeout=settings.limits.upstream_silence,
            idle_timeout=settings.limits.upstream_silence,
        )
        return TransportFactory(outbound, settings.outbound.ca, limits)

    upstreams = LocalUpstreamRegistry(
        open_transport_factory,
        infra.store,
        infra.secret_box,
        registry,
        clock=now_ms,
        on_change=partial(infra.bus.publish_change, RegistryChange.UPSTREAMS),
    )
    stack.push_async_callback(upstreams.close)
    try:
        specs = [with_token(spec) for spec in settings.agents.upstream]
    except ValueError as error:
        raise SettingsError(f"--upstream: token_file: {error}") from error
    try:
        await upstreams.start(specs, [agent.spec.id for agent in agents])
    except InvalidUpstream as error:
        raise StartError(f"--upstream: {error}") from error
    return upstreams


def _check_names(settings: Settings, registry: AgentRegistry) -> None:
    """Raises SettingsError for settings of unknown agents, which would be ignored silently."""
    for name, by_agent in (
        ("isolation", settings.access.isolation.by_agent),
        ("agent_limits", settings.access.agent_limits),
        ("blocking_default", settings.protocol.blocking_default.by_agent),
    ):
        if unknown := sorted(set(by_agent) - registry.agents.keys()):
            raise SettingsError(
                f'{name}: agent "{unknown[0]}" is not served; agents are {", ".join(sorted(registry.agents))}'
            )


class CardFile(ReloadedFiles[dict[str, CardOverride]]):
    """The card overrides of one file."""

    FAILURE = "the card file is invalid, cards stay unchanged"
    LOG = logging.getLogger("dragoman.cards")

    def __init__(self, path: Path, on_change: Callable[[Mapping[str, CardOverride]], None]) -> None:
        """`on_change` receives the overrides, now and after each change. Raises InvalidFile."""
        self._path = path
        self._on_change = on_change
        super().__init__(path)

    def _use(self, content: dict[str, CardOverride]) -> None:
        self._on_change(content)

    def _describe(self) -> str:
        return f"cards now have the overrides in {self._path}"

    def _read(self) -> dict[str, CardOverride]:
        try:
            return agent_spec.parse_card_overrides(tomllib.loads(self._path.read_text("utf-8")))
        except OSError as error:
            raise InvalidFile(f"{self._path}: {error.strerror}") from error
        except ValueError as error:  # also TOMLDecodeError and UnicodeDecodeError
            raise InvalidFile(f"{self._path}: {error}") from error


def open_card_file(
    stack: AsyncExitStack, path: Path | None, on_change: Callable[[Mapping[str, CardOverride]], None]
) -> CardFile | None:
    """Opens the card file, if any, and watches it until the stack closes. Raises SettingsError."""
    if path is None:
        return None
    try:
        file = CardFile(path, on_change)
    except InvalidFile as error:
        raise SettingsError(f"--card-file: {error}") from error
    stack.callback(start_task(Background.CARD_FILE, file.watch).cancel)
    return file


def access_policy_of(settings: Settings, agents: Set[str]) -> AccessPolicy:
    """Which agents are open to callers without credentials. agents: all ids. Raises SettingsError."""
    access, public = settings.access, frozenset(settings.access.public_agents)
    access_policy = AccessPolicy(settings.requires_auth, public, access.private_pages, settings.is_private)
    if absent := access_policy.public_agents - agents - {"*"}:
        raise SettingsError(f"--public-agents: agent {', '.join(sorted(absent))} is not served")
    return access_policy
