"""Finds the installed extensions, and their groups of settings.

Commands that serve, run a worker, open a store or read settings call this; `send` and `--version` do not: importing
the extensions takes 0.3 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dragoman.ports.extension import EXTENSION_GROUP, OpenBus, Option, ServerExtension, StoreScheme
from dragoman.settings.options import options_of
from dragoman.settings.sources import SettingsError


@dataclass(frozen=True, slots=True)
class FoundExtension:
    """An entry point: the extension, or why it cannot be used."""

    name: str
    distribution: str  # name and version of the distribution that brings it
    extension: ServerExtension | None
    problem: str = ""


@cache
def found_extensions() -> Sequence[FoundExtension]:
    """All entry points of extensions, by name."""
    return sorted(map(_load, metadata.entry_points(group=EXTENSION_GROUP)), key=lambda found: found.name)


def _load(entry_point: metadata.EntryPoint) -> FoundExtension:
    distribution = f"{entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else "?"
    try:
        extension = entry_point.load()
    except Exception as error:  # of another author's code
        return FoundExtension(entry_point.name, distribution, None, f"{type(error).__name__}: {error}")
    if not isinstance(extension, ServerExtension):
        problem = f"{entry_point.value} is not a dragoman.ports.extension.ServerExtension"
        return FoundExtension(entry_point.name, distribution, None, problem)
    return FoundExtension(extension.name, distribution, extension)


def install_command(requirement: str) -> str:
    """The command that installs the libraries of an extension: of ours from where this distribution came."""
    source = installed_from() if requirement.startswith("dragoman[") else ""
    return f"pip install '{requirement}{f' @ {source}' if source else ''}'"


def installed_from() -> str:
    """Returns the `file:` URL of the folder or wheel from which Dragoman was installed (PEP 610); empty: an index."""
    try:
        record = json.loads(metadata.distribution("dragoman").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return ""
    url = str(record.get("url", ""))
    return url if url.startswith("file:") else ""


@cache
def installed_extensions() -> Sequence[ServerExtension]:
    """The extensions, by name. Raises SettingsError."""
    extensions: list[ServerExtension] = []
    taken: dict[str, str] = {}
    for found in found_extensions():
        if found.extension is None:
            raise SettingsError(
                f"the extension {found.name} of {found.distribution} cannot be loaded: {found.problem}; repair or "
                "uninstall that distribution"
            )
        for claim in _claims(found.extension):
            if (other := taken.setdefault(claim, found.name)) != found.name:
                raise SettingsError(
                    f"the extensions {other} and {found.name} both have the {claim}; uninstall one of them"
                )
        extensions.append(found.extension)
    return extensions


def _claims(extension: ServerExtension) -> Iterator[str]:
    """Names that one extension can have, each with its kind."""
    yield f"name {extension.name}"
    yield from (f"scheme {scheme}://" for scheme in extension.stores)
    yield from (f"scheme {scheme}://" for scheme in extension.buses)
    yield from (f"option --{option.name.replace('_', '-')}" for option, _ in extension_options(extension).values())
    if extension.http is not None:
        yield f"path /{extension.http.name}"


def extension_options(extension: ServerExtension) -> Mapping[str, tuple[Option, FieldInfo]]:
    """The option and the field of each setting, by the field's name. Raises SettingsError."""
    try:
        return options_of(extension.settings) if extension.settings else {}
    except ValueError as error:
        raise SettingsError(f"the extension {extension.name}: {error}") from error


def extension_groups() -> dict[str, type[BaseModel]]:
    """The group of each extension that has settings, by `extensions.NAME`. Raises SettingsError."""
    return {f"extensions.{one.name}": one.settings for one in installed_extensions() if one.settings}


def groups_by_extension(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """From groups that were read, those of the installed extensions, by their names; None without settings."""
    return {one.name: found.get(f"extensions.{one.name}") for one in installed_extensions()}


def used_sources(groups: Mapping[str, Any], app: str) -> list[ServerExtension]:
    """The extensions that bring agents, by their settings or because they recognize APP. groups: by extension."""
    return [
        extension
        for extension in installed_extensions()
        if (sources := extension.agents) is not None
        and (sources.is_used(groups[extension.name]) or sources.recognizes(app))
    ]


def is_recognized(app: str) -> bool:
    """Whether APP is an object that an extension runs as an agent. Raises SettingsError."""
    return any(one.agents is not None and one.agents.recognizes(app) for one in installed_extensions())


def store_schemes() -> dict[str, tuple[ServerExtension, StoreScheme]]:
    """The stores of extensions by the scheme of their URLs. Raises SettingsError."""
    return {scheme: (one, store) for one in installed_extensions() for scheme, store in one.stores.items()}


def bus_schemes() -> dict[str, tuple[ServerExtension, OpenBus]]:
    """How extensions open buses, by the scheme of their URLs. Raises SettingsError."""
    return {scheme: (one, bus) for one in installed_extensions() for scheme, bus in one.buses.items()}


def shared_store_example() -> str:
    """How to choose a store that several servers share, for people. Raises SettingsError."""
    formats = [store.url_format for _, store in store_schemes().values()]
    return f"--store {formats[0]}" if formats else "--store with the URL of an extension, or MODULE:FUNCTION"


def bus_example() -> str:
    """How to choose a bus, for people. Raises SettingsError."""
    scheme = next(iter(bus_schemes()), "")
    return f"--bus {scheme}://HOST" if scheme else "--bus with the URL of an extension"


def flatten_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a settings file, those in `[extensions.NAME]` by the names of their options.

    What is no setting of an extension becomes `extensions.NAME` or `extensions.NAME.KEY`.
    """
    flat = dict(values)
    tables = flat.pop("extensions", {})
    if not isinstance(tables, Mapping):
        return {**flat, "extensions.": tables}
    installed = {extension.name: extension for extension in installed_extensions()}
    for name, table in tables.items():
        if name not in installed or not isinstance(table, Mapping):
            flat[f"extensions.{name}"] = table
            continue
        options = extension_options(installed[name])
        for key, value in table.items():
            field = key.replace("-", "_")
            flat[options[field][0].name if field in options else f"extensions.{name}.{key}"] = value
    return flat
