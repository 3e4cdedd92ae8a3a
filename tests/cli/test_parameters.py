"""What a declared option, flag or argument shows in the help of a command."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.testing import CliRunner

from dragoman.cli.parameters import argument, flag, option


def test_the_help_shows_placeholders_and_one_default() -> None:
    app = typer.Typer(rich_markup_mode="markdown")

    @app.command()
    def go(
        who: Annotated[str, argument("WHO", "A name. [everyone]")] = "all",
        plain: Annotated[int, option("--plain", "N", "A number.")] = 7,
        bracketed: Annotated[int, option("--bracketed", "N", "A number. [eight]")] = 8,
        quick: Annotated[bool, flag("--quick", "Hurry.", "-q")] = False,
    ) -> None:
        typer.echo(f"{who} {plain} {bracketed} {quick}")

    shown = CliRunner().invoke(app, ["--help"]).output
    assert "--plain" in shown
    assert "[default: 7]" in shown
    assert "[eight]" in shown
    assert "[default: 8]" not in shown
    assert "[default: all]" not in shown
    assert CliRunner().invoke(app, ["-q", "--plain", "1"]).output == "all 1 8 True\n"
