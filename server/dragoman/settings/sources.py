"""Reads settings from files and environment, and explains invalid ones."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dragoman.calling.secret_files import read_secret
from dragoman.core.names import nearest

ENV_PREFIX: Final = "DRAGOMAN_"
CLIENT_VARIABLES: Final = frozenset(
    {
        "CA", "CERT", "EXECUTOR", "EXECUTOR_ENV", "EXECUTOR_PYTHON", "EXECUTOR_RETRIES", "KEY", "KEY_FILE",
        "MESSAGE_BYTES", "OTLP", "OTLP_HEADERS", "PROFILE", "SERVER",
    }
)  # fmt: skip
"""Variables of commands that are clients, without the prefix. A server leaves them alone: one shell may do both."""

SERVICE_LINK: Final = re.compile(r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Variables that Kubernetes sets in every pod of a namespace with a Service called `dragoman` or `dragoman-…`."""

DEFAULT_CONFIG_FILE: Final = Path("dragoman.toml")

COMMAND_LINE_ONLY: Final = frozenset({"reload"})  # options of `serve` that are not settings

_TYPE_RULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "is not an integer"),
    **dict.fromkeys(("float_parsing", "float_type"), "is not a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "byte_size": "is not a size, such as 16MiB",
    "byte_size_unit": "has no known unit; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 16MiB",
}
"""Texts of errors in values, by pydantic's type of the error; its own text stands for the others."""


class SettingsError(Exception):
    """Invalid settings; the text has one line for each, with its name, its source and the rule."""


def read_config_file(config: str | Path | None) -> tuple[Path | None, dict[str, Any]]:
    """The path and values of the TOML file; (None, {}) without `config` and without a default file.

    Keys may be written with `-` or `_`. Raises SettingsError for a missing or invalid file.
    """
    file = Path(config or DEFAULT_CONFIG_FILE)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not config:
            return None, {}
        raise SettingsError(f"--config: file {file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: is not valid TOML: {error}") from error
    return file, {key.replace("-", "_"): value for key, value in values.items()}


def read_environment(names: Iterable[str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """The environment's values of these settings, by name. Those of `secrets` may be in a file that a variable names.

    Empty variables count as unset, because compose files and systemd units leave them empty. Raises SettingsError.
    """
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    names = (*names, *map(file_setting, secrets))
    values = {name: variables[key] for name in names if (key := ENV_PREFIX + name.upper()) in variables}
    return read_secret_files(values, secrets, lambda name: f"{ENV_PREFIX}{name.upper()} (environment)")


def file_setting(name: str) -> str:
    """The name under which each source takes the path of a file with the value of a setting that may hold secrets."""
    return f"{name}_file"


def read_secret_files(values: Mapping[str, Any], secrets: Iterable[str], spell: Callable[[str], str]) -> dict[str, Any]:
    """The values of one source, with the text of files in place of their paths. `spell` names a setting and the source.

    Raises SettingsError.
    """
    read = dict(values)
    for name, file in [(name, file) for name in secrets if (file := file_setting(name)) in read]:
        if name in read:
            raise SettingsError(f"{spell(file)}: {spell(name).partition(' ')[0]} is set, too; remove one")
        try:
            if not isinstance(path := read.pop(file), str | Path):
                raise ValueError("must be the path of a file, in quotes")
            read[name] = read_secret(path)
        except ValueError as error:
            raise SettingsError(f"{spell(file)}: {error}") from error
    return read


def reject_unknown_variables(names: Iterable[str], secrets: Iterable[str]) -> None:
    """Raises SettingsError for variables with our prefix that name neither a setting nor an option of clients."""
    known = {name.upper() for name in (*names, *map(file_setting, secrets))} | CLIENT_VARIABLES
    lines = []
    for variable in sorted(name for name, value in os.environ.items() if value and name.upper().startswith(ENV_PREFIX)):
        name = variable.upper().removeprefix(ENV_PREFIX)
        if name in known or SERVICE_LINK.fullmatch(name):
            continue
        lines.append(f"{variable} (environment): {_explain_unknown_name(name, known, ENV_PREFIX)}")
    if lines:
        raise SettingsError("\n".join(lines))


def _explain_unknown_name(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Why a name, without its prefix, is not one of the known ones, and what to do."""
    if name.lower() in COMMAND_LINE_ONLY:
        return f"exists on the command line only: --{name.lower()}"
    near = nearest(name, known)
    advice = f"did you mean {prefix}{near}?" if near else "remove it; `dragoman serve --help-all` lists them"
    return f"is not a setting; {advice}"


def explain_setting_error(
    fields: Mapping[str, FieldInfo],
    item: ErrorDetails,
    arguments: Mapping[str, Any],
    file: Path | None = None,
    in_file: Container[str] = (),
    *,
    in_code: bool = False,
) -> str:
    """One line about an invalid value: its name as the source spells it, the source, and the rule.

    `arguments` are the values of the command line, or `in_code` of a function; `file` is the TOML file that was read,
    and `in_file` its names. A secret of a file is named as the setting with the path of that file.
    """
    name = str(item["loc"][0])
    if name not in fields:
        source = "argument" if name in arguments else file
        return f"{name} ({source}): {_explain_unknown_name(name, set(fields) - {'config'})}"
    if given := {name, file_setting(name)} & set(arguments):
        spelled = max(given)
        option = "APP" if name == "app" else "--" + spelled.replace("_", "-")
        source = f"{spelled} (argument)" if in_code else f"{option} (command line)"
    elif given := {ENV_PREFIX + one.upper() for one in (name, file_setting(name))} & {
        key.upper() for key, value in os.environ.items() if value
    }:
        source = f"{min(given)} (environment)"
    else:
        spelled = file_setting(name) if file_setting(name) in in_file else name
        source = f"{spelled.replace('_', '-')} ({file or 'default'})"
    if item["type"] == "value_error":
        return f"{source}: {item['ctx']['error']}"
    if isinstance(fields[name].default, SecretStr):
        return f"{source}: must be a text"
    rule = _TYPE_RULES.get(item["type"]) or item["msg"].replace("Input should be", "must be")
    return f'{source}: "{item["input"]}" {rule}'
