"""`serve`: starts a server, drains it on a signal, prints the banner."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Final

import orjson
import typer

from dragoman.cli import ExitCode, format_count, logs, process_setup
from dragoman.cli.commands import Command, argument, flag, option
from dragoman.cli.serve.options import (
    ShortHelp,
    help_with_examples,
    option_parameters,
    print_all_options,
    serve_options,
)
from dragoman.cli.serve.processes import SupervisorChannel, run_processes
from dragoman.cli.serve.reload import Standby, StandbyEnded, app_argument, drain_for_reload, run_with_reload
from dragoman.cli.standard_streams import write_if_possible
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.core.media_types import bare_type
from dragoman.settings.extensions import installed_extensions
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.supervision import Background, start_task
from dragoman.wiring.agent_loader import LoadedApp, load_own_app
from dragoman.wiring.app import App, open_app
from dragoman.wiring.systemd import READY, STOPPING, ServiceNotifier


def serve(
    app: Annotated[
        str | None,
        argument("APP", "Agents: a .py file, a module, or an object in one (FILE.py:NAME). [the playground]"),
    ] = None,
    *,
    token_file: Annotated[str | None, option("--token-file", "PATH", "File with the value of --token. [none]")] = None,
    help_all: Annotated[
        bool, flag("--help-all", "Show all options, by section.", is_eager=True, callback=print_all_options)
    ] = False,
    reload: Annotated[bool, flag("--reload", "Restart when the app's files change; for development.")] = False,
    supervised: Annotated[int | None, typer.Option("--supervised", hidden=True)] = None,
    reloading: Annotated[int | None, typer.Option("--reloading", hidden=True)] = None,
    **options: Any,
) -> int:
    """Serve agents over A2A: gRPC, REST and JSON-RPC, with tasks on disk.

    These are the most used options; --help-all shows all. Each except --reload can also be set as DRAGOMAN_NAME in the
    environment or, except --config, as NAME in a TOML file. The command line takes precedence, then the environment.
    Ctrl-C waits for running turns to end; a second Ctrl-C stops at once.

    Without --api-keys, --issuers, --token or --tls-client-ca there is no authentication, and the server accepts only
    loopback addresses.

    **Examples**

    `dragoman serve`  a playground agent, to try the server

    `dragoman serve agents.py --reload`

    `dragoman serve mycompany.agents --store sqlite:////var/lib/dragoman/tasks.db --log-format json`

    `dragoman serve --upstream https://agents.example.com/weather`  another A2A agent, through this server

    {examples}

    `dragoman serve agents.py --tls-cert server.pem --tls-key server.key`  with TLS
    """
    del help_all  # its callback has ended the process
    options |= {"app": app, "token_file": token_file}
    arguments = {name: None if value == [] else value for name, value in options.items()}
    if reload:
        return run_with_reload(sys.argv[1:], app_argument(arguments))
    if reloading is not None:
        return run_server(arguments, standby=Standby(reloading))
    return run_server(arguments, sys.argv[1:], supervised)


GC_THRESHOLDS: Final = (10_000, 10, 10)
"""Allocations between garbage collections, by generation. Python's default of 700 scans requests in flight
repeatedly; these take 0.95 of its CPU time per send over gRPC."""

log = logging.getLogger("dragoman.serve")


def run_server(
    arguments: Mapping[str, Any],
    command_line: Sequence[str] = (),
    supervised: int | None = None,
    standby: Standby | None = None,
) -> int:
    """Serves until a signal. Returns the exit code. Raises SettingsError, LoadError, StartError, KeyboardInterrupt.

    command_line: the arguments to start further processes with. supervised: set in such a process; the file
    descriptor of the socket to its supervisor. standby: gives the orders of `--reload`.
    """
    try:
        if standby is not None:
            standby.await_order("load")
        settings = load_settings(arguments)
        if settings.cluster.processes > 1:
            if standby is not None:
                raise SettingsError(
                    f"--processes {settings.cluster.processes}: --reload runs one process; pass --processes 1"
                )
            return run_processes(command_line, settings)
        logs.configure_logging(
            settings.process.log_format, settings.process.log_level, development=standby is not None or None
        )
        settings = settings.replaced(connections=process_setup.raise_open_file_limit(settings.limits.connections))
        own = load_own_app(settings)  # before Ctrl-C is taken over, so that it still interrupts the import
        parent = SupervisorChannel.inherited(supervised) if supervised is not None else None
        changed_at = standby.report_loaded() if standby is not None else 0.0
        process_setup.run_until_complete(_serve(settings, own, parent, standby, changed_at))
    except process_setup.StartInterrupted:
        log.info("stopped during the start")
    except StandbyEnded:
        pass
    return ExitCode.OK


DEVELOPMENT_DRAIN: Final = 2.0
"""Seconds for running turns to finish on Ctrl-C at a terminal, on a server that only this machine can reach."""


def drain_seconds(settings: Settings) -> float:
    """Seconds for running turns to finish when the process stops."""
    develops = sys.stderr.isatty() and settings.listen.is_loopback
    is_default = "drain" not in settings.limits.model_fields_set
    return DEVELOPMENT_DRAIN if develops and is_default else settings.limits.drain


async def _serve(
    settings: Settings,
    own: LoadedApp,
    parent: SupervisorChannel | None,
    standby: Standby | None = None,
    changed_at: float = 0.0,
) -> None:
    drain = drain_seconds(settings)
    signals = process_setup.Signals(drain)
    process_setup.end_on_failure()
    async with AsyncExitStack() as stack:
        if parent is not None:
            await parent.open()
            stack.callback(parent.close)
        opening = open_app(
            settings,
            own.agents,
            startup_hooks=own.startup_hooks,
            shared=parent is not None,
            guards_loop=standby is None,  # an author who debugs an agent may stop its loop
        )
        app = await process_setup.enter_until_signal(stack, opening, signals)
        signals.turns = app.running_turns
        _reload_on_hangup(app)
        if (allocator := process_setup.open_allocator()) is not None:
            stack.callback(start_task(Background.MEMORY, partial(process_setup.return_unused_memory, allocator)).cancel)
        notifier = ServiceNotifier.from_environment(os.environ)
        stack.callback(start_task(Background.WATCHDOG, notifier.keep_alive, "of systemd").cancel)
        if standby is not None:
            await standby.channel.open()
            stack.callback(standby.channel.close)
            standby.channel.send(report="ready")
        if parent is None and changed_at and settings.process.log_format == "text":
            log.info("serving again, %.1f s after the change: %s", time.time() - changed_at, ", ".join(app.agents))
        elif parent is None:
            _announce(app, settings)
        else:
            following = asyncio.create_task(_follow_supervisor(parent, app, settings), name="parent")
            stack.callback(following.cancel)
        notifier.notify(READY)
        logs.retain_own_loggers()
        # Everything loaded so far stays. Scanning it in each full collection would block the loop for 100 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        if standby is not None and await standby.restarts_before(signals.next()):
            await drain_for_reload(app)
            return
        if standby is None:
            await signals.next()
        notifier.notify(STOPPING)
        await process_setup.drain_until_signal(
            lambda limit: app.drain(limit, _drain_reporter()),
            drain,
            signals,
            lambda: app.running,
            forced="will end as FAILED, or run again if the agent allows retries",
            log=log,
        )
    log.info("stopped")


async def _follow_supervisor(parent: SupervisorChannel, app: App, settings: Settings) -> None:
    """Reports to the supervisor, announces all servers when told to, and stops when the supervisor dies."""
    parent.send(ready=True)
    while (message := await parent.receive()) is not None:
        if pids := message.get("announce"):
            _announce(app, settings, pids)
    log.error("the supervising process has died; stopping")
    os.kill(os.getpid(), signal.SIGTERM)


def _reload_on_hangup(app: App) -> None:
    """Reloads certificates and the card file on SIGHUP (`systemctl reload`).

    Without such files SIGHUP keeps its default effect.
    """
    files = [one for one in (app.infra.certificates, app.card_file) if one is not None]
    if files:
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, lambda: [file.refresh(force=True) for file in files]
        )


def _drain_reporter() -> Callable[[int], None]:
    """Returns a function that logs the number of running turns: when it changes, and every tenth call."""
    last, calls = -1, 0

    def report(running: int) -> None:
        nonlocal last, calls
        calls += 1
        if running == last and calls < 10:
            return
        if last >= 0:
            log.info("stopping: %s still running", format_count(running, "turn"))
        last, calls = running, 0

    return report


def _announce(app: App, settings: Settings, pids: Sequence[int] = ()) -> None:
    """Prints the banner, or logs it as one JSON line. pids: of all processes, if there are several."""
    if (
        settings.requires_auth
        and app.infra.certificates is None
        and not settings.listen.is_loopback
        and not settings.public.trusted_proxies
    ):
        log.warning(
            "credentials reach this server unencrypted; pass --tls-cert and --tls-key, or put a TLS proxy in front"
        )
    if settings.process.log_format == "text":
        write_if_possible(banner(app, settings, len(pids)))
        return
    log.info(
        "serving",
        extra={
            **(
                {"card": app.card_url, "grpc": str(app.grpc), "callers": describe_authentication(settings)}
                if app.grpc_address
                else {}
            ),
            "http": app.http.url,
            "role": settings.cluster.role,
            "tls": app.infra.certificates is not None,
            "root": app.root,
            "agents": sorted(app.agents),
            "store": app.settings.store.name,
            "pid": os.getppid() if pids else os.getpid(),
            **({"processes": pids} if pids else {}),
        },
    )


_SAMPLE_PARTS: Final[dict[str, dict[str, Any]]] = {
    "application/json": {"data": {"hello": "world"}},
    "text/csv": {
        "raw": base64.b64encode(b"name,age\nAda,36\nAlan,41\n").decode(),
        "mediaType": "text/csv",
        "filename": "people.csv",
    },
}
"""Example parts for agents that do not accept text."""


def banner(app: App, settings: Settings, processes: int = 0) -> str:
    """Returns the start-up text: addresses, agents, store, authentication, and a call to try.

    processes: their number, if there are several; else 0.
    """
    from dragoman.version import __version__  # reads the metadata of the distribution

    suffix = f", {processes} processes" if processes else ""
    stop_hint = f"Press Ctrl-C to stop. Running turns have {drain_seconds(settings):g} s to finish."
    if app.grpc_address is None:
        return f"""\
