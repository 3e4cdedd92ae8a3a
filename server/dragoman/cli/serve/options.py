"""The options of `serve` and `worker`, from the definitions of the settings, which receive all values as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Final

import typer

from dragoman.ports.extension import Option
from dragoman.settings.extensions import bus_schemes, extension_options, installed_extensions, store_schemes
from dragoman.settings.options import options_of
from dragoman.settings.settings import own_groups


@cache
def serve_options() -> Mapping[str, Sequence[Option]]:
    """All options by heading, with those of extensions; those under "" come first. Raises SettingsError."""
    stores = ", ".join(store.url_format for _, store in store_schemes().values())
    buses = ", ".join(f"{scheme}://HOST:PORT" for scheme in bus_schemes())
    options: dict[str, list[Option]] = {}
    for group in own_groups().values():
        for one, _ in options_of(group).values():
            help = one.help.replace("{stores}, ", f"{stores}, " if stores else "").replace("{buses}", buses or "URL")
            if one.name != "app":  # which `serve` takes as its argument
                options.setdefault(group.title, []).append(replace(one, help=help))
    extensions = {
        one.title: [option for option, _ in extension_options(one).values()] for one in installed_extensions()
    }
    return options | {title: of_extension for title, of_extension in extensions.items() if of_extension}


WORKER_SETTINGS: Final = frozenset(
    {"drain", "log_format", "log_level", "loop_exit", "loop_timeout", "otlp", "otlp_headers", "outbound_allow"}
)
"""Settings of a server that workers have, too."""


def worker_options() -> Mapping[str, Sequence[Option]]:
    """The options that workers have, too, also of extensions, by heading. Raises SettingsError."""
    by_heading = {
        heading: [one for one in options if one.in_worker or one.name in WORKER_SETTINGS]
        for heading, options in serve_options().items()
    }
    return {heading: options for heading, options in by_heading.items() if options}


def help_with_examples(function: Callable[..., Any]) -> str:
    """The help of a command, with the examples of extensions."""
    examples = [example for one in installed_extensions() if one.agents for example in one.agents.examples]
    lines = (f"`dragoman {function.__name__} {arguments}`  {does}".rstrip() for arguments, does in examples)
    return (function.__doc__ or "").replace("{examples}", "\n\n    ".join(lines))


def option_parameters(by_heading: Mapping[str, Sequence[Option]]) -> Iterator[inspect.Parameter]:
    """The options as parameters of a command function. The default is None: not given."""
    for heading, options in by_heading.items():
        for option in options:
            flag = option.kind is bool
            declaration = typer.Option(
                (flag and option.value) or "--" + option.name.replace("_", "-"),
                help=option.help,
                metavar=" " if flag and not option.value else None if flag else option.value,
                rich_help_panel=heading or None,
                show_default=False,
            )
            yield inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[option.kind | None, declaration],
            )
