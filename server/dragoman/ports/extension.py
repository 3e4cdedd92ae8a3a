"""The port of extensions: what a package attaches to servers and workers.

An extension is a value that an entry point of the group `dragoman.extensions` names. Its module imports no library of
its extra: hooks do, when they are called. The first argument of a hook, where it is `Any`, is the extension's group of
settings: an instance of `settings`, or None. Hooks raise ImportError for a missing library, ValueError for an invalid
setting (the text names the option), and StartError for everything else that prevents the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.task.maintenance import StorageOptions
from dragoman.ports.agent import Agent
from dragoman.ports.bus import Bus
from dragoman.ports.outbound import OutboundStreams
from dragoman.ports.remote_agents import RemoteAgentRegistry, UpstreamStatus
from dragoman.ports.store import KeyValues, Store

if TYPE_CHECKING:
    from pydantic import BaseModel

EXTENSION_GROUP: Final = "dragoman.extensions"  # the group of entry points


class StartError(Exception):
    """The process cannot start. The text says what happened, why, and what to do, without secrets."""


@dataclass(frozen=True, slots=True)
class Option:
    """The name of a setting outside of its group. Stands in the field's annotation: `Annotated[int, Option(...)]`."""

    name: str
    """`feed_sync` is `--feed-sync` and DRAGOMAN_FEED_SYNC."""
    value: str
    """The placeholder in the help; for a flag empty, or its spelling unless that is just --NAME."""
    help: str
    """One line, with the default in brackets at its end."""
    kind: Any = str
    """`bool` for a flag, `list[str]` if it may be repeated, `Path`."""
    in_worker: bool = False
    """Whether `dragoman worker` has the option, too."""
    may_hold_secrets: bool = False
    """Whether `dragoman config show` hides the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRequest:
    """A store to open."""

    url: str
    """May hold a password."""
    name: str
    """The URL without password and options, for people."""
    create: bool
    """Create it if missing."""
    wait: bool
    """Retry for as long as its database is unreachable."""
    storage: StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreScheme:
    """A kind of store that several servers may share, named by the scheme of its URL."""

    url_format: str
    """The form of its URLs, for people: `feed://HOST/NAME`."""
    is_valid: Callable[[str], bool]
    """Whether a URL with the scheme has that form."""
    open: Callable[[Any, StoreRequest], Awaitable[Store]]
    backup: str = "the tools of its database"
    """The tools that back it up, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusRequest:
    """A bus to open."""

    url: str
    """May hold a password."""
    local: Bus
    """The bus inside this process, for subscribers of what this process publishes."""
    epoch: str
    """Identity of the store: servers of one store talk to each other. CHECK_EPOCH: servers must not notice this bus."""


CHECK_EPOCH: Final = "doctor"
OpenBus = Callable[[Any, BusRequest], AbstractAsyncContextManager[Bus]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHost:
    """The server or worker that a source of agents works for."""

    app: str
    """APP, if the source recognizes it, else empty."""
    turns: int | None
    """Maximum concurrent turns of each agent; None: as the settings say. 0: no turns, the agents only have cards."""
    registry: RemoteAgentRegistry | None
    """Registers agents that come, change or go after the start; None for a worker, whose agents stay."""
    key_values: KeyValues | None
    """Texts in the server's store; None for a worker, which has none."""
    reserved_ids: Sequence[str]
    """The ids of the agents that are there already."""
    message_bytes: int
    """Maximum bytes of an event."""
    response_bytes: int
    """Maximum bytes of a response of another server."""
    open_outbound: Callable[[], OutboundStreams]
    """Opens a client for requests to other servers; the host closes it after the source."""
    clock: Callable[[], int]
    """Milliseconds since the epoch."""


class AgentSource(Protocol):
    """The agents that an extension brings to one server or worker."""

    @property
    def agents(self) -> Sequence[Agent]:
        """Those that are known now."""

    def start(self) -> None:
        """Starts the background work, which ends when the source closes."""

    def status(self) -> Sequence[UpstreamStatus]:
        """The other servers behind the agents, for operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSources:
    """Agents that come from settings, on servers and workers alike."""

    option: str
    """The option that names agents, for errors."""
    is_used: Callable[[Any], bool]
    """Whether the settings name an agent. Then no playground is served."""
    open: Callable[[Any, AgentHost], AbstractAsyncContextManager[AgentSource]]
    recognizes: Callable[[str], bool] = lambda _: False
    """Whether APP (`FILE.py:NAME`) is an object that the source runs as an agent."""
    module: Callable[[Any, str], str] = lambda _settings, _app: ""
    """Returns, from the settings and APP, the module or file that `serve --reload` watches if no APP is loaded."""
    examples: Sequence[tuple[str, str]] = ()
    """For the help of `serve` and `worker`: arguments, and what they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPaths:
    """A path of HTTP: `/NAME`, and the same below the path of each agent. For extensions of this distribution."""

    name: str
    methods: Sequence[str]
    is_on: Callable[[Any], bool]
    open: Callable[[Any, Any, Any], Callable[[Any, str, str], Awaitable[Any]]]
    """From the settings, the `Pipeline` and the `Cards` to a function that serves (request, path, tenant)."""
    request_headers: Sequence[str] = ()
    """Headers that web pages of other origins may send."""
    response_headers: Sequence[str] = ()
    """Headers that such pages may read."""
    catalog: Callable[[AgentSpec, str, str], Mapping[str, Any]] | None = None
    """From an agent, the URL of its path, and the server's domain or "" to its entry in the AI catalog."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerExtension:
    """One extension: its name and the hooks it fills."""

    name: str
    """In a settings file, `[extensions.NAME]` is its table."""
    title: str
    """The name of what it attaches, for people; the heading of its options."""
    requirement: str = ""
    """The requirement with its libraries, for pip: `dragoman[EXTRA]`; empty if it needs none."""
    libraries: Sequence[str] = ()
    """The modules of those libraries. They are imported before APP, whose folder may have files of these names."""
    settings: type[BaseModel] | None = None
    """Its settings: a frozen model whose fields have defaults and an `Option`."""
    stores: Mapping[str, StoreScheme] = field(default_factory=dict)
    """By the scheme of their URLs."""
    buses: Mapping[str, OpenBus] = field(default_factory=dict)
    """By the scheme of their URLs."""
    agents: AgentSources | None = None
    http: HttpPaths | None = None
    banner: Callable[[Any, str], Mapping[str, str]] | None = None
    """From the server's URL to lines that `serve` prints at the start: label and text."""
