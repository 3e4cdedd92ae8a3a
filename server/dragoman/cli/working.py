"""What `worker` does: its agents, its key, the line, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from dragoman import logs
from dragoman.cli.loop import Signals, loop_factory
from dragoman.client.failure import ClientError
from dragoman.hosting import Hosting, open_executors
from dragoman.loading import LoadError, load_agents
from dragoman.ports import Agent
from dragoman.ports.tracing import Tracer
from dragoman.setting_types import headers_of
from dragoman.tracing import open_tracing
from dragoman.worker import Watchdog, Worker

DONE: Final = 0
USAGE: Final = 2
REFUSED: Final = 3
INTERRUPTED: Final = 130

log = logging.getLogger("dragoman.worker")


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line said."""

    app: str
    hosting: Hosting
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


class KeyUnusable(Exception):
    """The file of the key cannot be used; the text says why."""


def run(given: Given) -> int:
    """Serves until a signal, or until the server refuses. Gives the exit code."""
    logs.configure(cast("Literal['text', 'json']", given.log_format))
    try:
        agents = load_agents(given.app)  # while Ctrl-C still means what it does in any Python program
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_work(given, agents))
    except (LoadError, KeyUnusable) as error:
        return _sorry(str(error), USAGE)
    except ClientError as error:
        return _sorry(f"{given.server}: {error}", REFUSED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


async def _work(given: Given, agents: Sequence[Agent]) -> None:
    signals = Signals()
    async with AsyncExitStack() as stack:
        await _serve(given, agents, signals, await _tracer(stack, given))
    log.info("stopped")


async def _tracer(stack: AsyncExitStack, given: Given) -> Tracer | None:
    if not given.otlp:
        return None
    tracing = open_tracing(given.otlp, headers_of(given.otlp_headers), 1.0, role="dragoman-worker")
    return (await stack.enter_async_context(tracing)).tracer


async def _serve(given: Given, agents: Sequence[Agent], signals: Signals, tracer: Tracer | None) -> None:
    watchdog = Watchdog(asyncio.get_running_loop())
    stopping = asyncio.create_task(signals.next(), name="signals")
    try:
        async with open_executors(given.hosting) as hosted:
            every = [*agents, *hosted.agents]
            if len({agent.spec.id for agent in every}) < len(every):
                raise LoadError("--executor: has the id of an agent of APP; say ID=MODULE:NAME")
            worker = Worker(
                every, given.server, key=lambda: _key(given.key_file), ca=given.tls_ca, cert=given.tls_cert,
                name=given.name, turns=given.turns, tracer=tracer,
            )  # fmt: skip
            working = asyncio.create_task(worker.run(), name="worker")
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await _drain(worker, given.drain, signals)
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


def _key(file: Path | None) -> str:
    """What is in the file. Raises KeyUnusable."""
    if file is None:
        return ""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise KeyUnusable(f"--key-file: {file} cannot be read: {why}") from error
    if not key or not key.isascii() or not key.isprintable():
        raise KeyUnusable(f"--key-file: {file} must hold one line with an API key or a token")
    return key


def _sorry(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code
