"""`A2A-Version`: what a caller may name (A2A 1.0 §3.6).

A call is served by its shape: the service or the path says which generation it is. The specification's own
examples send 1.0 calls under `A2A-Version: 0.3`, and most clients send none, so a version is only looked at to
refuse one that we do not know, to choose 1.0 on Google's resource paths, and to choose among dialects whose calls
look alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dragoman.bindings.cards import Cards
from dragoman.core.cards.agent_spec import RESUME_EXTENSION, SERVER_EXTENSIONS, with_cursor
from dragoman.core.errors import VersionNotSupported
from dragoman.core.task.log import Event
from dragoman.wire.dialects import Dialect

VERSION_HEADER: Final = "A2A-Version"
SUPPORTED_VERSIONS: Final = ("1.0", "0.3", "0.2", "0.1")

# `Major.Minor`, and a patch that means nothing. Later minors of 1 are compatible by the promise of the number.
_VERSION_PATTERN: Final = re.compile(r"1(\.[0-9]{1,9}){0,2}|0\.[123](\.[0-9]{1,9})?")


def check_version(values: Iterable[str]) -> str:
    """Looks at every value given, each possibly a list, and gives the version named, as it was written.

    Several are there when a client library adds its own to its caller's; 1.x goes before the others. Empty when
    none is named. Raises VersionNotSupported for the first that is named and unknown.
    """
    named = ""
    for value in values:
        for version in map(str.strip, value.split(",")):
            if not version:
                continue
            if not _VERSION_PATTERN.fullmatch(version):
                raise VersionNotSupported(
                    f'{VERSION_HEADER}: "{version[:40]}" is not supported; use one of {", ".join(SUPPORTED_VERSIONS)}',
                    metadata={"supported": ", ".join(SUPPORTED_VERSIONS)},
                )
            if not named or not named.startswith("1"):
                named = version
    return named


def minor_version(version: str) -> str:
    """`Major.Minor` of a version that `check` gave: patches mean nothing."""
    return ".".join(version.split(".")[:2])


EXTENSIONS_HEADER: Final = "A2A-Extensions"
V03_EXTENSIONS_HEADER: Final = "X-A2A-Extensions"


def event_adapter(uris: Sequence[str]) -> Callable[[Event], Event]:
    """What makes an event what a caller who named these extensions is shown."""
    return with_cursor if RESUME_EXTENSION.uri in uris else unchanged


def unchanged(event: Event) -> Event:
    """What is shown to a caller who named none of them."""
    return event


def requested_extensions(headers: Any) -> tuple[str, ...]:
    """The URIs that a caller names, in a multidict of HTTP headers."""
    values = [*headers.getall(EXTENSIONS_HEADER, ()), *headers.getall(V03_EXTENSIONS_HEADER, ())]
    return split_extensions(values)


def split_extensions(values: Sequence[str]) -> tuple[str, ...]:
    """The URIs in values that may each be a list."""
    return tuple(dict.fromkeys(uri for value in values for uri in map(str.strip, value.split(",")) if uri))


def activated_extensions(uris: Sequence[str], cards: Cards, agent: str) -> str:
    """The header's value for what is activated; empty for nothing."""
    spec = cards.agents.get(agent)
    if not uris or spec is None:
        return ""
    declared = {extension.uri for extension in (*spec.extensions, *SERVER_EXTENSIONS)}
    return ", ".join(uri for uri in uris if uri in declared)


def activation_headers(uris: Sequence[str], cards: Cards, agent: str, dialect: Dialect) -> Mapping[str, str]:
    """The header that names what is activated; none when nothing is."""
    value = activated_extensions(uris, cards, agent)
    if not value:
        return {}
    return {EXTENSIONS_HEADER if dialect in (Dialect.V1, Dialect.RUST) else V03_EXTENSIONS_HEADER: value}
