"""`worker`: runs the agents of an app in this process for a server elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from dragoman.calling.errors import ClientError
from dragoman.cli import ExitCode, logs, print_error
from dragoman.cli.process_setup import (
    Signals,
    StartInterrupted,
    drain_until_signal,
    end_on_failure,
    enter_until_signal,
    run_until_complete,
)
from dragoman.cli.serve.options import with_options, worker_options
from dragoman.client.agent_connection import grpc_address, is_http_url
from dragoman.client.transport import CallOptions
from dragoman.core import agent_sources
from dragoman.core.net.addresses import AllowEntry
from dragoman.ports.extension import StartError
from dragoman.ports.tracing import Tracer
from dragoman.settings.extensions import installed_extensions, read_worker_groups, used_sources
from dragoman.settings.options import InvalidGroups
from dragoman.settings.settings import SettingsError
from dragoman.settings.types import check_collector_url, parse_allow_list, parse_headers
from dragoman.supervision import Background, start_task
from dragoman.wiring.agent_loader import ExecutorOptions, LoadedApp, LoadError, load_app, open_executors
from dragoman.wiring.agents import run_startup_hooks
from dragoman.wiring.extensions import import_libraries, open_worker_sources
from dragoman.wiring.loop_guard import guarded_loop
from dragoman.wiring.systemd import READY, STOPPING, ServiceNotifier
from dragoman.wiring.telemetry import open_tracing
from dragoman.worker import LOOP_EXIT, LOOP_TIMEOUT, Watchdog, Worker

_OutboundAllow = Annotated[
    str,
    typer.Option(
        "--outbound-allow",
        envvar="DRAGOMAN_OUTBOUND_ALLOW",
        metavar="NETWORK,...",
        help="Private networks and hosts that agents at other servers may be called at. [none]",
        show_default=False,
    ),
]


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("worker")(with_options(worker, worker_options()))


def worker(
    app: Annotated[
        str, typer.Argument(metavar="APP", help="A .py file or a module with agents.", show_default=False)
    ] = "",
    executor: Annotated[
        list[str] | None,
        typer.Option(
            "--executor",
            envvar="DRAGOMAN_EXECUTOR",
            metavar="[ID=]MODULE:NAME",
            help="An a2a-sdk AgentExecutor, a fasta2a Worker or an agent of a framework, run in its own process; may "
            "be repeated.",
            show_default=False,
        ),
    ] = None,
    executor_python: Annotated[
        str,
        typer.Option(
            "--executor-python",
            envvar="DRAGOMAN_EXECUTOR_PYTHON",
            metavar="PATH",
            help="The Python interpreter of the executor's environment. [this one]",
            show_default=False,
        ),
    ] = "",
    executor_retries: Annotated[
        int,
        typer.Option(
            "--executor-retries",
            envvar="DRAGOMAN_EXECUTOR_RETRIES",
            metavar="N",
            min=0,
            max=100,
            help="Attempts to repeat an executor's turn after its process died.",
        ),
    ] = 0,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="DRAGOMAN_SERVER",
            metavar="URL",
            help="The server: grpc(s)://HOST:PORT, HOST:PORT, or http(s)://HOST[:PORT], whose card names the former.",
        ),
    ] = "127.0.0.1:50051",
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            envvar="DRAGOMAN_KEY_FILE",
            metavar="FILE",
            help="A file with the worker's API key or token, read at each connection attempt. [none]",
            show_default=False,
        ),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca",
            "--ca",
            envvar="DRAGOMAN_CA",
            metavar="FILE",
            help="CA certificates to verify the server's certificate with, in PEM. [the system's CAs]",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            "--cert",
            envvar="DRAGOMAN_CERT",
            metavar="FILE",
            help="Client certificate and its key, both in one PEM file, if the server requires one. [none]",
            show_default=False,
        ),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", metavar="N", min=1, max=10_000, help="Concurrent turns per agent.")
    ] = 100,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="S", min=0, help="Seconds for running turns to finish when the worker stops."),
    ] = 300.0,
    loop_timeout: Annotated[
        float,
        typer.Option(
            "--loop-timeout",
            metavar="S",
            min=0.1,
            help="Seconds of a blocked event loop after which the server gives the turns to others.",
        ),
    ] = LOOP_TIMEOUT,
    loop_exit: Annotated[
        float,
        typer.Option(
            "--loop-exit",
            metavar="S",
            min=0,
            help="Seconds after which a blocked worker ends itself, with a traceback; 0: never.",
        ),
    ] = LOOP_EXIT,
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="A name for logs and lists. [host and process id]")
    ] = "",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="The format of log lines, on stderr.")
    ] = "text",
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            envvar="DRAGOMAN_LOG_LEVEL",
            metavar="debug|info|warning|error",
            help="Least level of log lines.",
        ),
    ] = "info",
    otlp: Annotated[
        str,
        typer.Option(
            "--otlp",
            envvar="DRAGOMAN_OTLP",
            metavar="URL",
            help="The OpenTelemetry collector for traces: http://HOST:4318, grpc://HOST:4317. [none]",
            show_default=False,
        ),
    ] = "",
    otlp_headers: Annotated[
        str,
        typer.Option(
            "--otlp-headers",
            envvar="DRAGOMAN_OTLP_HEADERS",
            metavar="NAME=VALUE,...",
            help="Headers to send to the collector. [none]",
            show_default=False,
        ),
    ] = "",
    outbound_allow: _OutboundAllow = "",
    **extension_options: Any,
) -> None:
    """Run the agents of APP in this process for a server elsewhere.

    The worker connects to the server and runs the same functions as `dragoman serve APP`. The server stores the tasks,
    handles clients and publishes the agents' cards. Any number of workers can run the same agents; the server gives
    each turn to a worker with free capacity. If the connection breaks, running turns end as FAILED, or are repeated
    if the agent is declared with `on_crash=retry(n)`; the worker reconnects.

    Ctrl-C (SIGTERM) waits for running turns to finish; a second Ctrl-C returns them to the server at once.

    A server with authentication requires an API key: `dragoman keys create box1 --grant worker` for any agent,
    `--grant worker:echo` for one agent. The agents belong to the key's principal; other principals cannot use their
    ids. A server without authentication accepts workers from its own machine only.

    **Examples**

    `dragoman worker agents.py`  for a server on this machine

    `dragoman worker agents.py --server grpcs://agents.example.com:50051 --key-file /run/secrets/worker-key`

    `dragoman worker --executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python`

    `dragoman worker assistant.py:agent --executor-python venv/bin/python`  an agent of a framework, unchanged

    `dragoman worker mycompany.agents --turns 4 --log-format json`  up to four concurrent turns per agent

    **Exit codes**: 0 stopped; 1 start-up function failed; 2 invalid usage or agents; 3 rejected by the server.
    """
    if log_format not in ("text", "json"):
        raise typer.BadParameter("--log-format: must be text or json")
    if log_level not in get_args(logs.LogLevel):
        raise typer.BadParameter(f"--log-level: must be one of {', '.join(get_args(logs.LogLevel))}")
    try:
        if agent_sources.is_object_name(app):
            executor, app = [app, *(executor or ())], ""
        executors = agent_sources.parse_executors(executor or ())
        executor_options = ExecutorOptions(executors, executor_python, turns, executor_retries)
    except ValueError as error:
        raise typer.BadParameter(f"--executor: {error}") from error
    groups, allowed = _read_extension_options(extension_options, outbound_allow)
    if not app and not executor_options.executors and not used_sources(groups, app):
        names = ["--executor", *(source.option for one in installed_extensions() if (source := one.agents))]
        raise typer.BadParameter(f"no agents; pass APP or {' or '.join(names)}")
    _check_collector(otlp, otlp_headers)
    options = WorkerOptions(
        app, executor_options, server, key_file, tls_ca, tls_cert, turns, drain, loop_timeout, loop_exit, name,
        log_format, log_level,
        otlp, otlp_headers, groups, allowed,
    )  # fmt: skip
    raise typer.Exit(run_worker(options))


def _read_extension_options(
    options: Mapping[str, Any], outbound_allow: str
) -> tuple[Mapping[str, Any], Sequence[AllowEntry]]:
    """The settings of extensions, and what they may call. Raises typer.BadParameter."""
    try:
        return read_worker_groups(options), parse_allow_list(outbound_allow)
    except InvalidGroups as error:
        raise typer.BadParameter("; ".join(f"--{one['loc'][0]}: {one['msg']}" for one in error.errors)) from error
    except ValueError as error:
        raise typer.BadParameter(f"--outbound-allow: {error}") from error


def _check_collector(otlp: str, otlp_headers: str) -> None:
    """Raises typer.BadParameter."""
    try:
        check_collector_url(otlp)
        parse_headers(otlp_headers)
    except ValueError as error:
        raise typer.BadParameter(f"--otlp, --otlp-headers: {error}") from error


log = logging.getLogger("dragoman.worker")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of the command line."""

    app: str
    executors: ExecutorOptions
    server: str
    key_file: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    turns: int
    drain: float
    loop_timeout: float
    loop_exit: float
    name: str
    log_format: str
    log_level: str
    otlp: str
    otlp_headers: str
    groups: Mapping[str, Any]
    """The settings of extensions."""
    outbound_allow: Sequence[AllowEntry]


