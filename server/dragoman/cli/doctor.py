"""`doctor`: checks everything that a server needs. The checks are in `dragoman.wiring.doctor`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import orjson
import typer

from dragoman.cli import ExitCode
from dragoman.settings.settings import Settings, SettingsError, load_settings
from dragoman.wiring.doctor import run_checks

_LEVEL_LABELS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def register(cli: typer.Typer) -> None:
    """Adds the command."""
    cli.command("doctor")(doctor)


def doctor(
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="As for `serve`. [the playground]", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="PATH", help="A settings file in TOML. [dragoman.toml, if it exists]"),
    ] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="As for `serve`.")] = None,
    http: Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="As for `serve`.")] = None,
    grpc: Annotated[str | None, typer.Option("--grpc", metavar="HOST:PORT", help="As for `serve`.")] = None,
    json: Annotated[bool, typer.Option("--json", metavar=" ", help="Print one JSON object per line.")] = False,
) -> None:
    """Check settings, agents, ports, certificates, store and bus of a server.

    Uses the settings that `dragoman serve` would use here, including environment variables and `dragoman.toml`. Each
    line shows one finding, and what to do about it if it is not ok. Tasks are read only if no server has the store
    open.

    **Example**: `dragoman doctor agents.py --store sqlite:////var/lib/dragoman/tasks.db`

    **Exit codes**: 0 no check fails; 1 a check fails; 2 the settings are invalid.
    """
    options = {"app": app, "config": config, "store": store, "http": http, "grpc": grpc}
    try:
        settings = load_settings(options)
    except SettingsError as error:
        typer.echo(f"{_LEVEL_LABELS['fail']}  settings     {error}")
        raise typer.Exit(ExitCode.USAGE) from error
    raise typer.Exit(asyncio.run(_print_findings(settings, json)))


async def _print_findings(settings: Settings, json: bool) -> ExitCode:
    failed = 0
    async for finding in run_checks(settings):
        failed += finding.level == "fail"
        if json:
            typer.echo(orjson.dumps(finding._asdict()).decode())
            continue
        typer.echo(f"{_LEVEL_LABELS[finding.level]}  {finding.what:<12} {finding.found}")
        if finding.do:
            typer.echo(f"      {'':<12} -> {finding.do}")
    return ExitCode.FAILED if failed else ExitCode.OK
