"""The public `open_app`: a server inside the caller's process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, Final, cast

from dragoman.agents.functions.startup import StartupHook
from dragoman.ports import Agent
from dragoman.ports.extension import StartError
from dragoman.settings.settings import MIN_TOKEN_LENGTH, Address, HostSettings, Settings, SettingsError, load_settings
from dragoman.wiring import app as wiring
from dragoman.wiring.agent_loader import LoadedApp, LoadError, app_of, load_app, load_own_app
from dragoman.wiring.infra import GIVEN_FUNCTIONS

_NOT_OPTIONS: Final = {
    "app": "pass APP as a positional argument",
    "log_format": "open_app leaves logging as it is; configure it with the module logging",
    "reload": "open_app does not restart the process; use `dragoman serve --reload`",
}
"""Options of `dragoman serve` that concern its own process, with what to do instead."""

_NOT_MOUNTED: Final = {
    "http": "the host application's server listens; pass its address to that",
    "processes": "start several processes of the host application, with a store that they share",
}

AgentSource = Agent | StartupHook[..., Any] | ModuleType | str
"""An agent for `open_app`, or the module or APP that declares some."""


class RunningServer:
    """A server in this process, as yielded by `open_app`."""

    def __init__(self, app: wiring.App) -> None:
        self._app = app
        self.url: str = app.public_url
        """Base URL of HTTP (REST, JSON-RPC, WebSocket), for `dragoman.client.connect`: `http://127.0.0.1:41234`."""
        self.grpc: str = f"{'grpcs://' if app.grpc.tls else ''}{app.grpc}" if app.grpc_address else ""
        """Address of gRPC: `127.0.0.1:41235`, with TLS `grpcs://127.0.0.1:41235`.

        Empty with role="worker", which serves no calls."""
        self.card_url: str = app.card_url
        """URL of the root agent's card."""

    @property
    def agents(self) -> list[str]:
        """The ids of the agents, in alphabetical order. Workers may add some while the server runs."""
        return sorted(self._app.agents)

    @property
    def root(self) -> str:
        """The id of the root agent, for requests that name none; empty while there is none."""
        return self._app.root

    @property
    def running(self) -> int:
        """The number of running turns."""
        return self._app.running

    def __repr__(self) -> str:
        return f"<RunningServer {self.url}: {', '.join(self.agents)}>"


@asynccontextmanager
async def open_app(*agents: AgentSource, **options: Any) -> AsyncIterator[RunningServer]:
    """Serves agents in this process, on the running event loop, while the block runs.

        async with open_app(echo, http="127.0.0.1:0", grpc="127.0.0.1:0", store="memory:") as server:
            print(server.url)

    agents: functions declared with `@agent`, modules, or APPs as of `dragoman serve` ("agents.py", "company.agents").
    The `@on_startup` functions of their modules run first; others can be passed like agents. options: those of
    `dragoman serve`, with `_` for `-`: `http`, `grpc`, `store`, `token`, `drain`, ... Values are those of the command
    line, or Python's own (numbers, True, lists, Path). As there, options that are not passed come from DRAGOMAN_*
    variables, `config` or ./dragoman.toml, and defaults. `store` and `bus` may be functions that open one of your own.

    At the end of the block no more turns start, and running ones have `drain` seconds (300) to finish. If the block
    raises or is canceled, they end at once, as FAILED or to be repeated. Signals, logging and the garbage collector
    are left alone.

    Raises TypeError for what is not an agent, ValueError for invalid options (a line each, with name and rule) and
    agents that cannot be served together, and RuntimeError when the server cannot start: an address or the store is in
    use, or an `@on_startup` function failed.
    """
    async with open_embedded(agents, options) as app:
        yield RunningServer(app)


@asynccontextmanager
async def open_embedded(
    agents: Sequence[AgentSource], options: Mapping[str, Any], mount: wiring.Mount | None = None
) -> AsyncIterator[wiring.App]:
    """The server of `open_app`, or one that is mounted in another application."""
    async with AsyncExitStack() as stack:
        try:
            functions = {name: options[name] for name in ("store", "bus") if callable(options.get(name))}
            targets = {name: _target(name, function) for name, function in functions.items()}
            settings = _settings({**options, **targets}, mount, given=bool(agents))
            own = _combine(agents) if agents else load_own_app(settings)
            reset = GIVEN_FUNCTIONS.set({targets[name]: function for name, function in functions.items()})
            try:
                app = await stack.enter_async_context(
                    wiring.open_app(settings, own.agents, startup_hooks=own.startup_hooks, mount=mount)
                )
            finally:
                GIVEN_FUNCTIONS.reset(reset)
        except (SettingsError, LoadError) as error:
            raise ValueError(_OPTION.sub(_argument, str(error))) from error
        except StartError as error:
            raise RuntimeError(_OPTION.sub(_argument, str(error))) from error
        yield app
        await app.drain(settings.limits.drain)


