"""Profiles of `dragoman login`: servers, each with the API key for it, of one user of this machine.

Keys are in the system's keyring if the library `keyring` is installed and finds one, otherwise in the file of the
profiles, which only its owner can read.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import typer

DEFAULT_PROFILE: Final = "default"
KEYRING_SERVICE: Final = "dragoman"
PROFILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ProfileError(typer.BadParameter):
    """The profiles cannot be read or written. The text says what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(text, param_hint="--profile")


@dataclass(frozen=True, slots=True)
class Profile:
    """A server and how to call it. `key` is empty without one, and if the keyring has it."""

    server: str
    key: str = ""
    in_keyring: bool = False
    ca: str = ""  # the absolute path of a PEM file, as of `--ca`
    cert: str = ""

    @property
    def key_place(self) -> str:
        """Where the key is: `keyring`, `file` or `none`."""
        return "keyring" if self.in_keyring else "file" if self.key else "none"

    def read_key(self, name: str) -> str:
        """The key of the profile with this name. Raises ProfileError if the keyring does not have it."""
        if not self.in_keyring:
            return self.key
        try:
            key = import_module("keyring").get_password(KEYRING_SERVICE, name)
        except Exception as error:  # backends raise errors of their own
            raise ProfileError(
                f"the keyring does not give the key of profile {name}: {error}; {_log_in(name)}"
            ) from error
        if not key:
            raise ProfileError(f"the keyring has no key for profile {name}; {_log_in(name)}")
        return str(key)


def _log_in(name: str) -> str:
    return f"run: dragoman login --profile {name}"


def profiles_file() -> Path:
    """The file of the profiles, in the folder that the XDG Base Directory Specification names."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".config") / "dragoman" / "profiles.json"


def read_profiles() -> dict[str, Profile]:
    """All profiles by name; none without a file. Raises ProfileError."""
    file = profiles_file()
    try:
        return {name: Profile(**fields) for name, fields in json.loads(file.read_text(encoding="utf-8")).items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ProfileError(f"{file}: {error.strerror or error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ProfileError(f"{file} is not a file of profiles; delete it, and log in again") from error


def find_profile(name: str) -> tuple[str, Profile] | None:
    """The profile that applies, with its name: the named one, else `default`; None if neither is there.

    Raises ProfileError for a name without a profile.
    """
    profiles = read_profiles()
    if name and name not in profiles:
        known = f"there are {', '.join(sorted(profiles))}" if profiles else "there are none"
        raise ProfileError(f'no profile "{name}"; {known}; {_log_in(name)}')
    name = name or DEFAULT_PROFILE
    return (name, profiles[name]) if name in profiles else None


def save_profile(name: str, profile: Profile) -> Profile:
    """Stores a profile, and its key in the keyring if possible. Returns it as stored. Raises ProfileError."""
    stored = profile
    if profile.key and _keyring_call("set_password", name, profile.key):
        stored = Profile(profile.server, "", True, profile.ca, profile.cert)
    _write({**read_profiles(), name: stored})
    return stored


def delete_profile(name: str) -> bool:
    """Deletes a profile and its key. Returns whether it was there. Raises ProfileError."""
    profiles = read_profiles()
    profile = profiles.pop(name, None)
    if profile is None:
        return False
    if profile.in_keyring:
        _keyring_call("delete_password", name)
    _write(profiles)
    return True


def _keyring_call(method: str, name: str, *arguments: str) -> bool:
    """Calls the keyring. Returns False if there is none, or if it fails."""
    if find_spec("keyring") is None:
        return False
    try:
        getattr(import_module("keyring"), method)(KEYRING_SERVICE, name, *arguments)
    except Exception:  # backends raise errors of their own; a machine without a desktop often has no usable one
        return False
    return True


def _write(profiles: Mapping[str, Profile]) -> None:
    """Replaces the file at once, so that no other process reads half of it."""
    file = profiles_file()
    fields: dict[str, dict[str, Any]] = {
        name: {key: value for key, value in asdict(profile).items() if value} for name, profile in profiles.items()
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=".profiles-")  # with mode 600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(fields, indent=2) + "\n")
            os.replace(temporary, file)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ProfileError(f"{file} cannot be written: {error.strerror or error}") from error
