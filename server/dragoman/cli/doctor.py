"""`doctor`: checks everything that a server needs. The checks are in `dragoman.wiring.doctor`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import orjson
import typer

from dragoman.cli import ExitCode
from dragoman.cli.commands import Command, argument, flag
from dragoman.cli.serve.options import ShortHelp, option_parameters, serve_options
from dragoman.settings.settings import SettingsError, load_settings
from dragoman.wiring.doctor import run_checks

_LEVEL_LABELS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


async def doctor(
    app: Annotated[str | None, argument("APP", "As for `serve`. [the playground]")] = None,
    json: Annotated[bool, flag("--json", "Print one JSON object per line.")] = False,
    **options: Any,
) -> ExitCode:
    """Check settings, agents, ports, certificates, store and bus of a server.

    Takes every option of `dragoman serve`, and uses the settings that it would use here, including the environment and
    `dragoman.toml`. Each line shows one finding, and what to do about it if it is not ok. Tasks are read only if no
    server has the store open.

    **Example**: `dragoman doctor agents.py --store sqlite:////var/lib/dragoman/tasks.db`

    **Exit codes**: 0 no check fails; 1 a check fails; 2 the settings are invalid.
    """
    try:
        settings = load_settings({name: value for name, value in options.items() if value != []} | {"app": app})
    except SettingsError as error:
        typer.echo(f"{_LEVEL_LABELS['fail']}  settings     {error}")
        return ExitCode.USAGE
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


COMMANDS: Final = {"doctor": Command(doctor, lambda: option_parameters(serve_options()), kind=ShortHelp)}
