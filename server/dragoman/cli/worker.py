"""`worker`: the agents of an app, in a process of their own, at a server elsewhere.

Only the options are here. What the command does is in `working.py`, imported when it runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, cast

import typer

from dragoman.calling.errors import ClientError
from dragoman.cli import process_setup
from dragoman.cli.process_setup import Signals, loop_factory
from dragoman.ports import Agent
from dragoman.ports.tracing import Tracer
from dragoman.settings.types import parse_headers
from dragoman.wiring.agent_loader import ExecutorOptions, LoadError, load_agents, open_executors
from dragoman.wiring.telemetry import open_tracing
from dragoman.worker import Watchdog, Worker


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("worker")(worker)


def worker(
    app: Annotated[
        str, typer.Argument(metavar="APP", help="A .py file or a module with agents.", show_default=False)
    ] = "",
    executor: Annotated[
        list[str] | None,
        typer.Option(
            "--executor",
            envvar="DRAGOMAN_EXECUTOR",
            metavar="MODULE:CLASS",
            help="An AgentExecutor of a2a-sdk or Worker of fasta2a, in a process of its own; may be repeated.",
            show_default=False,
        ),
    ] = None,
    executor_python: Annotated[
        str,
        typer.Option(
            "--executor-python",
            envvar="DRAGOMAN_EXECUTOR_PYTHON",
            metavar="PATH",
            help="The Python of the environment that has it. [this one]",
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
            help="Times a turn of it begins again whose process was lost.",
        ),
    ] = 0,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            envvar="DRAGOMAN_SERVER",
            metavar="HOST:PORT",
            help="The server's gRPC address; grpcs://HOST:PORT where it is encrypted.",
        ),
    ] = "127.0.0.1:50051",
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            envvar="DRAGOMAN_KEY_FILE",
            metavar="FILE",
            help="A file with the worker's API key or token. It is read again each time the worker dials. [none]",
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
            help="Who may have signed the server's certificate, in PEM. [the system's authorities]",
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
            help="The worker's certificate and its key, in one file, where the server asks for one. [none]",
            show_default=False,
        ),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", metavar="N", min=1, max=10_000, help="Turns of each agent at the same time.")
    ] = 100,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="S", min=0, help="Seconds that turns get to end when the worker stops."),
    ] = 300.0,
    name: Annotated[
        str, typer.Option("--name", metavar="TEXT", help="For people and logs. [host and process id]")
    ] = "",
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="How log lines look, on stderr.")
    ] = "text",
    otlp: Annotated[
        str,
        typer.Option(
            "--otlp",
            envvar="DRAGOMAN_OTLP",
            metavar="URL",
            help="Who collects traces: http://HOST:4318, grpc://HOST:4317. [nobody]",
            show_default=False,
        ),
    ] = "",
    otlp_headers: Annotated[
        str,
        typer.Option(
            "--otlp-headers",
            envvar="DRAGOMAN_OTLP_HEADERS",
            metavar="NAME=VALUE,...",
            help="What the collector is shown. [nothing]",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run the agents of APP in this process, for a server that they dial in to.

    The functions are those that `dragoman serve APP` would run, unchanged. The server keeps the tasks, speaks with
    callers and shows the agents' cards; this process only works. Start as many as you need: a server gives each turn
    to a worker with room, in turn. When the line breaks, what ran is FAILED, or begins again where the agent says
    `on_crash=retry(n)`, and the worker dials again.

    Ctrl-C (SIGTERM) lets running turns end; a second one gives them back at once.

    On a server that asks callers who they are, a worker needs a key: `dragoman keys create box1 --grant worker` for
    any agent, `--grant worker:echo` for that one. Agents belong to the key's principal, and nobody else may have them.
    Other servers take workers from their own machine only.

    **Examples**

    `dragoman worker agents.py`  at a server on this machine

    `dragoman worker agents.py --server grpcs://agents.example.com:50051 --key-file /run/secrets/worker-key`

    `dragoman worker --executor mycompany.agent:HelloWorldAgentExecutor --executor-python venv/bin/python`

    `dragoman worker mycompany.agents --turns 4 --log-format json`  four turns of each agent at a time

    **Exit codes**: 0 stopped; 2 wrong usage or agents; 3 the server refused the worker.
    """
    pass
    from dragoman.core import agent_sources
    from dragoman.settings.types import check_collector_url, parse_headers
    from dragoman.wiring.agent_loader import ExecutorOptions

    if log_format not in ("text", "json"):
        raise typer.BadParameter("--log-format: must be text or json")
    try:
        hosting = ExecutorOptions(
            agent_sources.parse_executors(executor or ()), executor_python, turns, executor_retries
        )
    except ValueError as error:
        raise typer.BadParameter(f"--executor: {error}") from error
    if not app and not hosting.executors:
        raise typer.BadParameter("name an APP, or an --executor")
    try:
        check_collector_url(otlp)
        parse_headers(otlp_headers)
    except ValueError as error:
        raise typer.BadParameter(f"--otlp, --otlp-headers: {error}") from error
    given = WorkerOptions(
        app, hosting, server, key_file, tls_ca, tls_cert, turns, drain, name, log_format, otlp, otlp_headers
    )
    raise typer.Exit(run_worker(given))


EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_UNAVAILABLE: Final = 3
EXIT_INTERRUPTED: Final = 130

log = logging.getLogger("dragoman.worker")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the command line said."""

    app: str
    hosting: ExecutorOptions
    server: str
    key_file: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    turns: int
    drain: float
    name: str
    log_format: str
    otlp: str
    otlp_headers: str


class InvalidKeyFile(Exception):
    """The file of the key cannot be used; the text says why."""


def run_worker(options: WorkerOptions) -> int:
    """Serves until a signal, or until the server refuses. Gives the exit code."""
    process_setup.configure_logging(cast("Literal['text', 'json']", options.log_format))
    try:
        agents = load_agents(options.app)  # while Ctrl-C still means what it does in any Python program
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve_until_stopped(options, agents))
    except (LoadError, InvalidKeyFile) as error:
        return _report_error(str(error), EXIT_USAGE)
    except ClientError as error:
        return _report_error(f"{options.server}: {error}", EXIT_UNAVAILABLE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_OK


async def _serve_until_stopped(options: WorkerOptions, agents: Sequence[Agent]) -> None:
    signals = Signals()
    async with AsyncExitStack() as stack:
        await _serve(options, agents, signals, await _open_tracer(stack, options))
    log.info("stopped")


async def _open_tracer(stack: AsyncExitStack, options: WorkerOptions) -> Tracer | None:
    if not options.otlp:
        return None
    tracing = open_tracing(options.otlp, parse_headers(options.otlp_headers), 1.0, role="dragoman-worker")
    return (await stack.enter_async_context(tracing)).tracer


async def _serve(options: WorkerOptions, agents: Sequence[Agent], signals: Signals, tracer: Tracer | None) -> None:
    watchdog = Watchdog(asyncio.get_running_loop())
    stopping = asyncio.create_task(signals.next(), name="signals")
    try:
        async with open_executors(options.hosting) as hosted:
            every = [*agents, *hosted.agents]
            if len({agent.spec.id for agent in every}) < len(every):
                raise LoadError("--executor: has the id of an agent of APP; say ID=MODULE:NAME")
            worker = Worker(
                every, options.server, key=lambda: _read_key(options.key_file), ca=options.tls_ca, cert=options.tls_cert,
                name=options.name, turns=options.turns, tracer=tracer,
            )  # fmt: skip
            working = asyncio.create_task(worker.run(), name="worker")
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await _drain(worker, options.drain, signals)
            await working
    finally:
        stopping.cancel()
        watchdog.stop()


async def _drain(worker: Worker, limit: float, signals: Signals) -> None:
    """Lets running turns end, up to the limit or the next signal."""
    if worker.running:
        log.info("stopping: waiting up to %g s for turns to end: %d; Ctrl-C again stops at once", limit, worker.running)
    draining = asyncio.create_task(worker.drain(limit))
    again = asyncio.create_task(signals.next())
    await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping at once: turns that are given back: %d", worker.running)
        draining.cancel()
        await worker.drain(0)
    again.cancel()
    await asyncio.gather(draining, again, return_exceptions=True)


def _read_key(file: Path | None) -> str:
    """What is in the file. Raises KeyUnusable."""
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidKeyFile(f"--key-file: {file} cannot be read: {why}") from error
    if not key or not key.isascii() or not key.isprintable():
        raise InvalidKeyFile(f"--key-file: {file} must hold one line with an API key or a token")
    return key


def _report_error(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code
