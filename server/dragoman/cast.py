"""Everybody who takes turns: the app's agents, executors beside it, agents upstream, and those of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from dragoman.agents.upstream.discovery import TransportFactory
from dragoman.agents.upstream.registry import InvalidUpstream, LocalUpstreamRegistry, with_token
from dragoman.agents.upstream.transport import DEFAULT_TRANSPORT_LIMITS
from dragoman.agents.workers.hub import LocalWorkerHub
from dragoman.foundation import StartError
from dragoman.hosting import Hosted, Hosting, open_executors
from dragoman.outward import guard
from dragoman.ports import Agent, Bus, RegistryChange, SecretBox, Store
from dragoman.runtime.registry import AgentRegistry
from dragoman.settings import Settings, SettingsError
from dragoman.stores.sqlite.store import now_ms


@dataclass(frozen=True, slots=True)
class Cast:
    """The agents of one server."""

    agents: Sequence[Agent]
    root: str
    """The id of the agent meant when a request names none; empty: the agents' own choice."""
    is_empty: bool
    """There are none yet but those that workers may bring."""
    hosted: Hosted
    switchboard: LocalWorkerHub
    directory: LocalUpstreamRegistry

    @property
    def ids(self) -> frozenset[str]:
        """Of all of them."""
        return frozenset(agent.spec.id for agent in self.agents)

    async def serve(self, stack: AsyncExitStack, enlisting: AgentRegistry, bus: Bus, *, alone: bool) -> None:
        """Lets others come and go. `alone`: no other server on the store has workers, or knows agents upstream; else
        what they learn is known here, too, until the stack is left."""
        enlisting.reserve_ids(agent.spec.id for agent in self.hosted.agents)
        self.hosted.tell(enlisting.capacity_changed)
        self.switchboard.attach_registry(enlisting)
        self.directory.attach_registry(enlisting)
        if alone:
            return
        looks = (("roster of workers", self.switchboard.run_sync()), ("agents upstream", self.directory.run_sync()))
        for what, looking in looks:
            stack.callback(asyncio.create_task(looking, name=what).cancel)
        keepers: dict[RegistryChange, LocalWorkerHub | LocalUpstreamRegistry] = {
            RegistryChange.WORKERS: self.switchboard,
            RegistryChange.UPSTREAMS: self.directory,
        }
        for news, keeper in keepers.items():
            keeper.on_change = partial(bus.publish_change, news)
        stack.push_async_callback(await bus.subscribe_changes(lambda news: keepers[news].wakeup.set()))


async def open_cast(
    stack: AsyncExitStack, store: Store, settings: Settings, vault: SecretBox, agents: Sequence[Agent]
) -> Cast:
    """`agents` are the app's. Raises SettingsError, StartError, and LoadError for an executor."""
    hosted = await stack.enter_async_context(open_executors(hosting(settings), settings.message_bytes))
    own = [*agents, *hosted.agents]
    if len({agent.spec.id for agent in own}) < len(own):
        raise SettingsError("--executor: has the id of an agent of APP; say ID=MODULE:NAME")
    directory = await _directory(stack, store, settings, vault, own)
    own += directory.agents
    switchboard = await _switchboard(store, settings, own)
    is_empty = settings.workers_only and not own
    root = settings.root or (switchboard.oldest_agent if is_empty else "")
    cast = Cast([*own, *switchboard.agents], root, is_empty, hosted, switchboard, directory)
    _check_names(settings, cast)
    return cast


def hosting(settings: Settings) -> Hosting:
    """The executors that the settings name. One that is to run nothing here is started for what it says of itself."""
    turns = 0 if settings.role == "server" else settings.executor_turns
    return Hosting(settings.executor, settings.executor_python, turns, settings.executor_retries)


async def _switchboard(store: Store, settings: Settings, agents: Sequence[Agent]) -> LocalWorkerHub:
    """Where workers connect, with the agents that they had earlier, but for those that are the app's own now."""
    own = {agent.spec.id for agent in agents}
    known = [entry for entry in await store.worker_registry.list() if entry.agent not in own]
    return LocalWorkerHub(store.worker_registry, known, clock=now_ms, frame_bytes=settings.message_bytes)


async def _directory(
    stack: AsyncExitStack, store: Store, settings: Settings, vault: SecretBox, agents: Sequence[Agent]
) -> LocalUpstreamRegistry:
    """The agents upstream. Raises SettingsError, StartError."""
    bounds = replace(
        DEFAULT_TRANSPORT_LIMITS, max_response_bytes=settings.upstream_bytes, idle_timeout=settings.upstream_silence
    )
    outlet = guard(settings, per_host=0)
    stack.push_async_callback(outlet.close)
    means = TransportFactory(outlet, settings.outbound_ca, bounds)
    directory = LocalUpstreamRegistry(means, store.upstreams, vault, clock=now_ms)
    stack.push_async_callback(directory.close)
    try:
        await directory.start([with_token(one) for one in settings.upstream], [agent.spec.id for agent in agents])
    except OSError as error:
        raise SettingsError(f"--upstream: token_file: {error.filename} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"--upstream: token_file: {error}") from error
    except InvalidUpstream as error:
        raise StartError(f"--upstream: {error}") from error
    return directory


def _check_names(settings: Settings, cast: Cast) -> None:
    """Raises SettingsError for a word on an agent that is not served: it would hold for nobody, without a sound."""
    for name, said in (("isolation", settings.isolation.by_agent), ("agent_limits", settings.agent_limits)):
        if unknown := sorted(set(said) - cast.ids):
            raise SettingsError(f'{name}: no agent "{unknown[0]}" here; there are {", ".join(sorted(cast.ids))}')
