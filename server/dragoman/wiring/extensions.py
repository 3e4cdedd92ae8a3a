"""Opens what extensions attach: agents, for servers and workers alike; and reports what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from dragoman.ports import Agent, UpstreamStatus
from dragoman.ports.extension import AgentHost, AgentSource, ServerExtension, StartError
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
            f"{prefix}{extension.title} needs more packages ({error}): pip install '{extension.requirement}'"
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


async def open_sources(
    stack: AsyncExitStack, extensions: Sequence[ServerExtension], groups: Mapping[str, Any], app: str, host: AgentHost
) -> OpenedSources:
    """Opens the agents of these extensions until the stack closes. groups: the settings by extension.

    host: its `app` is empty. Raises StartError, SettingsError.
    """
    opened = OpenedSources()
    for extension in extensions:
        assert extension.agents is not None
        own = replace(
            host,
            app=app if extension.agents.recognizes(app) else "",
            reserved_ids=[*host.reserved_ids, *(agent.spec.id for agent in opened.agents)],
        )
        with extension_errors(extension):
            source = await stack.enter_async_context(extension.agents.open(groups[extension.name], own))
        opened.sources.append(source)
    return opened
