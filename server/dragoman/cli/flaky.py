"""`flaky`: a proxy that drops connections. The proxy is `dragoman.fault_proxy`."""

from __future__ import annotations

import logging
from typing import Annotated, Final

import typer

from dragoman.cli import ExitCode, print_error
from dragoman.cli.commands import Command, option
from dragoman.cli.logs import configure_logging
from dragoman.cli.process_setup import Signals
from dragoman.fault_proxy import Drop, DropLimit, FaultProxy

log = logging.getLogger("dragoman.fault_proxy")


async def flaky(
    to: Annotated[str, option("--to", "HOST:PORT", "The server's address.")] = "127.0.0.1:8080",
    listen: Annotated[
        str, option("--listen", "HOST:PORT", "The address for clients; port 0: any free port.")
    ] = "127.0.0.1:9000",
    every: Annotated[int, option("--every", "N", "Drop every Nth connection immediately; 0: none.", min=0)] = 3,
    after: Annotated[
        str,
        option(
            "--after",
            "TIME|SIZE",
            "Drop the other connections after this time or size, mid-response: 5s, 500ms, 64KiB. [never]",
        ),
    ] = "",
    delay: Annotated[float, option("--delay", "MS", "Milliseconds to delay each chunk, both ways.", min=0)] = 0.0,
    reset: Annotated[bool, typer.Option("--reset", help="Drop with a TCP reset (RST) instead of a close.")] = False,
    hang: Annotated[bool, typer.Option("--hang", help="Keep connections open but forward nothing more.")] = False,
    seed: Annotated[int, option("--seed", "N", "Random seed; the same seed gives the same drops.")] = 0,
    log_format: Annotated[str, option("--log-format", "text|json", "The format of log lines, on stderr.")] = "text",
) -> ExitCode:
    """Run a proxy that drops connections, to test clients.

    Forwards TCP: HTTP, gRPC and WebSocket, with or without TLS. Every third connection (`--every`) is dropped: before
    the request is forwarded, after the request but before the response, or in the middle of the response. `--seed`
    decides which; the same seed gives the same drops. `--after` also breaks long streams on the other connections.

    Prints one line per drop, and a summary at Ctrl-C.

    **Examples**

    `dragoman flaky --to 127.0.0.1:8080`  clients then call http://127.0.0.1:9000

    `dragoman flaky --to 127.0.0.1:50051 --after 5s --reset`  streams over gRPC break about every five seconds

    **Exit codes**: 0 stopped; 1 cannot listen on the address; 2 invalid usage.
    """
    if log_format not in ("text", "json"):
        raise typer.BadParameter("--log-format: must be text or json")
    if reset and hang:
        raise typer.BadParameter("--reset and --hang exclude each other; pass one of them")
    try:
        proxy = FaultProxy(
            to, listen=listen, every=every, after=DropLimit.parse(after) if after else None, delay=delay / 1000,
            how="reset" if reset else "hang" if hang else "close", seed=seed, on_drop=_log_drop,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    configure_logging(log_format)  # type: ignore[arg-type]  # checked above
    signals = Signals()
    try:
        async with proxy:
            log.info("forwarding connections from %s to %s; press Ctrl-C to stop", proxy.address, proxy.target)
            await signals.next()
    except OSError as error:
        return print_error(
            f"--listen: cannot listen on {listen}: {error.strerror}; choose another address, or port 0", ExitCode.FAILED
        )
    finally:
        signals.close()
    _log_summary(proxy)
    return ExitCode.OK


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


COMMANDS: Final = {"flaky": Command(flaky)}
