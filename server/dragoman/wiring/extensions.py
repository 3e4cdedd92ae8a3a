"""Opens what extensions attach: agents, for servers and workers alike; and reports what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from dragoman.core.limits.message_limits import MAX_MESSAGE_BYTES
from dragoman.core.net import targets
from dragoman.core.net.addresses import AddressPolicy, AllowEntry
from dragoman.ids import now_ms
from dragoman.ports import Agent, OutboundStreams, UpstreamStatus
from dragoman.ports.extension import AgentHost, AgentSource, ServerExtension, StartError
from dragoman.security.outbound import OutboundClient
from dragoman.settings.extensions import install_command, used_sources
from dragoman.settings.settings import DEFAULT_RESPONSE_BYTES
from dragoman.settings.sources import SettingsError


@contextmanager
def extension_errors(extension: ServerExtension, option: str = "") -> Iterator[None]:
    """Converts what hooks raise: StartError for a missing library, SettingsError for an invalid setting.

    option: the option that needs the extension.
    """
    try:
        yield
    except ImportError as error:
        if not extension.requirement:
            raise
        prefix = f"{option}: " if option else ""
        raise StartError(
            f"{prefix}{extension.title} needs more packages ({error}): {install_command(extension.requirement)}"
        ) from error
    except ValueError as error:
        raise SettingsError(str(error)) from None


def import_libraries(extensions: Sequence[ServerExtension]) -> None:
    """Imports the libraries of extensions before APP, whose folder may have files of these names.

    Missing libraries are reported when the extension is opened.
    """
    for extension in extensions:
        for library in extension.libraries:
            with suppress(ImportError):
                import_module(library)


@dataclass(slots=True)
class OpenedSources:
    """The sources of one process."""

    sources: list[AgentSource] = field(default_factory=list)

    @property
    def agents(self) -> list[Agent]:
        """Their agents, in the order of the extensions' names."""
        return [agent for source in self.sources for agent in source.agents]

    def start(self) -> None:
        """Starts the background work of all."""
        for source in self.sources:
            source.start()

    def status(self) -> list[UpstreamStatus]:
        """The other servers behind their agents."""
        return [status for source in self.sources for status in source.status()]


async def open_worker_sources(
    stack: AsyncExitStack,
    groups: Mapping[str, Any],
    app: str,
    agents: Sequence[Agent],
    turns: int,
    outbound_allow: Sequence[AllowEntry],
) -> OpenedSources:
    """Opens the agents of extensions for a worker. agents: the others. Raises StartError, SettingsError.

    outbound_allow: private networks that it may call. Only this machine's users start a worker, so it calls loopback.
    """
    policy = targets.OutboundPolicy(AddressPolicy(tuple(outbound_allow), loopback=True))
    host = AgentHost(
        app="",
        turns=turns,
        registry=None,
        key_values=None,
        reserved_ids=[agent.spec.id for agent in agents],
        message_bytes=MAX_MESSAGE_BYTES,
        response_bytes=DEFAULT_RESPONSE_BYTES,
        open_outbound=lambda: OutboundClient(policy, per_host=0),
        clock=now_ms,
    )
    sources = await open_sources(stack, used_sources(groups, app), groups, app, host)
    sources.start()
    return sources


async def open_sources(
    stack: AsyncExitStack, extensions: Sequence[ServerExtension], groups: Mapping[str, Any], app: str, host: AgentHost
) -> OpenedSources:
    """Opens the agents of these extensions until the stack closes. groups: the settings by extension.

    host: its `app` is empty, and nobody closes its clients. Raises StartError, SettingsError.
    """

    def open_client() -> OutboundStreams:
        client = host.open_outbound()
        stack.push_async_callback(client.close)
        return client

    opened = OpenedSources()
    for extension in extensions:
        assert extension.agents is not None
        own = replace(
            host,
            app=app if extension.agents.recognizes(app) else "",
            open_outbound=open_client,
            reserved_ids=[*host.reserved_ids, *(agent.spec.id for agent in opened.agents)],
        )
        with extension_errors(extension, extension.agents.option):
            source = await stack.enter_async_context(extension.agents.open(groups[extension.name], own))
        opened.sources.append(source)
    return opened
