"""Where settings are read from, and how a wrong one is told of: by the name that its source gives it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

ENV_PREFIX: Final = "DRAGOMAN_"
DEFAULT_CONFIG_FILE: Final = Path("dragoman.toml")


class SettingsError(Exception):
    """Settings that cannot be used: a line for each, with its name, the rule, and where the value came from."""


def read_config_file(config: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """The TOML file that counts and what it says; (None, {}) when there is none and none was asked for.

    Keys may be written with `-` or `_`. Raises SettingsError for a file that is missing or is no TOML.
    """
    file = config or DEFAULT_CONFIG_FILE
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if config is None:
            return None, {}
        raise SettingsError(f"--config: there is no file {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: is no TOML: {error}") from error
    return file, {key.replace("-", "_"): value for key, value in said.items()}


def has_environment_settings() -> bool:
    """Whether the environment says anything of any setting."""
    return any(key.upper().startswith(ENV_PREFIX) for key in os.environ)


def environment_value(name: str) -> str | None:
    """What the environment says of a setting; None for nothing, which an empty variable says, too."""
    wanted = ENV_PREFIX + name.upper()
    return next((value for key, value in os.environ.items() if key.upper() == wanted and value), None)


def explain_setting_error(
    fields: Mapping[str, FieldInfo], item: ErrorDetails, arguments: Mapping[str, Any], file: Path | None
) -> str:
    """One line on one wrong value: its name as the source spells it, the rule, and the source.

    `arguments` is what the command line said, `file` the TOML file that was read.
    """
    name = str(item["loc"][0])
    option = "--" + name.replace("_", "-")
    if name not in fields:
        known = ", ".join(sorted(set(fields) - {"config"}))
        return f"{name}: is no setting ({file or 'given in code'}); there are {known}"
    if name in arguments:
        source = f"{'APP' if name == 'app' else option} (command line)"
    elif environment_value(name) is not None:
        source = f"{ENV_PREFIX}{name.upper()} (environment)"
    else:
        source = f"{name} ({file or 'default'})"
    if item["type"] == "value_error":
        return f"{source}: {item['ctx']['error']}"
    if isinstance(fields[name].default, SecretStr):
        return f"{source}: must be a text"
    return f'{source}: "{item["input"]}" {item["msg"].replace("Input should be", "must be")}'