Dragoman {__version__}, worker on a shared store{suffix}

  Health   {app.http.url}/readyz
  Agents   {", ".join(sorted(app.agents))}
  Data     {app.settings.store.name}

{stop_hint}"""
    others = sorted(agent for agent in app.agents if agent != app.root)
    agents = f"{app.root} (root)" + (f", {', '.join(others)}" if others else "")
    if app.root not in app.agents:
        agents = ", ".join(others) or "none yet; start a worker: dragoman worker APP --server HOST:PORT"
    example = f"Try it:\n\n  {curl_line(app, settings)}\n\n" if app.root in app.agents else ""
    role = (
        "\n  Role     server; turns run in processes with --role worker or all"
        if settings.cluster.role == "server"
        else ""
    )
    more = ""
    for extension in installed_extensions():
        lines = extension.banner(settings.extensions[extension.name], app.public_url) if extension.banner else {}
        more += "".join(f"\n  {label:<8} {text}" for label, text in lines.items())
    return f"""\
Dragoman {__version__}{suffix}

  Card     {app.card_url}
  HTTP     {app.public_url}
  gRPC     {"grpcs://" if app.grpc.tls else ""}{app.grpc}{more}
  Console  {app.public_url}/console
  Agents   {agents}
  Data     {app.settings.store.name}{role}
  Auth     {describe_authentication(settings)}

