"""`worker`: runs the agents of an app in this process for a server elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dragoman.calling.errors import ClientError
from dragoman.calling.secret_files import check_header_secret, read_secret
from dragoman.cli import ExitCode, logs, print_error, process_setup
from dragoman.cli.commands import Command, argument, option
from dragoman.cli.serve.options import help_with_examples, option_parameters, worker_options
from dragoman.client.agent_connection import grpc_address, is_http_url
from dragoman.client.options import CallOptions
from dragoman.settings.extensions import installed_extensions, is_recognized, used_sources
from dragoman.settings.settings import Settings, SettingsError, load_worker_settings
from dragoman.supervision import Background, start_task
from dragoman.wiring.agent_loader import LoadedApp, load_app
from dragoman.wiring.agents import run_startup_hooks
from dragoman.wiring.extensions import import_libraries, open_worker_sources
from dragoman.wiring.loop_guard import guarded_loop
from dragoman.wiring.systemd import READY, STOPPING, ServiceNotifier
from dragoman.wiring.telemetry import start_tracing
from dragoman.worker import Watchdog, Worker
from dragoman.worker.stream import ServerStream

log = logging.getLogger("dragoman.worker")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options that no server has."""

    app: Annotated[str, argument("APP", "A .py file or a module with agents.")] = ""
    server: Annotated[str, option(
        "--server", "URL",
        "The server: grpc(s)://HOST:PORT, HOST:PORT, or http(s)://HOST[:PORT], whose card names the former.",
        envvar="DRAGOMAN_SERVER",
    )] = "127.0.0.1:50051"  # fmt: skip
    key_file: Annotated[Path | None, option(
        "--key-file", "FILE", "A file with the worker's API key or token, read at each connection attempt. [none]",
        envvar="DRAGOMAN_KEY_FILE",
    )] = None  # fmt: skip
    tls_ca: Annotated[Path | None, option(
        "--tls-ca", "FILE", "CA certificates to verify the server's certificate with, in PEM. [the system's CAs]",
        "--ca", envvar="DRAGOMAN_CA",
    )] = None  # fmt: skip
    tls_cert: Annotated[Path | None, option(
        "--tls-cert", "FILE",
        "Client certificate and its key, both in one PEM file, if the server requires one. [none]",
        "--cert", envvar="DRAGOMAN_CERT",
    )] = None  # fmt: skip
    turns: Annotated[int, option("--turns", "N", "Concurrent turns per agent.", min=1, max=10_000)] = 100
    name: Annotated[str, option("--name", "TEXT", "A name for logs and lists. [host and process id]")] = ""

    def read_key(self) -> str:
        """Reads the key from its file; empty without a file. Raises SettingsError."""
        if (file := self.key_file) is None:
            return ""
        try:
            return check_header_secret(read_secret(file), str(file))
        except ValueError as error:
            raise SettingsError(f"--key-file: {error}") from error

    async def grpc_address(self) -> str:
        """The server's gRPC address: as given, or as its card names it. Raises ClientError."""
        if not is_http_url(self.server):
            return self.server
        calls = CallOptions(token=self.read_key(), ca=self.tls_ca, cert=self.tls_cert)
        return await grpc_address(self.server, calls)


def worker(options: WorkerOptions, **settings_options: Any) -> ExitCode:
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

    {examples}

    `dragoman worker mycompany.agents --turns 4 --log-format json`  up to four concurrent turns per agent

    **Exit codes**: 0 stopped; 1 start-up function failed; 2 invalid usage or agents; 3 rejected by the server.
    """
    settings = load_worker_settings(settings_options)
    if not options.app and not used_sources(settings.extensions, ""):
        names = [source.option for one in installed_extensions() if (source := one.agents)]
        raise typer.BadParameter(f"no agents; pass APP or {' or '.join(names)}")
    logs.configure_logging(settings.process.log_format, settings.process.log_level)
    try:
        import_libraries(used_sources(settings.extensions, options.app))
        # before Ctrl-C is taken over, so that it still interrupts the import
        app = load_app("" if is_recognized(options.app) else options.app)
        process_setup.run_until_complete(_serve_until_stopped(options, settings, app))
    except ClientError as error:
        return print_error(f"{options.server}: {error}", ExitCode.UNAVAILABLE)
    except process_setup.StartInterrupted:
        log.info("stopped during the start")
    return ExitCode.OK


async def _serve_until_stopped(options: WorkerOptions, settings: Settings, app: LoadedApp) -> None:
    signals = process_setup.Signals(settings.limits.drain)
    process_setup.end_on_failure()
    logs.retain_own_loggers()
    async with AsyncExitStack() as stack:
        await process_setup.enter_until_signal(stack, run_startup_hooks(app.agents, app.startup_hooks), signals)
        stack.enter_context(guarded_loop(settings.limits.loop_exit))
        notifier = ServiceNotifier.from_environment(os.environ)
        stack.callback(start_task(Background.WATCHDOG, notifier.keep_alive, "of systemd").cancel)
        tracing = await start_tracing(stack, settings, "dragoman-worker")
        stack.callback(Watchdog(asyncio.get_running_loop()).stop)
        stopping = asyncio.create_task(signals.next(), name="signals")
        stack.callback(stopping.cancel)
        sources = await open_worker_sources(
            stack, settings.extensions, options.app, app.agents, options.turns, settings.outbound.allow
        )
        loop_timeout = settings.limits.loop_timeout
        worker = Worker(
            [*app.agents, *sources.agents], await options.grpc_address(), key=options.read_key, name=options.name,
            turns=options.turns, tracer=tracing.recorder if tracing else None,
            open_stream=partial(ServerStream, ca=options.tls_ca, cert=options.tls_cert, loop_timeout=loop_timeout),
        )  # fmt: skip
        signals.turns = worker.running_turns
        working = asyncio.create_task(worker.run(), name="worker")
        notifier.notify(READY)  # it connects, and connects again, by itself
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        notifier.notify(STOPPING)
        if not working.done():
            drain, forced = settings.limits.drain, "will be returned to the server"
            await process_setup.drain_until_signal(
                worker.drain, drain, signals, lambda: worker.running, forced=forced, log=log
            )
        await working
    log.info("stopped")


COMMANDS: Final = {"worker": Command(worker, lambda: option_parameters(worker_options()), help_with_examples)}
