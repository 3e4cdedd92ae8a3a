"""The command `dragoman`: one server, and a client for trying it and for scripts.

Commands are listed in a table; the module of a command is imported when the command is resolved. So `dragoman --help`
and the completion of command names import neither gRPC nor a store. What all commands print is here too: exit codes,
errors and notes on stderr, and texts without control characters.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from dragoman.cli.standard_streams import finish_stdout, prepare_streams

_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL, C1, other line ends, overrides of the text direction, and surrogates, which no stream can encode."""
_SHORT_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

_HELP = """Dragoman, a durable task server for the A2A protocol.

**Getting started**

`dragoman new NAME`  creates a project with an agent and its test

`dragoman serve`  starts a server with a playground agent; `dragoman serve agents.py` serves your agents

`dragoman send "echo hello"`  sends a message from another terminal

`dragoman --install-completion`  completes commands, options, agents and tasks in your shell
"""

_EXIT_CODES_HELP = """**Exit codes**: 0 success, or the task waits for input; 1 the task failed, was rejected or was
canceled, or the server could not start; 2 invalid usage, settings or agents; 3 the server is unreachable or rejected
the request; 4 no such task, agent or key; 130 interrupted by Ctrl-C.
"""

_UsageError: Final[Any] = typer.BadParameter.__mro__[1]  # the base of usage errors, which typer does not export

_json_wanted: Final = ContextVar("json_wanted", default=False)


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    FAILED = 1  # the task failed, was rejected or was canceled; the server could not start; a check failed
    USAGE = 2  # invalid options, settings, agents or files
    UNAVAILABLE = 3  # the server is unreachable, or rejected the request
    NOT_FOUND = 4  # the server has no such task, agent, key or push configuration, or not for this caller
    INTERRUPTED = 130


def escape_controls(text: str, *, preserve: str = "") -> str:
    """Escapes control characters as JSON does (`\\n`, `\\u001b`), so that JSON stays the same JSON.

    Texts of callers, agents and servers could otherwise add lines to a log or control the terminal. preserve:
    control characters that stay.
    """

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in preserve else _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"

    return _CONTROL_CHARACTERS.sub(escape, text)


def print_note(text: str) -> None:
    """Prints a note on stderr; it may have several lines."""
    print(escape_controls(text, preserve="\n\t"), file=sys.stderr, flush=True)


def print_error(error: object, code: ExitCode, *, name: str = "", **details: Any) -> ExitCode:
    """Prints `error: TEXT` on stderr, or with `--json` one JSON object. Returns the exit code.

    name: the error's name in the JSON, by default that of the exit code. details: further keys.
    """
    if wants_json():
        fields = {"code": name or code.name, "message": str(error), **details, "exitCode": int(code)}
        print_note(json.dumps({"error": fields}, ensure_ascii=False))
    else:
        print_note(f"error: {error}")
    return code


def wants_json() -> bool:
    """Whether the running command has `--json`."""
    return _json_wanted.get()


