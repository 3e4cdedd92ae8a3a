"""`doctor`: is everything there that a server needs?

Only the options are here. What is looked at is in `dragoman.wiring.doctor`, imported when the command runs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dragoman.settings.settings import Settings

EXIT_FAILED = 1
EXIT_USAGE = 2

_LEVEL_LABELS = {"ok": "ok  ", "warn": "look", "fail": "FAIL"}


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("doctor")(doctor)


def doctor(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="As of `serve`. [the playground]", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="PATH", help="Settings in TOML. [dragoman.toml, if there is one]"),
    ] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="As of `serve`.")] = None,
    http: Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="As of `serve`.")] = None,
    grpc: Annotated[str | None, typer.Option("--grpc", metavar="HOST:PORT", help="As of `serve`.")] = None,
    json: Annotated[bool, typer.Option("--json", metavar=" ", help="One JSON object a line.")] = False,
) -> None:
    """Look at everything that a server needs: agents, ports, certificate, store, clock, keys, tasks, bus, card.

    The settings are those that `serve` would have here: variables and `dragoman.toml` count. Each line says how it is,
    and what to do where it is not well. Tasks are read only while no server holds their store.

    **Example**: `dragoman doctor agents.py --store sqlite:////var/lib/dragoman/tasks.db`

    **Exit codes**: 0 nothing fails; 1 something does; 2 the settings cannot be used.
    """
    from dragoman.settings.settings import SettingsError, load_settings

    said = {"app": app, "config": config, "store": store, "http": http, "grpc": grpc}
    try:
        settings = load_settings(said)
    except SettingsError as error:
        typer.echo(f"{_LEVEL_LABELS['fail']}  settings     {error}")
        raise typer.Exit(EXIT_USAGE) from error
    raise typer.Exit(asyncio.run(_print_findings(settings, json)))


async def _print_findings(settings: Settings, json: bool) -> int:
    import orjson

    from dragoman.wiring.doctor import run_checks

    failed = 0
    async for finding in run_checks(settings):
        failed += finding.level == "fail"
        if json:
            typer.echo(orjson.dumps(finding._asdict()).decode())
            continue
        typer.echo(f"{_LEVEL_LABELS[finding.level]}  {finding.what:<12} {finding.found}")
        if finding.do:
            typer.echo(f"      {'':<12} -> {finding.do}")
    return EXIT_FAILED if failed else 0
