"""What `serve` does: settings, the server, what is printed, and how it ends.

Ctrl-C (or SIGTERM) drains: running turns get to end. A second one ends them now, a third ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from dragoman import logs
from dragoman.app import App, open_app
from dragoman.cli.banner import banner, callers
from dragoman.cli.channel import Channel
from dragoman.cli.files import make_room
from dragoman.cli.loop import Signals, loop_factory
from dragoman.cli.processes import supervise
from dragoman.foundation import StartError
from dragoman.loading import LoadError, load_agents
from dragoman.ports import Agent
from dragoman.settings import Settings, SettingsError, load

STARTED: Final = 0
NOT_STARTED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

COLLECT: Final = (10_000, 10, 10)
"""Allocations between collections, by generation. With Python's own 700, requests under way are looked through again
and again: 0.95 of the CPU of a send over gRPC is left."""

log = logging.getLogger("dragoman.serve")


def run(arguments: Mapping[str, Any], words: Sequence[str] = (), supervised: int | None = None) -> int:
    """Serves until a signal. Gives the exit code.

    words: the command line, for more processes of the same. supervised: this is one of them, and so the file number
    under which its parent is to be found.
    """
    try:
        settings = load(arguments)
        if settings.processes > 1:
            return supervise(words, settings)
        logs.configure(settings.log_format)
        make_room(settings.connections)
        agents = load_agents(settings.own_app)  # while Ctrl-C still means what it does in any Python program
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(settings, agents, Channel.inherited(supervised) if supervised is not None else None))
    except (SettingsError, LoadError) as error:
        return _sorry(error, USAGE)
    except StartError as error:
        return _sorry(error, NOT_STARTED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return STARTED


async def _serve(settings: Settings, agents: Sequence[Agent], parent: Channel | None) -> None:
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
            standing_by = asyncio.create_task(_stand_by(parent, app, settings), name="parent")
            stack.callback(standing_by.cancel)
        # What was loaded to get here stays. Looking through it in each full collection stops everyone for 100 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        await signals.next()
        await _drain(app, settings.drain, signals)
    log.info("stopped")


async def _stand_by(parent: Channel, app: App, settings: Settings) -> None:
    """Is there for the parent of several servers: one of them speaks for all, and none outlives it."""
    parent.say(ready=True)
    while (said := await parent.hear()) is not None:
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
            signal.SIGHUP, lambda: [file.refresh(asked=True) for file in files]
        )


async def _drain(app: App, limit: float, signals: Signals) -> None:
    """Lets running turns end, up to the limit or the next signal."""
    if app.running:
        log.info("stopping: waiting up to %g s for %s to end; Ctrl-C again stops at once", limit, _turns(app.running))
    draining = asyncio.create_task(app.drain(limit, _reporter()))
    again = asyncio.create_task(signals.next())
    await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
    if not draining.done():
        log.warning("stopping at once: %s will end as FAILED", _turns(app.running))
        draining.cancel()
        await app.drain(0)
    again.cancel()
    await asyncio.gather(draining, again, return_exceptions=True)


def _reporter() -> Callable[[int], None]:
    """Says how many turns are left: when that changes, and every ten seconds."""
    last, silent = -1, 0

    def report(running: int) -> None:
        nonlocal last, silent
        silent += 1
        if running == last and silent < 10:
            return
        if last >= 0:
            log.info("stopping: %s still running", _turns(running))
        last, silent = running, 0

    return report


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"


def _announce(app: App, settings: Settings, pids: Sequence[int] = ()) -> None:
    """Tells people by a banner on stdout, and machines by one log line. pids: of all processes, if they are several."""
    if settings.asks and app.certificates is None and not settings.is_loopback and not settings.trusted_proxies:
        log.warning("credentials reach this server in clear text; encrypt with --tls-cert, or by a proxy before it")
    if settings.log_format == "text":
        print(banner(app, settings, len(pids)), flush=True)
        return
    log.info(
        "serving",
        extra={
            **({"card": app.card_url, "grpc": str(app.grpc), "callers": callers(settings)} if app.at_grpc else {}),
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


def _sorry(error: Exception, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code