def format_count(count: int, noun: str) -> str:
    """A number with its noun: `1 turn`, `1,200 turns`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class CommandSpec(NamedTuple):
    """Where a command is defined, and how the help of `dragoman` shows it."""

    module: str  # below `dragoman.cli`, with the command in its table `COMMANDS`; of others, with `register`
    help: str  # the first line of the command's own help
    panel: str


_PANELS: Final = {
    "Start a project": {
        "new": ("project", "Create a project: agents, a test that runs them, a Dockerfile and a README."),
        "config": ("project", "Write and show the settings of a server."),
    },
    "Run servers and workers": {
        "serve": ("serve.command", "Serve agents over A2A: gRPC, REST and JSON-RPC, with tasks on disk."),
        "worker": ("worker", "Run the agents of APP in this process for a server elsewhere."),
        "doctor": ("doctor", "Check settings, agents, ports, certificates, store and bus of a server."),
        "flaky": ("flaky", "Run a proxy that drops connections, to test clients."),
    },
    "Choose a server": {
        "login": ("login", "Store the address of a server and an API key for it, which the other commands use."),
        "logout": ("login", "Delete a profile and its key on this machine."),
    },
    "Work with tasks": {
        "send": ("tasks.send", "Send a message to an agent and wait for the result."),
        "get": ("tasks.read", "Show a task: state, status message, artifacts."),
        "watch": ("tasks.read", "Follow a task until it ends."),
        "list": (
            "tasks.read",
            "List your tasks with the agents of this server, in all scopes, most recently changed first.",
        ),
        "cancel": ("tasks.bulk", "Request that a task stops, or all tasks that the options select."),
        "rerun": (
            "tasks.bulk",
            "Send the first message of an ended task again, or of all tasks that the options select.",
        ),
        "failures": ("tasks.execution", "Group failed tasks by what failed."),
        "explain": ("tasks.execution", "Explain a task: who runs it, what happens next, and what to do."),
        "steps": ("tasks.execution", "List the durable steps of a task: state, attempt, duration, result, error."),
        "logs": ("tasks.events", "Show the events of a task, or the changes of all tasks, as they happen."),
        "record": ("record", "Record the messages and answers of a task as a test case."),
        "replay": ("record", "Run a recorded test case against the agents of APP."),
    },
    "Maintain a store": {
        "purge": ("admin.maintenance", "Erase tasks with their events, messages and artifacts."),
        "export": ("admin.maintenance", "Write everything stored about a task as JSON lines."),
        "backup": ("admin.maintenance", "Copy a store while it is in use, and verify the copy."),
        "restore": ("admin.maintenance", "Create a store from a backup, and verify it."),
    },
    "Administer a server": {
        "agents": (
            "admin.agents",
            "List, pause and resume the agents of a server; add and remove upstream A2A agents.",
        ),
        "overview": ("admin.usage", "Show what waits and runs now, and what was done in the last hours, by agent."),
        "usage": ("admin.usage", "Show tasks, turns, tokens and costs by day, agent, principal or scope."),
        "workers": ("admin.agents", "List workers; release the ids of agents without workers."),
        "keys": ("admin.keys", "Create, list, rotate and revoke API keys."),
        "signing": (
            "admin.signing",
            "List, rotate and withdraw the keys that sign push notifications and agent cards.",
        ),
        "push": ("admin.push", "List push configurations and redeliver events."),
        "audit": ("admin.audit", "Export and verify the audit log."),
    },
}
"""The module and the help of each command, by the panel of the help."""

COMMANDS: Final = {
    name: CommandSpec(module, help, panel)
    for panel, commands in _PANELS.items()
    for name, (module, help) in commands.items()
}
"""All commands, in the order of the help."""

COMMAND_GROUP: Final = "dragoman.commands"
"""The group of entry points of commands: each is the name of a command and, as `MODULE:register`, its module."""


@cache
def installed_commands() -> Mapping[str, CommandSpec]:
    """The commands of other distributions, which their modules `register`. Imports none of them."""
    from importlib import metadata

    return {
        one.name: CommandSpec(one.module, f"A command of {one.dist.name}." if one.dist else "", "Extensions")
        for one in metadata.entry_points(group=COMMAND_GROUP)
        if one.name not in COMMANDS
    }


class LazyGroup(TyperGroup):
    """Shows the commands from the table, and imports the module of a command to run it or to complete its options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": {name: _entry(name, spec) for name, spec in COMMANDS.items()}})

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, for the help: also those of other distributions."""
        return [*COMMANDS, *installed_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The entry of a command; None if there is none, in other distributions neither."""
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        spec = installed_commands().get(cmd_name)
        return spec and _entry(cmd_name, spec)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the name, the imported command, and the remaining words."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = load_command(name)
            _hide_flag_types(command, ctx)
        return name, command, rest

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        _hide_types(params)
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Notes whether errors are to be JSON, before anything can be wrong with the other options."""
        options = args[: args.index("--")] if "--" in args else args
        _json_wanted.set("--json" in options)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. With `--json`, invalid usage is an error object too."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if hasattr(error, "possibilities"):
                _suggest_options(error)
            if not wants_json():
                raise
            raise typer.Exit(print_error(error.format_message(), ExitCode.USAGE)) from error


def _suggest_options(error: Any) -> None:
    """Suggests for an unknown option the nearest one, or for --host and --port those of an address."""
    from dragoman.core.names import nearest

    wrong, params = error.option_name.lstrip("-"), error.ctx.command.get_params(error.ctx)
    known = {name.lstrip("-"): name for one in params for name in (*one.opts, *one.secondary_opts) if name[:2] == "--"}
    near = nearest(wrong, known)
    named = [f"--{one} HOST:PORT" for one in ("http", "grpc") if one in known and wrong in ("host", "port")]
    error.possibilities = [known[near]] if near else named


def _entry(name: str, spec: CommandSpec) -> TyperCommand:
    return TyperCommand(name, help=spec.help, rich_help_panel=spec.panel, rich_markup_mode="markdown")


def _hide_flag_types(command: Any, parent: Any) -> None:
    """Leaves out the type of each flag in the help of a command and of those below it."""
    # The names of its help option, which it creates here and keeps, are in its own settings.
    ctx = typer.Context(command, parent=parent, **command.context_settings)
    _hide_types(command.get_params(ctx))
    for below in getattr(command, "commands", {}).values():
        _hide_flag_types(below, ctx)


def _hide_types(params: Iterable[Any]) -> None:
    for param in params:
        if param.metavar is None and getattr(param, "is_flag", False):
            param.metavar = " "


def load_command(name: str) -> Any:
    registry = typer.Typer(rich_markup_mode="markdown", callback=lambda: None)
    if spec := COMMANDS.get(name):
        try:
            module = import_module(f"dragoman.cli.{spec.module}")
        except ModuleNotFoundError as error:
            text = f"{name} needs the libraries of a server ({error}): pip install dragoman in place of dragoman-client"
            raise typer.Exit(print_error(text, ExitCode.FAILED)) from error
        module.COMMANDS[name].add_to(registry, name)
    else:
        import_module(installed_commands()[name].module).register(registry)
    group = typer.main.get_group(registry)
    return group.commands[name]


cli = typer.Typer(
    name="dragoman", cls=LazyGroup, help=_HELP, epilog=_EXIT_CODES_HELP, rich_markup_mode="markdown",
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _show_version(wanted: bool) -> None:
    if wanted:
        from dragoman.version import __version__  # reads the metadata of the distribution

        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


@cli.callback()
def _dragoman(
    version: Annotated[
        bool, typer.Option("--version", metavar=" ", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile", envvar="DRAGOMAN_PROFILE", metavar="NAME", help="Use this profile of `dragoman login`."
        ),
    ] = "",
) -> None:
    pass


def main() -> None:
    """Runs the command line. The process ends with one of the exit codes that `--help` lists."""
    # gRPC's core logs errors to stderr that its callers receive as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    prepare_streams()
    if problem := finish_stdout(cli):
        sys.exit(print_error(problem, ExitCode.FAILED))
