"""Reads settings from files and environment, and explains invalid ones."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

ENV_PREFIX: Final = "DRAGOMAN_"
CLIENT_VARIABLES: Final = frozenset(
    {
        "CA", "CERT", "EXECUTOR", "EXECUTOR_PYTHON", "EXECUTOR_RETRIES", "KEY", "KEY_FILE", "MESSAGE_BYTES", "OTLP",
        "OTLP_HEADERS", "PROFILE", "SERVER",
    }
)  # fmt: skip
"""Variables of commands that are clients, without the prefix. A server leaves them alone: one shell may do both."""

SERVICE_LINK: Final = re.compile(r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""What Kubernetes sets in every pod of a namespace with a Service called `dragoman` or `dragoman-…`."""

DEFAULT_CONFIG_FILE: Final = Path("dragoman.toml")


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


def read_environment(names: Iterable[str]) -> dict[str, str]:
    """The environment's values of these settings, by name.

    Empty variables count as unset, because compose files and systemd units leave them empty.
    """
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    return {name: variables[key] for name in names if (key := ENV_PREFIX + name.upper()) in variables}


def reject_unknown_variables(names: Iterable[str]) -> None:
    """Raises SettingsError for variables with our prefix that name neither a setting nor an option of clients."""
    known = {name.upper() for name in names} | CLIENT_VARIABLES
    lines = []
    for variable in sorted(name for name, value in os.environ.items() if value and name.upper().startswith(ENV_PREFIX)):
        name = variable.upper().removeprefix(ENV_PREFIX)
        if name in known or SERVICE_LINK.fullmatch(name):
            continue
        similar = difflib.get_close_matches(name, sorted(known), 1)
        hint = f"did you mean {ENV_PREFIX}{similar[0]}?" if similar else ""
        remedy = hint or "unset it; `dragoman serve --help` lists the settings"
        lines.append(f"{variable} (environment): is not a setting; {remedy}")
    if lines:
        raise SettingsError("\n".join(lines))


def explain_setting_error(
    fields: Mapping[str, FieldInfo],
    item: ErrorDetails,
    arguments: Mapping[str, Any],
    file: Path | None,
    *,
    in_code: bool = False,
) -> str:
    """One line about an invalid value: its name as the source spells it, the source, and the rule.

    `arguments` are the values of the command line, or `in_code` of a function; `file` is the TOML file that was read.
    """
    name = str(item["loc"][0])
    option = "--" + name.replace("_", "-")
    if name not in fields:
        names = ", ".join(sorted(set(fields) - {"config"}))
        source = "given in code" if name in arguments or file is None else str(file)
        return f"{name}: is not a setting ({source}); settings are {names}"
    if name in arguments:
        source = f"{name} (argument)" if in_code else f"{'APP' if name == 'app' else option} (command line)"
    elif read_environment([name]):
        source = f"{ENV_PREFIX}{name.upper()} (environment)"
    else:
        source = f"{name} ({file or 'default'})"
    if item["type"] == "value_error":
        return f"{source}: {item['ctx']['error']}"
    if isinstance(fields[name].default, SecretStr):
        return f"{source}: must be a text"
    return f'{source}: "{item["input"]}" {item["msg"].replace("Input should be", "must be")}'