_OPTION: Final = re.compile(r"`[^`]*`|--([a-z][a-z-]+)(?: ([A-Z]{2,}(?::[A-Z]+)?|\w+://\S*[\w/]))?")
"""A command, or an option outside of one, with a placeholder or a URL behind it."""


def _argument(found: re.Match[str]) -> str:
    """The argument of a function that an option is."""
    command, option, value = found.group(0, 1, 2)
    return option.replace("-", "_") + (f'="{value}"' if value else "") if option else command


def _target(option: str, function: Any) -> str:
    """The MODULE:FUNCTION that stands for a function in the settings, in errors and in the log."""
    name = getattr(function, "__name__", "")
    return f"{getattr(function, '__module__', '')}:{name if name.isidentifier() else f'{option}_function'}"


def _settings(options: Mapping[str, Any], mount: wiring.Mount | None, *, given: bool) -> Settings:
    """The settings of the server. given: whether agents were passed. Raises SettingsError."""
    for name, instead in (_NOT_OPTIONS if mount is None else _NOT_OPTIONS | _NOT_MOUNTED).items():
        if name in options:
            raise SettingsError(f"{name}: is not an option of {'open_app' if mount is None else 'AsgiApp'}; {instead}")
    identifies = mount is not None and mount.identify is not None
    settings = load_settings(options, in_code=True, kind=HostSettings if identifies else Settings)
    if settings.cluster.processes > 1:
        raise SettingsError(
            f"processes: must be 1, not {settings.cluster.processes}: open_app serves in this process only; for "
            "several use `dragoman serve --processes N`"
        )
    if given and settings.agents.workers_only:
        raise SettingsError("workers_only: the agents that were passed would not be served; pass either")
    return settings if mount is None else _as_mounted(settings)


def _as_mounted(settings: Settings) -> Settings:
    """The same for a server that any machine may reach through its host. Raises SettingsError."""
    if settings.cluster.role == "worker":
        raise SettingsError('role: "worker" serves no calls, so it is not mounted; use open_app or `dragoman serve`')
    if not (settings.requires_auth or settings.listen.insecure):
        raise SettingsError(
            "authenticate: is required, because everyone who reaches the host application could read all tasks; pass a "
            "function that returns the caller's principal, turn on authentication (api_keys, issuers, token), or allow "
            "it with insecure=True"
        )
    if 0 < len(settings.access.token.get_secret_value()) < MIN_TOKEN_LENGTH:
        raise SettingsError(f"token: must have at least {MIN_TOKEN_LENGTH} characters: other machines could guess it")
    return settings.replaced(http=Address("0.0.0.0", 0))


def _combine(sources: Sequence[object]) -> LoadedApp:
    """The agents and start-up functions among and in `sources`, each once. Raises LoadError, TypeError."""
    agents: dict[Agent, None] = {}
    hooks: dict[StartupHook[..., Any], None] = {}
    for source in sources:
        if isinstance(source, StartupHook):
            hooks[source] = None
        elif isinstance(source, str | ModuleType):
            loaded = load_app(source) if isinstance(source, str) else app_of(source, source.__name__)
            agents |= dict.fromkeys(loaded.agents)
            hooks |= dict.fromkeys(loaded.startup_hooks)
        elif hasattr(source, "take_turn") and hasattr(source, "spec"):
            agents[cast(Agent, source)] = None
        else:
            raise TypeError(
                f"open_app: {source!r} is not an agent; pass functions with @agent, modules, or APPs such as "
                '"agents.py"'
            )
    ids = [agent.spec.id for agent in agents]
    if repeated := [id for id in ids if ids.count(id) > 1]:
        raise LoadError(f'two agents have the id "{repeated[0]}"; set id= on one of them')
    return LoadedApp(list(agents), list(hooks))
