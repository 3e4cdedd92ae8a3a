"""`serve`: the command that starts a server.

Nothing heavy is imported before the command runs, so that `dragoman --help` is quick.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import inspect
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final

import orjson
import typer

from dragoman.cli import process_setup
from dragoman.cli.process_setup import Signals, loop_factory, raise_open_file_limit
from dragoman.cli.serve.options import parameters
from dragoman.cli.serve.processes import SupervisorChannel, run_processes
from dragoman.core.cards.agent_spec import AgentSpec
from dragoman.ports import Agent
from dragoman.release import version
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.wiring.agent_loader import LoadError, load_agents
from dragoman.wiring.app import App, open_app
from dragoman.wiring.infra import StartError


def register(cli: typer.Typer) -> None:
    """Adds the command, with every setting as an option."""
    signature = inspect.signature(serve, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    whole = signature.replace(parameters=[*own, *parameters()])

    def command(**said: Any) -> None:
        serve(**said)

    command.__doc__ = serve.__doc__
    command.__signature__ = whole  # type: ignore[attr-defined]  # read by typer, and unknown to the type of functions
    command.__annotations__ = {one.name: one.annotation for one in whole.parameters.values()}
    cli.command("serve")(command)


def serve(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="A .py file or a module with agents; else the playground.")
    ] = None,
    *,
    reload: Annotated[
        bool, typer.Option("--reload", metavar=" ", help="Start again when the app's files change; for development.")
    ] = False,
    supervised: Annotated[int | None, typer.Option("--supervised", hidden=True)] = None,
    **said: Any,
) -> None:
    """Serve agents over A2A: gRPC, REST and JSON-RPC, tasks on disk.

    Every option can also be set as DRAGOMAN_NAME in the environment, or as name in a TOML file; the command line
    wins, then the environment. Ctrl-C lets running turns end; a second one does not.

    Nobody is asked who they are, and only this machine can call, unless there is --api-keys, --issuers or --token.

    **Examples**

    `dragoman serve`  the playground, to try things out

    `dragoman serve agents.py --reload`

    `dragoman serve mycompany.agents --store sqlite:////var/lib/dragoman/tasks.db --log-format json`

    `dragoman serve --upstream https://agents.example.com/weather`  in front of another A2A agent

    `dragoman serve --executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python`

    `dragoman serve agents.py --tls-cert server.pem --tls-key server.key`  https and grpcs
    """
    given = {**{name: None if value == [] else value for name, value in said.items()}, "app": app}
    if reload:
        from dragoman.cli.serve.reload import app_argument, run_with_reload

        raise typer.Exit(run_with_reload(sys.argv[1:], app_argument(given)))
    pass

    raise typer.Exit(run_server(given, sys.argv[1:], supervised))


EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

GC_THRESHOLDS: Final = (10_000, 10, 10)
"""Allocations between collections, by generation. With Python's own 700, requests under way are looked through again
and again: 0.95 of the CPU of a send over gRPC is left."""

log = logging.getLogger("dragoman.serve")


def run_server(arguments: Mapping[str, Any], command_line: Sequence[str] = (), supervised: int | None = None) -> int:
    """Serves until a signal. Gives the exit code.

    words: the command line, for more processes of the same. supervised: this is one of them, and so the file number
    under which its parent is to be found.
    """
    try:
        settings = load_settings(arguments)
        if settings.processes > 1:
            return run_processes(command_line, settings)
        process_setup.configure_logging(settings.log_format)
        raise_open_file_limit(settings.connections)
        agents = load_agents(settings.own_app)  # while Ctrl-C still means what it does in any Python program
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(
                _serve(settings, agents, SupervisorChannel.inherited(supervised) if supervised is not None else None)
            )
    except (SettingsError, LoadError) as error:
        return _report_error(error, EXIT_USAGE)
    except StartError as error:
        return _report_error(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_OK


async def _serve(settings: Settings, agents: Sequence[Agent], parent: SupervisorChannel | None) -> None:
    signals = Signals()
    async with AsyncExitStack() as stack:
        if parent is not None:
            await parent.open()
            stack.callback(parent.close)
        app = await stack.enter_async_context(open_app(settings, agents, shared=parent is not None))
        _reload_on_hangup(app)
        if parent is None:
            _announce(app, settings)
        else:
            standing_by = asyncio.create_task(_follow_supervisor(parent, app, settings), name="parent")
            stack.callback(standing_by.cancel)
        # What was loaded to get here stays. Looking through it in each full collection stops everyone for 100 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await signals.next()
        await _drain(app, settings.drain, signals)
    log.info("stopped")


async def _follow_supervisor(parent: SupervisorChannel, app: App, settings: Settings) -> None:
    """Is there for the parent of several servers: one of them speaks for all, and none outlives it."""
    parent.send(ready=True)
    while (said := await parent.receive()) is not None:
        if pids := said.get("announce"):
            _announce(app, settings, pids)
    log.error("the process that kept this server is gone; stopping")
    os.kill(os.getpid(), signal.SIGTERM)


def _reload_on_hangup(app: App) -> None:
    """SIGHUP, as of `systemctl reload`, looks at certificates and the card file at once; without any of these it means
    what it always does."""
    files = [one for one in (app.certificates, app.card_file) if one is not None]
    if files and hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, lambda: [file.refresh(force=True) for file in files]
        )


async def _drain(app: App, limit: float, signals: Signals) -> None:
    """Lets running turns end, up to the limit or the next signal."""
    if app.running:
        log.info(
            "stopping: waiting up to %g s for %s to end; Ctrl-C again stops at once", limit, _format_turns(app.running)
        )
    draining = asyncio.create_task(app.drain(limit, _drain_reporter()))
    again = asyncio.create_task(signals.next())
    await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping at once: %s will end as FAILED", _format_turns(app.running))
        draining.cancel()
        await app.drain(0)
    again.cancel()
    await asyncio.gather(draining, again, return_exceptions=True)


def _drain_reporter() -> Callable[[int], None]:
    """Says how many turns are left: when that changes, and every ten seconds."""
    last, silent = -1, 0

    def report(running: int) -> None:
        nonlocal last, silent
        silent += 1
        if running == last and silent < 10:
            return
        if last >= 0:
            log.info("stopping: %s still running", _format_turns(running))
        last, silent = running, 0

    return report


def _format_turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def _announce(app: App, settings: Settings, pids: Sequence[int] = ()) -> None:
    """Tells people by a banner on stdout, and machines by one log line. pids: of all processes, if they are several."""
    if (
        settings.requires_auth
        and app.certificates is None
        and not settings.is_loopback
        and not settings.trusted_proxies
    ):
        log.warning("credentials reach this server in clear text; encrypt with --tls-cert, or by a proxy before it")
    if settings.log_format == "text":
        print(banner(app, settings, len(pids)), flush=True)
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
            "role": settings.role,
            "tls": app.certificates is not None,
            "root": app.root,
            "agents": sorted(app.agents),
            "store": str(app.store),
            "pid": os.getppid() if pids else os.getpid(),
            **({"processes": pids} if pids else {}),
        },
    )


def _report_error(error: Exception, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


_SAMPLE_PARTS: Final[dict[str, dict[str, Any]]] = {
    "application/json": {"data": {"hello": "world"}},
    "text/csv": {
        "raw": base64.b64encode(b"name,age\nAda,36\nAlan,41\n").decode(),
        "mediaType": "text/csv",
        "filename": "people.csv",
    },
}
"""A part to try an agent with that takes no text."""


def banner(app: App, settings: Settings, processes: int = 0) -> str:
    """The lines: where everything is, what is served, what to try. `processes`: how many there are, if not one."""
    several = f", {processes} processes" if processes else ""
    if app.grpc_address is None:
        return f"""\