class InvalidKeyFile(Exception):
    """The key file cannot be read, or does not contain a key. The text names file and reason."""


def run_worker(options: WorkerOptions) -> ExitCode:
    """Runs until a signal, or until the server rejects the worker. Returns the exit code."""
    logs.configure_logging(cast("logs.LogFormat", options.log_format), cast("logs.LogLevel", options.log_level))
    try:
        import_libraries(used_sources(options.groups, options.app))
        app = load_app(options.app)  # before Ctrl-C is taken over, so that it still interrupts the import
        run_until_complete(_serve_until_stopped(options, app))
    except (LoadError, InvalidKeyFile, SettingsError) as error:
        return print_error(error, ExitCode.USAGE)
    except StartError as error:
        return print_error(error, ExitCode.FAILED)
    except ClientError as error:
        return print_error(f"{options.server}: {error}", ExitCode.UNAVAILABLE)
    except StartInterrupted:
        log.info("stopped during the start")
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


async def _serve_until_stopped(options: WorkerOptions, app: LoadedApp) -> None:
    signals = Signals(options.drain)
    end_on_failure()
    async with AsyncExitStack() as stack:
        await enter_until_signal(stack, run_startup_hooks(app.agents, app.startup_hooks), signals)
        stack.enter_context(guarded_loop(options.loop_exit))
        notifier = ServiceNotifier.from_environment(os.environ)
        stack.callback(start_task(Background.WATCHDOG, notifier.keep_alive, "of systemd").cancel)
        await _serve(options, app, signals, notifier, await _open_tracer(stack, options), stack)
    log.info("stopped")