{example}{stop_hint}"""


def describe_authentication(settings: Settings) -> str:
    """Returns the accepted credentials, and the agents that need none."""
    if not settings.requires_auth:
        is_open = settings.behind_proxy or not settings.listen.is_loopback
        return "none (--insecure: open to other machines)" if is_open else "none (loopback only)"
    accepted = ["API keys"] if settings.access.api_keys else []
    accepted += [f"tokens of {issuer.url}" for issuer in settings.access.issuers]
    accepted += ["client certificates"] if settings.tls.client_ca else []
    accepted += ["the bearer token of --token"] if settings.access.token.get_secret_value() else []
    public = f"; public agents: {', '.join(settings.access.public_agents)}" if settings.access.public_agents else ""
    return ", ".join(accepted) + public


def curl_line(app: App, settings: Settings) -> str:
    """Returns a curl command that sends a message to the root agent over REST.

    It reads credentials from DRAGOMAN_KEY or DRAGOMAN_CERT.
    """
    message = {"messageId": "hello-1", "role": "ROLE_USER", "parts": [sample_part(app.agents[app.root])]}
    body = orjson.dumps({"message": message}).decode()
    headers = "-H 'Content-Type: application/json' -H 'A2A-Version: 1.0'"
    if settings.requires_auth and not {app.root, "*"} & set(settings.access.public_agents):
        bearer = settings.access.api_keys or settings.access.issuers or settings.access.token.get_secret_value()
        headers += ' -H "Authorization: Bearer $DRAGOMAN_KEY"' if bearer else ' --cert "$DRAGOMAN_CERT"'
    return f"curl -sS {app.public_url}/message:send {headers} -d {shlex.quote(body)}"


def sample_part(spec: AgentSpec) -> dict[str, Any]:
    """Returns a part that an agent accepts: one of its own examples if it accepts text."""
    modes = [bare_type(mode) for mode in spec.input_modes]
    if any(mode in ("text/plain", "text/*", "text", "*/*", "*") for mode in modes):
        return {"text": next((example for skill in spec.skills for example in skill.examples), "hello")}
    for mode in modes:
        if mode in _SAMPLE_PARTS:
            return _SAMPLE_PARTS[mode]
    return {"raw": base64.b64encode(b"hello").decode(), "mediaType": modes[0] if modes else "text/plain"}


COMMANDS: Final = {
    "serve": Command(serve, lambda: option_parameters(serve_options()), help_with_examples, kind=ShortHelp)
}