Dragoman {version()}, a worker on a store{several}

  Health  {app.http.url}/readyz
  Agents  {", ".join(sorted(app.agents))}
  Data    {app.store}

Ctrl-C stops, and lets running turns end."""
    others = sorted(agent for agent in app.agents if agent != app.root)
    agents = f"{app.root} (root)" + (f", {', '.join(others)}" if others else "")
    if app.root not in app.agents:
        agents = ", ".join(others) or "those that workers dial in with: dragoman worker APP --server HOST:PORT"
    tried = f"Try it:\n\n  {curl_line(app, settings)}\n\n" if app.root in app.agents else ""
    role = (
        "\n  Role    server: turns of APP run in processes with --role worker, or all"
        if settings.role == "server"
        else ""
    )
    return f"""\
Dragoman {version()}{several}

  Card    {app.card_url}
  HTTP    {app.public_url}
  gRPC    {"grpcs://" if app.grpc.tls else ""}{app.grpc}
  Agents  {agents}
  Data    {app.store}{role}
  Callers {describe_authentication(settings)}

{tried}Ctrl-C stops, and lets running turns end."""


def describe_authentication(settings: Settings) -> str:
    """Who may call, and how they say who they are."""
    if not settings.requires_auth:
        wide = not (settings.http.is_loopback and settings.grpc.is_loopback)
        who = "other machines can call (--insecure)" if wide else "only this machine can call"
        return f"nobody is asked who they are; {who}"
    shown = ["API keys"] if settings.api_keys else []
    shown += [f"tokens of {issuer.url}" for issuer in settings.issuers]
    shown += ["certificates"] if settings.tls_client_ca else []
    shown += ["the bearer token"] if settings.token.get_secret_value() else []
    public = f"; nothing for {', '.join(settings.public_agents)}" if settings.public_agents else ""
    return f"show {', '.join(shown)}{public}"


def curl_line(app: App, settings: Settings) -> str:
    """A REST call of A2A 1.0 to the root agent that works as it stands, with DRAGOMAN_TOKEN or DRAGOMAN_CERT if need
    be."""
    message = {"messageId": "hello-1", "role": "ROLE_USER", "parts": [sample_part(app.agents[app.root])]}
    body = orjson.dumps({"message": message}).decode()
    headers = "-H 'Content-Type: application/json' -H 'A2A-Version: 1.0'"
    if settings.requires_auth and not {app.root, "*"} & set(settings.public_agents):
        bearer = settings.api_keys or settings.issuers or settings.token.get_secret_value()
        headers += ' -H "Authorization: Bearer $DRAGOMAN_TOKEN"' if bearer else ' --cert "$DRAGOMAN_CERT"'
    return f"curl -sS {app.public_url}/message:send {headers} -d {shlex.quote(body)}"


def sample_part(spec: AgentSpec) -> dict[str, Any]:
    """A part that an agent takes: an example of its own if it reads text."""
    modes = [mode.split(";")[0].strip().lower() for mode in spec.input_modes]
    if any(mode in ("text/plain", "text/*", "text", "*/*", "*") for mode in modes):
        return {"text": next((example for skill in spec.skills for example in skill.examples), "hello")}
    for mode in modes:
        if mode in _SAMPLE_PARTS:
            return _SAMPLE_PARTS[mode]
    return {"raw": base64.b64encode(b"hello").decode(), "mediaType": modes[0] if modes else "text/plain"}
