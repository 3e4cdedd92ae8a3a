"""Declares options, flags and arguments of commands."""

from __future__ import annotations

from typing import Any

import typer


def option(name: str, placeholder: str, help: str, *others: str, **settings: Any) -> Any:
    """`--NAME VALUE`. A help that ends with a default in brackets is the only place that shows it.

    others: further names, such as `-f`. settings: those of `typer.Option`.
    """
    if help.endswith("]"):
        settings["show_default"] = False
    return typer.Option(name, *others, metavar=placeholder, help=help, **settings)


def flag(name: str, help: str, *others: str, **settings: Any) -> Any:
    """`--NAME`, without a value."""
    return typer.Option(name, *others, metavar=" ", help=help, **settings)


def argument(placeholder: str, help: str, **settings: Any) -> Any:
    """A value without a name. Its help says what its default is."""
    return typer.Argument(metavar=placeholder, help=help, show_default=False, **settings)
