"""`new`: a folder with an agent, its test and an image; `config init`, `config show`: the settings of a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from pydantic import SecretStr

from dragoman.cli import ExitCode, print_error, print_note
from dragoman.cli.commands import Command, CommandGroup, argument, flag, option
from dragoman.cli.serve.options import serve_options
from dragoman.settings.extensions import flatten_tables, installed_from
from dragoman.settings.settings import Settings, load_settings, secret_options, setting_fields, settings_environment
from dragoman.settings.sources import (
    DEFAULT_CONFIG_FILE,
    ENV_PREFIX,
    read_config_file,
    read_environment,
    read_secret_files,
)
from dragoman.version import __version__

PROJECT_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")

_TEMPLATES: Final = files("dragoman.cli") / "new_project"
_PROJECT_FILES: Final = [
    "agents.py",
    "test_agents.py",
    "pytest.ini",
    "requirements.txt",
    "Dockerfile",
    ".dockerignore",
    ".gitignore",
    "README.md",
]
"""The files of a project. In `new_project/NAME.txt`, words in braces stand for values of the project."""

_INSTALL: Final = "COPY requirements.txt /agents/\nRUN pip install --no-cache-dir -r /agents/requirements.txt"
_INSTALL_WHEEL: Final = """\
# The path in requirements.txt is one of the machine on which this project was made, so its wheel is installed here.
COPY requirements.txt dragoman-*.whl /agents/
RUN sed -i '/^dragoman @ /d' /agents/requirements.txt \\
    && pip install --no-cache-dir /agents/dragoman-*.whl -r /agents/requirements.txt"""
_MAKE_WHEEL: Final = "pip wheel --no-deps --wheel-dir . {source}\n"

NEXT_STEPS: Final = """next:
  cd {folder}
  pytest                              runs the agents in memory (pip install pytest)
  dragoman serve agents.py --reload   serves them, and their console in a browser
  dragoman send hello                 in another terminal: the greeter asks for a name"""


def new(name: Annotated[str, argument("NAME", "The folder to create.")]) -> ExitCode:
    """Create a project: agents, a test that runs them, a Dockerfile and a README.

    **Example**: `dragoman new travel && cd travel && pytest`

    **Exit codes**: 0 created; 2 the name is invalid, or the folder exists.
    """
    folder = Path(name)
    if not PROJECT_NAME.fullmatch(folder.name):
        raise typer.BadParameter(f'"{folder.name}": use a letter, then letters, digits, - and _', param_hint="NAME")
    source = installed_from()
    values = {
        "{name}": folder.name,
        "{image}": folder.name.lower(),
        "{requirement}": f"dragoman @ {source}" if source else f"dragoman=={__version__}",
        "{install}": _INSTALL_WHEEL if source else _INSTALL,
        "{make_wheel}": _MAKE_WHEEL.format(source=source) if source else "",
    }
    try:
        folder.mkdir(parents=True)
        for file in _PROJECT_FILES:
            text = _TEMPLATES.joinpath(f"{file.removeprefix('.')}.txt").read_text("utf-8")
            for placeholder, value in values.items():
                text = text.replace(placeholder, value)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        problem = "already exists" if isinstance(error, FileExistsError) else error.strerror
        return print_error(f"{folder}: {problem}; choose another name", ExitCode.USAGE)
    for file in _PROJECT_FILES:
        typer.echo(folder / file)
    print_note(NEXT_STEPS.format(folder=folder))
    return ExitCode.OK


ConfigFile = Annotated[Path | None, option("--config", "PATH", "A settings file in TOML. [dragoman.toml]")]


def init(config: ConfigFile = None) -> ExitCode:
    """Write a settings file with every setting, its description and its default, all commented out.

    **Example**: `dragoman config init && dragoman serve agents.py`

    **Exit codes**: 0 written; 2 the file exists, or cannot be written.
    """
    file = config or DEFAULT_CONFIG_FILE
    try:
        # A place for tokens and passwords: for its user only, whatever the umask.
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(sample_config())
    except OSError as error:
        problem = "already exists" if isinstance(error, FileExistsError) else error.strerror
        return print_error(f"{file}: {problem}; pass --config PATH", ExitCode.USAGE)
    typer.echo(file)
    return ExitCode.OK


def show(
    config: ConfigFile = None,
    all: Annotated[bool, flag("--all", "Also show settings with their default.")] = False,
    json: Annotated[bool, flag("--json", "Print one JSON object per line.")] = False,
) -> ExitCode:
    """Show the settings that `dragoman serve` would use here, and where each comes from.

    Reads the environment and the settings file, as `serve` does. Secrets are not printed.

    **Example**: `dragoman config show --all`

    **Exit codes**: 0 the settings are valid; 2 they are not.
    """
    settings = load_settings({"config": config})
    rows = [row for row in _effective_settings(settings, config) if all or row.source != "default"]
    for row in rows:
        typer.echo(orjson.dumps(row).decode() if json else f"{row.name:<28}  {_toml(row.value):<32}  {row.source}")
    if not rows and not json:
        print_note("every setting has its default; --all shows them")
    return ExitCode.OK


def sample_config() -> str:
    """The text of a settings file in which every setting is commented out."""
    lines = ["# Settings of `dragoman serve`. Uncomment what differs; `dragoman config show` prints what is in effect."]
    fields = setting_fields()
    for heading, options in serve_options().items():
        lines += ["", f"# ---- {heading or 'Addresses, agents and logs'}"]
        for row in options:
            default = _plain(fields[row.name].default)
            value = row.value if default in (None, "") else default  # what to put there, as the help spells it
            lines += ["", f"# {row.help}", f"#{row.name.replace('_', '-')} = {_toml(value)}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _EffectiveSetting:
    name: str  # as in a settings file
    value: Any  # as written in the file or the environment
    source: str  # a file, a variable, or `default`


def _effective_settings(settings: Settings, config: Path | None) -> Iterator[_EffectiveSetting]:
    fields = setting_fields()
    names = [name for name in fields if name != "config"]
    file, values = read_config_file(config or read_environment(["config"]).get("config"))
    in_environment = settings_environment()
    may_hold_secrets = secret_options()
    in_file = read_secret_files(flatten_tables(values), may_hold_secrets, str)
    for name in names:
        default = fields[name].default
        if name in in_environment:
            value, source = in_environment[name], f"{ENV_PREFIX}{name.upper()}"
        elif name in in_file:
            value, source = in_file[name], str(file)
        else:
            value, source = _plain(default), "default"
        if name == "store":
            value = value if source == "default" else settings.store.name
        elif isinstance(default, SecretStr):
            value = "(hidden)" if value else ""
        elif name in may_hold_secrets and source != "default":
            value = "(hidden)"
        yield _EffectiveSetting(name.replace("_", "-"), value, source)


def _plain(default: Any) -> Any:
    """A default as TOML has it; None for none, and for one without such a form."""
    if isinstance(default, bool | float | str):
        return default
    if isinstance(default, int):
        return int(default)
    if type(default).__name__ == "Address":
        return str(default)
    return None


def _toml(value: Any) -> str:
    """A value of a settings file on one line."""
    return "" if value is None else orjson.dumps(value, default=str).decode()


COMMANDS: Final = {
    "new": Command(new),
    "config": CommandGroup("Write and show the settings of a server.", {"init": Command(init), "show": Command(show)}),
}
