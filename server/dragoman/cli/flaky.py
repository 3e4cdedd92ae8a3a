"""`flaky`: a network that fails, between a client and a server.

Only the options are here. The proxy is `dragoman.fault_proxy`, imported when the command runs.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dragoman.fault_proxy import Drop, FaultProxy

EXIT_FAILED = 1

log = logging.getLogger("dragoman.fault_proxy")


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("flaky")(flaky)


def flaky(
    to: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The server.")] = "127.0.0.1:8080",
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0: any.")
    ] = "127.0.0.1:9000",
    every: Annotated[
        int, typer.Option("--every", metavar="N", min=0, help="Which connections are dropped at once; 0: none.")
    ] = 3,
    after: Annotated[
        str,
        typer.Option(
            "--after",
            metavar="TIME|SIZE",
            help="When the others are, in the middle of an answer: 5s, 500ms, 64KiB. [never]",
            show_default=False,
        ),
    ] = "",
    delay: Annotated[
        float, typer.Option("--delay", metavar="MS", min=0, help="Milliseconds each piece is held up, both ways.")
    ] = 0.0,
    reset: Annotated[bool, typer.Option("--reset", help="Drop with a reset (RST), not with a close.")] = False,
    hang: Annotated[bool, typer.Option("--hang", help="Close nothing; pass on no more.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another one, other moments.")] = 0,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="How lines look, on stderr.")
    ] = "text",
) -> None:
    """Stand between a client and a server as a bad network, to see what the client makes of it.

    It carries TCP: HTTP, gRPC, WebSocket, and what is encrypted. Every third connection (`--every`) is dropped: some
    before the request went up, some after it but before the answer, some in the middle of the answer. Which is which
    `--seed` chooses, and the same seed chooses the same. Long streams on the other connections break with `--after`.

    Prints a line for each drop, and a summary at Ctrl-C.

    **Examples**

    `dragoman flaky --to 127.0.0.1:8080`  clients then call http://127.0.0.1:9000

    `dragoman flaky --to 127.0.0.1:50051 --after 5s --reset`  streams over gRPC break about every five seconds

    **Exit codes**: 0 stopped; 1 it cannot listen there; 2 wrong usage.
    """
    from dragoman.cli import process_setup
    from dragoman.fault_proxy import DropLimit, FaultProxy

    if log_format not in ("text", "json"):
        raise typer.BadParameter("--log-format: must be text or json")
    if reset and hang:
        raise typer.BadParameter("--reset, --hang: name one of them")
    try:
        proxy = FaultProxy(
            to, listen=listen, every=every, after=DropLimit.parse(after) if after else None, delay=delay / 1000,
            how="reset" if reset else "hang" if hang else "close", seed=seed, on_drop=_log_drop,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    process_setup.configure_logging(log_format)  # type: ignore[arg-type]  # checked above
    raise typer.Exit(asyncio.run(_run_proxy(proxy, listen)))


async def _run_proxy(proxy: FaultProxy, listen: str) -> int:
    from dragoman.cli.process_setup import Signals

    signals = Signals()
    try:
        async with proxy:
            log.info("carrying connections from %s to %s; Ctrl-C stops", proxy.address, proxy.target)
            await signals.next()
    except OSError as error:
        print(f"error: --listen: cannot listen on {listen}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    _log_summary(proxy)
    return 0


def _log_drop(drop: Drop) -> None:
    fields = {"connection": drop.number, "up": drop.up, "down": drop.down, "seconds": round(drop.seconds, 3)}
    log.info("dropped %s", drop.point, extra=fields | {"how": drop.how})


def _log_summary(proxy: FaultProxy) -> None:
    total = proxy.dropped.total()
    moments = "".join(f"; {count} {moment}" for moment, count in sorted(proxy.dropped.items()))
    fields = {"connections": proxy.connections, "dropped": total, "up": proxy.up, "down": proxy.down}
    if proxy.unreachable:
        fields["unreachable"] = proxy.unreachable
    log.info("%d of %d connections dropped%s", total, proxy.connections, moments, extra=fields)