async def _open_tracer(stack: AsyncExitStack, options: WorkerOptions) -> Tracer | None:
    if not options.otlp:
        return None
    tracing = open_tracing(options.otlp, parse_headers(options.otlp_headers), 1.0, role="dragoman-worker")
    return (await stack.enter_async_context(tracing)).recorder


async def _serve(
    options: WorkerOptions,
    app: LoadedApp,
    signals: Signals,
    notifier: ServiceNotifier,
    tracer: Tracer | None,
    stack: AsyncExitStack,
) -> None:
    watchdog = Watchdog(asyncio.get_running_loop())
    stopping = asyncio.create_task(signals.next(), name="signals")
    try:
        async with open_executors(options.executors) as executor_agents:
            all_agents = [*app.agents, *executor_agents]
            if len({agent.spec.id for agent in all_agents}) < len(all_agents):
                raise LoadError("--executor: has the same id as an agent of APP; pass another id with ID=MODULE:NAME")
            sources = open_worker_sources(
                stack, options.groups, options.app, all_agents, options.turns, options.outbound_allow
            )
            all_agents += (await sources).agents
            worker = Worker(
                all_agents, await _grpc_address(options), key=lambda: _read_key(options.key_file), ca=options.tls_ca,
                cert=options.tls_cert, name=options.name, turns=options.turns, tracer=tracer,
                loop_timeout=options.loop_timeout,
            )  # fmt: skip
            signals.turns = worker.running_turns
            working = asyncio.create_task(worker.run(), name="worker")
            notifier.notify(READY)  # it connects, and connects again, by itself
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            notifier.notify(STOPPING)
            if not working.done():
                await drain_until_signal(
                    worker.drain,
                    options.drain,
                    signals,
                    running=lambda: worker.running,
                    forced="will be returned to the server",
                    log=log,
                )
            await working
    finally:
        stopping.cancel()
        watchdog.stop()


async def _grpc_address(options: WorkerOptions) -> str:
    """The server's gRPC address: as given, or as its card names it. Raises ClientError."""
    if not is_http_url(options.server):
        return options.server
    key = _read_key(options.key_file)
    return await grpc_address(options.server, CallOptions(token=key, ca=options.tls_ca, cert=options.tls_cert))


def _read_key(file: Path | None) -> str:
    """Reads the key from its file; empty without a file. Raises InvalidKeyFile."""
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise InvalidKeyFile(f"--key-file: {file} cannot be read: {reason}") from error
    if not key or not key.isascii() or not key.isprintable():
        raise InvalidKeyFile(f"--key-file: {file} must contain one line with an API key or a token")
    return key
