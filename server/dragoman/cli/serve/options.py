"""The options of `serve` and `worker`, from the definitions of the settings, which receive all values as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperOption

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


MOST_USED: Final = (
    *("config", "http", "grpc", "store", "bus", "upstream", "executor_python", "api_keys", "issuers", "public_url"),
    *("tls_cert", "tls_key", "slots", "retention", "log_format"),
)
"""Settings of most servers, the first that people look for. The help of `serve` shows these; `--help-all` shows all."""


class ShortHelp(TyperCommand):
    """A command whose help shows the most used settings only. Shells complete all of them."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        of_settings = {one.name for options in serve_options().values() for one in options}
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and parameter.name in of_settings:
                parameter.hidden = parameter.name not in MOST_USED
                parameter.rich_help_panel = None
        super().format_help(ctx, formatter)


def print_all_options(context: typer.Context, given: bool) -> None:
    """Prints the options of `serve` by heading, and ends the process. No name is cut, however narrow the terminal."""
    if not given:
        return
    formatter = context.make_formatter()
    for heading, options in serve_options().items():
        with formatter.section(heading or "Server"):
            formatter.write_dl([(f"{_spelling(one)} {_value(one)}".strip(), one.help) for one in options])
    typer.echo(formatter.getvalue().strip())
    raise typer.Exit


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


def _spelling(option: Option) -> str:
    return (option.kind is bool and option.value) or "--" + option.name.replace("_", "-")


def _value(option: Option) -> str:
    return "" if option.kind is bool else option.value


def option_parameters(by_heading: Mapping[str, Sequence[Option]]) -> Iterator[inspect.Parameter]:
    """The options as parameters of a command function. The default is None: not given."""
    for heading, options in by_heading.items():
        for option in options:
            declaration = typer.Option(
                _spelling(option),
                help=option.help,
                metavar=_value(option) or (" " if option.kind is bool and not option.value else None),
                rich_help_panel=heading or None,
                show_default=False,
            )
            yield inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[option.kind | None, declaration],
            )
