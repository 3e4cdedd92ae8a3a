"""Declares commands and their options: calls run, and failures become exit codes and errors on stderr."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from typing import Any, NoReturn

import typer
import typer.core

from dragoman.calling import tls
from dragoman.calling.errors import ClientError, NotFound, is_resolution_failure
from dragoman.cli import ExitCode, print_error, print_note, wants_json
from dragoman.cli.standard_streams import discard_stdout
from dragoman.core.errors import A2AError, AgentNotFound, KeyNotFound, TaskNotFound


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


@dataclass(frozen=True, slots=True)
class Resolved:
    """Metadata of a parameter: the value that is typed is replaced by that of `find`, called with the server too."""

    find: Callable[[Any, Any], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that ends the process with the exit code that its function returns; None is success.

    A parameter of the function whose type is a dataclass stands for one option for each of its fields, `**` for
    `options`. A coroutine function runs in a loop of its own, and its errors name the `server` of its options.
    """

    function: Callable[..., Any]
    options: Callable[[], Iterable[inspect.Parameter]] = tuple
    help: Callable[[Callable[..., Any]], str | None] = inspect.getdoc  # the help of its function
    context_settings: Mapping[str, Any] | None = None  # those of typer
    kind: type[typer.core.TyperCommand] = typer.core.TyperCommand

    def add_to(self, cli: typer.Typer, name: str) -> None:
        signature = inspect.signature(self.function, eval_str=True)
        groups: dict[str, inspect.Signature] = {}
        parameters: list[inspect.Parameter] = []
        found: dict[str, Resolved] = {}
        for parameter in signature.parameters.values():
            own, kind = [parameter], parameter.annotation
            metadata = getattr(kind, "__metadata__", ())
            found.update((parameter.name, one) for one in metadata if isinstance(one, Resolved))
            if isinstance(kind, type) and is_dataclass(kind):
                groups[parameter.name] = inspect.signature(kind, eval_str=True)
                own = list(groups[parameter.name].parameters.values())
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                own = list(self.options())
            parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]

        @wraps(self.function)
        def command(**values: Any) -> NoReturn:
            server = ""
            for parameter, value in values.items():
                for text in value if isinstance(value, list) else (value,):
                    check_text(text, parameter.replace("_", "-"))
            for group, options in groups.items():
                build = signature.parameters[group].annotation
                values[group] = build(**{option: values.pop(option) for option in options.parameters})
                server = getattr(values[group], "server", server)
            run_command(
                server, partial(self._resolve_and_run, found, values) if found else partial(self.function, **values)
            )

        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        settings = dict(self.context_settings) if self.context_settings else None
        cli.command(name, cls=self.kind, help=self.help(self.function), context_settings=settings)(command)

    async def _resolve_and_run(self, found: Mapping[str, Resolved], values: Mapping[str, Any]) -> Any:
        resolved = {name: await one.find(values, values[name]) for name, one in found.items() if values[name]}
        return await self.function(**{**values, **resolved})


def check_text(value: object, name: str) -> None:
    """Raises BadParameter for a text with bytes that are not UTF-8, which Python keeps as surrogates."""
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise typer.BadParameter(f"{name}: is not UTF-8")


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands below a name: `dragoman NAME COMMAND`."""

    help: str
    commands: Mapping[str, Command]

    def add_to(self, cli: typer.Typer, name: str) -> None:
        kind = _ListGroup if "list" in self.commands else typer.core.TyperGroup
        group = typer.Typer(name=name, cls=kind, help=self.help, no_args_is_help=True, rich_markup_mode="markdown")
        for command_name, command in self.commands.items():
            command.add_to(group, command_name)
        cli.add_typer(group)


class _ListGroup(typer.core.TyperGroup):
    """Lists, without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list else args)


def run_command(server: str, command: Callable[[], Any]) -> NoReturn:
    """Runs a command against a server and ends the process with its exit code. A coroutine has a loop of its own."""
    try:
        result = command()
        code = asyncio.run(result) if isinstance(result, Coroutine) else result
    except ClientError as error:
        code = _print_client_error(server, error)
    except A2AError as error:  # of a command on a store
        not_found = isinstance(error, TaskNotFound | AgentNotFound | KeyNotFound)
        code = print_error(error.message, ExitCode.NOT_FOUND if not_found else ExitCode.UNAVAILABLE)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # `| head` has closed the pipe
        discard_stdout()
        code = ExitCode.OK
    except typer.Exit:  # the command has printed its error
        raise
    except Exception as error:
        # Only some commands raise these, and others need not import them: that takes longer than their call.
        from dragoman.cli.profiles import ProfileError
        from dragoman.ports.extension import StartError
        from dragoman.settings.sources import SettingsError
        from dragoman.wiring.agent_loader import LoadError

        if not isinstance(error, SettingsError | LoadError | ProfileError | StartError):
            raise
        code = print_error(error, ExitCode.FAILED if isinstance(error, StartError) else ExitCode.USAGE)
    raise typer.Exit(code or ExitCode.OK)


def _print_client_error(server: str, error: ClientError) -> ExitCode:
    code = ExitCode.NOT_FOUND if isinstance(error, NotFound) else ExitCode.UNAVAILABLE
    if error.unreachable:
        if advice := tls.tls_advice(error.message, server):
            return print_error(f"{server}: {advice}", code, name=error.code)
        reason = error.message.rpartition(": ")[2]
        if is_resolution_failure(error.message):
            reason = "the name cannot be resolved"
        print_error(f"cannot connect to {server}: {reason}", code, name=error.code)
        if not wants_json():
            print_note(
                "start a server with: dragoman serve; or pass the address of one: --server URL (DRAGOMAN_SERVER)"
            )
        return code
    violations = [one for one in error.violations if one.description not in error.message]
    if wants_json():
        fields = [{"field": one.field, "description": one.description} for one in error.violations]
        details = {"violations": fields} if fields else {}
        return print_error(error.message, code, name=error.reason or error.code, **details)
    print_error(f"{error.message} ({error.reason or error.code})", code)
    if "UNAUTHENTICATED" in (error.reason, error.code):
        print_note("pass an API key or another token that the server accepts: --key KEY (DRAGOMAN_KEY)")
    if error.message == TaskNotFound().message:  # the reason may also mean a push configuration
        print_note(
            "pass the complete id, as `dragoman list` shows it; tasks of other callers, and of agents that this server "
            "does not serve, cannot be found"
        )
    for violation in violations:
        print_note(f"  {violation.field}: {violation.description}")
    return code
