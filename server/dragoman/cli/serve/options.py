"""The options of `serve` and `worker`, from the definitions of the settings, which receive all values as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

import typer

from dragoman.ports.extension import Option
from dragoman.settings.extensions import bus_schemes, extension_options, installed_extensions, store_schemes
from dragoman.settings.groups import APP
from dragoman.settings.options import options_of
from dragoman.settings.settings import own_groups


@cache
def serve_options() -> Mapping[str, Sequence[Option]]:
    """All options by heading, with those of extensions; those under "" come first. Raises InvalidExtension."""
    stores = ", ".join(store.url_format for _, store in store_schemes().values())
    buses = ", ".join(f"{scheme}://HOST:PORT" for scheme in bus_schemes())
    texts = {"{stores}, ": f"{stores}, " if stores else "", "{buses}": buses or "URL"}
    options: dict[str, list[Option]] = {}
    for group in own_groups().values():
        own = options.setdefault(group.title, [])
        own += [
            replace(one, help=_replaced(one.help, texts)) for one, _ in options_of(group).values() if one.name != APP
        ]
    return options | _extension_options()


def worker_options() -> Mapping[str, Sequence[Option]]:
    """The options of extensions that workers have, too, by heading. Raises InvalidExtension."""
    return _extension_options(lambda option: option.in_worker)


def _extension_options(is_shown: Callable[[Option], bool] = lambda _: True) -> dict[str, list[Option]]:
    return {
        extension.title: options
        for extension in installed_extensions()
        if (options := [one for one, _ in extension_options(extension).values() if is_shown(one)])
    }


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def with_options(function: Callable[..., Any], by_heading: Mapping[str, Sequence[Option]]) -> Callable[..., Any]:
    """A command function whose `**options` are these."""
    signature = inspect.signature(function, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    full_signature = signature.replace(parameters=[*own, *_parameters(by_heading)])

    def command(**arguments: Any) -> Any:
        return function(**arguments)

    command.__doc__ = (function.__doc__ or "").replace("{examples}", _examples(function.__name__))
    command.__signature__ = full_signature  # type: ignore[attr-defined]  # typer reads it; function types lack it
    command.__annotations__ = {one.name: one.annotation for one in full_signature.parameters.values()}
    return command


def _examples(command: str) -> str:
    """The examples of extensions for the help of a command."""
    examples = [example for one in installed_extensions() if one.agents for example in one.agents.examples]
    return "\n\n    ".join(f"`dragoman {command} {arguments}`  {does}".rstrip() for arguments, does in examples)


def _parameters(by_heading: Mapping[str, Sequence[Option]]) -> Iterator[inspect.Parameter]:
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
